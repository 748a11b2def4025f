"""The limit on steps per second that follows from the measured parts, and its cause. Pure arithmetic."""

from collections.abc import Iterable
from typing import NamedTuple

from monobeast.costs.parts import Part


class Costs(NamedTuple):
    """Seconds of wall time per agent step, for each part."""

    actor: float
    learner: float  # of its own cores: all of an update on the CPU; where a GPU updates, what goes on around it
    gpu: float
    copies: float = 0.0  # to the GPU, beside its updates

    @classmethod
    def of(cls, parts: Iterable[Part]) -> "Costs":
        """Adds up the parts by where they run."""
        by_place = dict.fromkeys(("actors", "learner", "GPU", "copies"), 0.0)
        for part in parts:
            by_place[part.place] += part.seconds_per_step
        return cls(by_place["actors"], by_place["learner"], by_place["GPU"], by_place["copies"])


class Bound(NamedTuple):
    """One limit."""

    what: str  # "actors", "learner", "GPU", "copies" or "cores"
    steps_per_second: float
    formula: str  # with the numbers in it


def find_bounds(costs: Costs, num_actors: int, num_learner_threads: int, cores: int) -> list[Bound]:
    """All bounds on steps per second; the smallest is the limit.

    Each actor and each learner thread uses at most one core; together they use no more than the machine has. A thread
    that waits for other learner threads or for the GPU keeps its core busy. A GPU runs updates and copies batches while
    the learner's core assembles the next batch.

    Args:
        costs: Per step.
        num_actors: With 0 the learner's process collects rollouts, alternating with updates.
        num_learner_threads: On the CPU; beside a GPU the learner needs one core.
        cores: Of the machine.
    """
    if num_actors == 0:
        whole = sum(costs)
        return [Bound("learner", 1 / whole, f"1 / {_ms(whole)}, all by turns in one process")]
    threads = num_learner_threads if costs.gpu == 0 else 1
    threads = min(threads, cores)
    sides = {"learner": costs.learner, "GPU": costs.gpu, "copies": costs.copies}
    slowest, learner = max(sides.items(), key=lambda side: side[1])  # for which the learner's core is kept busy
    bounds = [
        Bound("actors", num_actors / costs.actor, f"{num_actors} / {_ms(costs.actor)}"),
        Bound(slowest, 1 / learner, f"1 / {_ms(learner)}"),
        Bound(
            "cores",
            cores / (costs.actor + threads * learner),
            f"{cores} / ({_ms(costs.actor)} + {threads} x {_ms(learner)})",
        ),
    ]
    return bounds


def find_limit(bounds: list[Bound]) -> Bound:
    """The smallest bound."""
    return min(bounds, key=lambda bound: bound.steps_per_second)


def foretell(costs: Costs, num_learner_threads: int, cores: int) -> Bound:
    """The limit with an actor on every core but the learner's: a prediction for more cores of this kind."""
    threads = num_learner_threads if costs.gpu == 0 else 1
    num_actors = max(1, cores - threads)
    return find_limit(find_bounds(costs, num_actors, num_learner_threads, cores))


def _ms(seconds: float) -> str:
    return f"{1000 * seconds:.3g} ms"

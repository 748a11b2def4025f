"""How many steps a second the measured parts allow at most, and what sets that limit. Arithmetic alone."""

from collections.abc import Iterable
from typing import NamedTuple

from monobeast.costs.parts import Part


class Costs(NamedTuple):
    """Seconds of wall time that one agent step takes from each."""

    actor: float
    learner: float  # of its own cores: all of an update on the CPU; where a GPU updates, what goes on around it
    gpu: float
    copies: float = 0.0  # to the GPU, beside its updates

    @classmethod
    def of(cls, parts: Iterable[Part]) -> "Costs":
        """Adds the parts up by their place."""
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
    """Every bound on steps a second; the least is the limit.

    An actor has a core at most, and so has each thread of the learner; together they have no more than there are. A
    thread that waits for the others of its team, or for the GPU, keeps its core busy meanwhile. A GPU updates, and
    batches are copied to it, while the learner's core assembles the next one.

    Args:
        costs: Of one step.
        num_actors: 0: the learner's own process collects, by turns with the updates.
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
    """The bound that binds."""
    return min(bounds, key=lambda bound: bound.steps_per_second)


def foretell(costs: Costs, num_learner_threads: int, cores: int) -> Bound:
    """The limit where every core that the learner leaves has an actor: what more cores of this kind would give."""
    threads = num_learner_threads if costs.gpu == 0 else 1
    num_actors = max(1, cores - threads)
    return find_limit(find_bounds(costs, num_actors, num_learner_threads, cores))


def _ms(seconds: float) -> str:
    return f"{1000 * seconds:.3g} ms"

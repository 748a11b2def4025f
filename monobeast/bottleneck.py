"""The bottleneck of a run: which side waits for the other, and which flags to change. Pure; callers read the clocks."""

from typing import NamedTuple, Self

from monobeast.config import Config

# Shares of two sides that differ by less are alike: on two cores they differ by as much from one interval to the next.
_ALIKE = 0.1
_COPIES_BIND = 0.5  # of the learner's time at work
_MUCH = 0.25  # waiting of both sides that better timing could save


class Times(NamedTuple):
    """Seconds so far, by use."""

    actors_working: float = 0.0  # of all actors together, in rollouts that have come
    actors_waiting: float = 0.0  # for a slot
    learner_waiting: float = 0.0  # for a rollout
    copying: float = 0.0  # slots into batches, batches to the device: the learner's own time
    clock: float = 0.0  # the time now, by any clock

    def since(self, before: Self) -> "Times":
        """The times added since `before`."""
        return Times(*(now - then for now, then in zip(self, before, strict=True)))


class Shares(NamedTuple):
    """The same as shares of the elapsed time, 0 to 1; None if there was none. Columns of logs.csv."""

    actor_wait_share: float | None = None
    learner_wait_share: float | None = None
    copy_share: float | None = None

    @classmethod
    def of(cls, times: Times) -> "Shares":
        """The actors' waiting as a share of all actors' time, the rest as shares of the learner's."""
        of_actors = times.actors_working + times.actors_waiting
        if of_actors <= 0 or times.clock <= 0:
            return cls()
        parts = (times.actors_waiting / of_actors, times.learner_waiting / times.clock, times.copying / times.clock)
        return cls(*(min(1.0, max(0.0, share)) for share in parts))


class ShareMeter:
    """Shares since the last reading and since the first update; the actors' startup does not count as waiting."""

    def __init__(self) -> None:
        self._first: Times | None = None
        self._last: Times | None = None

    def start(self, now: Times) -> None:
        """Starts counting, unless it has started."""
        if self._first is None:
            self._first = self._last = now

    def read(self, now: Times) -> Shares:
        """Shares since the last call, or the start."""
        if self._last is None:
            return Shares()
        shares, self._last = Shares.of(now.since(self._last)), now
        return shares

    def total(self) -> tuple[Shares, float]:
        """Shares from the start to the last reading, and the length of that time in seconds."""
        if self._first is None or self._last is None:
            return Shares(), 0.0
        passed = self._last.since(self._first)
        return Shares.of(passed), passed.clock


def judge(shares: Shares) -> str | None:
    """The bottleneck: the side that hardly waits while the other does.

    Returns:
        "learner-bound", "actor-bound", "copy-bound" (learner-bound, and the learner mostly copies), or "balanced"; None
        if nothing was measured.
    """
    if shares.actor_wait_share is None or shares.learner_wait_share is None or shares.copy_share is None:
        return None
    lead = shares.actor_wait_share - shares.learner_wait_share
    if abs(lead) < _ALIKE:
        return "balanced"
    if lead < 0:
        return "actor-bound"
    is_copying = shares.copy_share > _COPIES_BIND * (1 - shares.learner_wait_share)
    return "copy-bound" if is_copying else "learner-bound"


def advise(shares: Shares, config: Config, cores: int) -> str | None:
    """The bottleneck of a run and what to change, in one line; None if nothing was measured.

    Args:
        shares: Of the whole run.
        config: Resolved.
        cores: Of the machine.
    """
    verdict = judge(shares)
    if verdict is None:
        return None
    waited = (
        f"actors waited {shares.actor_wait_share:.0%} of their time for slots, the learner "
        f"{shares.learner_wait_share:.0%} for rollouts, copies took {shares.copy_share:.0%}"
    )
    ways = _find_ways(verdict, shares, config, cores)
    return f"{verdict}: {waited}; to go faster: {', or '.join(ways) or 'more cores'}"


def _find_ways(verdict: str, shares: Shares, config: Config, cores: int) -> list[str]:
    spare_cores = cores - config.num_actors - (config.num_learner_threads if config.device == "cpu" else 1)
    bfloat16 = ["--precision bfloat16"] if config.precision == "float32" and config.network != "mlp" else []
    more_envs = _double(config, "envs_per_actor", config.batch_size)
    if verdict == "copy-bound":
        return more_envs
    if verdict == "learner-bound":
        more_threads = [f"--num_learner_threads {config.num_learner_threads + 1}"]
        larger_batch = _double(config, "batch_size", config.envs_per_actor)
        return bfloat16 + (more_threads if spare_cores > 0 and config.device == "cpu" else []) + larger_batch
    more_actors = [f"--num_actors {config.num_actors + 1}"] if spare_cores > 0 or config.num_actors == 0 else []
    if verdict == "actor-bound":
        return more_envs + more_actors + bfloat16
    if config.num_actors and min(shares.actor_wait_share or 0, shares.learner_wait_share or 0) > _MUCH:
        return [f"--num_buffers {2 * config.num_buffers}"]  # they wait for each other by turns
    return bfloat16 + more_envs + more_actors


def _double(config: Config, name: str, other: int) -> list[str]:
    """A flag with its value doubled; none if neither of columns and batch would then divide the other."""
    value = 2 * getattr(config, name)
    return [f"--{name} {value}"] if value % other == 0 or other % value == 0 else []

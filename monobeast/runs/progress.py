"""A run's progress, reported once per interval."""

import datetime
import math
from typing import NamedTuple

RECENT_EPISODES = 100  # of which a mean return is, or of all where there were fewer
_LONGEST_WAIT_S = 1e9  # thirty years; beyond it an estimate says nothing


class Progress(NamedTuple):
    """The state of a run at the end of an interval; as text, the interval's line in `out.log`.

    As a log message it keeps its numbers, so that a handler can show them differently.
    """

    step: int
    total_steps: int
    steps_per_second: float | None = None  # over the interval; None where there was nothing to measure
    mean_return: float | None = None  # of the last 100 episodes; None before the first
    num_recent_episodes: int = 0  # which the mean is over
    num_episodes: int = 0
    total_loss: float | None = None  # as the next two, mean over the updates of the interval; None without one
    entropy: float | None = None  # nats
    policy_lag: float | None = None  # updates
    verdict: str | None = None  # the bottleneck, from `bottleneck.judge`

    @property
    def seconds_left(self) -> int | None:
        """Seconds to the end at the interval's speed; None if unknown."""
        if not self.steps_per_second:
            return None
        seconds = max(0, self.total_steps - self.step) / self.steps_per_second
        return math.ceil(seconds) if seconds < _LONGEST_WAIT_S else None

    def __str__(self) -> str:
        share = min(1.0, self.step / self.total_steps)  # the last batch may go beyond
        parts = [f"step {self.step:,} of {self.total_steps:,} ({share:.1%})"]
        if self.steps_per_second is not None:
            parts.append(f"{self.steps_per_second:,.0f} steps/s")
        if self.seconds_left is not None:
            parts.append(f"{datetime.timedelta(seconds=self.seconds_left)} to go")
        parts.append(self._describe_return())
        if self.total_loss is not None:
            parts.append(f"loss {self.total_loss:.3f}, entropy {self.entropy:.3f}, lag {self.policy_lag:.1f}")
        return ", ".join(parts + ([self.verdict] if self.verdict else []))

    def _describe_return(self) -> str:
        if self.mean_return is None:
            return "no episode ended yet"
        return f"return {self.mean_return:.2f} (last {self.num_recent_episodes} of {self.num_episodes:,} episodes)"

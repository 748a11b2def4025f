"""A run's records: `logs.csv`, `episodes.csv`, and one line per interval."""

import time
from collections import deque
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor, nn

from monobeast.bottleneck import Shares, judge
from monobeast.health import FEATURE_COLUMNS, VTRACE_COLUMNS, dead_units_columns, summarize
from monobeast.learner import Learner
from monobeast.rollouts import Rollout
from monobeast.runs.console import logger
from monobeast.runs.csv_file import CsvFile
from monobeast.runs.progress import RECENT_EPISODES, Progress
from monobeast.runs.sinks import Sinks

LOG_COLUMNS = (
    "step",
    "environment_steps",
    "updates",
    "seconds",
    "steps_per_second",
    "learning_rate",
    "episodes",
    "mean_episode_return",
    "mean_episode_length",
    "total_loss",
    "pg_loss",
    "baseline_loss",
    "entropy_loss",
    "entropy",
    "grad_norm",
    "policy_lag_mean",
    "policy_lag_max",
    "actor_restarts",
    "bad_updates",
    *Shares._fields,
    *VTRACE_COLUMNS,
    *FEATURE_COLUMNS,
)  # and health.dead_units_columns of the network
EPISODE_COLUMNS = ("step", "actor", "env", "episode_return", "episode_length")


class Averages:
    """Averages statistics over many updates, waiting for the device only when they are read."""

    def __init__(self) -> None:
        self._sums: dict[str, Tensor] = {}
        self._count: Tensor | int = 0

    def add(self, statistics: dict[str, Tensor], is_good: Tensor | bool = True) -> None:
        """Adds the statistics of one update, 0-dim tensors, which count only if it `is_good`."""
        for name, value in statistics.items():
            # No product: infinity times 0 is no number.
            value = value.masked_fill(~torch.as_tensor(is_good, device=value.device), 0)
            if name not in self._sums:
                self._sums[name] = value.clone()
            elif name.endswith("_max"):
                self._sums[name] = self._sums[name].maximum(value)
            else:
                self._sums[name] = self._sums[name] + value
        self._count = self._count + is_good

    def pop(self) -> dict[str, float]:
        """Means since the last call, and maxima of those whose name ends in `_max`; empty without an update."""
        sums, count = self._sums, int(self._count)
        self._sums, self._count = {}, 0
        if not count:
            return {}
        return {name: value.item() / (1 if name.endswith("_max") else count) for name, value in sums.items()}


class RunLog:
    """Collects statistics of updates and episodes, and writes one row per interval. A context manager.

    Args:
        folder: Of the run.
        network: Its ReLUs give columns of `logs.csv`.
        total_steps: Of the run, for its progress.
        interval_s: Seconds between two rows.
        state: The `state_dict` of an earlier start at `state["step"]`, if the run is resumed.
        sinks: Also get the rows of `logs.csv`.
    """

    def __init__(
        self,
        folder: Path,
        network: nn.Module,
        total_steps: int,
        interval_s: float,
        state: dict[str, Any] | None = None,
        sinks: Sinks = Sinks(),
    ) -> None:
        self._sinks = sinks
        self._columns = (*LOG_COLUMNS, *dead_units_columns(network))
        up_to_step = state["step"] if state else None
        self._rows = CsvFile(folder / "logs.csv", self._columns, up_to_step)
        self._episode_rows = CsvFile(folder / "episodes.csv", EPISODE_COLUMNS, up_to_step)
        self._total_steps = total_steps
        self._interval_s = interval_s
        self._averages = Averages()
        self._recent_returns: deque[float] = deque(maxlen=RECENT_EPISODES)
        self._interval_episodes: list[tuple[float, int]] = []
        self._start = self._last_write = time.monotonic()
        self._rate_from: tuple[float, int] | None = None  # time and step from which the next row's rate counts
        self.last_step = 0  # of the last row
        self.environment_steps = 0
        self.num_episodes = 0
        if state:
            self._recent_returns.extend(state["recent_returns"])
            self._start -= state["seconds"]
            self.last_step = state["step"]
            self.environment_steps, self.num_episodes = state["environment_steps"], state["num_episodes"]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._rows.close()
        self._episode_rows.close()

    def state_dict(self, step: int) -> dict[str, Any]:
        """Plain values for a later start at `step`."""
        return {
            "step": step,
            "seconds": time.monotonic() - self._start,
            "environment_steps": self.environment_steps,
            "num_episodes": self.num_episodes,
            "recent_returns": list(self._recent_returns),
        }

    def flush(self) -> None:
        """Writes the episodes so far to their file."""
        self._episode_rows.flush()

    @property
    def mean_return(self) -> float | None:
        """Mean return of the last 100 episodes, or of all if there are fewer; None before the first."""
        return _mean(list(self._recent_returns))

    def record(self, batch: Rollout, statistics: dict[str, Tensor], step: int) -> None:
        """Records one update: its batch (on the CPU), its statistics, and the step after it."""
        if self._rate_from is None:
            self._rate_from = (time.monotonic(), step)  # the actors' start is not to be taken for slow steps
        statistics = dict(statistics)
        is_good = statistics.pop("is_good", True)
        self._averages.add(statistics, is_good)
        self.environment_steps += int((~batch.is_reset).sum())
        for t, column in batch.done.nonzero().tolist():
            episode_return, length = float(batch.episode_return[t, column]), int(batch.episode_length[t, column])
            actor, env = int(batch.actor[0, column]), int(batch.env[0, column])
            self._episode_rows.write((step, actor, env, episode_return, length))
            self._recent_returns.append(episode_return)
            self._interval_episodes.append((episode_return, length))
            self.num_episodes += 1

    @property
    def is_due(self) -> bool:
        """Whether an interval has passed since the last row."""
        return time.monotonic() - self._last_write >= self._interval_s

    def write_row(
        self, learner: Learner, actor_restarts: int, batch: Rollout | None = None, shares: Shares = Shares()
    ) -> None:
        """Writes a row of `logs.csv` if there was an update since the last one, and reports progress.

        Args:
            learner: Whose numbers are written.
            actor_restarts: So far.
            batch: For the features; None leaves them out.
            shares: Shares of time spent waiting in the interval.
        """
        now = time.monotonic()
        rate = self._measure_rate(now, learner.step)
        returns, lengths = [e[0] for e in self._interval_episodes], [e[1] for e in self._interval_episodes]
        averages = self._averages.pop()
        row = averages | {
            "step": learner.step,
            "environment_steps": self.environment_steps,
            "updates": learner.num_updates,
            "seconds": now - self._start,
            "steps_per_second": rate,
            "learning_rate": learner.learning_rate,
            "episodes": self.num_episodes,
            "mean_episode_return": _mean(returns),
            "mean_episode_length": _mean(lengths),
            "actor_restarts": actor_restarts,
            "bad_updates": learner.faults.num_bad,
        }
        row |= shares._asdict()
        row |= summarize(averages) if averages else {}
        row |= learner.measure_features(batch) if batch is not None else {}
        if learner.step > self.last_step:  # else there was no update, as while actors start
            cells = {name: row.get(name) for name in self._columns}
            self._rows.write(cells.values())
            self._rows.flush()
            self._sinks.write(cells)
        self.flush()
        logger.info(self._make_progress(row, judge(shares)))
        self._last_write, self.last_step, self._interval_episodes = now, learner.step, []

    def _measure_rate(self, now: float, step: int) -> float | None:
        """Steps per second since the last row, or else the first update; None before a second update."""
        since, first_step = self._rate_from or (now, step)
        if self._rate_from is not None:
            self._rate_from = (now, step)
        is_measured = step > first_step or step == self.last_step
        return (step - first_step) / (now - since) if now > since and is_measured else None

    def _make_progress(self, row: dict[str, Any], verdict: str | None) -> Progress:
        return Progress(
            step=row["step"],
            total_steps=self._total_steps,
            steps_per_second=row["steps_per_second"],
            mean_return=self.mean_return,
            num_recent_episodes=len(self._recent_returns),
            num_episodes=self.num_episodes,
            total_loss=row.get("total_loss"),
            entropy=row.get("entropy"),
            policy_lag=row.get("policy_lag_mean"),
            verdict=verdict,
        )


def _mean(values: list) -> float | None:
    return sum(values) / len(values) if values else None

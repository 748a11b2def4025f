"""Curves of recorded runs over steps, frames or hours, and the mean of several seeds."""

from typing import NamedTuple

import numpy as np

from monobeast.config import Config
from monobeast.runs.recorded_run import RecordedRun
from monobeast.user_code import is_own

AXES = ("steps", "frames", "hours")
_MOST_POINTS = 2000  # about the pixels of a picture's width: more would only make it larger
_SECONDS_PER_HOUR = 3600


class Curve(NamedTuple):
    """One run's measurements."""

    x: np.ndarray  # float64 [N], rising
    y: np.ndarray  # float64 [N]


class MeanCurve(NamedTuple):
    """Statistics of several seeds: float64 [N] each."""

    x: np.ndarray
    mean: np.ndarray
    low: np.ndarray  # of all seeds the least
    high: np.ndarray


def return_curve(run: RecordedRun, axis: str, window: int) -> Curve:
    """Mean return of the last `window` episodes, at each step in which an episode ended.

    Raises:
        ValueError: the run's files cannot be read or are empty; it has no frames.
    """
    steps, returns, _ = run.episodes
    means = rolling_mean(returns, window)
    is_last = np.append(np.diff(steps) > 0, True)  # of the episodes that ended in one update
    curve = _along(run, axis, Curve(steps[is_last], means[is_last]))
    if not len(curve.x):
        raise ValueError(f"run {run.folder}: no episode has finished before the last row of logs.csv")
    return curve


def column_curve(run: RecordedRun, axis: str, column: str) -> Curve:
    """A column of `logs.csv` without its empty cells; no points if the run has no such column."""
    steps = run.logs["step"]
    values = run.logs.get(column, np.full(len(steps), np.nan))
    return _along(run, axis, Curve(steps[~np.isnan(values)], values[~np.isnan(values)]))


def rolling_mean(values: np.ndarray, window: int) -> np.ndarray:
    """Mean of each value and its predecessors, at most `window` in all: float64 [N].

    Its last value is the mean return on the console and in `meta.json`.
    """
    sums = np.concatenate([[0.0], np.cumsum(values, dtype=np.float64)])
    ends = np.arange(1, len(values) + 1)
    starts = np.maximum(ends - window, 0)
    return (sums[ends] - sums[starts]) / (ends - starts)


def average(curves: list[Curve]) -> MeanCurve:
    """Mean, minimum and maximum of curves that hold their value until their next point.

    It extends from the start of the last curve to the end of the first one, so that no seed joins or leaves the mean.
    It is empty if the curves have no x in common.
    """
    first, last = max(curve.x[0] for curve in curves), min(curve.x[-1] for curve in curves)
    x = np.unique(np.concatenate([curve.x for curve in curves]))
    x = x[(first <= x) & (x <= last)]
    if len(x) > _MOST_POINTS:
        x = np.linspace(first, last, _MOST_POINTS)
    values = np.array([curve.y[np.searchsorted(curve.x, x, side="right") - 1] for curve in curves])
    return MeanCurve(x, values.mean(0), values.min(0), values.max(0))


def _along(run: RecordedRun, axis: str, curve: Curve) -> Curve:
    """Replaces the steps of a curve by the unit of `axis`."""
    if axis == "steps":
        return Curve(curve.x.astype(np.float64), curve.y)
    if axis == "frames":
        return Curve(curve.x * float(_frames_per_step(run)), curve.y)
    known = curve.x <= run.logs["step"][-1]  # nothing says when a later episode of an interrupted run ended
    steps, seconds = (np.append(0.0, run.logs[name]) for name in ("step", "seconds"))
    return Curve(np.interp(curve.x[known], steps, seconds) / _SECONDS_PER_HOUR, curve.y[known])


def _frames_per_step(run: RecordedRun) -> int:
    from monobeast.environments.atari import is_atari
    from monobeast.environments.registry import find_spec

    env = run.config["env"]
    if is_own(env):  # importing it, to see, is nothing for a command that looks at what may be a stranger's run
        raise ValueError(f"--x frames: whether {env} has frames is unknown here, as it is not imported; use --x steps")
    try:
        if is_atari(find_spec(env)):
            return run.config.get("frame_skip", Config.frame_skip)
    except ValueError as error:
        raise ValueError(f"--x frames: whether {env} has frames is unknown here ({error}); use --x steps") from None
    raise ValueError(f"--x frames: {env} is not an Atari game, its steps are not made of frames; use --x steps")

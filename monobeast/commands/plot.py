"""`monobeast plot`: plots the returns of recorded runs."""

import argparse
import io
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from monobeast.config import Config
from monobeast.errors import missing_package
from monobeast.files import replaced, require_place, user_path
from monobeast.plotting.curves import AXES, Curve, MeanCurve, average, column_curve, return_curve
from monobeast.plotting.run_groups import (
    RunGroup,
    group_runs,
    require_alike,
    require_different,
    require_one_environment,
)
from monobeast.runs.progress import RECENT_EPISODES
from monobeast.runs.recorded_run import RecordedRun, find_folder

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_FORMATS = ("png", "svg", "pdf")
_X_LABELS = {"steps": "agent steps", "frames": "emulator frames", "hours": "hours"}
# Columns of logs.csv that --panels draws, those alone that a run has.
_PANELS = {
    "total_loss": "loss",
    "entropy": "entropy (nats)",
    "policy_lag_mean": "policy lag (updates)",
    "steps_per_second": "steps per second",
    "explained_variance": "explained variance of the baseline",
    "kl": "KL from acting to learning policy (nats)",
    "rho_clipped": "share of clipped rho",
    "effective_sample_size": "effective sample size (share)",
}
_SAME_LENGTH = 0.95  # of the longest run: a seed that ends earlier cuts the curve visibly


class Picture(NamedTuple):
    """The figure, and the text about it."""

    figure: "Figure"
    summary: list[str]  # a line a curve


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the flags of this command."""
    parser.description = (
        "Draws the mean episode return of runs. Runs of the same settings are seeds of one curve: their mean, and a "
        "band from their minimum to their maximum. Each other choice of settings is a curve of its own."
    )
    parser.add_argument("runs", nargs="+", metavar="RUN", help="folder of a run, or its name in savedir")
    parser.add_argument("--out", required=True, metavar="FILE", help="the picture: a .png, .svg or .pdf")
    parser.add_argument(
        "--savedir", default=Config.savedir, metavar="STR", help="folder of all runs (default: %(default)s)"
    )
    parser.add_argument("--x", choices=AXES, default="steps", help="what to draw over (default: %(default)s)")
    window_help = "last episodes to average over, all where there are fewer (default: %(default)s)"
    parser.add_argument("--window", type=int, default=RECENT_EPISODES, metavar="INT", help=window_help)
    parser.add_argument("--as_one", action="store_true", help="refuse runs that are not all seeds of one curve")
    parser.add_argument(
        "--label", action="append", default=[], metavar="TEXT", help="name of a curve, once for each, in their order"
    )
    parser.add_argument("--panels", action="store_true", help=f"add panels of {', '.join(_PANELS)}")
    parser.add_argument(
        "--column", action="append", default=[], metavar="NAME", help="add a panel of this column of logs.csv"
    )


def run(arguments: argparse.Namespace) -> int:
    """Draws and writes the figure, and prints what was drawn.

    Raises:
        ValueError: a flag or a run is refused, or the file cannot be written; nothing has been written then.
    """
    _check(arguments)
    picture = draw_runs(arguments)
    _write(picture.figure, _out_path(arguments))
    print(*picture.summary, f"wrote {arguments.out}", sep="\n")
    return 0


def draw_runs(arguments: argparse.Namespace) -> Picture:
    """Reads the runs and draws them according to `arguments`."""
    groups = _read_groups(arguments)
    labels = _name_groups(groups, arguments.label)
    curves = [[return_curve(run, arguments.x, arguments.window) for run in group.runs] for group in groups]
    means = [_average_returns(group, own) for group, own in zip(groups, curves, strict=True)]
    summary = [
        f"{label}: {_describe(group, own, mean, arguments.x)}"
        for group, label, own, mean in zip(groups, labels, curves, means, strict=True)
    ]
    return Picture(_build_figure(groups, labels, means, arguments), summary)


def _check(arguments: argparse.Namespace) -> None:
    out = _out_path(arguments)
    if _format_of(out) not in _FORMATS:
        raise ValueError(f"--out {arguments.out}: must end in .{', .'.join(_FORMATS)}")
    require_place(f"--out {arguments.out}", out)
    if arguments.window < 1:
        raise ValueError(f"--window {arguments.window}: must be at least 1")


def _read_groups(arguments: argparse.Namespace) -> list[RunGroup]:
    """Finds and reads the runs, and groups the seeds of each experiment."""
    by_time = arguments.x == "hours"
    runs = [RecordedRun(find_folder(name, arguments.savedir)) for name in arguments.runs]
    require_different(runs)
    require_one_environment(runs)
    if arguments.as_one:
        require_alike(runs, by_time)
    return group_runs(runs, by_time)


def _name_groups(groups: list[RunGroup], given: list[str]) -> list[str]:
    """A legend text for each group: the given label, or else what distinguishes it, and its number of seeds."""
    names = [group.label for group in groups]
    if given and len(given) != len(groups):
        raise ValueError(f"--label: {len(given)} given for {len(groups)} curves ({'; '.join(names) or 'one'})")
    return [_name_group(group, name) for group, name in zip(groups, given or names, strict=True)]


def _build_figure(
    groups: list[RunGroup], labels: list[str], returns: list[MeanCurve], arguments: argparse.Namespace
) -> "Figure":
    """The figure of the groups' returns, with panels for the requested columns of logs.csv."""
    try:
        from monobeast.plotting.figure import Panel, draw
    except ImportError as error:
        raise missing_package(f"--out {arguments.out}", "matplotlib", error) from None
    panels = [Panel(_describe_returns(arguments.window), [*returns])]
    for column in _choose_columns(groups, arguments):
        curves = [_average_column(group, arguments.x, column) for group in groups]
        panels.append(Panel(_PANELS.get(column, column), curves))
    has_band = any(len(group.runs) > 1 for group in groups)
    return draw(groups[0].runs[0].config["env"], _X_LABELS[arguments.x], labels, has_band, panels)


def _describe_returns(window: int) -> str:
    return "episode return" if window == 1 else f"mean return of the last {window} episodes, at first of fewer"


def _out_path(arguments: argparse.Namespace) -> Path:
    return user_path(arguments.out)


def _format_of(out: Path) -> str:
    return out.suffix.lower().removeprefix(".")


def _name_group(group: RunGroup, name: str) -> str:
    count = len(group.runs)
    if count == 1:
        return name or group.runs[0].name
    noun = "seeds" if len({run.config.get("seed") for run in group.runs}) == count else "runs"
    return f"{name}, {count} {noun}" if name else f"{count} {noun}"


def _average_returns(group: RunGroup, curves: list[Curve]) -> MeanCurve:
    mean = average(curves)
    if not len(mean.x):
        early = group.runs[_first_to_end(curves)]
        raise ValueError(f"run {early.folder}: ends before the first episode of another seed does; leave one out")
    return mean


def _average_column(group: RunGroup, axis: str, column: str) -> MeanCurve | None:
    curves = [column_curve(run, axis, column) for run in group.runs]
    if not all(len(curve.x) for curve in curves):
        return None  # a mean over some of the seeds would pass for that of all
    mean = average(curves)
    return mean if len(mean.x) else None


def _choose_columns(groups: list[RunGroup], arguments: argparse.Namespace) -> list[str]:
    """The columns to draw: those of --panels that any run has, and those of --column, which must exist."""
    runs = [run for group in groups for run in group.runs]
    usual = _PANELS if arguments.panels else ()
    chosen = [column for column in usual if any(len(column_curve(run, "steps", column).x) for run in runs)]
    for column in arguments.column:
        if not any(column in run.logs for run in runs):
            raise ValueError(f"--column {column}: no such column in logs.csv; there are {', '.join(runs[0].logs)}")
    return list(dict.fromkeys([*chosen, *arguments.column]))


def _write(figure: "Figure", out: Path) -> None:
    """Writes the figure atomically; the same runs give the same bytes."""
    import matplotlib

    kind = _format_of(out)
    no_date = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(kind)
    picture = io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": "monobeast"}):
        figure.savefig(picture, format=kind, metadata=no_date)
    try:
        with replaced(out, is_shared=True) as partial:
            partial.write_bytes(picture.getvalue())
    except OSError as error:
        raise ValueError(f"--out {out}: cannot be written: {error.strerror}") from None


def _describe(group: RunGroup, curves: list[Curve], mean: MeanCurve, axis: str) -> str:
    x = f"{mean.x[-1]:.2f}" if axis == "hours" else f"{mean.x[-1]:,.0f}"
    text = f"return {mean.mean[-1]:.2f} at {x} {_X_LABELS[axis]}"
    if mean.x[-1] < _SAME_LENGTH * max(curve.x[-1] for curve in curves):
        text += f", where {group.runs[_first_to_end(curves)].name} ends, long before others"
    return text


def _first_to_end(curves: list[Curve]) -> int:
    return min(range(len(curves)), key=lambda i: curves[i].x[-1])

"""`monobeast ls`: lists the runs in a folder, one line each, newest first."""

import argparse
import datetime
import gzip
import os
import textwrap
import zlib
from pathlib import Path
from typing import Any, NamedTuple

from monobeast.config import Config
from monobeast.files import user_path
from monobeast.runs import run_folder
from monobeast.runs.csv_file import split_rows
from monobeast.runs.progress import RECENT_EPISODES
from monobeast.runs.recorded_run import RecordedRun

_HEADER = ("name", "environment", "steps", "of", "return", "age", "state")
_IS_NUMBER = (False, False, True, True, True, True, False)  # set to the right
_TAIL_BYTES = 32_768  # more than a row of logs.csv, or a hundred of episodes.csv
_LONGEST_REASON = 100  # characters
# Seconds of a unit, the longest first.
_UNITS = {"d": 86_400, "h": 3600, "min": 60, "s": 1}


class RunLine(NamedTuple):
    """One run, as described by its files."""

    name: str
    environment: str = ""
    step: int | None = None
    total_steps: int | None = None
    mean_return: float | None = None  # of the last 100 episodes, or of all where there were fewer
    start: datetime.datetime | None = None  # the last one
    state: str = ""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the flags of this command."""
    parser.description = (
        "Lists the runs in a folder, the newest first: agent steps and of how many, mean return of the last 100 "
        "episodes, time since the last start, and the state: running, complete, stopped, or failed with the reason."
    )
    about = f"folder of all runs (default: {Config.savedir})"
    parser.add_argument("folder", nargs="?", metavar="SAVEDIR", help=about)
    parser.add_argument("--savedir", metavar="STR", help="the same, as the other commands have it")


def run(arguments: argparse.Namespace) -> int:
    """Prints the table.

    Raises:
        ValueError: there is no such folder, or two are given.
    """
    named = [folder for folder in (arguments.folder, arguments.savedir) if folder is not None]
    if len(named) == 2:
        raise ValueError(f"SAVEDIR {named[0]} --savedir {named[1]}: exclude each other")
    lines = list_runs(*named or [Config.savedir])
    print("\n".join(format_table(lines, datetime.datetime.now().astimezone())))
    return 0


def list_runs(savedir: str) -> list[RunLine]:
    """The runs in `savedir`, newest first.

    Raises:
        ValueError: there is no such folder, or it cannot be read.
    """
    root = user_path(savedir)
    try:
        folders = [path for path in root.iterdir() if not path.is_symlink() and os.path.exists(path / "meta.json")]
    except OSError as error:
        raise ValueError(f"SAVEDIR {savedir}: cannot be listed: {error.strerror}") from None
    lines = [_describe(folder) for folder in folders]
    oldest = datetime.datetime.min.replace(tzinfo=datetime.UTC)
    return sorted(lines, key=lambda line: (line.start or oldest, line.name), reverse=True)


def format_table(lines: list[RunLine], now: datetime.datetime) -> list[str]:
    """The table with a header; or a line that there are no runs."""
    if not lines:
        return ["no runs"]
    rows = [_HEADER, *(_cells(line, now) for line in lines)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADER))]
    return ["  ".join(_pad(row, widths)).rstrip() for row in rows]


def _pad(row: tuple[str, ...], widths: list[int]) -> list[str]:
    columns = zip(row, widths, _IS_NUMBER, strict=True)
    return [cell.rjust(width) if is_number else cell.ljust(width) for cell, width, is_number in columns]


def _cells(line: RunLine, now: datetime.datetime) -> tuple[str, ...]:
    steps = ["" if number is None else f"{number:,}" for number in (line.step, line.total_steps)]
    mean_return = "" if line.mean_return is None else f"{line.mean_return:.2f}"
    age = "" if line.start is None else _format_age((now - line.start).total_seconds())
    name, environment, state = map(_printable, (line.name, line.environment, line.state))
    return (name, environment, *steps, mean_return, age, state)


def _printable(text: str) -> str:
    """Without what would move a terminal's cursor: line ends, control characters."""
    return "".join(sign if sign.isprintable() else "?" for sign in text)


def _format_age(seconds: float) -> str:
    """The age in the longest unit of which there are at least two."""
    unit = next((unit for unit, length in _UNITS.items() if seconds >= 2 * length), "s")
    return f"{max(0, int(seconds // _UNITS[unit]))} {unit}"


def _describe(folder: Path) -> RunLine:
    try:
        meta = RecordedRun(folder).meta
    except ValueError as error:
        return RunLine(folder.name, state=str(error))
    total_steps = meta["config"].get("total_steps")
    return RunLine(
        name=folder.name,
        environment=meta["config"]["env"],
        step=_last_step(folder, meta),
        total_steps=total_steps if isinstance(total_steps, int) else None,
        mean_return=_mean_return(folder),
        start=_read_time(meta.get("start")),
        state=_state(folder, meta),
    )


def _state(folder: Path, meta: dict[str, Any]) -> str:
    """The state; "running" only if the run's lock is held, since the file of a killed run says so for ever."""
    is_held = run_folder.is_held(folder)
    state, reason = meta.get("state"), meta.get("reason")
    if is_held:
        return "running"
    if state == "running":
        killed = "failed: killed before it recorded an end"
        return killed if is_held is False else "running or killed: no file locks here to tell which"
    if state == "failed" and reason:
        return f"failed: {textwrap.shorten(str(reason), _LONGEST_REASON)}"
    return str(state)


def _last_step(folder: Path, meta: dict[str, Any]) -> int | None:
    """The step in the last row of logs.csv; without a row, the one in `meta.json`."""
    rows = _last_rows(folder / "logs.csv", 1)
    steps = [row["step"] for row in rows if (row.get("step") or "").isdecimal()]
    return int(steps[-1]) if steps else meta.get("step")


def _mean_return(folder: Path) -> float | None:
    returns = []
    for row in _last_rows(folder / "episodes.csv", RECENT_EPISODES):
        try:
            returns.append(float(row.get("episode_return") or ""))
        except ValueError:
            continue  # a damaged row
    return sum(returns) / len(returns) if returns else None


def _last_rows(path: Path, number: int) -> list[dict[str, str]]:
    """At most `number` rows from the end of a CSV file, which may be compressed; reads only its end."""
    try:
        if path.exists():
            with open(path, "rb") as file:
                header = file.readline()
                file.seek(max(len(header), os.path.getsize(path) - _TAIL_BYTES))
                is_cut = file.tell() > len(header)
                lines = file.read().split(b"\n")
        else:
            header, *lines = gzip.decompress(path.with_name(f"{path.name}.gz").read_bytes()).split(b"\n")
            is_cut = False
    except (OSError, EOFError, zlib.error):
        return []
    whole = lines[1 if is_cut else 0 : -1]  # after the last line's end there is nothing, or half a line
    texts = (line.decode(errors="replace").replace("\0", "") for line in (header, *whole[-number:]))
    return split_rows([text.rstrip("\r\n") for text in texts])


def _read_time(text: Any) -> datetime.datetime | None:
    try:
        return datetime.datetime.fromisoformat(text).astimezone()
    except (TypeError, ValueError):
        return None

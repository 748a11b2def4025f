"""A run of `monobeast train` in a separate process, observed from outside: steps per second and memory."""

import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import monobeast
from monobeast.benchmarks import process_tree
from monobeast.config import to_flags
from monobeast.runs.recorded_run import RecordedRun

_POLL_S = 0.5
_LEAVE_S = 20.0  # for a run to end by itself after SIGTERM
_LONGEST_START_S = 600.0  # imports, fork server, first update
_ROWS_A_WINDOW = 4


class Whole(NamedTuple):
    """What a run did between two of its log rows, without startup and warm-up."""

    steps: int  # given to updates: all were learned from
    updates: int
    seconds: float
    peak_memory: int | None  # bytes of the process tree (PSS), from the start on; None where unknown

    @property
    def steps_per_second(self) -> float:
        return self.steps / self.seconds


class RunFailed(RuntimeError):
    """The run ended before it could be measured."""


def run(settings: dict[str, Any], seconds: float, warm_up_s: float, log_interval_s: float = 5.0) -> Whole:
    """Trains, and measures from the first row of `logs.csv` that is `warm_up_s` after the first update.

    Args:
        settings: The given settings of `Config`. The run uses a temporary folder and saves no checkpoint.
        seconds: Minimum time to measure; less if the run is complete earlier.
        warm_up_s: Seconds left out after the first row that has an update.
        log_interval_s: Longest interval between two rows, which bound the measurement.

    Raises:
        RunFailed: with the last output of the run.
    """
    interval = min(log_interval_s, max(0.1, seconds / _ROWS_A_WINDOW))
    with tempfile.TemporaryDirectory(prefix="monobeast-benchmark-", ignore_cleanup_errors=True) as savedir:
        own = {"xpid": "run", "savedir": savedir, "disable_checkpoint": True, "log_interval_s": interval}
        own["max_seconds"] = _LONGEST_START_S + warm_up_s + seconds  # should this process be killed
        output = Path(savedir, "output.txt")
        with _training(settings | own, output) as process:
            peak = 0
            while True:
                has_ended = process.poll() is not None  # first: the last row may come meanwhile
                window = find_window(Path(savedir, "run"), seconds, warm_up_s)
                if window is not None and (window.seconds >= seconds or has_ended):
                    return window._replace(peak_memory=peak or None)
                if has_ended:
                    raise RunFailed(_explain(output))
                peak = max(peak, process_tree.measure_memory(process.pid) or 0)
                time.sleep(min(_POLL_S, interval))


def find_window(folder: Path, seconds: float, warm_up_s: float) -> Whole | None:
    """The measured part of a run so far; None if it has not begun."""
    try:
        logs = RecordedRun(folder).logs
    except ValueError:  # no row yet
        return None
    learned = np.flatnonzero(logs["updates"] > 0)
    if not learned.size:
        return None
    clock = logs["seconds"]
    is_warm = clock >= clock[learned[0]] + warm_up_s
    is_warm[: learned[0]] = False
    if not is_warm.any():
        return None
    first = int(np.argmax(is_warm))
    is_enough = clock >= clock[first] + seconds
    last = int(np.argmax(is_enough)) if is_enough.any() else len(clock) - 1
    if last == first or clock[last] == clock[first]:
        return None
    steps, updates = (int(logs[name][last] - logs[name][first]) for name in ("step", "updates"))
    return Whole(steps, updates, float(clock[last] - clock[first]), None)


@contextmanager
def _training(settings: dict[str, Any], output: Path) -> Iterator[subprocess.Popen]:
    """A training process that is ended afterwards; its output goes to a file."""
    command = [sys.executable, "-m", "monobeast", "train", *to_flags(settings)]
    package = str(Path(monobeast.__file__).parent.parent)
    paths = [package, *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
    with open(output, "w") as file:
        process = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT, env=environment)
    try:
        yield process
    finally:
        process.terminate()
        try:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_LEAVE_S)
        finally:  # after a second Ctrl-C as well
            process.kill()  # its actors die with it; nothing where it has ended
            process.wait()


def _explain(output: Path) -> str:
    lines = output.read_text(errors="replace").splitlines()
    return "the run ended before its warm-up and a second row of its log; its last words:\n" + "\n".join(lines[-5:])

"""Ends a stalled run and records the stacks of all its processes."""

import faulthandler
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Self

# The kernel-level watch ends a learner that does not even get to `check`; it leaves time for the better report.
_GRACE_S = 10.0
_LONGEST_REPORT_S = 120.0  # each of hundreds of actors has a moment for its stacks
_REARM_S = 1.0


class Stalled(RuntimeError):
    """There was no update for longer than `--stall_timeout_s`."""


class StallWatch:
    """Raises `Stalled` in the training loop if updates stop. A context manager.

    If the loop itself hangs, in an update or in an environment in its process, a thread that does not need the GIL
    writes the stacks to the file and ends the process with exit code 1; its actors die with it. Time during which
    Ctrl-Z stops the process does not count.

    Args:
        timeout_s: Longest time without an update.
        out_log: The file for the stacks.
    """

    def __init__(self, timeout_s: float, out_log: Path) -> None:
        self._timeout_s = timeout_s
        self._file = open(out_log, "a")
        self._last_update = self._last_arming = -float("inf")
        self._heeds_ctrl_z = False
        self.feed()

    def __enter__(self) -> Self:
        is_main = threading.current_thread() is threading.main_thread()
        if is_main and hasattr(signal, "SIGTSTP") and signal.getsignal(signal.SIGTSTP) == signal.SIG_DFL:
            signal.signal(signal.SIGTSTP, self._pause)
            self._heeds_ctrl_z = True
        return self

    def __exit__(self, *_: object) -> None:
        if self._heeds_ctrl_z:
            signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        faulthandler.cancel_dump_traceback_later()
        self._file.close()

    def feed(self) -> None:
        """Records an update."""
        self._last_update = time.monotonic()
        if self._last_update - self._last_arming > min(_REARM_S, self._timeout_s / 10):
            faulthandler.dump_traceback_later(self._timeout_s + _GRACE_S, exit=True, file=self._file)
            self._last_arming = self._last_update

    def _pause(self, *_: object) -> None:
        """Stops the process as Ctrl-Z does, with the clock off, so that it does not end the process on continuation."""
        faulthandler.cancel_dump_traceback_later()
        os.kill(os.getpid(), signal.SIGSTOP)
        self._last_arming = -float("inf")
        self.feed()

    def check(self, describe_actors: Callable[[], str]) -> None:
        """Raises `Stalled` if it has been too long, after writing the stacks of learner and actors."""
        if time.monotonic() - self._last_update > self._timeout_s:
            faulthandler.dump_traceback_later(_LONGEST_REPORT_S, exit=True, file=self._file)
            print("the learner, then the actors:", file=self._file, flush=True)
            faulthandler.dump_traceback(file=self._file, all_threads=True)
            where = describe_actors()
            limit = f"no update for {self._timeout_s:g} s (--stall_timeout_s)"
            raise Stalled(f"{limit}; the stacks of all processes are in {self._file.name}\n{where}")

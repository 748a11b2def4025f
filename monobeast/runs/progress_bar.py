"""A run's progress as one line of a terminal, drawn by tqdm. Importing this module fails without tqdm."""

import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from tqdm import tqdm

from monobeast.runs.progress import Progress

_FORMAT = "{percentage:.0f}%|{bar}| {desc}"
_LEAST_CELLS = 10  # of the drawn bar, before the text is made narrower for it
_ECHO = "^C"  # what a terminal itself puts behind the line; beyond the last column it would break it
_CLEAR_TO_END = "\x1b[K"
_NUM_ROWS = 20  # of the terminal, if tqdm is to believe it; where it asks by itself, one without a size shows nothing


class _Tqdm(tqdm):
    monitor_interval = 0  # no thread that draws by itself


# tqdm's own lock is one of processes: making it would settle the start method of the caller's program.
_Tqdm.set_lock(threading.RLock())


class ProgressBar:
    """One line at the bottom of a terminal: percent, bar, steps, speed, time left, mean return, lag, bottleneck.

    Nothing is drawn before the first `show`.

    Args:
        stream: A terminal.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._bar: _Tqdm | None = None

    def show(self, progress: Progress) -> None:
        """Redraws the line."""
        columns = max(1, shutil.get_terminal_size().columns - len(_ECHO))  # of 80 where the terminal does not know
        text = _describe(progress, columns)
        done = min(progress.step, progress.total_steps)  # the last batch may go beyond
        if self._bar is None:
            self._bar = _Tqdm(
                desc=text,
                initial=done,
                total=progress.total_steps,
                file=self._stream,
                bar_format=_FORMAT,
                ncols=columns,
                nrows=_NUM_ROWS,
                leave=True,
                disable=False,
            )
        self._bar.n, self._bar.ncols = done, columns
        self._bar.set_description_str(text)

    @contextmanager
    def hidden(self) -> Iterator[None]:
        """Hides the line inside the context, with the cursor at its beginning."""
        with _Tqdm.external_write_mode(file=self._stream):
            if self._bar is not None:
                self._stream.write(_CLEAR_TO_END)  # of the echo
            yield

    def close(self) -> None:
        """Leaves the line as last drawn, with the cursor below it."""
        if self._bar is not None:
            self._bar.close()


def _describe(progress: Progress, columns: int) -> str:
    steps, total_steps = (tqdm.format_sizeof(count) for count in (progress.step, progress.total_steps))
    parts = [f"{steps}/{total_steps}"]
    parts += [] if progress.steps_per_second is None else [f"{progress.steps_per_second:,.0f} steps/s"]
    if progress.seconds_left is not None:
        parts.append(f"ETA {tqdm.format_interval(progress.seconds_left)}")
    parts.append("no episode ended yet" if progress.mean_return is None else f"return {progress.mean_return:.2f}")
    parts += [] if progress.policy_lag is None else [f"lag {progress.policy_lag:.1f}"]
    parts += [] if progress.verdict is None else [progress.verdict]
    text = ", ".join(parts)
    return text if len("100%|| ") + _LEAST_CELLS + len(text) <= columns else " ".join(parts)

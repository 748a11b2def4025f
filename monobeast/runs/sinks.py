"""Further destinations for rows of `logs.csv` and `evaluations.csv`; training does not wait for or fail with them."""

import contextlib
import dataclasses
import logging
import queue
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol, Self

from monobeast.config import Config
from monobeast.errors import describe
from monobeast.runs import tensorboard_sink, wandb_sink

_MOST_WAITING = 1000  # rows; over an hour of them at the usual interval
_CLOSE_S = 10.0  # for all sinks together to take what still waits

logger = logging.getLogger(__name__)


class Sink(Protocol):
    """A destination for rows; an exception ends only the sink."""

    def write(self, numbers: dict[str, float], step: int) -> None:
        """Takes one row: numbers by name, and their agent step."""

    def close(self) -> None:
        """Writes the remaining rows."""


class SinkThread:
    """Passes rows to one sink, in a separate thread that opens it at the first row and closes it.

    A failure is reported once, and the sink gets no more rows. If it is too slow, rows are left out.

    Args:
        flag: That requested the sink.
        open_sink: Makes it.
    """

    def __init__(self, flag: str, open_sink: Callable[[], Sink]) -> None:
        self._flag, self._open_sink = flag, open_sink
        self._rows: queue.Queue[tuple[dict[str, float], int] | None] = queue.Queue()  # None: no more
        self._thread = threading.Thread(target=self._run, name=flag, daemon=True)
        self._is_slow = False

    def write(self, numbers: dict[str, float], step: int) -> None:
        """Passes on a row; returns at once."""
        if self._thread.ident is None:
            self._thread.start()
        if self._thread.is_alive() and self._rows.qsize() < _MOST_WAITING:
            self._rows.put((numbers, step))
        elif self._thread.is_alive() and not self._is_slow:
            logger.warning("--%s: is too slow, rows are left out", self._flag)
            self._is_slow = True

    def end(self) -> None:
        """Tells the sink that no more rows come; returns at once."""
        self._rows.put(None)

    def join(self, timeout_s: float) -> None:
        """Waits until the sink is closed, or until the timeout."""
        if self._thread.ident is not None:
            self._thread.join(timeout_s)
            if self._thread.is_alive():
                logger.warning("--%s: did not finish in time; its last rows may be missing", self._flag)

    def _run(self) -> None:
        try:
            with contextlib.closing(self._open_sink()) as sink:
                while (row := self._rows.get()) is not None:
                    sink.write(*row)
        except BaseException as error:  # SystemExit included: it is somebody else's code
            what = describe(error, is_short=True)
            logger.error("--%s: %s; no more rows go there; training goes on", self._flag, what)


class Sinks:
    """All sinks of a run. A context manager.

    Args:
        threads: One for each.
    """

    def __init__(self, threads: Sequence[SinkThread] = ()) -> None:
        self._threads = threads

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        deadline = time.monotonic() + _CLOSE_S
        for thread in self._threads:
            thread.end()
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    def write(self, row: dict[str, Any], prefix: str = "") -> None:
        """Passes a row to all sinks, without waiting.

        Args:
            row: Values by column, including `step`; None values are left out.
            prefix: Of the names in the sinks.
        """
        numbers = {prefix + name: value for name, value in row.items() if name != "step" and value is not None}
        for thread in self._threads:
            thread.write(numbers, row["step"])


def require_packages(config: Config) -> None:
    """Raises ValueError, with the command that installs it, if a requested sink lacks its package."""
    if config.tensorboard:
        tensorboard_sink.require_tensorboard()
    if config.wandb:
        wandb_sink.require_wandb()


def choose_sinks(config: Config, folder: Path, up_to_step: int | None = None) -> Sinks:
    """The requested sinks; each is opened at its first row.

    Args:
        config: Resolved.
        folder: Of the run.
        up_to_step: Of the checkpoint that the run resumes from; None for a new run.
    """
    threads = []
    if config.tensorboard:
        threads.append(SinkThread("tensorboard", lambda: tensorboard_sink.TensorBoardSink(folder, up_to_step)))
    if config.wandb:
        threads.append(SinkThread("wandb", lambda: wandb_sink.WandbSink(folder, dataclasses.asdict(config))))
    return Sinks(threads)

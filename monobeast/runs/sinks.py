"""Further places for the rows of `logs.csv` and `evaluations.csv`, which training neither waits for nor ends with."""

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
    """A place for rows; whatever it raises ends it alone."""

    def write(self, numbers: dict[str, float], step: int) -> None:
        """Takes one row: numbers by their names, and the agent steps they belong to."""

    def close(self) -> None:
        """Writes what is left."""


class SinkThread:
    """Hands rows to one sink, in a thread of its own that opens it with the first row and closes it.

    A failure is said once, and no row goes there any more; where the sink is too slow, rows are left out.

    Args:
        flag: That asked for the sink.
        open_sink: Makes it.
    """

    def __init__(self, flag: str, open_sink: Callable[[], Sink]) -> None:
        self._flag, self._open_sink = flag, open_sink
        self._rows: queue.Queue[tuple[dict[str, float], int] | None] = queue.Queue()  # None: no more
        self._thread = threading.Thread(target=self._run, name=flag, daemon=True)
        self._is_slow = False

    def write(self, numbers: dict[str, float], step: int) -> None:
        """Hands on a row; returns at once."""
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
        """Waits until the sink is closed, but no longer than that."""
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
        """Hands a row to all, without waiting.

        Args:
            row: Values by the names of their columns, of which `step` is one; those of None are left out.
            prefix: Of the names.
        """
        numbers = {prefix + name: value for name, value in row.items() if name != "step" and value is not None}
        for thread in self._threads:
            thread.write(numbers, row["step"])


def require_packages(config: Config) -> None:
    """Raises ValueError, with the line that installs it, where a sink that is asked for lacks its package."""
    if config.tensorboard:
        tensorboard_sink.require_tensorboard()
    if config.wandb:
        wandb_sink.require_wandb()


def choose_sinks(config: Config, folder: Path, up_to_step: int | None = None) -> Sinks:
    """The sinks that are asked for; none is opened before it gets a row.

    Args:
        config: Resolved.
        folder: Of the run.
        up_to_step: Of the checkpoint with which the run goes on, None where it is new.
    """
    threads = []
    if config.tensorboard:
        threads.append(SinkThread("tensorboard", lambda: tensorboard_sink.TensorBoardSink(folder, up_to_step)))
    if config.wandb:
        threads.append(SinkThread("wandb", lambda: wandb_sink.WandbSink(folder, dataclasses.asdict(config))))
    return Sinks(threads)

"""Sends a run's messages to standard output and `out.log`; on a terminal, progress is a bar below them."""

import contextlib
import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from monobeast.runs.progress import Progress

logger = logging.getLogger("monobeast")


class _StandardOutput(logging.StreamHandler):
    """Falls silent when the reader is gone, as after `| head -1`; the run continues."""

    def handleError(self, record: logging.LogRecord) -> None:
        if not isinstance(sys.exc_info()[1], UnicodeError):  # this one message alone can't be shown
            logger.removeHandler(self)


class _Terminal(_StandardOutput):
    """Standard output with a bar for the latest `Progress`; all other messages are printed above it.

    Raises:
        ImportError: there is no tqdm.
    """

    def __init__(self, stream: TextIO) -> None:
        from monobeast.runs.progress_bar import ProgressBar

        super().__init__(stream)
        self._bar = ProgressBar(stream)

    def emit(self, record: logging.LogRecord) -> None:
        try:
            if isinstance(record.msg, Progress):
                self._bar.show(record.msg)
            else:
                with self._bar.hidden():
                    super().emit(record)
        except Exception:
            self.handleError(record)

    def close(self) -> None:
        with contextlib.suppress(OSError):  # nobody reads any more
            self._bar.close()
        super().close()


class _LogFile(logging.FileHandler):
    """Loses messages if the disk is full; the run continues."""

    def handleError(self, record: logging.LogRecord) -> None:
        pass


@contextmanager
def console(out_log: Path) -> Iterator[None]:
    """Sends the package's messages to standard output and to the file `out_log`."""
    # The file first: it must have the message at which the other removes itself, too.
    handlers = [_LogFile(out_log, encoding="utf-8"), _open_standard_output()]
    for handler in handlers:
        handler.setFormatter(logging.Formatter("[%(asctime)s] %(message)s", "%H:%M:%S"))
        logger.addHandler(handler)
    before = logger.level, logger.propagate
    logger.setLevel(logging.INFO)
    logger.propagate = False
    try:
        yield
    finally:
        logger.setLevel(before[0])
        logger.propagate = before[1]
        for handler in handlers:
            logger.removeHandler(handler)
            handler.close()


def _open_standard_output() -> logging.Handler:
    if sys.stdout is None:  # closed from the start
        return logging.NullHandler()
    if sys.stdout.isatty() and not os.environ.get("TQDM_DISABLE"):  # tqdm's own switch
        with contextlib.suppress(ImportError):
            return _Terminal(sys.stdout)
    return _StandardOutput(sys.stdout)

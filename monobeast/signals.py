"""The signals that ask a run to stop, SIGINT, SIGTERM and SIGHUP: heard by the learner alone."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import resource_tracker
from typing import Any, Self

_HANGUP = getattr(signal, "SIGHUP", None)  # the terminal is gone, or the connection to it; Windows has none
STOP_SIGNALS = tuple(filter(None, (signal.SIGINT, signal.SIGTERM, _HANGUP)))


class Stopped(BaseException):
    """A signal came while `StopSignals.raised` was in force."""


class StopSignals:
    """Turns these signals into a wish to stop that the training loop reads. A context manager.

    Outside the main thread, where Python sets no handlers, it never wishes. Under `nohup` a hangup stays ignored.
    """

    def __init__(self) -> None:
        self.received: int | None = None
        self._raises = False
        self._previous: dict[int, Any] = {}  # handlers

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in STOP_SIGNALS:
                if number != _HANGUP or signal.getsignal(number) is not signal.SIG_IGN:
                    self._previous[number] = signal.signal(number, self._receive)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    @contextmanager
    def raised(self, even_before: bool = True) -> Iterator[None]:
        """For code that may not return, such as an environment in this process: a signal raises `Stopped` in it.

        Args:
            even_before: Whether one that came before does, too.
        """
        try:
            self._raises = True
            if even_before and self.received is not None:
                raise Stopped
            yield
        finally:
            self._raises = False

    def _receive(self, number: int, _frame: object) -> None:
        self.received = self.received or number
        if self._raises:
            raise Stopped


@contextmanager
def stop_signals_blocked() -> Iterator[None]:
    """Processes started inside have these signals blocked from their first moment; this one gets them later.

    A child takes over the mask of the thread that starts it. The signals are not ignored meanwhile, since then another
    thread of this process would take and lose them. The resource tracker comes first: its start unblocks two.
    """
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)

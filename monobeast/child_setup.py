"""What a child process settles about itself: signals, its end with its parent's, its stacks and its priority."""

import ctypes
import faulthandler
import gc
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any

from monobeast.signals import STOP_SIGNALS

_PR_SET_PDEATHSIG = 1  # <linux/prctl.h>
_F_SETSIG = 10  # <fcntl.h>; Python 3.11 has no name for it


class ChildCall:
    """Target of a process that leaves stopping to its parent, and dies with it, before it unpickles what it is to do.

    Unpickling may import torch, which takes seconds, and a process that was still at it would outlive its parent.
    """

    def __init__(self, function: Callable[..., None], *arguments: Any) -> None:
        self._call = function, arguments

    def __getstate__(self) -> bytes:
        return bytes(ForkingPickler.dumps(self._call))  # descriptors within go to the child that is being started

    def __setstate__(self, pickled: bytes) -> None:
        self._pickled = pickled

    def __call__(self) -> None:
        """In the child."""
        _set_up_child()
        function, arguments = ForkingPickler.loads(self._pickled)
        function(*arguments)


def _set_up_child() -> None:
    gc.freeze()  # a collection would write to every object that the fork server made, and so unshare its memory
    for number in STOP_SIGNALS:
        # Not SIG_IGN, which a program that an environment starts would take over and could then not be stopped by.
        signal.signal(number, lambda *_: None)
        if hasattr(signal, "pthread_sigmask"):
            signal.siginterrupt(number, False)
    if hasattr(signal, "pthread_sigmask"):  # blocked since the start
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)
    die_with_parent()


def die_with_parent() -> None:
    """From now on this process ends when the one that started it does, or that one's fork server."""
    parent = multiprocessing.parent_process()
    if sys.platform != "linux":
        threading.Thread(target=_exit_after, args=(parent,), daemon=True).start()
        return
    import fcntl  # Windows has no such module

    # Two ways, both the kernel's: a thread would not run while a hanging environment holds the GIL. The first tells of
    # the fork server's end, the second of the learner's, whose sentinel (a pipe) then closes.
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    fcntl.fcntl(parent.sentinel, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(parent.sentinel, _F_SETSIG, signal.SIGKILL)
    flags = fcntl.fcntl(parent.sentinel, fcntl.F_GETFL)
    fcntl.fcntl(parent.sentinel, fcntl.F_SETFL, flags | os.O_ASYNC)
    if not parent.is_alive():  # it died before the arrangement stood
        os._exit(1)


def _exit_after(parent: multiprocessing.process.BaseProcess) -> None:
    parent.join()
    os._exit(1)


def write_stacks_when_asked(path: Path) -> None:
    """From now on SIGUSR1 makes this process add the stacks of its threads to a file, whatever holds the GIL."""
    if hasattr(faulthandler, "register"):  # not on Windows
        faulthandler.register(signal.SIGUSR1, file=open(path, "a"), all_threads=True)


def let_others_go_first(niceness: int) -> None:
    """Gives this process a lower priority for the cores than it had, where the system knows such."""
    if hasattr(os, "nice"):
        os.nice(niceness)

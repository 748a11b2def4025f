"""How child processes come to life, hear of their parent's death, and are seen dead themselves."""

import contextlib
import ctypes
import faulthandler
import gc
import multiprocessing
import multiprocessing.connection
import os
import shutil
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import resource_tracker
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any, Self

_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)
NO_GUARD_EXIT_CODE = 71  # of a child whose main script started a run while it was imported; no other meaning
NO_GUARD = (  # what is to be said then
    "It ended before it began: if a script of yours calls monobeast.train, it must do so under\n"
    'if __name__ == "__main__":\nsince every process of the run imports the script.'
)
_STACKS_S = 0.3  # for one process to write its stacks, so that those of two do not mix
_PR_SET_PDEATHSIG = 1  # <linux/prctl.h>
_F_SETSIG = 10  # <fcntl.h>; Python 3.11 has no name for it


def context(start_method: str, preload: list[str]) -> multiprocessing.context.BaseContext:
    """A multiprocessing context whose fork server, if it has one, imports `preload` once for all children.

    Fork itself is not offered: after torch's thread pool or CUDA has started, a forked child hangs or fails.
    """
    if start_method not in multiprocessing.get_all_start_methods():
        start_method = "spawn"  # Windows has no fork server
    made = multiprocessing.get_context(start_method)
    if start_method == "forkserver":
        made.set_forkserver_preload(preload)
    return made


def remove_temporary_folder() -> None:
    """Removes where the fork server's socket is, which `multiprocessing` does at an exit that is not `os._exit`."""
    folder = getattr(multiprocessing.current_process(), "_config", {}).get("tempdir")
    if folder:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def stop_signals_blocked() -> Iterator[None]:
    """Processes started inside have SIGINT and SIGTERM blocked from their first moment; this one gets both later.

    A child takes over the mask of the thread that starts it. The signals are not ignored meanwhile, since then another
    thread of this process would take and lose them. The resource tracker comes first: its start unblocks both.
    """
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _STOP_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def check_main_script() -> None:
    """Makes sure that children can import this process's main script, as they will before anything else.

    A child that is just importing it, since the script lacks the `__main__` guard, ends here, silently: the parent says
    what is wrong, once.

    Raises:
        RuntimeError: the script came by standard input, so that there is nothing to import.
    """
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        os._exit(NO_GUARD_EXIT_CODE)
    path = getattr(sys.modules["__main__"], "__file__", None)
    if path is not None and not os.path.exists(path):
        raise RuntimeError(
            f"the run's processes import the main script, and {path} is no file: save the script, or use "
            "--num_actors 0 and no --evaluate_every"
        )


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
    for number in _STOP_SIGNALS:
        # Not SIG_IGN, which a program that an environment starts would take over and could then not be stopped by.
        signal.signal(number, lambda *_: None)
        if hasattr(signal, "pthread_sigmask"):
            signal.siginterrupt(number, False)
    if hasattr(signal, "pthread_sigmask"):  # blocked since the start
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _STOP_SIGNALS)
    _die_with_parent()


def let_others_go_first(niceness: int) -> None:
    """Gives this process a lower priority for the cores than it had, where the system knows such."""
    if hasattr(os, "nice"):
        os.nice(niceness)


def write_stacks_when_asked(path: Path) -> None:
    """From now on SIGUSR1 makes this process add the stacks of its threads to a file, whatever holds the GIL."""
    if hasattr(faulthandler, "register"):  # not on Windows
        faulthandler.register(signal.SIGUSR1, file=open(path, "a"), all_threads=True)


def _die_with_parent() -> None:
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


class WatchedProcess:
    """A started process that can be waited for, killed and described, also when the fork server has died.

    `multiprocessing`'s own sentinel becomes ready when the fork server dies, though the child may live on; a pidfd,
    where there is one, speaks of the child alone and never of another process that got its number.
    """

    def __init__(self, process: multiprocessing.process.BaseProcess) -> None:
        self._process = process
        with stop_signals_blocked():
            process.start()
        try:
            self._pidfd: int | None = os.pidfd_open(process.pid)
        except (AttributeError, OSError):  # not Linux, forbidden in this container, or gone already
            self._pidfd = None

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def sentinel(self) -> int:
        """Ready, for `multiprocessing.connection.wait`, once the process has ended."""
        return self._process.sentinel if self._pidfd is None else self._pidfd

    def join(self, timeout_s: float | None) -> bool:
        """Waits for the end, as long as it takes where `timeout_s` is None; whether it came."""
        return bool(multiprocessing.connection.wait([self.sentinel], timeout=timeout_s))

    def kill(self) -> None:
        """Ends the process, and returns once it is gone. Call `close` afterwards."""
        if self._pidfd is not None:
            try:
                signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
            except ProcessLookupError:
                pass
        else:
            self._process.kill()
        self.join(timeout_s=None)

    def ask_for_stacks(self) -> None:
        """Lets the process write the stacks of its threads; one that never called `write_stacks_when_asked` ends."""
        if hasattr(signal, "SIGUSR1"):
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGUSR1)
            self.join(_STACKS_S)

    @property
    def exit_code(self) -> int | None:
        """As of `multiprocessing`: negative for a signal; None while the process lives, or where nobody can tell."""
        self._process.join(timeout=1.0)  # the fork server's word may lag behind the end itself
        code = self._process.exitcode
        return None if code == 255 else code  # 255: the fork server died and took the code with it

    def describe_end(self) -> str:
        """How the process ended: "exited with code 3", "killed by SIGSEGV"."""
        code = self.exit_code
        if code is None:
            return "ended"
        if code < 0:
            known = -code in {number.value for number in signal.Signals}
            return f"killed by {signal.Signals(-code).name if known else f'signal {-code}'}"
        return f"exited with code {code}"

    def close(self) -> None:
        """Gives the descriptors back; the process must have ended."""
        if self._pidfd is not None:
            os.close(self._pidfd)
            self._pidfd = None
        self._process.join(timeout=1.0)  # the fork server's word may lag behind the end itself
        if self._process.exitcode is not None:
            self._process.close()


class Stopped(BaseException):
    """A signal came while `StopSignals.raised` was in force."""


class StopSignals:
    """Turns SIGINT and SIGTERM into a wish to stop that the training loop reads. A context manager.

    Outside the main thread, where Python sets no handlers, it never wishes.
    """

    def __init__(self) -> None:
        self.received: int | None = None
        self._raises = False
        self._previous: dict[int, Any] = {}  # handlers

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in _STOP_SIGNALS:
                self._previous[number] = signal.signal(number, self._receive)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    @contextmanager
    def raised(self) -> Iterator[None]:
        """For code that may not return, such as an environment in this process: a signal raises `Stopped` in it."""
        self._raises = True
        try:
            yield
        finally:
            self._raises = False

    def _receive(self, number: int, _frame: object) -> None:
        self.received = self.received or number
        if self._raises:
            raise Stopped

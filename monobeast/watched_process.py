"""A process that is seen dead whatever becomes of the fork server that started it."""

import contextlib
import multiprocessing
import multiprocessing.connection
import os
import signal

from monobeast.signals import stop_signals_blocked

_STACKS_S = 0.3  # for one process to write its stacks, so that those of two do not mix
_LATEST_WORD_S = 1.0  # by which the fork server's word may lag behind the end itself


class WatchedProcess:
    """A started process that can be waited for, ended and described, also when the fork server has died.

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

    def end(self) -> None:
        """Kills the process where it still lives, and returns once it is gone and its descriptors are given back."""
        self._kill()
        self.join(timeout_s=None)
        if self._pidfd is not None:
            os.close(self._pidfd)
            self._pidfd = None
        self._process.join(_LATEST_WORD_S)
        if self._process.exitcode is not None:
            self._process.close()

    def ask_for_stacks(self) -> None:
        """Lets the process write the stacks of its threads; one that never called `write_stacks_when_asked` ends."""
        if hasattr(signal, "SIGUSR1"):
            self._send(signal.SIGUSR1)
            self.join(_STACKS_S)

    def wait_for_exit_code(self) -> int | None:
        """As of `multiprocessing`: negative for a signal; None, after a second, if it lives on or nobody can tell."""
        self._process.join(_LATEST_WORD_S)
        code = self._process.exitcode
        return None if code == 255 else code  # 255: the fork server died and took the code with it

    def describe_end(self) -> str:
        """How the process ended: "exited with code 3", "killed by SIGSEGV"."""
        code = self.wait_for_exit_code()
        if code is None:
            return "ended"
        if code < 0:
            known = -code in {number.value for number in signal.Signals}
            return f"killed by {signal.Signals(-code).name if known else f'signal {-code}'}"
        return f"exited with code {code}"

    def _kill(self) -> None:
        if self._pidfd is None:
            self._process.kill()
        else:
            self._send(signal.SIGKILL)

    def _send(self, number: int) -> None:
        """Sends a signal, if the process still lives."""
        with contextlib.suppress(ProcessLookupError):
            if self._pidfd is not None:
                signal.pidfd_send_signal(self._pidfd, number)
            elif self._process.exitcode is None:  # else its number may be another's by now
                os.kill(self.pid, number)

"""Message pipes between the learner and one child; an actor's free and full queues carry slot numbers.

Unlike TorchBeast, whose actors share two `SimpleQueue`s, each actor has its own pair. A process killed while it waits
in a shared queue keeps the read lock for ever; here no lock is shared, and the slots of a dead actor are known.
"""

import multiprocessing
import sys
import traceback
from typing import Any, NamedTuple

from monobeast.errors import describe

# A message about a slot is one write of some hundred bytes, far below PIPE_BUF, so the kernel writes it whole or not at
# all. A child's traceback may be longer; nobody else writes to its pipe, and a cut-off one ends in an end of file.
_LONGEST_TRACEBACK = 16_384
_LONGEST_ERROR = 1_000


class FilledSlot(NamedTuple):
    """An actor's message about a rollout."""

    slot: int
    asked_at: float  # seconds of time.perf_counter, one clock for all processes of a machine
    began_at: float  # when the slot was there
    ended_at: float  # when it was filled


class Failure(NamedTuple):
    """A child's last message before an exception ends it."""

    error: str  # in one line
    traceback: str
    was_ready: bool | None = None  # only an actor says so; False: it failed before its first step

    def describe(self) -> str:
        """How the child ended."""
        return f"ended with an exception:\n{self.traceback.rstrip()}"


class MessageQueue:
    """One pipe from one process to another. The learner makes it and keeps one end; the child keeps the other."""

    def __init__(self) -> None:
        self._reader, self._writer = multiprocessing.Pipe(duplex=False)

    def keep_reader(self) -> None:
        """Closes this process's writing end; only then does the writer's death show as an end of file."""
        self._writer.close()

    def keep_writer(self) -> None:
        """Closes this process's reading end."""
        self._reader.close()

    def close(self) -> None:
        """Closes both ends in this process."""
        self._reader.close()
        self._writer.close()

    def fileno(self) -> int:
        """The reading end, for `multiprocessing.connection.wait`."""
        return self._reader.fileno()

    def has_message(self) -> bool:
        """Whether `get` would return at once, even if by an end of file."""
        try:
            return self._reader.poll()
        except OSError:
            return False

    def put(self, message: Any) -> bool:
        """Sends a message, such as a free slot's number, a filled slot, or an actor's last words; not None.

        Returns:
            Whether the reader is still there.
        """
        try:
            self._writer.send(message)
        except OSError:
            return False
        return True

    def get(self) -> Any:
        """Waits for a message; None once the writer has gone."""
        try:
            return self._reader.recv()
        except (EOFError, OSError):  # a reset counts as an end too
            return None


def last_words(was_ready: bool | None = None) -> Failure:
    """The exception being handled, with its traceback; of a long one only the end."""
    error = describe(sys.exc_info()[1], is_short=True)
    return Failure(error[:_LONGEST_ERROR], traceback.format_exc()[-_LONGEST_TRACEBACK:], was_ready)

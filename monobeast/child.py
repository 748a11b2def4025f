"""A child process and the parent's ends of its two queues, of requests and of replies."""

from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

from monobeast.child_setup import ChildCall
from monobeast.queues import MessageQueue
from monobeast.silence import Silence
from monobeast.start_methods import context
from monobeast.watched_process import WatchedProcess

PRELOAD = ["monobeast.actor", "monobeast.child"]  # with a fork server, imported once for all children


class NotStarted(RuntimeError):
    """A child could not be started; says why."""


class Child(WatchedProcess):
    """A process that reads requests and writes replies, and for how long it has been silent.

    `multiprocessing.connection.wait` takes a child for its next reply, or the end of them, and its `sentinel` for the
    end of the process.

    Args:
        start_method: `forkserver` or `spawn`.
        name: Of the process.
        function: Of a module's top level. The child calls it with `arguments`, the queue of requests, from which it
            gets None once there will be no more, and the queue of replies.
        arguments: Are pickled; tensors go as shared memory.

    Raises:
        NotStarted: the fork server died meanwhile, or there is no descriptor left.
    """

    def __init__(self, start_method: str, name: str, function: Callable[..., None], *arguments: Any) -> None:
        self._queues = ExitStack()
        try:
            self._requests = self._queues.enter_context(closing(MessageQueue()))
            self._replies = self._queues.enter_context(closing(MessageQueue()))
            call = ChildCall(_begin, function, arguments, self._requests, self._replies)
            super().__init__(context(start_method, PRELOAD).Process(target=call, name=name))
        except (EOFError, OSError) as error:
            self._queues.close()
            raise NotStarted(f"could not be started: {error!r}") from error
        self._requests.keep_writer()
        self._replies.keep_reader()
        self._silence = Silence()

    @property
    def silent_s(self) -> float:
        """Seconds since its last sign, as of the last call of `is_silent`."""
        return self._silence.seconds

    def fileno(self) -> int:
        """Of the replies, for `multiprocessing.connection.wait`."""
        return self._replies.fileno()

    def send(self, request: Any) -> None:
        """Sends what it is to answer to from now on; where it has died, its sentinel says so."""
        self._requests.put(request)
        self._silence.end()

    def has_reply(self) -> bool:
        """Whether there is a reply, or the end of them."""
        return self._replies.has_message()

    def receive(self) -> Any:
        """Its next reply; None at the end of them and where there is none, as of one whose sentinel alone is ready."""
        if not self.has_reply():
            return None
        self._silence.end()
        return self._replies.get()

    def is_silent(self, limit_s: float) -> bool:
        """Whether it has said nothing for longer; to be asked every other second, since no more counts at a time."""
        return self._silence.look() > limit_s and not self.has_reply()

    def describe_silence(self, limit_s: float, out_log: Path | None) -> str:
        """What to say of one that is silent, which writes its stacks to `out_log` before, if it has one."""
        self.ask_for_stacks()
        where = f"; its stacks are in {out_log}" if out_log is not None else ""
        return f"did not answer for {limit_s:g} s{where}"

    def dismiss(self) -> None:
        """Tells it that there will be no more requests: its word to leave."""
        self._requests.close()

    def end(self) -> None:
        """Kills the process where it still lives, and returns once it is gone and all descriptors are given back."""
        super().end()
        self._queues.close()


def _begin(
    function: Callable[..., None], arguments: tuple[Any, ...], requests: MessageQueue, replies: MessageQueue
) -> None:
    """In the child."""
    requests.keep_reader()
    replies.keep_writer()
    function(*arguments, requests, replies)

"""A call in a process of its own, with a time limit: what hangs or dies in it takes nothing else along."""

import multiprocessing.connection
from collections.abc import Callable
from typing import Any, NamedTuple

from monobeast import processes
from monobeast.processes import ChildCall, WatchedProcess
from monobeast.queues import MessageQueue, last_words


class TrialFailed(RuntimeError):
    """The call gave no result; says why."""


class _Result(NamedTuple):
    value: Any


class _Failure(NamedTuple):
    traceback: str


def run(start_method: str, timeout_s: float, function: Callable[..., Any], *arguments: Any) -> Any:
    """Returns what `function(*arguments)` gives in a process that is gone afterwards.

    Args:
        start_method: Of the process.
        timeout_s: After which it is ended, its imports included.
        function: Of a module's top level: it is pickled, as its arguments and its result are.

    Raises:
        TrialFailed: the process could not be started, raised an exception, ended without a result, or took too long.
    """
    replies = MessageQueue()
    call = ChildCall(_answer, function, arguments, replies)
    try:
        context = processes.context(start_method, preload=["monobeast.actor"])
        process = WatchedProcess(context.Process(target=call, name="trial"))
    except (EOFError, OSError) as error:  # the fork server died, or there is no descriptor left
        replies.close()
        raise TrialFailed(f"could not be started: {error!r}") from error
    try:
        replies.keep_reader()
        return _wait(process, replies, timeout_s)
    finally:
        process.kill()
        process.close()
        replies.close()


def _wait(process: WatchedProcess, replies: MessageQueue, timeout_s: float) -> Any:
    if not multiprocessing.connection.wait([replies.fileno(), process.sentinel], timeout=timeout_s):
        raise TrialFailed(f"was not done within {timeout_s:g} s")
    message = replies.get() if replies.has_message() else None
    if isinstance(message, _Result):
        return message.value
    if isinstance(message, _Failure):
        raise TrialFailed(message.traceback.strip().splitlines()[-1])
    raise TrialFailed(process.describe_end())


def _answer(function: Callable[..., Any], arguments: tuple[Any, ...], replies: MessageQueue) -> None:
    """In the child."""
    replies.keep_writer()
    try:
        replies.put(_Result(function(*arguments)))
    except BaseException:  # an environment may also call sys.exit
        replies.put(_Failure(last_words()))

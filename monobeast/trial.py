"""A call in a process of its own, with a time limit: what hangs or dies in it takes nothing else along."""

import multiprocessing.connection
from collections.abc import Callable
from typing import Any, NamedTuple

from monobeast.child import Child, NotStarted
from monobeast.queues import Failure, MessageQueue, last_words


class TrialFailed(RuntimeError):
    """The call gave no result; says why."""


class _Result(NamedTuple):
    value: Any


def run(start_method: str, timeout_s: float, function: Callable[..., Any], *arguments: Any) -> Any:
    """Returns what `function(*arguments)` gives in a process that is gone afterwards.

    Args:
        start_method: Of the process.
        timeout_s: After which it is ended, its imports included.
        function: Of a module's top level: it is pickled, as its arguments and its result are.

    Raises:
        TrialFailed: the process could not be started, raised an exception, ended without a result, or took too long.
    """
    try:
        child = Child(start_method, "trial", _answer, function, arguments)
    except NotStarted as failure:
        raise TrialFailed(str(failure)) from failure
    try:
        return _wait(child, timeout_s)
    finally:
        child.end()


def _wait(child: Child, timeout_s: float) -> Any:
    if not multiprocessing.connection.wait([child, child.sentinel], timeout=timeout_s):
        raise TrialFailed(f"was not done within {timeout_s:g} s")
    reply = child.receive()
    if isinstance(reply, _Result):
        return reply.value
    if isinstance(reply, Failure):
        raise TrialFailed(reply.error)
    raise TrialFailed(child.describe_end())


def _answer(
    function: Callable[..., Any], arguments: tuple[Any, ...], _requests: MessageQueue, replies: MessageQueue
) -> None:
    """In the child."""
    try:
        replies.put(_Result(function(*arguments)))
    except BaseException:  # an environment may also call sys.exit
        replies.put(last_words())

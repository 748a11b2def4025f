"""A child and its queues: told what to do, heard, found silent, and gone at the end."""

import os
import signal
from multiprocessing.process import BaseProcess

import child_functions
import pytest
from hand_clock import HandClock
from process_tree import is_alive, wait_until

from monobeast.child import Child, NotStarted
from monobeast.silence import Silence


@pytest.fixture
def echo(clock):
    """A child that answers each request with itself."""
    child = Child("forkserver", "echo", child_functions.answer)
    yield child
    child.end()


def receive(child):
    assert wait_until(child.has_reply)
    return child.receive()


def test_a_child_replies_until_it_is_dismissed(echo):
    for request in (1, "two"):
        echo.send(request)
        assert receive(echo) == request

    assert not echo.has_reply() and echo.receive() is None
    echo.dismiss()
    assert echo.join(30) and receive(echo) is None
    assert echo.describe_end() == "exited with code 0"


def test_a_reply_that_a_dead_child_has_sent_is_not_lost(echo):
    echo.send(1)
    assert wait_until(echo.has_reply)
    os.kill(echo.pid, signal.SIGKILL)

    assert echo.join(30)
    assert receive(echo) == 1 and receive(echo) is None
    assert echo.describe_end() == "killed by SIGKILL"


def test_a_silence_lasts_from_the_last_word_of_either_side(echo, clock):
    def wait(seconds):
        for _ in range(seconds):
            clock.tick(1)
            echo.is_silent(9)
        return echo.is_silent(9)

    assert not wait(9) and wait(1) and echo.silent_s == 10
    echo.send(1)
    assert not wait(5) and echo.silent_s == 5
    assert wait_until(echo.has_reply)
    assert not wait(5)  # a reply that nobody has taken yet is no silence
    echo.receive()
    assert not wait(9) and wait(1)


def test_a_look_counts_two_seconds_at_most_however_late_it_comes():
    clock = HandClock()
    silence = Silence(clock)
    for seconds, counted in ((1, 1), (3600, 3), (0.5, 3.5)):
        clock.tick(seconds)
        assert silence.look() == counted

    silence.end()
    assert silence.look() == 0


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="/proc tells what is open")
@pytest.mark.parametrize("is_started", [True, False])
def test_nothing_is_left_of_a_child_that_was_ended_or_never_started(monkeypatch, is_started):
    def fail(process):
        raise OSError("too many open files")

    Child("forkserver", "first", child_functions.answer).end()  # the fork server has come to stay
    before = os.listdir("/proc/self/fd")
    if is_started:
        child = Child("forkserver", "second", child_functions.answer)
        pid = child.pid
        assert len(os.listdir("/proc/self/fd")) > len(before)
        child.end()
        assert not is_alive(pid)
    else:
        monkeypatch.setattr(BaseProcess, "start", fail)
        with pytest.raises(NotStarted) as failure:  # which keeps alive what its traceback has
            Child("forkserver", "second", child_functions.answer)
        assert str(failure.value) == "could not be started: OSError('too many open files')"

    assert len(os.listdir("/proc/self/fd")) == len(before)

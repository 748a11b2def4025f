import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path

import child_functions
import pytest
from process_tree import is_alive, wait_until

from monobeast import start_methods
from monobeast.child import PRELOAD
from monobeast.child_setup import ChildCall
from monobeast.signals import StopSignals, stop_signals_blocked
from monobeast.watched_process import WatchedProcess


def ask_child(context, function, call_of=ChildCall):
    """What `function` sends from a child of `context`."""
    reader, writer = multiprocessing.Pipe(duplex=False)
    child = WatchedProcess(context.Process(target=call_of(function, writer)))
    try:
        assert reader.poll(30)
        return reader.recv()
    finally:
        child.end()


def test_the_fork_server_has_imported_what_every_actor_needs():
    # The fork server swallows a preload that fails, and its children would each import for seconds.
    modules = ask_child(start_methods.context("forkserver", PRELOAD), child_functions.report_modules)

    assert {"torch", *PRELOAD} <= set(modules)


@pytest.mark.parametrize("start_method", ["forkserver", "spawn"])
def test_a_child_lives_through_stop_signals_from_its_first_moment(start_method):
    context = start_methods.context(start_method, [])

    assert ask_child(context, child_functions.survive_stop_signals, call_of=partial) == "alive"


@pytest.mark.parametrize("start_method", ["forkserver", "spawn"])
def test_what_an_environment_starts_can_be_stopped(start_method):
    context = start_methods.context(start_method, [])

    assert ask_child(context, child_functions.stop_a_program) == -signal.SIGTERM


@pytest.mark.parametrize("num_threads", [0, 3])
def test_a_signal_during_the_start_of_a_child_is_not_lost(num_threads):
    finished = threading.Event()
    for _ in range(num_threads):  # which do not block the signal
        threading.Thread(target=finished.wait).start()
    with StopSignals() as stop:
        with stop_signals_blocked():
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.05)
        finished.set()
        assert stop.received == signal.SIGINT


def test_the_first_of_several_signals_counts():
    with StopSignals() as stop:
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGINT)
        assert stop.received == signal.SIGTERM


@pytest.mark.parametrize(
    ("function", "arguments", "number", "description"),
    [
        (child_functions.exit_with, (3,), None, "exited with code 3"),
        (child_functions.sleep_forever, (), signal.SIGKILL, "killed by SIGKILL"),
        (child_functions.sleep_forever, (), signal.SIGSEGV, "killed by SIGSEGV"),
    ],
)
def test_the_end_of_a_process_is_described(function, arguments, number, description):
    child = WatchedProcess(start_methods.context("forkserver", []).Process(target=function, args=arguments))
    if number is not None:
        os.kill(child.pid, number)

    assert child.join(timeout_s=30)
    assert child.describe_end() == description
    child.end()  # no harm to a dead process


def test_an_ended_process_is_gone_when_end_returns():
    child = WatchedProcess(start_methods.context("forkserver", []).Process(target=child_functions.sleep_forever))
    pid = child.pid

    child.end()

    assert not is_alive(pid)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a thread waits for the parent, and needs the GIL")
@pytest.mark.parametrize("is_held_up", [False, True])
@pytest.mark.parametrize("start_method", ["forkserver", "spawn"])
def test_a_child_dies_with_its_parent_though_it_holds_the_gil(tmp_path, start_method, is_held_up):
    tests = Path(__file__).parent
    environment = os.environ | {"PYTHONPATH": str(tests.parent), "TMPDIR": str(tmp_path)}
    code = f"import child_functions; child_functions.be_the_parent({start_method!r}, {is_held_up})"
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=tests, env=environment) as parent:
        child = int(parent.stdout.readline())
        parent.kill()
        parent.wait()
        try:
            assert wait_until(lambda: not is_alive(child), timeout_s=5)
        finally:
            if is_alive(child):
                os.kill(child, signal.SIGKILL)

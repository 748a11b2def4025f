"""A run without updates ends, and says where everybody stood."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from process_tree import read_stat, wait_until

TESTS = Path(__file__).parent


# Where `hung` is a folder, time counts once it has two files: two actors hang then.
PROGRAM = """if True:
    import os, sys
    from monobeast import stall_watch
    from monobeast.__main__ import main
    grace_s, hung = sys.argv.pop(1), sys.argv.pop(1)
    stall_watch._GRACE_S = float(grace_s)
    intact = stall_watch.StallWatch.check

    def check(watch, describe_actors):
        if hung and len(os.listdir(hung)) < 2:
            watch.feed()
        intact(watch, describe_actors)

    stall_watch.StallWatch.check = check
    main()"""


def start(tmp_path, *flags, grace_s=10.0, hung=""):
    """A run in a process of its own."""
    given = ["train", "--savedir", str(tmp_path), "--xpid", "run", *flags]
    command = [sys.executable, "-c", PROGRAM, str(grace_s), str(hung), *given]
    paths = os.pathsep.join([str(TESTS.parent), str(TESTS)])
    return subprocess.Popen(command, env=os.environ | {"PYTHONPATH": paths}, stdout=subprocess.DEVNULL)


def run(tmp_path, *flags, **options):
    """The exit code of a run, and its out.log."""
    with start(tmp_path, *flags, **options) as process:
        return process.wait(120), (tmp_path / "run" / "out.log").read_text()


def hang(**env_kwargs):
    """Flags of a run that makes four updates or more before an environment hangs, and measures nothing before."""
    env = ["--env", "stub_environments:Hang-v0", "--env_kwargs", json.dumps({"k": 45} | env_kwargs)]
    return [*env, "--envs_per_actor", "8", "--num_learner_threads", "1"]


def test_a_run_whose_actors_hang_ends_with_the_stacks_of_all_processes(tmp_path):
    hung = tmp_path / "hung"
    hung.mkdir()

    exit_code, log = run(tmp_path, *hang(hung=str(hung)), "--num_actors", "2", "--stall_timeout_s", "1", hung=hung)

    assert exit_code == 1
    assert "no update for 1 s (--stall_timeout_s)" in log
    assert "the learner, then the actors:" in log and "in _loop" in log
    assert log.count("stub_environments.py") >= 2  # each actor hangs in its environment
    assert "actor 0: pid" in log and "actor 1: pid" in log and "are with it or in its queues" in log
    assert (tmp_path / "run" / "checkpoint.pt").exists()


def test_a_learner_that_hangs_itself_ends_with_its_stack(tmp_path):
    """Its time begins before its first update, which takes long on a busy machine."""
    exit_code, log = run(tmp_path, *hang(), "--num_actors", "0", "--stall_timeout_s", "6", grace_s=1.0)

    assert exit_code == 1
    assert "Timeout" in log and "stub_environments.py" in log


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="/proc tells whether a process is stopped")
@pytest.mark.parametrize("num_actors", ["0", pytest.param("2", marks=pytest.mark.slow)])
def test_the_time_for_which_ctrl_z_stops_a_run_does_not_count(tmp_path, num_actors):
    flags = ["--env", "monobeast/Catch-v0", "--num_actors", num_actors, "--num_learner_threads", "1"]
    flags += ["--stall_timeout_s", "1", "--max_seconds", "6", "--log_interval_s", "0.1"]
    with start(tmp_path, *flags, grace_s=0.5) as process:
        assert wait_until(lambda: (tmp_path / "run" / "checkpoint.pt").exists())

        process.send_signal(signal.SIGTSTP)
        assert wait_until(lambda: read_stat(process.pid)[0] == "T")
        time.sleep(3)
        process.send_signal(signal.SIGCONT)

        assert process.wait(60) == 0
    log = (tmp_path / "run" / "out.log").read_text()
    assert "Timeout" not in log and "complete at step" in log


@pytest.mark.parametrize("num_actors", ["0", pytest.param("2", marks=pytest.mark.slow)])
def test_a_run_with_updates_does_not_stall(tmp_path, num_actors):
    sound = ["--env", "monobeast/Catch-v0", "--num_actors", num_actors, "--stall_timeout_s", "3", "--max_seconds", "4"]

    exit_code, log = run(tmp_path, *sound, "--num_learner_threads", "1", grace_s=0.0)

    assert exit_code == 0 and "no update" not in log

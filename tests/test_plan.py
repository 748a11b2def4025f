"""`monobeast plan`, and what train refuses before it starts."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from command_lines import run
from resource_needs import ROOMY, UNKNOWN, on_linux
from saved_runs import save_run

from monobeast.actor_pool import ActorPool
from monobeast.resources import machine

CHECKOUT = Path(__file__).parent.parent
CATCH = ("--env", "monobeast/Catch-v0", "--device", "cpu", "--envs_per_actor", "8")


@pytest.fixture
def roomy(monkeypatch):
    monkeypatch.setattr(machine, "read", lambda: ROOMY)


def test_a_complete_run_needs_nothing(tmp_path, capfd):
    path = save_run(tmp_path, env="monobeast/Catch-v0", total_steps=1) / "checkpoint.pt"
    content = torch.load(path, weights_only=True)
    content["learner"]["step"] = 1
    torch.save(content, path)

    flags = ("--resume", "--xpid", "example", "--savedir", tmp_path, "--num_actors", 1)
    assert run(capfd, "plan", *flags) == (0, "already complete at step 1: nothing is needed\n", "")


def test_plan_prints_a_table_starts_nothing_and_makes_no_folder(tmp_path, capfd, monkeypatch, roomy):
    monkeypatch.setattr(subprocess, "Popen", None)
    monkeypatch.setattr(ActorPool, "__init__", None)

    exit_code, output, errors = run(capfd, "plan", *CATCH, "--savedir", str(tmp_path / "runs"), "--num-actors", "3")

    assert (exit_code, errors) == (0, "")
    lines = output.splitlines()
    assert lines[0] == (
        "monobeast/Catch-v0 with the mlp network on cpu: 3 actors of 8 environments, 6 slots, "
        "batches of 8 rollouts of 10 steps"
    )
    assert lines[1].split() == ["what", "needed", "available", "verdict"]
    assert re.fullmatch(r"shared memory +\d+\.\d MB +20\.0 GB  fits", lines[2])
    assert re.fullmatch(r"  observations +\d+\.\d kB", lines[3])
    assert lines[-1] == "all fits"
    assert os.listdir(tmp_path) == []


def test_plan_of_what_does_not_fit_ends_with_the_refusal_and_exit_code_1(capfd, roomy):
    exit_code, output, errors = run(capfd, "plan", *CATCH, "--num_buffers", "1e9")

    assert (exit_code, errors) == (1, "")
    lines = output.splitlines()
    assert re.fullmatch(r"shared memory +\d+\.\d TB +20\.0 GB  does not fit", lines[2])
    assert lines[-1].startswith("--num_buffers 1000000000: rollout slots and weights need ")


def test_plan_says_where_more_will_be_taken_than_is_there(capfd, monkeypatch):
    """The least that is surely needed lies far below what a large batch takes."""
    monkeypatch.setattr(machine, "read", lambda: ROOMY._replace(memory=400_000_000))
    flags = (*CATCH, "--num_actors", "1", "--num_learner_threads", "1")

    exit_code, output, _ = run(capfd, "plan", *flags)
    assert exit_code == 0 and output.splitlines()[-1].startswith("more memory will be taken than is available")

    _, output, _ = run(capfd, "plan", *flags, "--batch_size", "1e6")
    assert "would fit" not in output  # even the smallest batch leaves too little


def test_what_would_fit_would_also_find_room_for_what_it_takes(capfd, monkeypatch):
    monkeypatch.setattr(machine, "read", lambda: ROOMY._replace(memory=4_000_000_000))
    flags = (*CATCH, "--num_actors", "1", "--num_learner_threads", "1")
    _, output, _ = run(capfd, "plan", *flags, "--batch_size", "8e6")
    suggested = re.search(r"--batch_size (\d+) would fit", output)[1]

    exit_code, output, _ = run(capfd, "plan", *flags, "--batch_size", suggested)

    assert exit_code == 0 and output.splitlines()[-1].startswith("all fits")


def test_plan_of_an_unknown_machine_says_so(capfd, monkeypatch):
    monkeypatch.setattr(machine, "read", lambda: UNKNOWN)

    exit_code, output, _ = run(capfd, "plan", *CATCH, "--no_resume")

    assert exit_code == 0
    assert re.fullmatch(r"shared memory +\d+\.\d MB +unknown  unknown", output.splitlines()[2])


def test_plan_warns_of_threads(capfd, caplog, monkeypatch):
    monkeypatch.setattr(machine, "read", lambda: ROOMY._replace(cores=2))

    exit_code, output, _ = run(capfd, "plan", *CATCH, "--num_actors", "9", "--num_threads", "1")

    assert exit_code == 0
    assert output.splitlines()[-3].split()[-3:] == ["10", "2", "slow"]
    assert re.fullmatch(r"all processes together will take about \d+ MB of memory \(PSS\)", output.splitlines()[-2])
    assert output.splitlines()[-1] == "all fits, and would be faster with fewer threads"
    warning = "--num_actors 9 --num_learner_threads 1: 10 threads share 2 cores, which is slower than fewer"
    assert caplog.messages == [warning]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--unroll_length", "0"], "monobeast plan: error: --unroll_length 0: must be at least 1"),
        (["--num_bufers", "9"], "did you mean --num_buffers?"),
        (["--greedy"], "unrecognized arguments: --greedy"),
        (["stray"], "unrecognized arguments: stray"),
    ],
)
def test_plan_refuses_what_train_refuses(capfd, arguments, message):
    exit_code, output, errors = run(capfd, "plan", *arguments)

    assert (exit_code, output) == (2, "")
    assert message in errors


def test_help_of_plan_has_the_flags_of_train_and_its_own_exit_codes(capfd):
    exit_code, output, _ = run(capfd, "plan", "--help")

    assert exit_code == 0
    assert "--learning_rate" in output and "--num_episodes" not in output
    assert "1 something does not" in output


@pytest.mark.parametrize(
    "flag",
    [
        ("--num_buffers", "1000000000"),
        ("--envs_per_actor", "1000000000"),
        ("--unroll_length", "1000000000"),
        ("--num_actors", "5000"),
        ("--batch_size", "8000000000"),
    ],
)
def test_train_refuses_in_a_line_before_it_makes_anything(tmp_path, capfd, roomy, flag):
    exit_code, output, errors = run(capfd, "train", *CATCH, "--savedir", str(tmp_path / "runs"), *flag)

    assert (exit_code, output) == (2, "")
    assert re.fullmatch(rf"monobeast train: error: {' '.join(flag)}: .* would fit\n", errors)
    assert os.listdir(tmp_path) == []


@on_linux
@pytest.mark.slow
def test_a_run_in_a_really_small_shared_memory_is_refused_and_a_smaller_one_runs(tmp_path):
    def run_in_4_megabytes(*arguments):
        train = [sys.executable, "-m", "monobeast", *CATCH, "--savedir", str(tmp_path), "--total_steps", "160"]
        script = 'mount -t tmpfs -o size=4m monobeast-test /dev/shm && exec "$@"'
        command = ["unshare", "--mount", "sh", "-c", script, "sh", *train, *arguments]
        return subprocess.run(command, capture_output=True, text=True, cwd=CHECKOUT)

    if subprocess.run(["unshare", "--mount", "true"], capture_output=True).returncode != 0:
        pytest.skip("needs the right to mount a file system, as root has")

    refused, complete = run_in_4_megabytes("--num_buffers", "4000"), run_in_4_megabytes()

    assert refused.returncode == 2 and "and /dev/shm has 4." in refused.stderr
    assert complete.returncode == 0

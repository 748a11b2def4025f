"""With --exact_resume a run that was stopped and resumed equals one that was not, bit by bit."""

import itertools
import json
import os
import signal
import subprocess
import sys
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
import torch
from csv_rows import rows_of

from monobeast.__main__ import run_command
from monobeast.bottleneck import Shares
from monobeast.config import Config
from monobeast.environments.catch import Catch
from monobeast.learner import Learner
from monobeast.rollouts import BatchStaging
from monobeast.runs import checkpoint, exact_resume
from monobeast.training import train

TESTS = Path(__file__).parent
STUBS = "stub_environments:"
NUM_UPDATES = 12
CATCH = {"env": "monobeast/Catch-v0", "envs_per_actor": 2, "batch_size": 2, "unroll_length": 7}
SETTINGS = {
    **{"num_actors": 0, "seed": 3, "num_learner_threads": 1, "exact_resume": True},
    "log_interval_s": 1e-9,  # a row an update, so that rows can be compared
}
# Name: settings, and the update after which the run is stopped.
CASES = {
    "catch": (CATCH, 5),
    "catch, on an episode's end": (CATCH | {"unroll_length": 3}, 3),
    "catch, part of a slot still to learn from": (CATCH | {"envs_per_actor": 6}, 4),
    "catch, a batch of several slots": (CATCH | {"batch_size": 6}, 5),
    "memory, recurrent": (
        CATCH | {"env": "monobeast/Memory-v0", "env_kwargs": '{"delay": 4}', "use_lstm": True, "unroll_length": 5},
        5,
    ),
    "cartpole": (CATCH | {"env": "CartPole-v1", "optimizer": "adam", "unroll_length": 10}, 5),
    "acrobot": (CATCH | {"env": "Acrobot-v1", "env_kwargs": '{"max_episode_steps": 60}'}, 5),
    "mountain car": (CATCH | {"env": "MountainCar-v0", "env_kwargs": '{"max_episode_steps": 60}'}, 5),
    "pendulum": (CATCH | {"env": "Pendulum-v1", "env_kwargs": '{"max_episode_steps": 60}'}, 5),
    "a network that draws numbers": (CATCH | {"network": "stub_networks:Noisy"}, 5),
    "color catch": (CATCH | {"env": "monobeast/ColorCatch-v0"}, 5),
    "an environment of one's own, with lives": (
        CATCH | {"env": "stub_environments:Savable-v0", "life_loss_terminal": True},
        5,
    ),
}


@contextmanager
def doing_after(k, owner, name, action):
    """Has something done at the end of the k-th call of a method from now on, which the caller has not had yet."""
    intact, calls = getattr(owner, name), itertools.count(1)

    def method(self, *arguments):
        result = intact(self, *arguments)
        if next(calls) == k:
            action(self)
        return result

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, name, method)
        yield


def stop(_):
    os.kill(os.getpid(), signal.SIGINT)


def begin(tmp_path, xpid, settings):
    steps = NUM_UPDATES * settings["unroll_length"] * settings["batch_size"]
    return train(Config(**SETTINGS | {"savedir": str(tmp_path), "xpid": xpid, "total_steps": steps} | settings))


def go_on(tmp_path, **settings):
    return train(Config(resume=True, xpid="stopped", savedir=str(tmp_path), **settings))


def num_updates_of(tmp_path):
    return checkpoint.load(tmp_path / "stopped")["learner"]["num_updates"]


def bits(value):
    """A value of which two are equal where every bit is, not-a-number included."""
    if isinstance(value, torch.Tensor):
        return str(value.dtype), tuple(value.shape), value.contiguous().numpy().tobytes()
    if isinstance(value, dict):
        return {key: bits(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [bits(each) for each in value]
    return repr(value)


def rows_without(path, names):
    return [{name: cell for name, cell in row.items() if name not in names} for row in rows_of(path)]


def outcome(folder):
    """What does not tell of time or of the number of starts: by name, each to be compared for itself."""
    content = checkpoint.load(folder)
    del content["config"], content["num_resumes"], content["log"]["seconds"]
    files = {
        "episodes.csv": rows_of(folder / "episodes.csv"),
        "logs.csv": rows_without(folder / "logs.csv", ("seconds", "steps_per_second", *Shares._fields)),
    }
    return {name: bits(part) for name, part in (content | content.pop("learner") | files).items()}


def compare(tmp_path, settings):
    """Names of what differs between the run `stopped`, by now complete, and one that was not stopped."""
    whole, stopped = (outcome(folder) for folder in (begin(tmp_path, "whole", settings).folder, tmp_path / "stopped"))
    assert whole.keys() == stopped.keys() and whole["num_updates"] == str(NUM_UPDATES)
    assert len(whole["logs.csv"]) == NUM_UPDATES
    return {name for name in whole if whole[name] != stopped[name]}


@pytest.mark.parametrize(("settings", "k"), CASES.values(), ids=CASES)
def test_a_run_that_was_stopped_and_resumed_equals_one_that_was_not(tmp_path, settings, k):
    with doing_after(k, Learner, "update", stop):
        assert begin(tmp_path, "stopped", settings).state == "stopped"
    assert num_updates_of(tmp_path) == k
    named = {name: settings[name] for name in ("env", "network") if name in settings}
    assert go_on(tmp_path, **named).state == "complete"

    assert compare(tmp_path, settings) == set()


@pytest.mark.parametrize(
    ("settings", "place"),
    [
        # Two environments of 7 steps a slot, three slots a batch: in the second slot one has stepped, one has not.
        pytest.param(CATCH | {"batch_size": 6}, (19, Catch, "step"), id="amid a step"),
        pytest.param(CATCH | {"envs_per_actor": 6}, (1, BatchStaging, "pop"), id="between batch and update"),
    ],
)
def test_a_stop_that_interrupts_a_batch_lets_it_be_made_anew(tmp_path, settings, place):
    with ExitStack() as stack, doing_after(
        4, Learner, "update", lambda _: stack.enter_context(doing_after(*place, stop))
    ):
        assert begin(tmp_path, "stopped", settings).state == "stopped"
    assert num_updates_of(tmp_path) == 4
    assert go_on(tmp_path).state == "complete"

    assert compare(tmp_path, settings) == set()


def test_a_run_that_was_killed_goes_on_from_its_last_checkpoint_as_if_it_had_not_been(tmp_path):
    with doing_after(7, Learner, "update", lambda _: 1 / 0):
        assert begin(tmp_path, "stopped", CATCH | {"checkpoint_interval_s": 1e-9}).state == "failed"
    assert num_updates_of(tmp_path) == 6
    assert go_on(tmp_path).state == "complete"

    assert compare(tmp_path, CATCH) == set()


def test_two_stops_are_as_good_as_one(tmp_path):
    for k, train_again in ((3, lambda: begin(tmp_path, "stopped", CATCH)), (4, lambda: go_on(tmp_path))):
        with doing_after(k, Learner, "update", stop):
            assert train_again().state == "stopped"
    assert num_updates_of(tmp_path) == 7
    assert go_on(tmp_path).state == "complete"

    assert compare(tmp_path, CATCH) == set()


@pytest.mark.slow
def test_another_process_goes_on_as_well_as_the_first(tmp_path):
    settings, k = CASES["memory, recurrent"]
    with doing_after(k, Learner, "update", stop):
        begin(tmp_path, "stopped", settings)

    command = [sys.executable, "-m", "monobeast", "train", "--resume", "--xpid", "stopped", "--savedir", tmp_path]
    environment = os.environ | {"PYTHONPATH": str(TESTS.parent)}
    subprocess.run(command, check=True, cwd=TESTS, env=environment, stdout=subprocess.DEVNULL, timeout=100)

    assert compare(tmp_path, settings) == set()


def test_without_it_a_resumed_run_is_another(tmp_path):
    settings = CATCH | {"exact_resume": False}
    with doing_after(5, Learner, "update", stop):
        begin(tmp_path, "stopped", settings)
    assert exact_resume.KEY not in checkpoint.load(tmp_path / "stopped")
    go_on(tmp_path)

    assert compare(tmp_path, settings) >= {"network", "optimizer", "episodes.csv", "logs.csv"}


def test_updates_left_out_in_a_row_are_counted_on(tmp_path):
    def count_four(learner):
        learner.faults.restore(num_in_a_row=4)
        stop(learner)

    def set_state(saved, actors, learner):
        intact(saved, actors, learner)
        counts.append(learner.faults.num_in_a_row)

    counts, intact = [], exact_resume.set_state
    with doing_after(5, Learner, "update", count_four):
        begin(tmp_path, "stopped", CATCH)
    with doing_after(1, Learner, "load_state_dict", stop), pytest.MonkeyPatch.context() as patch:
        patch.setattr(exact_resume, "set_state", set_state)
        go_on(tmp_path)

    assert counts == [4]


def test_a_signal_before_the_environments_are_there_again_stops_a_run_that_stays_as_it_was(tmp_path):
    with doing_after(5, Learner, "update", stop):
        begin(tmp_path, "stopped", CATCH)
    saved = (tmp_path / "stopped" / "checkpoint.pt").read_bytes()
    with doing_after(1, Learner, "load_state_dict", stop):
        go_on(tmp_path)

    assert json.loads((tmp_path / "stopped" / "meta.json").read_text())["state"] == "stopped"
    assert (tmp_path / "stopped" / "checkpoint.pt").read_bytes() == saved


def test_the_checkpoint_opens_without_running_code(tmp_path):
    begin(tmp_path, "stopped", CASES["memory, recurrent"][0])

    state = torch.load(tmp_path / "stopped" / "checkpoint.pt", weights_only=True)[exact_resume.KEY]

    name, memory = state["actors"]["actor"]["environment"]["envs"][0][-1]
    assert name == "Memory" and type(memory["np_random"]["state"]["state"]) is int


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--env", "CartPole-v1"], "--exact_resume --num_actors auto: only with --num_actors 0, since "),
        (["--env", "ALE/Pong-v5"], "--exact_resume: not for --env ALE/Pong-v5: ale-py's vector environment has "),
        (["--env", f"{STUBS}Fixed5-v0"], f"--exact_resume: not for --env {STUBS}Fixed5-v0: Fixed needs get_state() "),
    ],
    ids=["actors", "Atari", "no methods"],
)
def test_where_it_cannot_be_it_is_refused_in_one_line(tmp_path, capsys, flags, message):
    assert run_command(["train", "--exact_resume", "--total_steps", "100", "--savedir", str(tmp_path), *flags]) == 2

    errors = capsys.readouterr().err
    assert errors.count("\n") == 1 and errors.startswith(f"monobeast train: error: {message}")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("raises", "get_state or set_state of .*Savable-v0 failed with RuntimeError: no state today"),
        ("not plain", r"failed with ValueError: state\['envs'\]\[0\]\[3\]\[1\]\['sum'\] is of type set: must be"),
        ("forgets", "Savable-v0 does not go on from a state that its get_state gave .*; another observation came"),
    ],
)
def test_an_environment_that_tells_its_state_wrongly_is_refused(tmp_path, fault, message):
    settings = CATCH | {"env": f"{STUBS}Savable-v0", "env_kwargs": json.dumps({"fault": fault})}

    with pytest.raises(ValueError, match=f"--exact_resume: .*{message}"):
        begin(tmp_path, "refused", settings)

    assert not list(tmp_path.iterdir())


@pytest.fixture(scope="module")
def folder_of_runs(tmp_path_factory):
    """Two complete runs, `exact` and `other`."""
    folder = tmp_path_factory.mktemp("runs")
    for xpid, exact in (("exact", True), ("other", False)):
        begin(folder, xpid, CATCH | {"exact_resume": exact})
    return folder


@pytest.mark.parametrize(
    ("xpid", "flags", "message"),
    [
        ("other", ["--exact_resume"], "--exact_resume: the checkpoint of other was made without it and holds no state"),
        ("exact", ["--envs_per_actor", "4"], "--envs_per_actor 4: cannot change with --exact_resume; the run"),
        ("exact", ["--batch_size", "4"], "--batch_size 4: cannot change"),
        ("exact", ["--unroll_length", "4"], "--unroll_length 4: cannot change"),
        ("exact", ["--env_kwargs", '{"a": 1}'], '--env_kwargs {"a": 1}: cannot change'),
        ("exact", ["--num_actors", "1"], "--exact_resume --num_actors 1: only with --num_actors 0"),
    ],
)
def test_what_cannot_go_on_exactly_is_refused(folder_of_runs, capsys, xpid, flags, message):
    before = [(path, path.read_bytes()) for path in sorted((folder_of_runs / xpid).iterdir())]

    assert run_command(["train", "--resume", "--xpid", xpid, "--savedir", str(folder_of_runs), *flags]) == 2

    assert f"error: {message}" in (errors := capsys.readouterr().err) and "goes on with fresh seeds" in errors
    assert [(path, path.read_bytes()) for path in sorted((folder_of_runs / xpid).iterdir())] == before


def test_it_can_be_given_up(tmp_path):
    begin(tmp_path, "stopped", CATCH)
    line = ["train", "--resume", "--xpid", "stopped", "--savedir", str(tmp_path), "--batch_size", "4"]

    assert run_command([*line, "--no_exact_resume", "--total_steps", "300"]) == 0
    content = checkpoint.load(tmp_path / "stopped")
    assert content["config"]["exact_resume"] is False and exact_resume.KEY not in content

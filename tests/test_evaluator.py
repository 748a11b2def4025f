"""The evaluator's process: it plays what it was given, and whatever befalls it is said and no more."""

import json
import os
import signal
import subprocess
import sys
from contextlib import closing
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest
import torch
from process_tree import actors_of, is_alive, wait_until
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from monobeast import environments, evaluator, preparation, seeding
from monobeast.config import Config
from monobeast.evaluator import Evaluator, EvaluatorTask, play_version
from monobeast.queues import MessageQueue

TESTS = Path(__file__).parent


@pytest.fixture(autouse=True)
def short_grace(monkeypatch):
    monkeypatch.setattr(evaluator, "_STOP_GRACE_S", 0.2)


def make_evaluator(env, env_kwargs=None, out_log=None, **settings):
    """An evaluator without a process yet, the run it is of, with a network of the same shape, and what it plays."""
    settings = {"evaluate_every": 1, "evaluate_episodes": 3} | settings
    env_kwargs = json.dumps(env_kwargs or {})
    config = Config(env=env, env_kwargs=env_kwargs, num_actors=0, seed=1, num_learner_threads=1, **settings)
    prepared = preparation.prepare(config)
    weights = parameters_to_vector(prepared.network.parameters()).detach().clone().share_memory_()
    return Evaluator(EvaluatorTask(prepared.config, prepared.spaces, weights, out_log)), prepared, weights


def stub(what, **settings):
    return make_evaluator("stub_environments:Unevaluated-v0", {"what": what, **settings.pop("kwargs", {})}, **settings)


def finish(one):
    """The answer to what the evaluator is at; None where there is none to come."""
    answer = None
    while one.is_busy and answer is None:
        one.wait(1.0)
        answer = one.look()
    return answer


def evaluate(one, version=1):
    one.begin(version)
    return finish(one)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"use_lstm": True, "env": "monobeast/Memory-v0"},
        {"precision": "bfloat16"},
        pytest.param({"start_method": "spawn", "use_lstm": True}, marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_each_version_is_played_as_in_this_process_with_seeds_of_its_own(settings):
    one, prepared, weights = make_evaluator(**{"env": "monobeast/Catch-v0", "evaluate_episodes": 8} | settings)
    played = []
    torch.manual_seed(0)
    with closing(one):
        for version, factor in ((1, 1.0), (2, 1.0), (2, -1.0)):
            weights.copy_((torch.randn(len(weights)) * 0.2 if not played else weights) * factor)
            episodes, seconds = evaluate(one, version)
            vector_to_parameters(weights.clone(), prepared.network.parameters())
            assert episodes == list(play_version(prepared.config, prepared.network, version))
            assert seconds > 0
            played.append(episodes)

    assert played[0] != played[1] != played[2]


def test_environment_and_sampling_have_seeds_of_their_version(monkeypatch):
    _, prepared, _ = make_evaluator("monobeast/Catch-v0")
    make, make_policy, seen = environments.make, evaluator.LocalPolicy, []

    def look_at_seeds(config, num_envs, seeds):
        seen.append(seeds)
        return make(config, num_envs, seeds)

    def look_at_seed(network, weights, seed, **options):
        seen.append(seed)
        return make_policy(network, weights, seed, **options)

    monkeypatch.setattr(environments, "make", look_at_seeds)
    monkeypatch.setattr(evaluator, "LocalPolicy", look_at_seed)
    list(play_version(prepared.config, prepared.network, version=7))

    assert seen == [seeding.evaluation_sampling_seed(1, 7), seeding.evaluation_seeds(1, 1, 7)]


def test_episodes_are_those_of_the_game_and_cut_off_where_test_would():
    one, *_ = make_evaluator("stub_environments:Lives-v0", {"lives": 3, "steps": 10}, life_loss_terminal=True)
    with closing(one):
        assert [tuple(episode) for episode in evaluate(one)[0]] == [(30.0, 30, False)] * 3

    one, *_ = make_evaluator("stub_environments:Lives-v0", {"lives": 3, "steps": 10}, max_episode_steps=12)
    with closing(one):
        assert [tuple(episode) for episode in evaluate(one)[0]] == [(12.0, 12, True)] * 3


def test_an_evaluator_has_one_thread_of_torch():
    one, *_ = make_evaluator("stub_environments:Torch-v0", {"what": "threads"}, max_episode_steps=1)
    with closing(one):
        assert [episode.episode_return for episode in evaluate(one)[0]] == [1.0] * 3


@pytest.mark.parametrize(
    ("what", "message"), [("raises", "RuntimeError: boom in an evaluation"), ("vanishes", "exited with code 3")]
)
def test_a_fault_is_said_and_costs_one_evaluation(tmp_path, caplog, what, message):
    one, *_ = stub(what, kwargs={"once": str(tmp_path / "happened")})
    with closing(one):
        assert evaluate(one) is None
        assert len(evaluate(one)[0]) == 3

    (text,) = caplog.messages
    assert text.startswith("the evaluator (stub_environments:Unevaluated-v0) ") and message in text
    assert ("stub_environments.py" in text) == (what == "raises")  # the traceback


@pytest.mark.parametrize("is_busy", [True, False])
def test_a_killed_evaluator_is_said_and_started_anew(tmp_path, caplog, is_busy):
    one, *_ = stub("hangs", kwargs={"once": str(tmp_path / "happened")})
    with closing(one):
        one.start()
        if is_busy:
            one.begin(1)
        os.kill(one.pid, signal.SIGKILL)
        while one.pid is not None:
            one.wait(1.0)
            assert one.look() is None
        (tmp_path / "happened").touch()
        assert not one.is_busy and len(evaluate(one)[0]) == 3

    assert "killed by SIGKILL" in caplog.messages[0] and len(caplog.messages) == 1


def test_an_evaluator_that_died_unseen_is_found_out_with_the_next_evaluation(caplog):
    one, *_ = make_evaluator("monobeast/Catch-v0")
    with closing(one):
        one.start()
        pid = one.pid
        os.kill(pid, signal.SIGKILL)
        assert wait_until(lambda: not is_alive(pid))
        assert evaluate(one) is None
        assert len(evaluate(one)[0]) == 3

    assert "killed by SIGKILL" in caplog.messages[0]


def test_one_that_does_not_answer_is_ended_with_its_stack_on_record(tmp_path, caplog, clock):
    out_log = tmp_path / "out.log"
    one, *_ = stub("hangs", kwargs={"once": str(tmp_path / "happened")}, out_log=out_log, actor_timeout_s=30.0)
    with closing(one):
        one.begin(1)
        assert wait_until((tmp_path / "happened").exists)
        for _ in range(15):
            clock.tick(2)
            assert one.look() is None and one.is_busy
        clock.tick(1)
        assert one.look() is None and not one.is_busy
        assert len(evaluate(one)[0]) == 3

    assert f"did not answer for 30 s; its stacks are in {out_log}" in caplog.messages[0]
    assert "go_wrong" in out_log.read_text()


def test_signs_of_life_end_a_silence(clock):
    one, *_ = make_evaluator("stub_environments:Counter-v0", max_episode_steps=10**9, actor_timeout_s=30.0)
    with closing(one):
        one.begin(1)
        for _ in range(2):
            for _ in range(15):
                clock.tick(2)
                assert one.look() is None and one.is_busy
            one.wait(60)
            assert one.look() is None and one.is_busy


def test_the_game_is_left_once_the_learner_has_closed_the_queue():
    requests, replies = MessageQueue(), MessageQueue()
    watch = evaluator._make_watch(requests, replies)
    watch()

    requests.keep_reader()

    with pytest.raises(evaluator._Dismissed):
        watch()


def test_a_late_look_is_not_held_against_the_evaluator(tmp_path, caplog, clock):
    one, *_ = stub("hangs", kwargs={"once": str(tmp_path / "happened")}, actor_timeout_s=60.0)
    with closing(one):
        one.begin(1)
        clock.tick(3600)  # as after Ctrl-Z, an hour's pause, and fg
        assert one.look() is None and one.is_busy

    assert not caplog.messages


def test_it_is_started_anew_up_to_a_limit_which_is_said_once(caplog):
    one, *_ = stub("raises", max_actor_restarts=2)
    with closing(one):
        assert [evaluate(one) for _ in range(5)] == [None] * 5
        assert not one.is_busy and one.pid is None

    assert sum("boom in an evaluation" in message for message in caplog.messages) == 3
    limit = "--max_actor_restarts 2 within an hour"
    assert caplog.messages[3:] == [f"no evaluation: the evaluator has failed too often ({limit})"]


def test_a_start_that_fails_is_tried_again(caplog, monkeypatch):
    intact, failures = BaseProcess.start, iter([EOFError("unexpected EOF"), OSError("too many open files")])

    def fail_twice(process):
        for failure in failures:
            raise failure
        intact(process)

    monkeypatch.setattr(BaseProcess, "start", fail_twice)
    one, *_ = make_evaluator("monobeast/Catch-v0")
    with closing(one):
        assert not one.start()
        assert evaluate(one) is None
        assert len(evaluate(one)[0]) == 3

    assert "could not be started: EOFError('unexpected EOF')" in caplog.messages[0]


@pytest.mark.parametrize("what", ["hangs", "idle"])
def test_nothing_is_left_of_a_closed_evaluator(tmp_path, what):
    one, *_ = stub("hangs", kwargs={"once": str(tmp_path / "happened")})
    with closing(one):
        one.start()
        pid = one.pid
        if what == "hangs":
            one.begin(1)
            assert wait_until((tmp_path / "happened").exists)

    assert not is_alive(pid) and one.pid is None


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="/proc tells who the evaluator is")
@pytest.mark.parametrize("start_method", ["forkserver", pytest.param("spawn", marks=pytest.mark.slow)])
def test_a_killed_learner_leaves_no_evaluator(tmp_path, start_method):
    happened = tmp_path / "happened"
    flags = ["--env", "stub_environments:Unevaluated-v0", "--num_actors", "0", "--evaluate_every", "1"]
    flags += ["--env_kwargs", json.dumps({"what": "hangs", "once": str(happened)}), "--max_seconds", "100"]
    flags += ["--savedir", str(tmp_path), "--start_method", start_method, "--num_threads", "1"]
    environment = os.environ | {"PYTHONPATH": str(TESTS.parent), "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-m", "monobeast", *flags]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, cwd=TESTS, env=environment) as learner:
        try:
            assert wait_until(happened.exists)
            (pid,) = actors_of(learner.pid)
        finally:
            learner.kill()
    try:
        assert wait_until(lambda: not is_alive(pid), timeout_s=5)
    finally:
        if is_alive(pid):
            os.kill(pid, signal.SIGKILL)

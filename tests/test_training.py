"""`monobeast.train` from Python, and how a run ends when something fails."""

import itertools
import json
import os
import re
import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest
import torch
from csv_rows import rows_of

import monobeast
from monobeast import inline_actor, session
from monobeast.config import Config
from monobeast.runs import checkpoint

TESTS = Path(__file__).parent
CATCH = {"env": "monobeast/Catch-v0", "num_actors": 0, "num_learner_threads": 1, "total_steps": 800, "seed": 1}


def meta_of(folder):
    return json.loads((folder / "meta.json").read_text())


def test_two_runs_in_one_process_are_equal_bit_by_bit_and_leave_the_caller_as_it_was(tmp_path):
    torch.manual_seed(3)
    before = torch.get_rng_state(), torch.get_num_threads()

    first, second = (monobeast.train(monobeast.Config(**CATCH, savedir=str(tmp_path))) for _ in range(2))

    assert (first.state, first.step) == (second.state, second.step) == ("complete", 800)
    assert first.folder != second.folder
    episodes = [(result.folder / "episodes.csv").read_text() for result in (first, second)]
    assert episodes[0] == episodes[1]
    weights = [torch.load(result.folder / "checkpoint.pt")["learner"]["network"] for result in (first, second)]
    assert weights[0].keys() == weights[1].keys()
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
    assert torch.equal(torch.get_rng_state(), before[0]) and torch.get_num_threads() == before[1]


@pytest.mark.parametrize("lag", [0, 3])
def test_a_forced_lag_is_exact_without_actor_processes(tmp_path, lag):
    settings = CATCH | {"force_lag": lag, "log_interval_s": 1e-6}

    result = monobeast.train(monobeast.Config(**settings, savedir=str(tmp_path)))

    lags = [(float(row["policy_lag_mean"]), int(row["policy_lag_max"])) for row in rows_of(result.folder / "logs.csv")]
    assert lags == [(min(update, lag), min(update, lag)) for update in range(10)]


def test_a_new_run_has_a_checkpoint_after_its_first_update(tmp_path, monkeypatch):
    steps, intact = [], checkpoint.save

    def save(folder, content):
        steps.append(content["learner"]["step"])
        intact(folder, content)

    monkeypatch.setattr(checkpoint, "save", save)
    result = monobeast.train(Config(**CATCH, savedir=str(tmp_path)))
    monobeast.train(Config(savedir=str(tmp_path), xpid=result.folder.name, resume=True, total_steps=1600))

    assert steps == [80, 800, 1600]


def test_without_an_update_no_checkpoint_takes_the_place_of_another(tmp_path, monkeypatch):
    result = monobeast.train(Config(**CATCH, savedir=str(tmp_path)))
    steps, intact = [], checkpoint.save

    def save(folder, content):
        steps.append(content["learner"]["step"])
        intact(folder, content)

    monkeypatch.setattr(checkpoint, "save", save)
    monkeypatch.setattr(session, "_POLL_S", 0.01)  # many looks at the clock while the actor starts
    settings = {"num_actors": 1, "total_steps": 1600, "checkpoint_interval_s": 1e-6}
    monobeast.train(Config(savedir=str(tmp_path), xpid=result.folder.name, resume=True, **settings))

    assert steps[0] > 800 and steps[-1] == 1600


def test_a_disk_that_is_full_at_the_end_is_said_and_leaves_no_half_written_file(tmp_path, monkeypatch):
    intact = os.replace

    def fail_at_the_end(source, target):
        if Path(target).name == "meta.json" and '"state": "complete"' in Path(source).read_text():
            raise OSError("no space left on device")
        intact(source, target)

    monkeypatch.setattr(os, "replace", fail_at_the_end)
    result = monobeast.train(Config(**CATCH, savedir=str(tmp_path)))

    assert result.state == "complete" and result.step == 800
    assert "meta.json could not be written: no space left" in (result.folder / "out.log").read_text()
    assert not list(result.folder.glob("*.partial"))


def test_a_run_that_cannot_begin_is_on_record_as_failed_and_leaves_the_caller_as_it_was(tmp_path, monkeypatch):
    threads = torch.get_num_threads()

    def refuse(*_):
        torch.set_num_threads(threads + 1)
        raise MemoryError("no shared memory")

    monkeypatch.setattr(session.Session, "__init__", refuse)
    with pytest.raises(MemoryError, match="no shared memory"):
        monobeast.train(monobeast.Config(**CATCH, savedir=str(tmp_path), xpid="run"))

    meta = meta_of(tmp_path / "run")
    assert (meta["state"], meta["reason"]) == ("failed", "MemoryError: no shared memory")
    assert torch.get_num_threads() == threads


def test_a_run_works_in_a_thread(tmp_path):
    results = []
    config = Config(**{**CATCH, "num_actors": 1}, savedir=str(tmp_path))
    thread = threading.Thread(target=lambda: results.append(monobeast.train(config)))
    thread.start()
    thread.join(60)

    assert [result.state for result in results] == ["complete"]


def run_script(tmp_path, text):
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(text))
    environment = os.environ | {"PYTHONPATH": str(TESTS.parent)}
    return subprocess.run(
        [sys.executable, script], capture_output=True, text=True, timeout=100, cwd=tmp_path, env=environment
    )


@pytest.mark.parametrize("start_method", ["forkserver", pytest.param("spawn", marks=pytest.mark.slow)])
def test_a_script_that_used_torch_before_can_train(tmp_path, start_method):
    result = run_script(
        tmp_path,
        f"""
        import monobeast, torch
        if __name__ == "__main__":
            weight = torch.randn(1000, 1000, requires_grad=True)
            (weight @ weight).sum().backward()
            settings = dict(env="monobeast/Catch-v0", total_steps=800, savedir=".", start_method="{start_method}")
            sizes = dict(num_actors=2, envs_per_actor=4, num_learner_threads=1)
            print(monobeast.train(monobeast.Config(**settings, **sizes)).state)
        """,
    )

    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.endswith("complete\n")


@pytest.mark.parametrize("start_method", ["forkserver", pytest.param("spawn", marks=pytest.mark.slow)])
def test_a_script_without_the_main_guard_gets_one_message_that_says_so(tmp_path, start_method):
    result = run_script(
        tmp_path,
        f"""
        import monobeast
        monobeast.train(monobeast.Config(env="monobeast/Catch-v0", savedir="runs", start_method="{start_method}"))
        """,
    )

    assert result.stdout.count('if __name__ == "__main__":') == 1
    assert "Traceback" not in result.stdout + result.stderr
    assert len(os.listdir(tmp_path / "runs")) == 1  # no child began a run of its own


def test_a_script_on_standard_input_is_told_that_it_cannot_be_imported(tmp_path):
    script = f"import monobeast; monobeast.train(monobeast.Config(env='monobeast/Catch-v0', savedir='{tmp_path}'))"
    environment = os.environ | {"PYTHONPATH": str(TESTS.parent)}
    result = subprocess.run([sys.executable, "-"], input=script, capture_output=True, text=True, env=environment)

    assert result.returncode == 1
    assert result.stderr.endswith("save the script, or use --num_actors 0 and no --evaluate_every\n")
    assert not os.listdir(tmp_path)


def train_stub(tmp_path, env, **settings):
    # One thread: two that wait for each other on a busy machine are a hundred times slower.
    settings = {"seed": 1, "num_learner_threads": 1, "savedir": str(tmp_path)} | settings
    config = Config(env=f"stub_environments:{env}", **settings)
    return monobeast.train(config)


@pytest.mark.parametrize("num_actors", [0, 2])
def test_a_run_whose_actors_fail_keeps_what_it_learned(tmp_path, num_actors):
    result = train_stub(tmp_path, "Boom50-v0", num_actors=num_actors, max_actor_restarts=1)

    assert result.state == meta_of(result.folder)["state"] == "failed"
    state = torch.load(result.folder / "checkpoint.pt", weights_only=True)
    assert state["learner"]["step"] == int(rows_of(result.folder / "logs.csv")[-1]["step"]) == result.step > 0
    log = (result.folder / "out.log").read_text()
    assert "RuntimeError: boom in step 50" in log and "stub_environments:Boom50-v0" in log


ODD_ENDS = [RuntimeError("no"), SystemExit(0), KeyboardInterrupt()]


@pytest.mark.parametrize("error", ODD_ENDS, ids=repr)
@pytest.mark.parametrize(("place", "steps"), [("make_actor", 0), ("Actor.unroll", 160)])
def test_whatever_the_users_code_raises_in_this_process_the_run_fails_by_it(tmp_path, monkeypatch, place, steps, error):
    def fail(*_):
        raise error

    intact = inline_actor.Actor.unroll
    calls = itertools.count(1)
    if place == "make_actor":
        monkeypatch.setattr(inline_actor, "make_actor", fail)
    else:
        monkeypatch.setattr(inline_actor.Actor, "unroll", lambda *now: fail() if next(calls) > 2 else intact(*now))
    result = monobeast.train(Config(**CATCH, envs_per_actor=8, savedir=str(tmp_path)))

    assert (result.state, result.step) == ("failed", steps)
    assert type(error).__name__ in meta_of(result.folder)["reason"]
    if steps:
        assert torch.load(result.folder / "checkpoint.pt", weights_only=True)["learner"]["step"] == steps


@pytest.mark.parametrize("error", [*ODD_ENDS, signal.SIGTERM], ids=repr)
def test_environments_that_cannot_be_closed_cost_nothing(tmp_path, monkeypatch, error):
    def fail(actor):
        if error is signal.SIGTERM:  # as in a close that hangs
            os.kill(os.getpid(), error)
        else:
            raise error

    monkeypatch.setattr(inline_actor.Actor, "close", fail)
    result = monobeast.train(Config(**CATCH, savedir=str(tmp_path)))

    assert result.state == meta_of(result.folder)["state"] == "complete"
    assert torch.load(result.folder / "checkpoint.pt", weights_only=True)["learner"]["step"] == result.step == 800
    assert re.search("the environments (could not be|were still being) closed", (result.folder / "out.log").read_text())


def test_a_checkpoint_counts_no_episode_that_is_not_in_the_file(tmp_path, monkeypatch):
    counts, intact = [], checkpoint.save

    def save(folder, content):
        counts.append((content["log"]["num_episodes"], len(rows_of(folder / "episodes.csv"))))
        intact(folder, content)

    monkeypatch.setattr(checkpoint, "save", save)
    monobeast.train(Config(**CATCH, savedir=str(tmp_path), checkpoint_interval_s=1e-6, log_interval_s=1000.0))

    assert len(counts) >= 10 and counts[-1][0] > 0
    assert all(counted == written for counted, written in counts)


def test_an_update_that_fails_ends_the_run_and_leaves_the_last_checkpoint(tmp_path, monkeypatch):
    intact = session.Learner.update

    def fail_at_the_third(self, batch):
        if self.num_updates == 2:
            raise RuntimeError("out of memory")
        return intact(self, batch)

    monkeypatch.setattr(session.Learner, "update", fail_at_the_third)
    result = train_stub(tmp_path, "Fixed5-v0", num_actors=2, checkpoint_interval_s=1e-6)

    assert result.state == "failed"
    assert "RuntimeError: out of memory" in (result.folder / "out.log").read_text()
    assert torch.load(result.folder / "checkpoint.pt", weights_only=True)["learner"]["num_updates"] == 2


@pytest.mark.parametrize(
    ("error", "has_remedy"),
    [
        (torch.OutOfMemoryError("CUDA out of memory"), True),
        (RuntimeError("CUBLAS_STATUS_ALLOC_FAILED"), True),
        (RuntimeError("no"), False),
    ],
)
def test_where_memory_ran_out_a_remedy_is_named(tmp_path, monkeypatch, error, has_remedy):
    def fail(self, batch):
        raise error

    monkeypatch.setattr(session.Learner, "update", fail)
    result = train_stub(tmp_path, "Fixed5-v0", num_actors=0)

    assert result.state == "failed"
    assert ("reduce --batch_size" in (result.folder / "out.log").read_text()) == has_remedy


def test_weights_that_are_not_finite_are_never_saved(tmp_path, monkeypatch):
    intact = session.Learner.update

    def spoil_the_third(self, batch):
        statistics = intact(self, batch)
        if self.num_updates == 3:
            next(self.network.parameters()).data.fill_(float("nan"))
        return statistics

    monkeypatch.setattr(session.Learner, "update", spoil_the_third)
    result = train_stub(tmp_path, "Fixed5-v0", num_actors=0, checkpoint_interval_s=1e-6)

    assert result.state == "failed"
    assert torch.load(result.folder / "checkpoint.pt", weights_only=True)["learner"]["num_updates"] == 2


def test_a_wish_to_stop_is_read_before_a_death_counts_as_a_fault(tmp_path, monkeypatch):
    def stop_and_fail(self, timeout_s):
        os.kill(os.getpid(), signal.SIGTERM)
        raise session.ActorsFailed("they all went with the group's signal")

    monkeypatch.setattr(session.InlineActor, "get_batch", stop_and_fail)

    assert train_stub(tmp_path, "Fixed5-v0", num_actors=0).state == "stopped"


@pytest.mark.parametrize(("saves", "what"), [(True, "saving a checkpoint"), (False, "nothing to save")])
def test_a_stopped_run_without_checkpoints_has_nothing_to_save_and_cannot_go_on(tmp_path, monkeypatch, saves, what):
    intact = session.Learner.update

    def stop_at_the_third(self, batch):
        if self.num_updates == 2:
            os.kill(os.getpid(), signal.SIGINT)
        return intact(self, batch)

    monkeypatch.setattr(session.Learner, "update", stop_at_the_third)
    settings = {"checkpoint_interval_s": 1e-6, "disable_checkpoint": not saves}
    result = monobeast.train(Config(**CATCH, savedir=str(tmp_path), **settings))

    log = (result.folder / "out.log").read_text()
    assert (result.state, result.step) == ("stopped", 240)
    assert f"stopping on SIGINT: {what}\n" in log
    assert ("to go on: " in log) == saves
    assert any(result.folder.glob("*.pt*")) == saves
    assert rows_of(result.folder / "logs.csv")[-1]["step"] == "240"


def test_time_can_be_the_limit_even_of_a_run_without_a_foreseeable_end(tmp_path):
    result = train_stub(tmp_path, "Fixed5-v0", num_actors=0, total_steps=10**18, max_seconds=1.0, log_interval_s=0.2)

    assert result.state == meta_of(result.folder)["state"] == "complete"
    assert result.step > 0
    assert (result.folder / "checkpoint.pt").exists()

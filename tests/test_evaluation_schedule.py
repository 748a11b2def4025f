"""Evaluations beside training: when they are made, what they leave, and that training goes its own way."""

import errno
import itertools
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from command_lines import run
from csv_rows import rows_of

from monobeast import evaluation_schedule, evaluator, preparation
from monobeast.config import Config
from monobeast.evaluation_schedule import EvaluationSchedule, summarize
from monobeast.learner import Learner
from monobeast.runs import checkpoint
from monobeast.runs.evaluation_log import Evaluation, EvaluationLog
from monobeast.score import Episode
from monobeast.training import train

TESTS = Path(__file__).parent
CATCH = {
    **{"env": "monobeast/Catch-v0", "num_actors": 0, "num_learner_threads": 1, "seed": 3, "xpid": "run"},
    **{"envs_per_actor": 2, "batch_size": 2, "log_interval_s": 0.01, "evaluate_every": 100, "evaluate_episodes": 4},
}
STUB = CATCH | {"env": "stub_environments:Unevaluated-v0"}


def by_step(path):
    """The rows of a table of evaluations, without their times."""
    return {row["step"]: row | {"evaluation_seconds": None} for row in rows_of(path)}


def weights_of(path):
    return checkpoint.read(path)["learner"]["network"]


def are_equal(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


class FakeEvaluator:
    """Answers when it is told to."""

    def __init__(self, task):
        self.weights, self.versions, self.answers, self.is_busy = task.weights, [], [], False

    def start(self):
        return True

    def close(self):
        pass

    def wait(self, timeout_s):
        pass

    def begin(self, version):
        assert not self.is_busy
        self.is_busy = True
        self.versions.append(version)

    def answer(self, *returns):
        self.answers.append(([Episode(value, 9, is_capped=False) for value in returns], 1.5))

    def look(self):
        if not self.answers:
            return None
        self.is_busy = False
        return self.answers.pop(0)


class Training:
    """A learner whose steps are set by hand, and the schedule that watches it."""

    def __init__(self, folder, monkeypatch, up_to_step=None, **settings):
        monkeypatch.setattr(evaluation_schedule, "Evaluator", FakeEvaluator)
        prepared = preparation.prepare(Config(**CATCH | settings))
        self.folder, self.learner = folder, Learner(prepared.network, prepared.config)
        self.learner.step = up_to_step or 0
        self.schedule = EvaluationSchedule(
            prepared.config,
            prepared.spaces,
            self.learner,
            folder,
            is_resumed=up_to_step is not None,
            makers=prepared.makers,
        )
        self.evaluator = self.schedule._evaluator

    def go_to(self, step):
        """Makes one update, whose weights are all equal to the step, and looks at the evaluator."""
        self.learner.step, self.learner.num_updates = step, self.learner.num_updates + 1
        for parameter in self.learner.network.parameters():
            parameter.data.fill_(float(step))
        self.schedule.attend()

    @property
    def steps(self):
        return [int(row["step"]) for row in rows_of(self.folder / "evaluations.csv")]

    @property
    def best(self):
        """Step and weight of best.pt."""
        content = checkpoint.read(self.folder / "best.pt")
        (weight,) = {tensor.unique().item() for tensor in content["learner"]["network"].values()}
        return content["learner"]["step"], weight


@pytest.fixture
def training(tmp_path, monkeypatch):
    return Training(tmp_path, monkeypatch)


def test_an_evaluation_is_due_whenever_a_multiple_is_crossed(training):
    for step in (40, 80, 120, 160, 200, 240, 480, 520):
        training.go_to(step)
        if training.evaluator.is_busy:
            training.evaluator.answer(0.0)
    training.schedule.attend()

    assert training.evaluator.versions == [3, 5, 7, 8]
    assert training.steps == [120, 200, 480, 520]


def test_one_that_is_due_while_another_plays_is_left_out_and_training_goes_on(training, caplog):
    caplog.set_level("INFO")
    for step in (100, 200, 300):
        training.go_to(step)
    training.evaluator.answer(1.0, 2.0)
    training.go_to(380)
    training.go_to(400)

    assert training.evaluator.versions == [1, 5] and training.steps == [100]
    assert caplog.messages == [
        "evaluation of step 100: return 1.50 (2 episodes, 1 to 2), 1.5 s, the best so far, 2 left out meanwhile"
    ]


def test_the_evaluator_keeps_the_weights_that_it_was_given(training):
    for step in (100, 140, 200):
        training.go_to(step)
        assert training.evaluator.weights.unique().tolist() == [100.0]


def test_the_best_weights_are_those_that_were_played_and_the_first_of_equals(training):
    for step, value in ((100, 1.0), (200, 3.0), (300, 2.0), (400, 3.0)):
        training.go_to(step)
        training.evaluator.answer(value)
        training.go_to(step + 60)

    assert training.best == (200, 200.0)
    content = checkpoint.read(training.folder / "best.pt")
    assert content["evaluation"]["mean_episode_return"] == 3.0 and content["evaluation"]["step"] == 200
    assert content["config"] == torch.load(training.folder / "best.pt", weights_only=True)["config"]


def test_a_run_that_saves_no_checkpoint_saves_no_best_one(tmp_path, monkeypatch, caplog):
    caplog.set_level("INFO")
    training = Training(tmp_path, monkeypatch, disable_checkpoint=True)
    training.go_to(100)
    training.evaluator.answer(1.0)
    training.schedule.attend()

    assert training.steps == [100] and not (tmp_path / "best.pt").exists() and "the best" not in caplog.text


def test_a_disk_that_is_full_keeps_the_one_before_and_training_goes_on(training, monkeypatch, caplog):
    def evaluate(step, value):
        training.go_to(step)
        training.evaluator.answer(value)
        training.schedule.attend()

    def fail(*_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    evaluate(100, 1.0)
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "write", fail)
        evaluate(200, 9.0)
    assert training.best == (100, 100.0) and "best.pt could not be saved: [Errno 28]" in caplog.text

    evaluate(300, 2.0)  # better than what could be saved
    assert training.best == (300, 300.0) and training.steps == [100, 200, 300]


def test_a_later_start_goes_on_with_the_rows_of_its_checkpoint_and_the_best_score(tmp_path, monkeypatch):
    first = Training(tmp_path, monkeypatch)
    for step, value in ((100, 5.0), (200, 1.0), (300, 2.0)):
        first.go_to(step)
        first.evaluator.answer(value)
    first.schedule.attend()
    first.schedule.__exit__()

    second = Training(tmp_path, monkeypatch, up_to_step=240)
    second.go_to(280)
    assert second.evaluator.versions == []  # not before the next multiple
    second.go_to(310)
    second.evaluator.answer(4.0)
    second.schedule.attend()

    assert second.steps == [100, 200, 310] and second.best == (100, 100.0)
    assert (tmp_path / "evaluations.csv").read_text().count("step,") == 1


def test_a_best_checkpoint_that_is_damaged_is_said_and_replaced(tmp_path, monkeypatch, caplog):
    (tmp_path / "best.pt").write_bytes(b"text")
    training = Training(tmp_path, monkeypatch, up_to_step=0)
    training.go_to(100)
    training.evaluator.answer(-1.0)
    training.schedule.attend()

    assert "best.pt will be replaced: " in caplog.text and training.best == (100, 100.0)


def never():
    """A wish to stop that does not come; who waits for ever is found out."""
    number = itertools.count()

    def has_to_stop():
        assert next(number) < 100, "nothing came, and nothing will"
        return False

    return has_to_stop


def test_the_end_waits_for_what_plays_and_for_the_last_weights(training):
    training.go_to(100)
    training.go_to(150)
    training.evaluator.answer(0.0)
    training.evaluator.answer(1.0)

    training.schedule.finish(never())

    assert training.evaluator.versions == [1, 2] and training.steps == [100, 150]


def test_the_last_weights_are_evaluated_once(training):
    training.go_to(100)
    training.evaluator.answer(0.0)

    training.schedule.finish(never())

    assert training.evaluator.versions == [1] and training.steps == [100]


def test_a_start_that_learned_nothing_evaluates_nothing(tmp_path, monkeypatch):
    training = Training(tmp_path, monkeypatch, up_to_step=240)

    training.schedule.finish(never())

    assert training.evaluator.versions == [] and training.steps == []


def test_a_wish_to_stop_ends_the_wait(training, caplog):
    caplog.set_level("INFO")
    training.go_to(100)
    asked = itertools.count()

    training.schedule.finish(lambda: next(asked) > 2)

    assert training.evaluator.versions == [1] and training.steps == []
    assert caplog.messages[-1] == "their evaluation is not waited for"


def test_a_row_has_mean_deviation_extremes_and_length():
    episodes = [Episode(value, length, length > 20) for value, length in ((1.0, 10), (2.0, 20), (6.0, 30))]

    assert summarize(7, 2, episodes, 0.5) == Evaluation(7, 2, 3, 3.0, 7**0.5, 1.0, 6.0, 20.0, 1, 0.5)
    assert summarize(7, 2, episodes[:1], 0.5).std_episode_return is None


def test_no_deviation_is_an_empty_cell(tmp_path):
    log = EvaluationLog(tmp_path)
    log.write(summarize(7, 2, [Episode(1.0, 9, is_capped=False)], 0.5))
    log.close()

    assert (tmp_path / "evaluations.csv").read_text().splitlines()[1] == "7,2,1,1,,1,1,9,0,0.5"


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """The folders of two runs with evaluations and one without, which differ in nothing else."""
    savedir = tmp_path_factory.mktemp("runs")
    settings = CATCH | {"total_steps": 1010, "savedir": str(savedir)}
    changes = {"one": {}, "two": {}, "without": {"evaluate_every": None}}
    for xpid, change in changes.items():
        assert train(Config(**settings | change | {"xpid": xpid})).state == "complete"
    return {xpid: savedir / xpid for xpid in changes}


def test_a_run_leaves_a_table_and_the_weights_that_played_best(runs):
    rows = rows_of(runs["one"] / "evaluations.csv")
    steps, means = [int(row["step"]) for row in rows], [float(row["mean_episode_return"]) for row in rows]

    assert steps == sorted(set(steps)) and steps[-1] == 1020 and len(steps) >= 2  # of 20 steps an update
    assert {row["episodes"] for row in rows} == {"4"} and {row["mean_episode_length"] for row in rows} == {"9"}
    assert all(int(row["updates"]) * 20 == step for row, step in zip(rows, steps, strict=True))
    best = checkpoint.read(runs["one"] / "best.pt")
    assert best["learner"]["step"] == steps[means.index(max(means))]
    log = (runs["one"] / "out.log").read_text()
    assert f"evaluation of step {steps[0]:,}: return " in log and "Traceback" not in log


def test_evaluations_change_no_bit_of_a_run_and_repeat_with_it(runs):
    weights = {xpid: weights_of(folder / "checkpoint.pt") for xpid, folder in runs.items()}
    episodes = {(folder / "episodes.csv").read_text() for folder in runs.values()}

    assert are_equal(weights["one"], weights["two"]) and are_equal(weights["one"], weights["without"])
    assert len(episodes) == 1
    one, two = (by_step(runs[xpid] / "evaluations.csv") for xpid in ("one", "two"))
    in_both = one.keys() & two.keys()  # how many are left out is a matter of time
    assert "1020" in in_both and all(one[step] == two[step] for step in in_both)
    assert not (runs["without"] / "evaluations.csv").exists() and not (runs["without"] / "best.pt").exists()


def test_test_plays_the_best_weights(runs, capfd):
    best = checkpoint.read(runs["one"] / "best.pt")["learner"]["step"]

    exit_code, output, errors = run(
        capfd, "test", "--savedir", runs["one"].parent, "--xpid", "one", "--best", "--num_episodes", 1
    )

    assert (exit_code, errors) == (0, "")
    assert f"trained for {best:,} agent steps" in output and "episode 1: return" in output


def test_a_resumed_run_goes_on_with_one_header_and_rising_steps(runs):
    savedir = runs["two"].parent
    before = rows_of(runs["two"] / "evaluations.csv")
    best = checkpoint.read(runs["two"] / "best.pt")
    best["evaluation"]["mean_episode_return"] = 2.0  # which Catch never gives
    checkpoint.write(runs["two"] / "best.pt", best)
    with open(runs["two"] / "evaluations.csv", "a") as file:
        file.write("1101,55,4,0,,0,0,9,0,0.5\n")

    assert train(Config(resume=True, xpid="two", savedir=str(savedir), total_steps=1500)).state == "complete"

    after = rows_of(runs["two"] / "evaluations.csv")
    steps = [int(row["step"]) for row in after]
    assert after[: len(before)] == before and 1101 not in steps
    assert steps == sorted(set(steps)) and steps[-1] == 1500
    assert checkpoint.read(runs["two"] / "best.pt")["learner"]["step"] == best["learner"]["step"]


def test_an_evaluator_that_always_fails_does_not_stop_a_run(tmp_path):
    result = train(Config(**STUB, total_steps=2000, max_actor_restarts=2, savedir=str(tmp_path)))

    log = (result.folder / "out.log").read_text()
    assert (result.state, result.step) == ("complete", 2000)
    assert 1 <= log.count("RuntimeError: boom in an evaluation") <= 3 and "stub_environments.py" in log
    assert rows_of(result.folder / "evaluations.csv") == []


def test_an_evaluator_that_hangs_does_not_keep_a_run_from_its_end(tmp_path, monkeypatch, clock):
    intact, happened = evaluator.Evaluator.wait, tmp_path / "happened"

    def tick_once_it_hangs(self, timeout_s):
        intact(self, timeout_s)
        if happened.exists():
            clock.tick(2)
        assert clock.now < 60, "nobody notices"

    monkeypatch.setattr(evaluator.Evaluator, "wait", tick_once_it_hangs)
    env_kwargs = json.dumps({"what": "hangs", "once": str(happened)})
    settings = STUB | {"env_kwargs": env_kwargs, "actor_timeout_s": 1.0, "max_actor_restarts": 0}

    result = train(Config(**settings, total_steps=200, savedir=str(tmp_path)))

    log = (result.folder / "out.log").read_text()
    assert happened.exists() and result.state == "complete" and log.count("did not answer for 1 s") == 1
    assert rows_of(result.folder / "evaluations.csv") == []


@pytest.mark.parametrize("num_actors", [0, 1])
def test_a_signal_ends_a_run_without_its_evaluation(tmp_path, monkeypatch, num_actors):
    intact, happened = Learner.update, tmp_path / "happened"

    def stop_once_it_hangs(self, batch):
        if happened.exists():
            os.kill(os.getpid(), signal.SIGINT)
        return intact(self, batch)

    monkeypatch.setattr(Learner, "update", stop_once_it_hangs)
    monkeypatch.setattr(evaluator, "_STOP_GRACE_S", 0.2)
    settings = STUB | {"env_kwargs": json.dumps({"what": "hangs", "once": str(happened)}), "num_actors": num_actors}

    result = train(Config(**settings, total_steps=10**12, max_seconds=100.0, savedir=str(tmp_path)))

    assert (result.state, result.signal) == ("stopped", signal.SIGINT)
    assert checkpoint.load(result.folder)["learner"]["step"] == result.step
    assert "are evaluated" not in (result.folder / "out.log").read_text()


def test_an_atari_game_is_evaluated_and_the_weights_of_its_end_are_kept(tmp_path):
    settings = CATCH | {"env": "ALE/Pong-v5", "evaluate_episodes": 1, "max_episode_steps": 30}

    result = train(Config(**settings, total_steps=20, savedir=str(tmp_path)))

    (row,) = rows_of(result.folder / "evaluations.csv")
    assert (row["step"], row["capped_episodes"], row["mean_episode_length"]) == ("20", "1", "30")
    assert are_equal(weights_of(result.folder / "best.pt"), weights_of(result.folder / "checkpoint.pt"))


def test_a_script_without_the_main_guard_is_told_once_and_trains(tmp_path):
    script = tmp_path / "script.py"
    settings = CATCH | {"savedir": str(tmp_path), "total_steps": 2000}
    script.write_text(f"import monobeast\nmonobeast.train(monobeast.Config(**{settings}))\n")
    environment = os.environ | {"PYTHONPATH": str(TESTS.parent)}

    result = subprocess.run([sys.executable, script], capture_output=True, text=True, env=environment, cwd=tmp_path)

    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.count('if __name__ == "__main__":') == 1 and "Traceback" not in result.stdout
    assert "complete at step 2,000" in result.stdout

"""Numbers that are not finite: named, kept from the weights, counted, and repeatable elsewhere."""

import copy
import errno
import os

import pytest
import torch
from small_learner import make_batch, make_learner

from monobeast import faults
from monobeast.runs import checkpoint
from monobeast.__main__ import run_command
from monobeast.config import Config
from monobeast.runs.csv_file import CsvFile
from monobeast.learner import Learner, compute_loss
from monobeast.runs.logs import Averages
from monobeast.networks import AgentOutput
from monobeast.training import train

NAN, INFINITY = float("nan"), float("inf")
CONFIG = Config(preset="classic", reward_clipping="none", total_steps=1000, seed=1)


def locate_in(quantity, value, t, column):
    batch = make_batch()
    output = AgentOutput(torch.zeros(4, 2, 2), torch.zeros(4, 2), ())
    target = getattr(batch if hasattr(batch, quantity) else output, quantity)
    target[t, column] = value
    return faults.describe(faults.locate(batch, output, torch.tensor(1.0), torch.tensor(1.0)))


@pytest.mark.parametrize("value", [NAN, INFINITY, -INFINITY])
@pytest.mark.parametrize("quantity", ["observation", "reward", "behavior_params", "policy_params", "baseline"])
def test_the_place_of_a_number_that_is_not_finite_is_found(quantity, value):
    assert locate_in(quantity, value, t=2, column=1) == faults.Fault(quantity, actor=4, env=7, t=2)


@pytest.mark.parametrize(("loss", "norm", "quantity"), [(NAN, NAN, "total_loss"), (1.0, INFINITY, "grad_norm")])
def test_a_quantity_of_the_whole_update_has_no_place(loss, norm, quantity):
    output = AgentOutput(torch.zeros(4, 2, 2), torch.zeros(4, 2), ())
    fault = faults.describe(faults.locate(make_batch(), output, torch.tensor(loss), torch.tensor(norm)))

    assert fault == faults.Fault(quantity, None, None, None)
    assert str(fault) == f"{quantity} is not finite"


def test_the_first_cause_is_named_and_the_earliest_step_of_it():
    batch = make_batch()
    batch.reward[2, 0] = batch.reward[1, 1] = NAN
    output = AgentOutput(torch.full((4, 2, 2), NAN), torch.zeros(4, 2), ())

    fault = faults.describe(faults.locate(batch, output, torch.tensor(NAN), torch.tensor(NAN)))

    assert str(fault) == "reward is not finite, first in actor 4, environment 7, t = 1"


def test_finite_numbers_are_no_fault():
    output = AgentOutput(torch.zeros(4, 2, 2), torch.full((4, 2), 3e38), ())

    assert faults.describe(faults.locate(make_batch(), output, torch.tensor(1.0), torch.tensor(1.0))) is None


@pytest.mark.parametrize("undo", [False, True], ids=["left out", "undone on the device"])
@pytest.mark.parametrize("settings", [{}, {"momentum": 0.9}, {"optimizer": "adam"}], ids=str)
@pytest.mark.parametrize("good_before", [0, 2])
def test_a_bad_update_changes_neither_weights_nor_moments(monkeypatch, undo, settings, good_before):
    if undo:
        monkeypatch.setattr(Learner, "_step_if", Learner._step_and_undo_unless)
    learner, bad = make_learner(**settings), make_batch()
    for _ in range(good_before):
        learner.update(make_batch())
    before = copy.deepcopy(learner.state_dict())
    bad.reward[1, 1] = NAN

    statistics = learner.update(bad)

    after = learner.state_dict()
    torch.testing.assert_close(after["network"], before["network"], rtol=0, atol=0)
    torch.testing.assert_close(after["optimizer"]["state"], before["optimizer"]["state"], rtol=0, atol=0)
    assert not statistics["is_good"] and learner.faults.num_bad == after["num_bad_updates"] == 1
    assert learner.faults.pop() == (faults.Fault("reward", 4, 7, 1), 1)


@pytest.mark.parametrize("undo", [False, True])
def test_a_good_update_after_a_bad_one_is_that_of_a_run_without_it(monkeypatch, undo):
    if undo:
        monkeypatch.setattr(Learner, "_step_if", lambda self, is_good: self._step_and_undo_unless(is_good))
    first, second = make_learner(total_steps=10**12), make_learner(total_steps=10**12)
    bad = make_batch()
    bad.reward[0, 0] = INFINITY

    first.update(bad)
    for learner in (first, second):
        learner.update(make_batch())

    torch.testing.assert_close(first.network.state_dict(), second.network.state_dict(), rtol=0, atol=1e-12)
    assert first.faults.pop() == (faults.Fault("reward", 4, 6, 0), 1)
    assert first.faults.pop() == (None, 0) and first.faults.last_bad_update == 1
    assert not torch.equal(first.network.policy.bias, make_learner().network.policy.bias)


def test_a_row_of_faults_that_ended_between_two_looks_is_told_and_one_that_goes_on_is_told_in_full():
    learner, bad = make_learner(total_steps=10**12), make_batch()
    bad.reward[0, 0] = NAN
    for batch in (bad, bad, make_batch(), bad):
        learner.update(batch)

    assert learner.faults.pop()[1] == 2 and learner.faults.last_bad_update == 4
    learner.update(bad)
    learner.update(bad)
    assert learner.faults.pop()[1] == 3 == learner.faults.num_in_a_row


def test_a_bad_update_counts_in_no_average():
    averages = Averages()
    averages.add({"loss": torch.tensor(1.0), "lag_max": torch.tensor(2)}, torch.tensor(True))
    averages.add({"loss": torch.tensor(NAN), "lag_max": torch.tensor(9)}, torch.tensor(False))
    averages.add({"loss": torch.tensor(3.0), "lag_max": torch.tensor(1)}, torch.tensor(True))

    assert averages.pop() == {"loss": 2.0, "lag_max": 2}
    averages.add({"loss": torch.tensor(INFINITY)}, torch.tensor(False))
    assert averages.pop() == {}


CATCH = {
    **{"env": "monobeast/Catch-v0", "num_actors": 0, "envs_per_actor": 2, "batch_size": 2, "seed": 1},
    **{"xpid": "run", "num_learner_threads": 1, "log_interval_s": 0.05},
}


def break_losses(monkeypatch, updates):
    """The loss of these updates, counted from 1, is no number."""
    count = 0

    def broken(network, rollout, config, *arguments):
        nonlocal count
        count += 1
        result = compute_loss(network, rollout, config, *arguments)
        return result._replace(total_loss=result.total_loss * NAN) if count in updates else result

    monkeypatch.setattr("monobeast.learner.compute_loss", broken)


def test_a_run_leaves_bad_updates_out_says_so_and_counts_them(tmp_path, monkeypatch):
    break_losses(monkeypatch, {3, 4, 9})

    result = train(Config(**CATCH, total_steps=400, savedir=str(tmp_path)))

    content = checkpoint.load(result.folder)
    assert result.state == "complete" and content["learner"]["num_bad_updates"] == 3
    assert all(tensor.isfinite().all() for tensor in content["learner"]["network"].values())
    log = (result.folder / "out.log").read_text()
    left_out = [f"update {n} is left out: total_loss is not finite" in log for n in (3, 4, 5, 9)]
    assert left_out == [True, True, False, True]
    assert "nan" not in (result.folder / "logs.csv").read_text()


def test_too_many_bad_updates_in_a_row_fail_the_run_and_keep_the_batch(tmp_path, monkeypatch, capsys):
    break_losses(monkeypatch, set(range(5, 100)))

    result = train(Config(**CATCH, total_steps=4000, max_bad_updates=3, savedir=str(tmp_path)))

    batch = checkpoint.read(result.folder / "bad_batch.pt")  # the cost of its own update, which had a seventh behind it
    steps = checkpoint.load(result.folder)["learner"]["step"]
    assert batch["config"]["entropy_cost"] == pytest.approx(0.01 * (1 - steps * 6 / 7 / 4000))
    assert (result.state, checkpoint.load(result.folder)["learner"]["num_bad_updates"]) == ("failed", 3)
    out = capsys.readouterr().out
    assert "3 updates in a row had numbers that are not finite (--max_bad_updates 3)" in out
    assert f"python -m monobeast replay-update {result.folder / 'bad_batch.pt'}" in out
    monkeypatch.undo()
    assert run_command(["replay-update", str(result.folder / "bad_batch.pt")]) == 0  # the numbers themselves are sound
    assert "all numbers are finite here" in capsys.readouterr().out


def test_a_kept_batch_that_is_bad_is_bad_again(tmp_path, monkeypatch, capsys):
    from monobeast.inline_actor import InlineActor

    intact = InlineActor.get_batch

    def spoil(self, timeout_s):
        batch = intact(self, timeout_s)
        batch.reward[2, 1] = NAN
        return batch

    monkeypatch.setattr(InlineActor, "get_batch", spoil)
    result = train(Config(**CATCH, total_steps=4000, max_bad_updates=2, savedir=str(tmp_path)))
    capsys.readouterr()

    assert run_command(["replay-update", str(result.folder / "bad_batch.pt")]) == 1

    out = capsys.readouterr().out
    assert "first: reward is not finite, first in actor 0, environment 1, t = 2" in out
    assert "reward                                   1 of 20 not finite" in out


@pytest.mark.parametrize("content", [b"", b"text"])
def test_what_is_no_kept_batch_is_refused(tmp_path, content, capsys):
    path = tmp_path / "bad_batch.pt"
    path.write_bytes(content)

    assert run_command(["replay-update", str(path)]) == 2
    assert run_command(["replay-update", str(tmp_path / "missing.pt")]) == 2
    checkpoint.write(path, {"config": {}})
    assert run_command(["replay-update", str(path)]) == 2
    assert "holds no batch" in capsys.readouterr().err
    checkpoint.write(path, {"config": {}, "batch": {"behavior_logits": torch.zeros(1)}})
    assert run_command(["replay-update", str(path)]) == 2
    assert "its batch has other fields than rollouts have now" in capsys.readouterr().err


def test_with_a_rate_of_a_million_the_weights_that_are_saved_are_finite(tmp_path):
    settings = CATCH | {"env": "stub_environments:Fixed5-v0", "learning_rate": 1e6}

    result = train(Config(**settings, total_steps=2000, savedir=str(tmp_path)))

    content = checkpoint.load(result.folder)
    assert all(tensor.isfinite().all() for tensor in content["learner"]["network"].values())


def fail_to_write(*_, **__):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_rows_that_a_full_disk_does_not_take_wait_and_come_once(tmp_path, monkeypatch, caplog):
    file = CsvFile(tmp_path / "logs.csv", ("step",))
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", fail_to_write)
        for step in (1, 2):
            file.write((step,))
            file.flush()
    assert caplog.text.count("cannot be written: No space left") == 1

    with monkeypatch.context() as patch:
        intact = os.write
        patch.setattr(os, "write", lambda descriptor, data: intact(descriptor, data[:3]))  # a bit of room
        file.write((3,))
        file.flush()
    file.close()

    assert (tmp_path / "logs.csv").read_text().split() == ["step", "1", "2", "3"]


def test_a_full_disk_is_said_once_and_training_goes_on(tmp_path, monkeypatch, caplog):
    intact, count = checkpoint.write, 0

    def write(*arguments, **options):
        nonlocal count
        count += 1
        (fail_to_write if 2 <= count <= 5 else intact)(*arguments, **options)

    monkeypatch.setattr(checkpoint, "write", write)
    config = Config(**CATCH, total_steps=400, checkpoint_interval_s=1e-6, savedir=str(tmp_path))

    result = train(config)

    log = (result.folder / "out.log").read_text()
    assert result.state == "complete" and checkpoint.load(result.folder)["learner"]["step"] == 400
    assert log.count("no checkpoint could be saved, the previous one is kept") == log.count("[Errno 28]") == 1


@pytest.mark.parametrize(("num_saved", "kept"), [(0, "there is none before it"), (1, "that of step 20 is kept")])
def test_a_disk_that_is_full_at_the_end_is_told_in_one_line(tmp_path, monkeypatch, num_saved, kept):
    intact, count = checkpoint.write, 0

    def write(*arguments, **options):
        nonlocal count
        count += 1
        (intact if count <= num_saved else fail_to_write)(*arguments, **options)

    monkeypatch.setattr(checkpoint, "write", write)
    often = 1e-6 if num_saved else 1000.0
    config = Config(**CATCH, total_steps=400, checkpoint_interval_s=often, savedir=str(tmp_path))

    result = train(config)

    log = (result.folder / "out.log").read_text()
    assert result.state == "failed" and "Traceback" not in log
    assert f"the last checkpoint could not be saved, {kept}: [Errno 28] No space left on device" in log


def test_a_last_checkpoint_that_cannot_be_saved_fails_the_run(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint, "write", fail_to_write)

    assert train(Config(**CATCH, total_steps=400, savedir=str(tmp_path))).state == "failed"

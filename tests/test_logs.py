import re

import gymnasium
import pytest
import torch
from csv_rows import rows_of
from torch import nn

from monobeast.faults import FaultRecord
from monobeast.health import summarize
from monobeast.rollouts import allocate
from monobeast.runs import logs
from monobeast.runs.logs import EPISODE_COLUMNS, LOG_COLUMNS, Averages, RunLog


def make_batch(is_first, done, returns):
    """Two columns of T steps; the returns are those of the second column."""
    batch = allocate(len(done), 2, gymnasium.spaces.Discrete(3), gymnasium.spaces.Discrete(2))
    batch.is_first.copy_(torch.tensor([is_first, is_first]).T)
    batch.done.fill_(False)
    batch.done[:, 1] = torch.tensor(done)
    batch.episode_return[:, 1] = torch.tensor(returns, dtype=torch.float64)
    batch.episode_length.fill_(7)
    batch.actor.fill_(4)
    batch.env.copy_(torch.tensor([[0, 1]]))
    return batch


def make_statistics(loss, num_clipped=0.0):
    """Those of an update of two steps."""
    sums = {"count": 2.0, "rho": 2.0, "rho_squared": 2.0, "kl": 0.5, "rho_clipped": num_clipped}
    sums["entropy"] = 2 * loss
    sums |= dict.fromkeys(("c_clipped", "pg_rho_clipped", "vs", "vs_squared", "error", "error_squared"), 0.0)
    numbers = {f"sum_of_{name}": value for name, value in sums.items()}
    numbers |= dict.fromkeys(("total_loss", "policy_lag_mean"), loss)
    return {name: torch.tensor(value) for name, value in numbers.items()}


class StubLearner:
    """The numbers of a learner that a row holds."""

    num_updates, learning_rate, faults = 2, 0.5, FaultRecord(torch.device("cpu"))

    def __init__(self, step=40):
        self.step = step

    def measure_features(self, batch):
        return {"feature_std": 0.25, "dead_units_1": 0.5}


def test_averages_are_means_and_maxima_since_the_last_reading():
    averages = Averages()
    for loss, lag in ((1.0, 5), (3.0, 2)):
        averages.add({"loss": torch.tensor(loss), "lag_max": torch.tensor(lag)})

    assert averages.pop() == {"loss": 2.0, "lag_max": 5}
    assert averages.pop() == {}


def test_averages_keep_no_tensor_of_the_caller():
    averages, value = Averages(), torch.tensor(1.0)
    averages.add({"loss": value})
    value.fill_(9.0)

    assert averages.pop() == {"loss": 1.0}


def test_a_row_counts_episodes_and_steps_that_are_no_resets(tmp_path):
    with RunLog(tmp_path, nn.Module(), total_steps=100, interval_s=1000) as log:
        batch = make_batch([True, False, False, True], [False, True, False], [0.0, 2.5, 0.0])
        log.record(batch, make_statistics(1.5), step=6)
        log.write_row(StubLearner(), actor_restarts=3)
        log.record(make_batch([False] * 4, [False] * 3, [0.0] * 3), make_statistics(0.5), step=12)
        log.write_row(StubLearner(step=46), actor_restarts=3)

    first, second = rows_of(tmp_path / "logs.csv")
    assert tuple(first) == LOG_COLUMNS
    assert first["environment_steps"] == "4" and second["environment_steps"] == "10"
    assert (first["episodes"], first["mean_episode_return"], first["mean_episode_length"]) == ("1", "2.5", "7")
    # No episode ended in the second interval: a count, and no mean.
    assert (second["episodes"], second["mean_episode_return"], second["mean_episode_length"]) == ("1", "", "")
    assert (first["total_loss"], second["total_loss"]) == ("1.5", "0.5")
    assert (first["step"], first["updates"], first["learning_rate"], first["actor_restarts"]) == ("40", "2", "0.5", "3")
    (episode,) = rows_of(tmp_path / "episodes.csv")
    assert tuple(episode) == EPISODE_COLUMNS
    assert list(episode.values()) == ["6", "4", "1", "2.5", "7"]


def test_an_update_of_reset_steps_alone_does_not_lower_the_entropy():
    averages = Averages()
    averages.add(make_statistics(1.5))
    averages.add({name: torch.zeros_like(value) for name, value in make_statistics(0.0).items()})

    assert summarize(averages.pop())["entropy"] == 1.5


def test_counts_past_31_bits_are_written_in_full(tmp_path):
    learner = StubLearner()
    learner.step = 2**31 + 640
    with RunLog(tmp_path, nn.Module(), total_steps=2**40, interval_s=1000) as log:
        log.write_row(learner, actor_restarts=0)

    assert rows_of(tmp_path / "logs.csv")[0]["step"] == "2147484288"


def test_the_mean_return_is_of_the_last_hundred_episodes(tmp_path):
    with RunLog(tmp_path, nn.Module(), total_steps=100, interval_s=1000) as log:
        assert log.mean_return is None
        for value in range(150):
            log.record(make_batch([True, False], [True], [float(value)]), {}, step=value)
        assert log.mean_return == pytest.approx(sum(range(50, 150)) / 100)


def test_without_an_update_there_is_a_line_and_no_row(tmp_path, caplog):
    with RunLog(tmp_path, nn.Module(), total_steps=100, interval_s=1000) as log, caplog.at_level("INFO"):
        for step in (0, 0, 40, 40, 46):
            log.write_row(StubLearner(step), actor_restarts=0)

    assert [row["step"] for row in rows_of(tmp_path / "logs.csv")] == ["40", "46"]
    assert len(caplog.messages) == 5


def test_there_is_no_rate_before_a_second_update_and_none_is_learned_while_nothing_is(tmp_path, caplog, monkeypatch):
    clock = iter(range(100))
    monkeypatch.setattr(logs.time, "monotonic", lambda: float(next(clock)))
    batch = make_batch([True, False], [True], [1.0])
    with RunLog(tmp_path, nn.Module(), total_steps=100, interval_s=1000) as log, caplog.at_level("INFO"):
        log.write_row(StubLearner(0), actor_restarts=0)
        log.record(batch, {}, step=40)
        for step in (40, 46, 46):
            log.write_row(StubLearner(step), actor_restarts=0)

    rates = [re.search(r"([\d.]+) steps/s", message) for message in caplog.messages]
    assert [rate and rate[1] for rate in rates] == [None, None, "6", "0"]


def test_a_row_holds_the_health_of_its_updates_and_of_the_batch_it_is_given(tmp_path):
    batch = make_batch([True, False], [True], [1.0])
    with RunLog(tmp_path, nn.ReLU(), total_steps=100, interval_s=1000) as log:
        for num_clipped in (0.0, 1.0):
            log.record(batch, make_statistics(1.5, num_clipped), step=6)
        log.write_row(StubLearner(), actor_restarts=0, batch=batch)
        log.write_row(StubLearner(step=46), actor_restarts=0)

    first, second = rows_of(tmp_path / "logs.csv")
    assert tuple(first) == (*LOG_COLUMNS, "dead_units_1")
    health = ("rho_clipped", "effective_sample_size", "kl", "explained_variance", "feature_std", "dead_units_1")
    assert [first[name] for name in health] == ["0.25", "1", "0.25", "", "0.25", "0.5"]
    assert [second[name] for name in health] == [""] * 6  # no update, no batch

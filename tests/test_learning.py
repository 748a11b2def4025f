"""Does it learn? Catch, whose best mean return is 1 and whose random play gives about -0.6."""

import pytest
import torch

from monobeast import environments, learner
from monobeast.config import Config
from monobeast.inline_actor import InlineActor
from monobeast.learner import Learner
from monobeast.networks import make_network
from monobeast.training import train
from monobeast.weights import SharedWeights

SETTINGS = {
    **{"env": "monobeast/Catch-v0", "learning_rate": 2e-3, "epsilon": 0.01, "rmsprop_start": 0.0},
    **{"entropy_cost": 0.01, "baseline_cost": 0.5},
}
SHAPE = {"envs_per_actor": 8, "batch_size": 8, "unroll_length": 20}


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_catch_is_learned_by_two_actor_processes(tmp_path, precision):
    sizes = SHAPE | {"num_actors": 2, "num_learner_threads": 1, "total_steps": 150_000}

    result = train(Config(**SETTINGS, **sizes, precision=precision, seed=1, savedir=str(tmp_path)))

    assert result.state == "complete"
    assert result.mean_episode_return >= 0.9


def learn_with_lag(lag, num_updates=350, seed=0, precision="float32"):
    """Mean return of Catch over the last batches, where actors get new weights only every `lag` updates."""
    config = environments.resolve(Config(**SETTINGS, **SHAPE, num_actors=0, seed=seed))
    spaces = environments.check(config)
    torch.manual_seed(seed)
    network = make_network(spaces.observation, spaces.action, precision=precision)
    weights = SharedWeights(network.parameters())
    student = Learner(network, config)
    returns = []
    with InlineActor(config, spaces, network.initial_state(1), weights) as actor:
        for update in range(num_updates):
            batch = actor.get_batch(timeout_s=1.0)
            returns += batch.episode_return[batch.done].tolist()
            student.update(batch)
            if update % lag == lag - 1:
                weights.publish(network.parameters())
    return sum(returns[-300:]) / 300


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_v_trace_learns_from_actors_that_lag_far_behind(precision):
    assert learn_with_lag(50, precision=precision) >= 0.9


def invert(log_rhos, rollout):
    return (-log_rhos).masked_fill(rollout.is_reset, -torch.inf)


def leave_out(log_rhos, rollout):
    return torch.zeros_like(log_rhos).masked_fill(rollout.is_reset, -torch.inf)


def shift(log_rhos, rollout):
    return log_rhos.roll(1, dims=0)


def slow(value):
    return pytest.param(value, marks=pytest.mark.slow)


@pytest.mark.parametrize("break_ratio", [invert, slow(leave_out), slow(shift)])
def test_with_a_broken_importance_ratio_it_does_not(monkeypatch, break_ratio):
    intact = learner.compute_log_rhos

    def broken(rollout, *log_probs):
        return break_ratio(intact(rollout, *log_probs), rollout)

    monkeypatch.setattr(learner, "compute_log_rhos", broken)

    assert learn_with_lag(50) < 0.9


def exchange_columns(advantages):
    return advantages.roll(1, dims=1)


@pytest.mark.parametrize("break_advantages", [slow(exchange_columns), slow(torch.neg)])
def test_with_a_broken_advantage_it_does_not(monkeypatch, break_advantages):
    intact = learner.compute_returns

    def broken(*arguments):
        returns = intact(*arguments)
        return returns._replace(pg_advantages=break_advantages(returns.pg_advantages))

    monkeypatch.setattr(learner, "compute_returns", broken)

    assert learn_with_lag(50) < 0.9

"""Observations of several parts beside actions of several parts, normalized, through an LSTM: all of it in one run."""

import json
import math

import numpy as np
import pytest
import torch
from command_lines import run
from csv_rows import rows_of
from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete
from random_rollouts import weigh_by
from stub_environments import stub_config

from monobeast import environments
from monobeast.actor import Actor
from monobeast.config import Config
from monobeast.environments import Spaces
from monobeast.learner import Learner
from monobeast.makers import Makers
from monobeast.networks import AgentInput
from monobeast.policy import LocalPolicy
from monobeast.rollouts import allocate
from monobeast.runs import checkpoint
from monobeast.training import train
from monobeast.weights import SharedWeights, weights_of

ENV = "stub_environments:Mirror-v0"
BOTH = {"normalize_observations": True, "normalize_rewards": True}
CHOICES = {"env_kwargs": '{"space": "table"}'}  # MultiDiscrete both ways, of two axes
NUMBERS = {"env_kwargs": '{"space": "matrix"}'} | BOTH  # a Dict in, a Box out
SETTINGS = {
    **{"env": ENV, "use_lstm": True, "num_actors": 2, "envs_per_actor": 2, "batch_size": 4, "unroll_length": 5},
    **{"num_learner_threads": 1, "seed": 1, "xpid": "run", "total_steps": 200, "device": "cpu"},
}


def begin(tmp_path, **settings):
    return train(Config(**SETTINGS | {"savedir": str(tmp_path)} | settings))


def last_row(folder):
    return rows_of(folder / "logs.csv")[-1]


def test_an_agent_sees_what_it_did():
    spaces = [environments.check(stub_config("Mirror-v0", space=space)) for space in ("table", "matrix")]

    numbers = Dict(numbers=Box(-np.inf, np.inf, (4,), np.float64), step=Discrete(6))
    choices = MultiDiscrete([[3, 2], [2, 4]]), MultiDiscrete([3, 2, 2, 4])
    assert spaces == [Spaces(*choices), Spaces(numbers, Box(-1, 1, (4,)))]


@pytest.mark.parametrize("settings", [CHOICES, NUMBERS], ids=["choices", "numbers"])
def test_a_run_is_stopped_gone_on_with_evaluated_and_played(tmp_path, capfd, settings):
    settings = settings | {"evaluate_every": 100, "evaluate_episodes": 1}
    begun = begin(tmp_path, **settings)
    resumed = begin(tmp_path, **settings, resume=True, total_steps=400)

    assert (begun.state, resumed.state) == ("complete", "complete")
    learner = checkpoint.load(resumed.folder)["learner"]
    assert learner["step"] == 400
    if settings.get("normalize_observations"):
        assert learner["network"]["normalizer.count"] == 400  # every step of both parts of the run, once
        assert learner["network"]["normalizer.mean"].shape == (4,) and learner["rewards"]["count"] > 300
    row = last_row(resumed.folder)
    assert row["bad_updates"] == "0" and row["actor_restarts"] == "0"
    assert all(math.isfinite(float(row[name])) for name in ("total_loss", "entropy", "kl", "grad_norm"))
    assert json.loads((resumed.folder / "meta.json").read_text())["state"] == "complete"
    capfd.readouterr()
    exit_code, output, errors = run(capfd, "test", "--best", "--savedir", tmp_path, "--env", ENV, "--num_episodes", 2)
    assert (exit_code, errors) == (0, "") and "return over 2 episodes: mean 5.00" in output


@pytest.mark.parametrize("settings", [CHOICES, NUMBERS], ids=["choices", "numbers"])
def test_on_policy_ratios_are_one(settings):
    config = environments.resolve(Config(**SETTINGS | settings | {"learning_rate": 0.01}))
    spaces = environments.check(config)
    learner = Learner(Makers().make_network(config, spaces), config)
    shared = SharedWeights(weights_of(learner.network))
    policy = LocalPolicy(Makers().make_network(config, spaces), shared, seed=0)
    actor = Actor(environments.make(config, 2, [0, 1]), policy, index=0)
    for _ in range(4):
        slot = allocate(5, 2, *spaces, policy.initial_state(1))
        actor.unroll(slot)
        inputs = AgentInput(slot.observation, slot.is_first, slot.last_action, slot.last_reward)
        with torch.no_grad():
            output = learner.network(inputs, slot.core_state)

        log_rhos, _ = weigh_by(learner.network.distribution, slot, output.policy_params[:-1])

        assert log_rhos[~slot.is_reset].abs().max() < 1e-4  # other orders of the same sums, in float32
        assert learner.update(slot)["is_good"]
        shared.publish(weights_of(learner.network))


@pytest.mark.parametrize("settings", [CHOICES, NUMBERS], ids=["choices", "numbers"])
def test_a_run_that_was_resumed_exactly_is_as_one_that_was_not(tmp_path, settings):
    settings = settings | {"exact_resume": True, "num_actors": 0}
    settings |= {"learning_rate_schedule": "constant", "entropy_cost_end": 0.01}  # nothing hangs on --total_steps
    whole = begin(tmp_path / "whole", **settings)
    begin(tmp_path / "parts", **settings, total_steps=100)
    parts = begin(tmp_path / "parts", **settings, resume=True)

    one, other = (checkpoint.load(each.folder)["learner"] for each in (whole, parts))
    torch.testing.assert_close(one, other, rtol=0, atol=0)

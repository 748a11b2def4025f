"""The health columns, against values worked out by hand."""

import math

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Discrete
from random_rollouts import weigh
from stub_networks import Noisy, Recurrent
from torch import nn

from monobeast import health
from monobeast.config import Config
from monobeast.distributions import Categorical
from monobeast.learner import Learner, compute_loss
from monobeast.networks import AgentNetwork, OwnNetwork, make_network
from monobeast.rollouts import allocate
from monobeast.vtrace import VTraceReturns

# Sums of a few float32 terms, made in float64; the largest error seen was 6e-8 relative.
TOLERANCE = 1e-6
CONFIG = Config(preset="atari", reward_clipping="none", clip_rho_threshold=1.5, clip_c_threshold=1.0)


def make_rollout(behavior, num_resets=0, observation_space=gymnasium.spaces.Discrete(3)):
    """Column 0: steps with the behavior probabilities [(p, 1 - p) of two actions] given, action 0; then reset steps."""
    num_steps = len(behavior) + num_resets
    rollout = allocate(num_steps, 1, observation_space, Discrete(2))
    rollout.is_first.fill_(False)
    rollout.is_first[1 + len(behavior) :] = True
    rollout.action.fill_(0)
    rollout.last_action.fill_(0)
    rollout.last_reward.fill_(0.0)
    probabilities = torch.tensor([*behavior, *[0.9] * num_resets])
    rollout.behavior_params[:, 0] = torch.stack([probabilities, 1 - probabilities], dim=-1).log()
    return rollout


def columns_of(rollouts, targets, values=None, vs=None, config=CONFIG):
    """The columns of updates with target probabilities of action 0, V and its targets."""
    total: dict[str, float] = {}
    for rollout, target in zip(rollouts, targets, strict=True):
        probabilities = torch.tensor([target] * len(rollout.action))
        logits = torch.stack([probabilities, 1 - probabilities], dim=-1).log().unsqueeze(1)
        zeros = torch.zeros(rollout.action.shape)
        returns = VTraceReturns(zeros if vs is None else vs, zeros)
        log_rhos, _ = weigh(rollout, logits)
        kl = Categorical(2).kl_divergence(rollout.behavior_params.double(), logits.double())
        sums = health.sum_vtrace(rollout, log_rhos, kl, zeros if values is None else values, returns, config)
        total = {name: total.get(name, 0.0) + value.item() for name, value in sums.items()}
    return health.summarize(total)


@pytest.mark.parametrize("num_resets", [0, 3])
def test_shares_of_clipped_ratios_count_each_clip_by_itself_and_no_reset_step(num_resets):
    rollout = make_rollout([0.25, 0.4, 0.5, 0.8], num_resets)  # ratios 2, 1.25, 1, 0.625 under a target of 0.5
    config = Config(preset="atari", clip_rho_threshold=1.5, clip_c_threshold=1.1, clip_pg_rho_threshold=None)

    columns = columns_of([rollout], [0.5], config=config)

    assert (columns["rho_clipped"], columns["c_clipped"], columns["pg_rho_clipped"]) == (0.25, 0.5, 0.0)


@pytest.mark.parametrize("num_resets", [0, 3])
def test_effective_sample_size_is_the_share_of_equally_weighted_steps(num_resets):
    columns = columns_of([make_rollout([0.25, 0.5], num_resets)], [0.5])  # ratios 2 and 1

    assert columns["effective_sample_size"] == pytest.approx((2 + 1) ** 2 / (2 * (4 + 1)), rel=TOLERANCE)


def test_effective_sample_size_is_taken_over_all_updates_at_once():
    rollouts = [make_rollout([0.25]), make_rollout([0.5])]

    columns = columns_of(rollouts, [0.5, 0.5])

    assert columns["effective_sample_size"] == pytest.approx(0.9, rel=TOLERANCE)  # each alone has 1


@pytest.mark.parametrize("num_resets", [0, 3])
def test_kl_is_that_of_the_behavior_policy_from_the_target_policy(num_resets):
    columns = columns_of([make_rollout([0.25], num_resets)], [0.5])

    expected = 0.25 * math.log(0.25 / 0.5) + 0.75 * math.log(0.75 / 0.5)
    assert columns["kl"] == pytest.approx(expected, rel=TOLERANCE)
    swapped = 0.5 * math.log(0.5 / 0.25) + 0.5 * math.log(0.5 / 0.75)
    assert columns["kl"] != pytest.approx(swapped, rel=0.01)


def test_on_policy_nothing_is_clipped_and_every_step_counts():
    columns = columns_of([make_rollout([0.5, 0.5])], [0.5])

    assert columns["rho_clipped"] == columns["c_clipped"] == columns["pg_rho_clipped"] == 0
    assert columns["effective_sample_size"] == 1 and columns["kl"] == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize(
    ("values", "expected"), [([1.0, 2.0, 6.0], 1.0), ([3.0, 3.0, 3.0], 0.0), ([5.0, 4.0, 0.0], -3.0)]
)
def test_explained_variance_is_1_for_exact_values_0_for_a_constant_and_less_for_worse(values, expected):
    vs = torch.tensor([[1.0], [2.0], [6.0], [100.0]])  # the last one at a reset step

    columns = columns_of([make_rollout([0.5] * 3, 1)], [0.5], torch.tensor([*values, 0.0]).unsqueeze(1), vs)

    assert columns["explained_variance"] == pytest.approx(expected, abs=TOLERANCE)


def test_explained_variance_of_targets_that_do_not_vary_is_no_number():
    vs = torch.full((7, 1), 0.1)  # in float64 the mean of their squares is not quite the square of their mean

    assert columns_of([make_rollout([0.5] * 7)], [0.5], torch.zeros(7, 1), vs)["explained_variance"] is None


def test_a_batch_of_reset_steps_alone_gives_no_numbers():
    assert set(columns_of([make_rollout([], 2)], [0.5]).values()) == {None}


class Layers(nn.Module):
    """An agent of two ReLU layers whose outputs are known."""

    def __init__(self, weight):
        super().__init__()
        self.num_features = 2
        self.linear = nn.Linear(1, 2, bias=False)
        self.linear.weight.data = torch.tensor(weight)
        self.relu = nn.ReLU()

    def forward(self, observation):
        return self.relu(self.linear(observation))


def make_agent(weight):
    agent = AgentNetwork(Layers(weight), Categorical(2), use_lstm=False)
    nn.init.zeros_(agent.policy.weight)
    agent.policy.weight.data[:, 0] = torch.tensor([1.0, 3.0])  # logits: (x, 3 x) of the first feature x
    return agent


def test_features_are_measured_on_the_steps_that_are_learned_from():
    space = gymnasium.spaces.Box(-1, 9, (1,), np.float32)
    rollout = make_rollout([0.5, 0.5, 0.5], num_resets=1, observation_space=space)
    rollout.observation[:, 0, 0] = torch.tensor([0.0, 2.0, 4.0, 100.0, -100.0])  # two of which are not
    agent = make_agent([[1.0], [0.0]])

    measured = health.measure_features(agent, rollout)

    std = math.sqrt(8 / 3)  # of 0, 2, 4
    assert measured["feature_std"] == pytest.approx(std / 2, rel=TOLERANCE)  # the second unit has 0
    assert measured["logits_std"] == pytest.approx(std, rel=TOLERANCE)  # less their mean: (-x, x)
    assert measured["dead_units_1"] == 0.5
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in agent.modules())


@pytest.mark.parametrize(("network", "num_relus"), [("shallow", 4), ("deep", 14), ("mlp", 2)])
@pytest.mark.parametrize("use_lstm", [False, True])
def test_every_network_says_which_of_its_layers_are_dead(network, num_relus, use_lstm):
    space = gymnasium.spaces.Box(0, 255, (4, 40, 40), np.uint8)
    torch.manual_seed(0)
    agent = make_network(space, Discrete(2), network, use_lstm)
    rollout = allocate(3, 2, space, Discrete(2), agent.initial_state(1))
    rollout.map(lambda tensor: tensor.zero_())
    rollout.observation.copy_(torch.randint(0, 255, rollout.observation.shape, dtype=torch.uint8))

    measured = health.measure_features(agent, rollout)

    assert len(health.dead_units_columns(agent)) == num_relus
    assert set(measured) == {"feature_std", "logits_std", *health.dead_units_columns(agent)}
    assert all(0 <= measured[name] < 1 for name in health.dead_units_columns(agent))
    assert measured["feature_std"] > 0 and measured["logits_std"] > 0


def test_units_are_found_behind_time_and_batch_and_a_relu_that_has_none_or_is_never_called_has_no_share():
    space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
    module = Recurrent(space, 2)
    nn.init.zeros_(module.body.weight)
    module.body.bias.data = torch.tensor([-1.0] * 6 + [1.0] * 2)  # of eight units two live
    agent = OwnNetwork(module, Categorical(2))
    rollout = allocate(3, 5, space, Discrete(2), agent.initial_state(1))
    rollout.map(lambda tensor: tensor.zero_())

    measured = health.measure_features(agent, rollout)

    assert health.dead_units_columns(agent) == ("dead_units_1", "dead_units_2", "dead_units_3")
    assert (measured["dead_units_1"], measured["dead_units_3"]) == (6 / 8, None)
    assert measured.keys() == {"logits_std", "dead_units_1", "dead_units_3"}  # the second is never called


def test_a_channel_that_is_0_everywhere_is_dead():
    space = gymnasium.spaces.Box(0, 255, (4, 40, 40), np.uint8)
    agent = make_network(space, Discrete(2), "shallow")
    rollout = allocate(3, 2, space, Discrete(2))
    rollout.map(lambda tensor: tensor.zero_())
    rollout.observation.fill_(100)
    first = agent.torso.convolutions[0]
    nn.init.ones_(first.bias)  # all that is left of an image of one color, which loses its mean
    first.bias.data[:8] = -1e9

    assert health.measure_features(agent, rollout)["dead_units_1"] == 8 / 32


def test_a_batch_of_reset_steps_alone_has_no_spread():
    space = gymnasium.spaces.Discrete(3)
    rollout = make_rollout([], num_resets=1)
    rollout.observation.zero_()

    measured = health.measure_features(make_network(space, Discrete(2)), rollout)

    assert measured["feature_std"] is None and measured["logits_std"] is None


def test_an_update_gives_the_sums_without_a_gradient():
    space = gymnasium.spaces.Discrete(3)
    agent = make_network(space, Discrete(2))
    rollout = make_rollout([0.5, 0.5])
    rollout.map(lambda tensor: tensor.nan_to_num_() if tensor.is_floating_point() else tensor)
    rollout.observation.zero_(), rollout.reward.zero_(), rollout.terminal.fill_(False)

    statistics = compute_loss(agent, rollout, CONFIG).statistics

    sums = {name: value for name, value in statistics.items() if name.startswith("sum_of_")}
    assert sums["sum_of_count"] == 2
    assert not any(value.requires_grad for value in sums.values())
    assert Learner(agent, CONFIG).measure_features(rollout).keys() >= {"feature_std", "logits_std"}


def test_a_look_inside_draws_no_numbers_that_the_next_update_would_have_drawn():
    """Else a run of a network with dropout would depend on when its rows are written."""
    network = OwnNetwork(Noisy(Discrete(3), 2), Categorical(2))
    rollout = make_rollout([0.5, 0.5])
    rollout.observation.fill_(1)
    before = torch.get_rng_state()

    health.measure_features(network, rollout)

    assert torch.equal(torch.get_rng_state(), before)

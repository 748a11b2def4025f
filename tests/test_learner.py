"""Losses of whole batches: with episodes ending anywhere, against sums done by hand."""

import copy
import dataclasses
import math

import pytest
import torch
from random_rollouts import weigh
from torch import nn

from monobeast import environments
from monobeast.actor import Actor
from monobeast.config import Config
from monobeast.distributions import Categorical
from monobeast.learner import Learner, compute_loss, compute_returns
from monobeast.networks import AgentInput, AgentOutput, make_network
from monobeast.policy import LocalPolicy
from monobeast.rollouts import allocate

# Sums of up to 40 float32 terms below 1000; the largest error seen was 2e-6 relative.
TOLERANCE = {"rtol": 1e-5, "atol": 1e-5}
CONFIG = Config(preset="atari", discounting=0.9, reward_clipping="none")


class ObservationAsValue(nn.Module):
    """V(x) is the observation, and the policy is the same everywhere: errors of alignment become visible numbers."""

    def __init__(self, logits=(0.0, 0.0)):
        super().__init__()
        self.distribution = Categorical(2)
        self.logits = nn.Parameter(torch.tensor(logits))
        self.scale = nn.Parameter(torch.ones(()))

    def initial_state(self, batch_size):
        return ()

    def forward(self, inputs, core_state):
        baseline = self.scale * inputs.observation[..., 0]
        return AgentOutput(self.logits.expand(*baseline.shape, 2), baseline, ())


def collect(env_kwargs, unroll_length, num_rollouts=1, env="Counter-v0", num_envs=1):
    """Rollouts that a uniform policy makes in stub environments."""
    config = Config(env=f"stub_environments:{env}", env_kwargs=env_kwargs)
    environment = environments.make(config, num_envs, list(range(num_envs)))
    actor = Actor(environment, LocalPolicy(ObservationAsValue(), None, seed=0), index=0)
    rollouts = []
    for _ in range(num_rollouts):
        rollouts.append(allocate(unroll_length, num_envs, environment.observation_space, environment.action_space))
        actor.unroll(rollouts[-1])
    return rollouts


def returns_of(rollout, config=CONFIG):
    network = ObservationAsValue()
    output = network(rollout, ())
    ratios = weigh(rollout, output.policy_params[:-1].detach())
    return compute_returns(rollout, *ratios, output.baseline.detach(), config)


def test_a_truncated_episode_bootstraps_from_its_final_observation():
    (rollout,) = collect('{"truncate_at": 3}', unroll_length=4)

    vs = returns_of(rollout).vs[:, 0]

    # V of the final observation is 3: not 2, the observation before, nor 0, the first of the next episode.
    expected = [1 + 0.9 * (1 + 0.9 * (1 + 0.9 * 3)), 1 + 0.9 * (1 + 0.9 * 3), 1 + 0.9 * 3, 3]
    torch.testing.assert_close(vs, torch.tensor(expected), **TOLERANCE)


def test_an_episode_cut_by_truncation_has_the_targets_of_one_cut_by_the_unroll():
    (truncated,) = collect('{"truncate_at": 3}', unroll_length=6)
    (endless,) = collect("{}", unroll_length=3)

    for one, other in zip(returns_of(truncated), returns_of(endless), strict=True):
        torch.testing.assert_close(one[:3], other, **TOLERANCE)


def test_where_only_time_runs_out_the_endless_value_is_right_everywhere():
    (rollout,) = collect("{}", unroll_length=41, env="Horizon-v0")  # two episodes and the reset step between them
    log_rhos = torch.zeros(41, 1).masked_fill(rollout.is_reset, -torch.inf)
    endless = torch.full((42, 1), 10.0)

    right = compute_returns(rollout, log_rhos, log_rhos, endless, CONFIG)
    wrong = compute_returns(rollout._replace(terminal=rollout.done), log_rhos, log_rhos, endless, CONFIG)

    torch.testing.assert_close(right.vs, endless[:-1], **TOLERANCE)
    # The numbers of the environment's docstring: a truncation taken for an end.
    first, last, mean = wrong.vs[0, 0], wrong.vs[19, 0], wrong.vs[:20].mean()
    assert [round(value.item(), 1) for value in (first, last, mean)] == [8.8, 1.0, 6.0]


def test_a_terminated_episode_has_no_value_after_its_end():
    (rollout,) = collect('{"terminate_at": 3}', unroll_length=4)

    vs = returns_of(rollout).vs[:, 0]

    torch.testing.assert_close(vs, torch.tensor([1 + 0.9 * (1 + 0.9), 1 + 0.9, 1.0, 3.0]), **TOLERANCE)


@pytest.mark.parametrize("end", ["terminate_at", "truncate_at"])
@pytest.mark.parametrize("unroll_length", [1, 2, 3, 4, 5, 9])
def test_targets_within_an_episode_do_not_depend_on_what_else_the_unroll_holds(end, unroll_length):
    """Episode by episode, the n-step return of equation (2), wherever the unroll's border falls."""
    for rollout in collect(f'{{"{end}": 3}}', unroll_length, num_rollouts=6):
        vs = returns_of(rollout).vs[:, 0]
        observation = rollout.observation[:, 0, 0].tolist()
        expected, later = [0.0] * unroll_length, observation[-1]
        for t in reversed(range(unroll_length)):
            if rollout.is_reset[t, 0]:  # from 3 to the next 0: nothing is learned, its target is V itself
                later = observation[t]
            else:
                later = 1.0 + 0.9 * (0.0 if rollout.terminal[t, 0] else later)
            expected[t] = later
        torch.testing.assert_close(vs, torch.tensor(expected), **TOLERANCE)


def test_on_policy_targets_are_n_step_returns():
    (rollout,) = collect("{}", unroll_length=6)

    vs = returns_of(rollout).vs[:, 0]

    expected = [sum(0.9**k for k in range(6 - t)) + 0.9 ** (6 - t) * 6 for t in range(6)]
    torch.testing.assert_close(vs, torch.tensor(expected), **TOLERANCE)


@pytest.mark.parametrize("end", ["terminate_at", "truncate_at"])
def test_an_episode_cut_in_two_by_the_unroll_and_one_batch_of_both_halves_agree(end):
    """A batch holding two rollouts has the sum of the losses, and of the gradients, of two batches of one each."""
    first, second = collect(f'{{"{end}": 5}}', unroll_length=4, num_rollouts=2)
    both = allocate(4, 2, *_spaces())
    both.columns(0, 1).copy_(first)
    both.columns(1, 2).copy_(second)

    def loss_and_gradients(rollout):
        network = ObservationAsValue((0.3, -0.2))
        loss = compute_loss(network, rollout, CONFIG).total_loss
        loss.backward()
        return torch.cat([loss.detach().reshape(1), *(p.grad.flatten() for p in network.parameters())])

    torch.testing.assert_close(
        loss_and_gradients(both), loss_and_gradients(first) + loss_and_gradients(second), **TOLERANCE
    )


def _spaces():
    return environments.check(Config(env="stub_environments:Counter-v0"))


def test_two_episodes_in_one_rollout_give_the_loss_of_each_alone():
    (whole,) = collect('{"terminate_at": 3}', unroll_length=7)  # 3 steps, the reset step, 3 steps
    parts = [whole._replace(**_rows(whole, start, start + 3)) for start in (0, 4)]

    def statistics(rollout):
        return compute_loss(ObservationAsValue((0.3, -0.2)), rollout, CONFIG).statistics

    for name in ("total_loss", "pg_loss", "baseline_loss", "entropy_loss"):
        total = sum(statistics(part)[name] for part in parts)
        torch.testing.assert_close(statistics(whole)[name], total, **TOLERANCE)


def _rows(rollout, start, stop):
    """Transitions `start` to `stop`, and the observations around them."""
    around = ("observation", "is_first", "last_action", "last_reward")
    within = ("action", "behavior_params", "reward", "terminal", "done", "episode_return", "episode_length")
    rows = {name: getattr(rollout, name)[start : stop + 1] for name in around}
    return rows | {name: getattr(rollout, name)[start:stop] for name in within}


def test_nothing_is_learned_from_the_action_of_a_reset_step():
    (rollout,) = collect('{"truncate_at": 3}', unroll_length=6)
    changed = rollout._replace(action=torch.where(rollout.is_reset, 1 - rollout.action, rollout.action))
    assert not torch.equal(changed.action, rollout.action)

    def gradients(rollout):
        network = ObservationAsValue((0.3, -0.2))
        compute_loss(network, rollout, CONFIG).total_loss.backward()
        return [parameter.grad for parameter in network.parameters()]

    for one, other in zip(gradients(rollout), gradients(changed), strict=True):
        assert torch.equal(one, other)


def test_the_entropy_is_a_mean_over_steps_that_count():
    (rollout,) = collect('{"terminate_at": 3}', unroll_length=8)

    statistics = compute_loss(ObservationAsValue(), rollout, CONFIG).statistics

    entropy = statistics["sum_of_entropy"] / statistics["sum_of_count"].float()
    torch.testing.assert_close(entropy, torch.tensor(2.0).log(), **TOLERANCE)


def test_the_learner_sees_clipped_rewards_and_the_log_the_games_own():
    (rollout,) = collect('{"n": 7, "reward": 10.0}', unroll_length=8, env="Fixed-v0")

    vs = returns_of(rollout, dataclasses.replace(CONFIG, reward_clipping="abs_one")).vs

    assert rollout.episode_return[rollout.done].tolist() == [70.0]
    torch.testing.assert_close(vs[6, 0], torch.tensor(1.0), **TOLERANCE)  # the step that ends the game


def test_the_learner_sees_scaled_rewards_and_the_log_the_games_own():
    (rollout,) = collect('{"n": 7, "reward": 10.0}', unroll_length=8, env="Fixed-v0")

    vs = returns_of(rollout, dataclasses.replace(CONFIG, reward_scale=0.05)).vs

    assert rollout.episode_return[rollout.done].tolist() == [70.0]
    torch.testing.assert_close(vs[6, 0], torch.tensor(0.5), **TOLERANCE)


def test_the_importance_ratio_is_of_the_target_over_the_behavior_policy():
    (rollout,) = collect("{}", unroll_length=1)
    rollout.action.fill_(0)
    rollout.behavior_params.copy_(torch.tensor([0.5, 0.5]).log())
    target_logits = torch.tensor([[[0.2, 0.8]]]).log()

    returns = compute_returns(rollout, *weigh(rollout, target_logits), torch.tensor([[2.0], [3.0]]), CONFIG)

    # rho = 0.2 / 0.5; delta = 1 + 0.9 * 3 - 2
    torch.testing.assert_close(returns.vs, torch.tensor([[2.0 + 0.4 * 1.7]]), **TOLERANCE)
    torch.testing.assert_close(returns.pg_advantages, torch.tensor([[0.4 * 1.7]]), **TOLERANCE)


@pytest.mark.parametrize("use_lstm", [False, True])
@pytest.mark.parametrize("end", ["terminate_at", "truncate_at"])
def test_the_learner_sees_what_the_actor_saw(end, use_lstm):
    """With the actor's own weights every importance ratio is 1: state, first steps and inputs agree row by row."""
    config = Config(env="stub_environments:Counter-v0", env_kwargs=f'{{"{end}": 5}}')
    environment = environments.make(config, 2, [0, 1])
    network = make_network(environment.observation_space, environment.action_space, use_lstm=use_lstm)
    torch.nn.init.orthogonal_(network.policy.weight)  # else all policies are nearly uniform
    actor = Actor(environment, LocalPolicy(network, None, seed=0), index=0)
    for _ in range(4):
        rollout = allocate(7, 2, environment.observation_space, environment.action_space, network.initial_state(1))
        actor.unroll(rollout)
        inputs = AgentInput(rollout.observation, rollout.is_first, rollout.last_action, rollout.last_reward)
        log_rhos, _ = weigh(rollout, network(inputs, rollout.core_state).policy_params[:-1])

        assert (log_rhos[rollout.is_reset] == -torch.inf).all()
        assert log_rhos[~rollout.is_reset].abs().max() < 1e-5


def test_the_learning_rate_falls_linearly_to_zero_and_never_below():
    config = dataclasses.replace(CONFIG, total_steps=30, learning_rate=0.5)
    learner = Learner(ObservationAsValue(), config)
    (rollout,) = collect("{}", unroll_length=10)

    rates = []
    for _ in range(4):
        rates.append(learner.learning_rate)
        learner.update(rollout)

    assert rates == pytest.approx([0.5, 0.5 * 2 / 3, 0.5 / 3, 0.0])
    assert learner.step == 40 and learner.num_updates == 4


def test_a_constant_rate_stays():
    config = dataclasses.replace(CONFIG, total_steps=20, learning_rate=0.5, learning_rate_schedule="constant")
    learner = Learner(ObservationAsValue(), config)
    (rollout,) = collect("{}", unroll_length=10)

    rates = [learner.learning_rate]
    for _ in range(3):
        learner.update(rollout)
        rates.append(learner.learning_rate)

    assert rates == [0.5] * 4


@pytest.mark.parametrize(
    ("settings", "costs"),
    [
        ({"entropy_cost_end": 0.1}, [0.4, 0.25, 0.1, 0.1]),
        ({"entropy_cost_end": 0.6}, [0.4, 0.5, 0.6, 0.6]),
        ({"preset": "atari"}, [0.4, 0.2, 0.0, 0.0]),
        ({"preset": "paper"}, [0.4] * 4),
    ],
)
def test_the_entropy_cost_goes_linearly_to_its_end_and_the_loss_with_it(settings, costs):
    config = Config(
        **{"preset": "classic", "reward_clipping": "none", "total_steps": 20, "entropy_cost": 0.4} | settings,
        **{"learning_rate": 1e-9, "baseline_cost": 0.0},
    )
    learner = Learner(ObservationAsValue(), config)  # a uniform policy of two actions, which stays so
    (rollout,) = collect("{}", unroll_length=10)

    losses = [learner.update(rollout)["entropy_loss"].item() for _ in costs]

    assert losses == pytest.approx([-cost * 10 * math.log(2) for cost in costs], rel=1e-5)


def test_the_rate_of_an_update_is_the_one_before_it():
    config = dataclasses.replace(CONFIG, total_steps=10, learning_rate=0.5)
    learner = Learner(network := ObservationAsValue(), config)
    (rollout,) = collect("{}", unroll_length=10)

    learner.update(rollout)  # the only one, at the full rate
    moved = network.logits.detach().clone()
    learner.update(rollout)  # at the end of the schedule: rate 0

    assert not torch.equal(moved, torch.zeros(2))
    assert torch.equal(network.logits, moved)


@pytest.mark.parametrize("start", [0.0, 1.0])
def test_the_first_step_of_rmsprop_follows_from_where_its_average_starts(start):
    config = dataclasses.replace(CONFIG, alpha=0.99, epsilon=1e-8, learning_rate=0.01, rmsprop_start=start)
    learner = Learner(network := ObservationAsValue(), config)
    (rollout,) = collect("{}", unroll_length=10)
    before = network.scale.item()

    learner.update(rollout)

    gradient = network.scale.grad.item()
    average = 0.99 * start + 0.01 * gradient**2
    step = 0.01 * gradient / (average**0.5 + 1e-8)
    assert before - network.scale.item() == pytest.approx(step, rel=1e-4)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_from_zero_rmsprop_is_pytorchs_own(momentum):
    config = dataclasses.replace(
        CONFIG, momentum=momentum, rmsprop_start=0.0, grad_norm_clipping=1e9, total_steps=10**9
    )
    learner = Learner(network := ObservationAsValue(), config)
    other = ObservationAsValue()
    optimizer = torch.optim.RMSprop(
        other.parameters(), lr=config.learning_rate, alpha=config.alpha, momentum=momentum, eps=config.epsilon
    )
    for rollout in collect("{}", unroll_length=10, num_rollouts=3):
        learner.update(rollout)
        optimizer.zero_grad()
        compute_loss(other, rollout, config).total_loss.backward()
        optimizer.step()

    for mine, theirs in zip(network.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs, **TOLERANCE)


def test_gradients_are_clipped_by_their_global_norm():
    (rollout,) = collect("{}", unroll_length=10)
    learner = Learner(network := ObservationAsValue(), dataclasses.replace(CONFIG, grad_norm_clipping=1e-3))

    statistics = learner.update(rollout)

    norm = torch.cat([parameter.grad.flatten() for parameter in network.parameters()]).norm()
    torch.testing.assert_close(norm, torch.tensor(1e-3), **TOLERANCE)
    assert statistics["grad_norm"] > 1  # logged before the clip


def test_lag_is_the_learners_version_minus_the_rollouts():
    learner = Learner(ObservationAsValue(), CONFIG)
    (rollout,) = collect("{}", unroll_length=2, num_envs=2)
    learner.num_updates = 9

    statistics = learner.update(rollout._replace(policy_version=torch.tensor([[9, 4]])))

    assert statistics["policy_lag_mean"] == 2.5
    assert statistics["policy_lag_max"] == 5


def test_a_learner_goes_on_from_its_state_as_if_it_had_never_stopped():
    (rollout,) = collect("{}", unroll_length=5)
    one = Learner(ObservationAsValue(), CONFIG)
    one.update(rollout)
    other = Learner(ObservationAsValue((5.0, 5.0)), CONFIG)
    other.load_state_dict(copy.deepcopy(one.state_dict()))

    one.update(rollout)
    other.update(rollout)

    assert (one.step, one.num_updates) == (other.step, other.num_updates)
    for mine, theirs in zip(one.network.parameters(), other.network.parameters(), strict=True):
        assert torch.equal(mine, theirs)

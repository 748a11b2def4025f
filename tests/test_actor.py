"""One actor's rollouts hold exactly what its environments and its policy did."""

import numpy as np
import pytest
import torch

from monobeast import environments
from monobeast.actor import Actor, ActorTask, make_actor
from monobeast.config import Config
from monobeast.environments import Spaces
from monobeast.policy import Decision
from monobeast.rollouts import allocate

NUM_ENVS = 2


class SpyPolicy:
    """Random logits, actions drawn from them, a core state that counts; all of it kept for comparison."""

    def __init__(self):
        self.generator = torch.Generator().manual_seed(0)
        self.version = 6
        self.seen = []  # (inputs, core_state, decision) a step

    def refresh(self):
        self.version += 1
        return self.version

    def initial_state(self, num_envs):
        return (torch.zeros(1, num_envs, 1),)

    def act(self, inputs, core_state):
        logits = torch.randn(NUM_ENVS, 2, generator=self.generator)
        action = torch.multinomial(logits.softmax(-1), 1, generator=self.generator).squeeze(-1)
        decision = Decision(action, logits, tuple(state + 1 for state in core_state))
        inputs = type(inputs)(*(tensor.clone() for tensor in inputs))
        self.seen.append((inputs, core_state, decision))
        return decision


class NoNetwork:
    """Makers that have environments, and no network for them."""

    def __init__(self, environment):
        self.environment = environment

    def make_environments(self, config, num_envs, seeds):
        return self.environment

    def make_network(self, config, spaces):
        raise RuntimeError("no network")


def collect(env, unroll_length, num_rollouts, **settings):
    """The policy and the rollouts of an actor, each in memory of its own."""
    environment = environments.make(Config(env=f"stub_environments:{env}", **settings), NUM_ENVS, [1, 2])
    policy = SpyPolicy()
    actor = Actor(environment, policy, index=3)
    rollouts = []
    for _ in range(num_rollouts):
        spaces = environment.observation_space, environment.action_space
        slot = allocate(unroll_length, NUM_ENVS, *spaces, policy.initial_state(1))
        actor.unroll(slot)
        rollouts.append(slot)
    actor.close()
    return policy, rollouts


@pytest.mark.parametrize("unroll_length", [1, 4, 5, 6])
def test_the_last_row_of_a_rollout_is_the_first_of_the_next(unroll_length):
    _, rollouts = collect("Counter-v0", unroll_length, 5, env_kwargs='{"terminate_at": 5}')

    for earlier, later in zip(rollouts, rollouts[1:], strict=False):
        for name in ("observation", "is_first", "last_action", "last_reward"):
            assert torch.equal(getattr(earlier, name)[-1], getattr(later, name)[0]), name


@pytest.mark.parametrize("unroll_length", [1, 3, 6, 20])
def test_no_step_is_lost_or_recorded_twice(unroll_length):
    _, rollouts = collect("Counter-v0", unroll_length, 60 // unroll_length, env_kwargs='{"terminate_at": 5}')

    observed = torch.cat([rollout.observation[:-1, 0, 0] for rollout in rollouts])
    # Episodes of 5 steps show 0 to 5; the step from 5 is the reset step to the next 0.
    assert observed.tolist() == [float(t % 6) for t in range(60)]
    is_reset = torch.cat([rollout.is_reset[:, 0] for rollout in rollouts])
    assert is_reset.tolist() == [t % 6 == 5 for t in range(60)]
    rewards = torch.cat([rollout.reward[:, 0] for rollout in rollouts])
    assert rewards.tolist() == [0.0 if t % 6 == 5 else 1.0 for t in range(60)]


def test_the_recorded_logits_and_actions_are_the_ones_that_acted():
    policy, rollouts = collect("Counter-v0", 4, 3)

    decisions = [decision for _, _, decision in policy.seen]
    logits = torch.cat([rollout.behavior_params for rollout in rollouts])
    actions = torch.cat([rollout.action for rollout in rollouts])
    assert torch.equal(logits, torch.stack([decision.params for decision in decisions]))
    assert torch.equal(actions, torch.stack([decision.action for decision in decisions]))


def test_the_policy_saw_what_the_rollout_says_it_saw():
    policy, rollouts = collect("Counter-v0", 4, 3, env_kwargs='{"truncate_at": 3}')

    for name in ("observation", "is_first", "last_action", "last_reward"):
        recorded = torch.cat([getattr(rollout, name)[:-1] for rollout in rollouts])
        assert torch.equal(recorded, torch.cat([getattr(inputs, name) for inputs, _, _ in policy.seen])), name


def test_last_action_and_last_reward_led_to_the_observation():
    _, (rollout,) = collect("Echo-v0", 6, 1, env_kwargs='{"n": 2, "start": 0}')

    # This environment answers with the action it was given.
    assert torch.equal(rollout.observation[1:], rollout.action)
    assert torch.equal(rollout.last_action[1:], rollout.action)
    assert torch.equal(rollout.last_reward[1:], rollout.reward)


def test_a_rollout_keeps_the_core_state_before_its_first_observation():
    _, rollouts = collect("Counter-v0", 4, 3)

    # The policy's core state counts its steps.
    assert [rollout.core_state[0].flatten().tolist() for rollout in rollouts] == [[0, 0], [4, 4], [8, 8]]


def test_one_rollout_is_made_by_one_version_of_the_weights():
    _, rollouts = collect("Counter-v0", 4, 3)

    assert [rollout.policy_version.tolist() for rollout in rollouts] == [[[7, 7]], [[8, 8]], [[9, 9]]]
    assert rollouts[0].actor.tolist() == [[3, 3]]
    assert rollouts[0].env.tolist() == [[0, 1]]


@pytest.mark.parametrize(("end", "is_terminal"), [("terminate_at", True), ("truncate_at", False)])
def test_a_truncated_episode_is_done_but_not_terminal(end, is_terminal):
    _, (rollout,) = collect("Counter-v0", 8, 1, env_kwargs=f'{{"{end}": 3}}')

    assert rollout.done[:, 0].nonzero().flatten().tolist() == [2, 6]
    assert rollout.terminal[:, 0].nonzero().flatten().tolist() == ([2, 6] if is_terminal else [])
    assert np.array_equal(rollout.episode_return[rollout.done], [3.0] * 4)
    assert np.array_equal(rollout.episode_length[rollout.done], [3] * 4)


def test_every_field_is_written():
    _, (rollout,) = collect("Counter-v0", 5, 1, env_kwargs='{"terminate_at": 2}')

    for name, tensor in rollout._replace(core_state=rollout.core_state[0])._asdict().items():
        unwritten = tensor.isnan() if tensor.is_floating_point() else tensor == -(2**63)
        assert not unwritten.any(), name


def test_environments_of_an_actor_that_cannot_be_made_are_closed(monkeypatch):
    config = Config(env="stub_environments:Fixed5-v0", envs_per_actor=1, seed=1)
    environment = environments.make(config, 1, [1])
    closed = []
    monkeypatch.setattr(environment, "close", lambda: closed.append(True))
    spaces = Spaces(environment.observation_space, environment.action_space)
    with pytest.raises(RuntimeError, match="no network"):
        make_actor(ActorTask(config, spaces, index=0, generation=0, weights=None, makers=NoNetwork(environment)))

    assert closed == [True]

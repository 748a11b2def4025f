"""Rollouts of random numbers whose episodes end anywhere, and a network that is a table of its outputs."""

import gymnasium
import torch
from torch import nn

from monobeast.distributions import Categorical
from monobeast.learner import compute_log_rhos
from monobeast.networks import AgentOutput
from monobeast.rollouts import allocate


class TableNetwork(nn.Module):
    """Parameters of policies [T+1, B, P] and values [T+1, B] are its own: a loss has its gradients by them.

    Args:
        T: rows.
        B: columns.
        distribution: of the actions.
        seed: of the numbers.
        deviation: of the policies' parameters.
    """

    def __init__(self, T, B, distribution, seed=0, deviation=1.0):
        super().__init__()
        self.distribution = distribution
        generator = torch.Generator().manual_seed(seed)
        shape = (T + 1, B, distribution.num_params)
        self.params = nn.Parameter(deviation * torch.randn(*shape, generator=generator, dtype=torch.float64))
        self.values = nn.Parameter(torch.randn(T + 1, B, generator=generator, dtype=torch.float64))

    def forward(self, inputs, core_state):
        return AgentOutput(self.params, self.values, ())


def make_rollout(ends, behavior_logits, seed=0):
    """A rollout whose episode ends are given.

    Args:
        ends: for each column, rows of the last action: "terminated" or "truncated"; row -1 is the one before.
        behavior_logits: float [T, B, A].
        seed: of actions and rewards.
    """
    T, B, A = behavior_logits.shape
    generator = torch.Generator().manual_seed(seed)
    rollout = allocate(T, B, gymnasium.spaces.Box(0.0, 1.0, (1,)), gymnasium.spaces.Discrete(A))
    done, terminal = torch.zeros(T + 1, B, dtype=torch.bool), torch.zeros(T, B, dtype=torch.bool)
    for b, column in enumerate(ends):
        for t, how in column.items():
            done[t, b] = True  # row -1 is the last, which is no row of the rollout
            if t >= 0:
                terminal[t, b] = how == "terminated"
    is_reset = done.roll(1, dims=0)[:T]
    rewards = torch.randn(T, B, generator=generator).masked_fill(is_reset, 0.0)
    return rollout._replace(
        observation=torch.zeros(T + 1, B, 1),
        is_first=torch.cat([torch.zeros(1, B, dtype=torch.bool), is_reset]),
        action=torch.randint(A, (T, B), generator=generator),
        behavior_params=behavior_logits,
        reward=rewards,
        terminal=terminal,
        done=done[:T],
    )


def weigh(rollout, target_params):
    """log_rhos and log pi of the actions, float [T, B] each, of a softmax policy."""
    return weigh_by(Categorical(target_params.shape[-1]), rollout, target_params)


def weigh_by(distribution, rollout, target_params):
    """The same of a policy of any distribution."""
    behavior, target = (distribution.log_prob(p, rollout.action) for p in (rollout.behavior_params, target_params))
    return compute_log_rhos(rollout, behavior, target), target

"""Networks of one's own, named as "stub_networks:Recurrent": a sound one, and one for everything that can be amiss."""

import math

import torch
from gymnasium.spaces import Discrete
from torch import nn
from torch.nn import functional as F

SIZE = 8


class Plain(nn.Module):
    """Flattens what it sees; no state, and no layer that is a ReLU."""

    def __init__(self, observation_space, num_actions, size=SIZE):
        super().__init__()
        self.space = observation_space
        is_number = isinstance(observation_space, Discrete)
        width = int(observation_space.n) if is_number else math.prod(observation_space.shape)
        self.body = nn.Linear(width, size)
        self.policy = nn.Linear(size, num_actions)
        self.baseline = nn.Linear(size, 1)

    def initial_state(self, batch_size):
        return ()

    def look(self, observation):
        if isinstance(self.space, Discrete):
            return self.body(F.one_hot(observation, int(self.space.n)).float())
        return self.body(observation.flatten(2).float())

    def forward(self, inputs, core_state):
        features = self.look(inputs.observation).tanh()
        return self.policy(features), self.baseline(features).squeeze(-1), core_state


class Recurrent(Plain):
    """Its state is a sum of what it saw since the episode began; three ReLUs, of which one is never called."""

    def __init__(self, observation_space, num_actions):
        super().__init__(observation_space, num_actions)
        self.relu, self.unused, self.of_numbers = nn.ReLU(), nn.ReLU(), nn.ReLU()

    def initial_state(self, batch_size):
        return (torch.zeros(1, batch_size, SIZE),)

    def forward(self, inputs, core_state):
        sums, last = [], core_state[0][0]
        for features, is_first in zip(self.relu(self.look(inputs.observation)), inputs.is_first.unsqueeze(-1)):
            last = last.masked_fill(is_first, 0) + features
            sums.append(last)
        core = torch.stack(sums).tanh()
        baseline = self.baseline(core).squeeze(-1)
        return self.policy(core), baseline + self.of_numbers(baseline.flatten()).view_as(baseline), (last.unsqueeze(0),)


class RandomFeatures(Plain):
    """Sees through weights that do not learn: a buffer, drawn at random."""

    def __init__(self, observation_space, num_actions):
        super().__init__(observation_space, num_actions)
        self.register_buffer("weight", torch.randn(SIZE, SIZE))

    def look(self, observation):
        return super().look(observation) @ self.weight


class Noisy(Plain):
    """Leaves out features at random, in acting as in learning."""

    def look(self, observation):
        return F.dropout(super().look(observation), 0.5)


class Caching(Plain):
    """Keeps a tensor of its first call for all later ones."""

    scale = None

    def look(self, observation):
        self.scale = torch.ones(SIZE) if self.scale is None else self.scale
        return super().look(observation) * self.scale


class Frozen(Plain):
    """The body does not learn, the heads do."""

    def __init__(self, observation_space, num_actions):
        super().__init__(observation_space, num_actions)
        self.body.requires_grad_(False)


def make_plain(observation_space, num_actions):
    """As good as a class."""
    return Plain(observation_space, num_actions)


def make_wide(observation_space, num_actions):
    return Plain(observation_space, num_actions, size=2 * SIZE)


class NoArguments(nn.Module):
    def __init__(self):
        super().__init__()


class Raises(Plain):
    def __init__(self, observation_space, num_actions):
        raise RuntimeError("no network\ntoday")


class NoState(nn.Module):
    def __init__(self, observation_space, num_actions):
        super().__init__()
        self.linear = nn.Linear(1, 1)


class NoForward(NoState):
    def initial_state(self, batch_size):
        return ()


class NoParameters(NoForward):
    def __init__(self, observation_space, num_actions):
        nn.Module.__init__(self)


class AllFrozen(Plain):
    def __init__(self, observation_space, num_actions):
        super().__init__(observation_space, num_actions)
        self.requires_grad_(False)


class NaNWeight(Plain):
    def __init__(self, observation_space, num_actions):
        super().__init__(observation_space, num_actions)
        self.body.bias.data[0] = math.nan


class DoubleWeights(Plain):
    def __init__(self, observation_space, num_actions):
        super().__init__(observation_space, num_actions)
        self.double()


class Lazy(Plain):
    def __init__(self, observation_space, num_actions):
        super().__init__(observation_space, num_actions)
        self.body = nn.LazyLinear(SIZE)


class ExtraState(Plain):
    def get_extra_state(self):
        return {"a": 1}

    def set_extra_state(self, state):
        pass


class Normalized(Plain):
    """Its averages would not reach the actors."""

    def __init__(self, observation_space, num_actions):
        super().__init__(observation_space, num_actions)
        self.norm = nn.BatchNorm1d(SIZE)

    def look(self, observation):
        return self.norm(super().look(observation).flatten(0, 1)).unflatten(0, observation.shape[:2])


class ListState(Plain):
    def initial_state(self, batch_size):
        return []


class IntState(Recurrent):
    def initial_state(self, batch_size):
        return (torch.zeros(1, batch_size, SIZE, dtype=torch.int64),)


class StateWithoutColumns(Recurrent):
    def initial_state(self, batch_size):
        return (torch.zeros(1, 1, SIZE),)


class RaisesInState(Plain):
    def initial_state(self, batch_size):
        raise KeyError("size")


class OtherOutput(Plain):
    """Changes what a sound network gives by `change`."""

    def forward(self, inputs, core_state):
        return self.change(*super().forward(inputs, core_state))


class OneOutput(OtherOutput):
    def change(self, policy_logits, baseline, core_state):
        return policy_logits


class TwoOutputs(OtherOutput):
    def change(self, policy_logits, baseline, core_state):
        return policy_logits, baseline


class MoreActions(OtherOutput):
    def change(self, policy_logits, baseline, core_state):
        return policy_logits.repeat(1, 1, 2), baseline, core_state


class LastStepAlone(OtherOutput):
    """Right for one step, as an actor has it, and wrong for the learner's unroll."""

    def change(self, policy_logits, baseline, core_state):
        return policy_logits[-1:], baseline[-1:], core_state


class DoubleLogits(OtherOutput):
    def change(self, policy_logits, baseline, core_state):
        return policy_logits.double(), baseline, core_state


class HalfBaseline(OtherOutput):
    def change(self, policy_logits, baseline, core_state):
        return policy_logits, baseline.bfloat16(), core_state


class BaselineOfOne(OtherOutput):
    def change(self, policy_logits, baseline, core_state):
        return policy_logits, baseline.unsqueeze(-1), core_state


class NaNLogits(OtherOutput):
    def change(self, policy_logits, baseline, core_state):
        return policy_logits * math.nan, baseline, core_state


class Detached(OtherOutput):
    def change(self, policy_logits, baseline, core_state):
        return policy_logits.detach(), baseline, core_state


class StateGrows(Recurrent):
    def forward(self, inputs, core_state):
        policy_logits, baseline, (state,) = super().forward(inputs, core_state)
        return policy_logits, baseline, (state.repeat(1, 1, 2),)


class StateIsLost(Recurrent):
    def forward(self, inputs, core_state):
        return *super().forward(inputs, core_state)[:2], ()


class RaisesInForward(Plain):
    def forward(self, inputs, core_state):
        return self.policy(inputs.observation.flatten(2).float() @ torch.zeros(3, 99))


NOT_CALLABLE = 7


def make_nothing(observation_space, num_actions):
    return None


class PartsNet(nn.Module):
    """Sees two parts of what `stub_environments.Parts` shows."""

    def __init__(self, observation_space, num_actions):
        super().__init__()
        self.body, self.relu = nn.Linear(observation_space[3][0].shape[0] + 1, SIZE), nn.ReLU()
        self.policy, self.baseline = nn.Linear(SIZE, num_actions), nn.Linear(SIZE, 1)

    def initial_state(self, batch_size):
        return ()

    def forward(self, inputs, core_state):
        parts, _, _, numbers = inputs.observation
        features = self.relu(self.body(torch.cat([numbers[0].float(), parts["n"].float().unsqueeze(-1)], dim=-1)))
        return self.policy(features), self.baseline(features).squeeze(-1), core_state

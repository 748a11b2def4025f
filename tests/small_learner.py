"""A learner of a small network, and a batch for it, for tests of single updates."""

import numpy as np
import torch
from gymnasium.spaces import Box, Discrete

from monobeast.config import Config
from monobeast.learner import Learner
from monobeast.networks import make_network
from monobeast.rollouts import allocate

SPACE = Box(-1, 1, (3,), np.float32)


def make_batch():
    """Two columns of three steps: of actor 4, environments 6 and 7."""
    batch = allocate(3, 2, SPACE, Discrete(2))
    batch.map(lambda tensor: tensor.zero_())
    batch.observation.uniform_(-1, 1, generator=torch.Generator().manual_seed(0))
    batch.reward.fill_(1.0)
    batch.actor.fill_(4)
    batch.env.copy_(torch.tensor([[6, 7]]))
    return batch


def make_learner(**settings):
    torch.manual_seed(0)
    network = make_network(SPACE, Discrete(2))
    return Learner(network, Config(preset="classic", reward_clipping="none", seed=1, **settings))

"""Settings, spaces, networks and machines for tests of what a run needs."""

import dataclasses
import sys

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete, Tuple

from monobeast.config import Config
from monobeast.environments import Spaces
from monobeast.networks import make_network
from monobeast.resources.machine import Machine, OpenFiles

GB = 10**9
IMAGE = Spaces(Box(0, 255, (84, 84, 4), np.uint8), Discrete(6))
VECTOR = Spaces(Box(-1, 1, (7,), np.float64), Discrete(3))
NUMBER = Spaces(Discrete(9), Discrete(2))
IMAGE_AND_REST = Dict(image=Box(0, 255, (40, 40), np.uint8), rest=Tuple([Box(-1, 1, (), np.float16), Discrete(3)]))
PARTS = Spaces(IMAGE_AND_REST, Discrete(2))
ROOMY = Machine(
    shared_memory=20 * GB, memory=20 * GB, open_files=OpenFiles(10, 1024, 20_000), processes=30_000, cores=64
)
UNKNOWN = Machine(None, None, None, None, cores=64)
on_linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


def make_config(**settings):
    """Settings as `training.prepare` resolves them."""
    defaults = dict(
        **dict(env="CartPole-v1", preset="atari", network="mlp", device="cpu", seed=1),
        **dict(num_actors=2, envs_per_actor=8, num_learner_threads=1),
    )
    config = Config(**(defaults | settings))
    config = dataclasses.replace(config, num_buffers=config.num_buffers or 2 * max(1, config.num_actors))
    return dataclasses.replace(config, reward_clipping="none") if config.reward_clipping == "auto" else config


def make_agent(spaces=IMAGE, use_lstm=False):
    torch.manual_seed(1)
    return make_network(spaces.observation, spaces.action, "auto", use_lstm)

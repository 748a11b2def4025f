"""Networks and random inputs for tests of networks."""

import numpy as np
import torch
from gymnasium.spaces import Box, Discrete

from monobeast import trees
from monobeast.networks import AgentInput, make_network

NUM_ACTIONS = 5
ACTIONS = Discrete(NUM_ACTIONS)
IMAGE = Box(0, 255, (4, 36, 36), np.uint8)
VECTOR = Box(-1, 1, (8,), np.float32)


def make(space=VECTOR, network="auto", use_lstm=False, action_space=ACTIONS):
    torch.manual_seed(1)
    return make_network(space, action_space, network, use_lstm)


def random_inputs(space=VECTOR, num_steps=8, num_columns=2):
    """Inputs without an episode that begins."""
    space.seed(2)
    generator = torch.Generator().manual_seed(3)
    shape = (num_steps, num_columns)
    samples = [space.sample() for _ in range(num_steps * num_columns)]

    def stack(part, *leaves):
        return torch.from_numpy(np.stack([np.asarray(leaf, part.dtype) for leaf in leaves])).unflatten(0, shape)

    return AgentInput(
        observation=trees.map_leaves(stack, trees.of_space(space), *samples),
        is_first=torch.zeros(shape, dtype=torch.bool),
        last_action=torch.randint(NUM_ACTIONS, shape, generator=generator),
        last_reward=torch.randn(shape, generator=generator),
    )


def random_state(num_columns=2):
    generator = torch.Generator().manual_seed(4)
    return tuple(torch.randn(1, num_columns, 256, generator=generator) for _ in ("hidden", "cell"))


def unroll(network, inputs, state=None, steps=slice(None)):
    state = network.initial_state(inputs.is_first.shape[1]) if state is None else state
    with torch.no_grad():
        return network(AgentInput(*trees.map_leaves(lambda tensor: tensor[steps], tuple(inputs))), state)


def seen_by(module, network, inputs):
    """What the module gets when the network unrolls over the inputs."""
    seen = []
    handle = module.register_forward_pre_hook(lambda _, arguments: seen.append(arguments[0]))
    unroll(network, inputs)
    handle.remove()
    return seen[0]

"""One game played from its beginning to its end."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch

from monobeast import trees
from monobeast.environments import EnvStep, VectorEnvironment
from monobeast.networks import AgentInput
from monobeast.policy import LocalPolicy


class Episode(NamedTuple):
    """A game that was played."""

    episode_return: float
    length: int  # agent steps
    is_capped: bool  # cut off at `--max_episode_steps`, so the return is that of a part


def play_episode(
    environment: VectorEnvironment, policy: LocalPolicy, max_steps: int, watch: Callable[[], None] | None = None
) -> Episode:
    """Plays one game from its beginning, carrying the recurrent state.

    Args:
        environment: With E = 1.
        policy: Chooses the actions.
        max_steps: Agent steps after which the game is cut off.
        watch: Called before each step, and once after the last.
    """
    step = environment.reset()
    action_space = environment.action_space
    action = np.zeros((1, *action_space.shape), action_space.dtype)
    core_state = policy.initial_state(1)
    for _ in range(max_steps):
        if watch is not None:
            watch()
        decision = policy.act(to_input(step, action), core_state)
        core_state = decision.core_state
        action = decision.action.numpy()
        step = environment.step(action)
        if step.done[0]:
            break
    if watch is not None:
        watch()  # how it ended
    return Episode(float(step.episode_return[0]), int(step.episode_length[0]), is_capped=not step.done[0])


def to_input(step: EnvStep, last_action: np.ndarray) -> AgentInput:
    """Tensors [1, 1, ...] of one observation and what led to it."""
    arrays = (step.observation, step.is_first, last_action, step.reward)
    return AgentInput(*trees.map_leaves(lambda array: torch.from_numpy(array[np.newaxis]), arrays))

"""Adapts an environment's action space for agents, and their actions for the environment.

Agents know three kinds of action spaces: `Discrete` from 0, one-dimensional `MultiDiscrete` from 0, and one-dimensional
float32 `Box`, with bounds -1 and 1 for elements that have two bounds in the environment. They hide the start, shape and
scale of the environment's space.
"""

from typing import Any

import numpy as np
from gymnasium.spaces import Box, Discrete, MultiDiscrete, Space

# Some write the largest float for "no bound"; scaled to it, every action would be a blow.
_ENDLESS = 1e10


class Choice:
    """A `Discrete`: actions are int64 [E], from 0."""

    def __init__(self, own_space: Discrete) -> None:
        self._start = int(own_space.start)
        self.space = Discrete(own_space.n)

    def check(self, actions: np.ndarray, num_envs: int) -> np.ndarray:
        """The actions as int64 [E]; raises ValueError for others: ALE hangs for ever on them (seen with 0.12.1)."""
        actions = _require_ints(actions, (num_envs,))
        if actions.min() < 0 or actions.max() >= self.space.n:
            raise ValueError(f"actions: expected 0 to {self.space.n - 1}, found {actions.tolist()}")
        return actions

    def to_environment(self, actions: np.ndarray) -> np.ndarray:
        """Converts checked actions to the environments' form."""
        return actions + self._start


class Choices:
    """A `MultiDiscrete` of any number of axes: actions are int64 [E, K], from 0."""

    def __init__(self, own_space: MultiDiscrete) -> None:
        self._own_space = own_space
        self.space = MultiDiscrete(own_space.nvec.flatten())

    def check(self, actions: np.ndarray, num_envs: int) -> np.ndarray:
        """The actions as int64 [E, K]; raises ValueError for others."""
        actions = _require_ints(actions, (num_envs, *self.space.shape))
        if actions.min() < 0 or (actions >= self.space.nvec).any():
            largest = (self.space.nvec - 1).tolist()
            raise ValueError(f"actions: expected 0 to {largest}, found {actions.tolist()}")
        return actions

    def to_environment(self, actions: np.ndarray) -> np.ndarray:
        """Converts checked actions to the environments' form."""
        own = actions.reshape(-1, *self._own_space.shape) + self._own_space.start
        return own.astype(self._own_space.dtype, copy=False)


class Numbers:
    """A `Box` of floats of any number of axes: actions are float32 [E, D].

    Elements with two bounds are scaled to [-1, 1]; elements with one bound or none are not scaled. Actions are clipped
    to the bounds, since agents draw from a Gaussian, which has none.
    """

    def __init__(self, own_space: Box) -> None:
        self._own_space = own_space
        low, high = (bound.astype(np.float64).flatten() for bound in (own_space.low, own_space.high))
        low[low < -_ENDLESS], high[high > _ENDLESS] = -np.inf, np.inf
        is_scaled = np.isfinite(low) & np.isfinite(high)
        self._offset, self._scale = np.zeros_like(low), np.ones_like(low)
        self._offset[is_scaled] = (low[is_scaled] + high[is_scaled]) / 2
        self._scale[is_scaled] = (high[is_scaled] - low[is_scaled]) / 2
        seen = np.where(is_scaled, -1, low), np.where(is_scaled, 1, high)
        self.space = Box(*(bound.astype(np.float32) for bound in seen))

    def check(self, actions: np.ndarray, num_envs: int) -> np.ndarray:
        """The actions as float32 [E, D], out of bounds or not; raises ValueError for others."""
        actions, shape = np.asarray(actions), (num_envs, *self.space.shape)
        if actions.shape != shape or actions.dtype.kind != "f":
            raise ValueError(f"actions: expected float32 {list(shape)}, found {actions.dtype} {list(actions.shape)}")
        if not np.isfinite(actions).all():
            raise ValueError(f"actions: expected finite numbers, found {actions.tolist()}")
        return actions.astype(np.float32, copy=False)

    def to_environment(self, actions: np.ndarray) -> np.ndarray | list[np.ndarray]:
        """Converts checked actions to the environments' form."""
        space = self._own_space
        own = (self._offset + self._scale * actions).reshape(-1, *space.shape)
        own = own.astype(space.dtype).clip(space.low, space.high)  # last, since rounding may lead out of a bound
        # An array's elements are no arrays; those of a list stay what they are.
        return own if space.shape else [np.asarray(number) for number in own]


_KINDS: dict[type, Any] = {Discrete: Choice, MultiDiscrete: Choices, Box: Numbers}


def seen_by_agents(own_space: Space) -> Choice | Choices | Numbers:
    """The adapter for an action space that `is_supported`."""
    return next(kind for of, kind in _KINDS.items() if isinstance(own_space, of))(own_space)


def is_supported(space: Space) -> bool:
    """Whether agents can act in it; not in a Box of integers or a space without any choice."""
    if isinstance(space, Box):
        return space.dtype.kind == "f" and np.prod(space.shape) > 0
    return isinstance(space, Discrete) or (isinstance(space, MultiDiscrete) and space.nvec.size > 0)


def _require_ints(actions: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    actions = np.asarray(actions)
    if actions.shape != shape or actions.dtype.kind not in "iu":
        raise ValueError(f"actions: expected int64 {list(shape)}, found {actions.dtype} {list(actions.shape)}")
    return actions.astype(np.int64, copy=False)

"""Supported observation and action spaces, and their form inside the trainer."""

import textwrap
from typing import Any, NamedTuple

import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Space, Tuple

from monobeast import trees
from monobeast.environments.actions import is_supported
from monobeast.trees import Tree

# Each is a tensor of its own in shared memory, and so a descriptor: an actor gets no more than 252 at its start.
_MAX_PARTS = 200
_KINDS = "biuf"  # of dtypes: bool, signed and unsigned whole numbers, floats
_LARGEST_ITEM = 8  # bytes; torch has no longer numbers


class Spaces(NamedTuple):
    """The spaces of one environment, as seen by the network.

    observation: Box of any dtype and rank, Discrete, MultiBinary or MultiDiscrete, or a Dict or Tuple of any of these,
    nested to any depth; Discrete and MultiDiscrete count from 0.
    action: Discrete or one-dimensional MultiDiscrete, both counting from 0, or a one-dimensional float32 Box, from -1
    to 1 for elements with two bounds in the environment.
    """

    observation: Space
    action: Space


def from_zero(space: Space) -> Space:
    """`Discrete(n, start=k)` as `Discrete(n)`, MultiDiscrete likewise, also as parts; every other space unchanged."""
    if isinstance(space, Dict):
        return Dict([(key, from_zero(part)) for key, part in space.items()])
    if isinstance(space, Tuple):
        return Tuple([from_zero(part) for part in space])
    if isinstance(space, Discrete):
        return Discrete(space.n)
    return MultiDiscrete(space.nvec) if isinstance(space, MultiDiscrete) else space


def count_from_zero(space: Space, values: Tree) -> Tree:
    """Converts an environment's values of `space` to values of `from_zero(space)`: arrays, or trees of arrays."""
    return trees.map_leaves(_count_leaf, trees.of_space(space), values)


def _count_leaf(space: Space, values: np.ndarray) -> np.ndarray:
    start = getattr(space, "start", None)
    return values if start is None else values.astype(np.int64) - start


def require_supported(flag: str, observation: Space, action: Space) -> None:
    """Raises ValueError unless both are supported; it names flag, value, the space and what is supported."""
    if not is_supported(action):
        only = "only Discrete, MultiDiscrete and Box of floats are, with an element at least"
        raise ValueError(f"{flag}: its action space {_short(action)} is not supported; {only}")
    parts = trees.name_leaves(trees.of_space(observation), "observation")
    for name, part in parts.items():
        _require_leaf(f"{flag}: ", name, part, is_whole=part is observation)
    if not 1 <= len(parts) <= _MAX_PARTS:
        found = f"its observation space {_short(observation)} has {len(parts)} parts"
        raise ValueError(f"{flag}: {found}: must have at least 1 and at most {_MAX_PARTS}")


def _require_leaf(prefix: str, name: str, space: Any, is_whole: bool) -> None:
    where = "" if is_whole else f", at {name},"
    if not isinstance(space, (Box, Discrete, MultiBinary, MultiDiscrete)):
        raise ValueError(
            f"{prefix}its observation space {_short(space)}{where} is not supported; only Box, Discrete, MultiBinary, "
            "MultiDiscrete, and Dict and Tuple of those are. Register the environment under an id of your own inside a "
            "wrapper that makes one of these of it, such as gymnasium.wrappers.TransformObservation, and give "
            "--env your_module:YourId"
        )
    if space.dtype.kind not in _KINDS or space.dtype.itemsize > _LARGEST_ITEM:
        raise ValueError(
            f"{prefix}its observation space {_short(space)}{where} is not supported: its dtype {space.dtype} must be "
            f"bool, whole numbers or floats of at most {8 * _LARGEST_ITEM} bits"
        )


def _short(space: Any) -> str:
    return textwrap.shorten(str(space), 200)

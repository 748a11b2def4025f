"""Which observation and action spaces the trainer knows, and how it sees them."""

import textwrap
from typing import NamedTuple

from gymnasium.spaces import Box, Discrete, Space

from monobeast.environments.actions import is_supported


class Spaces(NamedTuple):
    """The spaces of one environment as the network sees them.

    observation: Box of any dtype and rank, or Discrete, then counted from 0.
    action: Discrete or MultiDiscrete of one axis, both counted from 0, or a Box of float32 of one axis, from -1 to 1
        where the environment's own has two bounds.
    """

    observation: Space
    action: Space


def from_zero(space: Space) -> Space:
    """`Discrete(n, start=k)` as `Discrete(n)`; every other space as it is."""
    return Discrete(space.n) if isinstance(space, Discrete) else space


def require_supported(flag: str, observation: Space, action: Space) -> None:
    """Raises ValueError, naming flag and value, the space and what is supported, unless both are supported."""
    if not is_supported(action):
        only = "only Discrete, MultiDiscrete and Box of floats are, with an element at least"
        raise ValueError(f"{flag}: its action space {_short(action)} is not supported; {only}")
    if not isinstance(observation, Box | Discrete):
        raise ValueError(
            f"{flag}: its observation space {_short(observation)} is not supported; only Box and Discrete are. "
            "Register the environment under an id of your own inside a wrapper that makes one of these of it, such as "
            "gymnasium.wrappers.FlattenObservation, and give --env your_module:YourId"
        )


def _short(space: Space) -> str:
    return textwrap.shorten(str(space), 200)

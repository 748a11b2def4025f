"""Which observation and action spaces the trainer knows, and how it sees them."""

import textwrap
from typing import NamedTuple

from gymnasium.spaces import Box, Discrete, Space


class Spaces(NamedTuple):
    """The spaces of one environment as the network sees them.

    observation: Box of any dtype and rank, or Discrete, then counted from 0.
    num_actions: A; actions are 0..A-1.
    """

    observation: Space
    num_actions: int


def from_zero(space: Space) -> Space:
    """`Discrete(n, start=k)` as `Discrete(n)`; every other space as it is."""
    return Discrete(space.n) if isinstance(space, Discrete) else space


def require_supported(flag: str, observation: Space, action: Space) -> None:
    """Raises ValueError, naming flag and value, the space and what is supported, unless both are supported."""
    if not isinstance(action, Discrete):
        raise ValueError(f"{flag}: its action space {_short(action)} is not supported; only Discrete is")
    if not isinstance(observation, Box | Discrete):
        raise ValueError(
            f"{flag}: its observation space {_short(observation)} is not supported; only Box and Discrete are. "
            "Register the environment under an id of your own inside a wrapper that makes one of these of it, such as "
            "gymnasium.wrappers.FlattenObservation, and give --env your_module:YourId"
        )


def _short(space: Space) -> str:
    return textwrap.shorten(str(space), 200)

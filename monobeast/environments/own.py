"""Checks environments made by a Python callable."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from gymnasium.vector import VectorEnv

from monobeast import trees
from monobeast.config import Config
from monobeast.environments.actions import seen_by_agents
from monobeast.environments.spaces import Spaces, require_supported
from monobeast.environments.vector import EnvStep, VectorEnvironment
from monobeast.user_code import attempt, kind_of, name_of

# The run's settings, E, and E seeds in 0..2^31-1 in; a VectorEnvironment, or what has its attributes, out.
EnvironmentMaker = Callable[[Config, int, Sequence[int]], VectorEnvironment]

_NEEDED = ("num_envs", "observation_space", "action_space", "reset", "step", "close")
_E = 2
_DTYPES = {  # of the fields of an EnvStep that are [E]
    **{"is_first": np.bool_, "reward": np.float32, "terminal": np.bool_, "done": np.bool_},
    **{"episode_return": np.float64, "episode_length": np.int64},
}


def check(maker: EnvironmentMaker, config: Config) -> Spaces:
    """Makes two environments, resets them, takes one step and closes them, so that faults show before an actor starts.

    Args:
        maker: Called as in every actor.
        config: Resolved.

    Raises:
        ValueError: this fails, or they do not fit; the message says what was found and what is expected.
    """
    flag = f"make_environments={name_of(maker)}"
    seeds = list(range(_E))
    environment = attempt(f"{flag}: its call with (config, {_E}, {seeds})", lambda: maker(config, _E, seeds))
    _check_attributes(flag, environment)
    space = environment.observation_space
    first = attempt(f"{flag}: reset()", environment.reset)
    _check_step(f"{flag}: reset()", first, space)
    if not first.is_first.all():
        raise ValueError(f"{flag}: reset()'s is_first is {first.is_first.tolist()}: must be True everywhere")
    action_space = environment.action_space
    actions = np.zeros((_E, *action_space.shape), action_space.dtype)
    _check_step(f"{flag}: step()", attempt(f"{flag}: step()", lambda: environment.step(actions)), space)
    attempt(f"{flag}: close()", environment.close)
    return Spaces(space, action_space)


def _check_attributes(flag: str, environment: Any) -> None:
    found = f"{flag}: gave {kind_of(environment)}"
    if isinstance(environment, VectorEnv):
        wrapped = "monobeast.environments.VectorEnvironment(envs, seeds, life_loss_terminal=False)"
        raise ValueError(f"{found}: must be wrapped, as {wrapped}")
    missing = [name for name in _NEEDED if not hasattr(environment, name)]
    if missing:
        wanted = "must be a monobeast.environments.VectorEnvironment, or have its attributes"
        raise ValueError(f"{found} without {', '.join(missing)}: {wanted}")
    if environment.num_envs != _E:
        raise ValueError(f"{found} of num_envs {environment.num_envs}: must be of {_E}, as it was asked for")
    require_supported(flag, environment.observation_space, environment.action_space)
    for name in ("observation_space", "action_space"):
        for path, space in trees.name_leaves(trees.of_space(getattr(environment, name)), name).items():
            if np.any(getattr(space, "start", 0)):
                raise ValueError(f"{flag}: its {path} is {space}: must count from 0")
    action_space = environment.action_space
    if action_space != (seen := seen_by_agents(action_space).space):
        raise ValueError(f"{flag}: its action_space is {action_space}: must be as agents see it, {seen}")


def _check_step(what: str, step: Any, space: Any) -> None:
    if not isinstance(step, EnvStep):
        raise ValueError(f"{what} gave {kind_of(step)}: must be a monobeast.environments.EnvStep")
    spaces = trees.name_leaves(trees.of_space(space), "observation")
    arrays = trees.name_leaves(step.observation, "observation")
    if set(spaces) != set(arrays):
        raise ValueError(f"{what} gave {', '.join(arrays)}: must be {', '.join(spaces)}, as its space has it")
    arrays |= {name: getattr(step, name) for name in _DTYPES}
    wanted = {name: (part.dtype, (_E, *part.shape)) for name, part in spaces.items()}
    wanted |= {name: (dtype, (_E,)) for name, dtype in _DTYPES.items()}
    for name, (dtype, shape) in wanted.items():
        array = arrays[name]
        if not isinstance(array, np.ndarray) or array.dtype != dtype or array.shape != shape:
            is_array = isinstance(array, np.ndarray)
            found = f"{array.dtype} {list(array.shape)}" if is_array else kind_of(array)
            raise ValueError(f"{what}'s {name} is {found}: must be {np.dtype(dtype)} {list(shape)}")

"""Saves and restores the exact state of single environments as plain values.

A user's environment, or a wrapper around another, supports this with `get_state()`, which returns a dict of plain
values, arrays and tensors, and `set_state(state)`, which restores it in an environment made the same way and reset.
"""

from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np
from gymnasium.envs.classic_control import (
    AcrobotEnv,
    CartPoleEnv,
    Continuous_MountainCarEnv,
    MountainCarEnv,
    PendulumEnv,
)
from gymnasium.vector import SyncVectorEnv, VectorEnv
from gymnasium.wrappers import OrderEnforcing, PassiveEnvChecker, TimeLimit

from monobeast.environments.sync import Mergeable

# What changes while one of Gymnasium's own is stepped. Not of a subclass, which may have more.
_ATTRIBUTES: dict[type, tuple[str, ...]] = {
    AcrobotEnv: ("state",),
    CartPoleEnv: ("state", "steps_beyond_terminated"),
    Continuous_MountainCarEnv: ("state",),
    MountainCarEnv: ("state",),
    PendulumEnv: ("state", "last_u"),
    Mergeable: (),
    OrderEnforcing: (),  # wants a reset, which `set_state` follows
    PassiveEnvChecker: ("checked_reset", "checked_step"),  # else it would warn again of what it has warned of
    TimeLimit: ("_elapsed_steps",),
}
_STATELESS = tuple(f"gymnasium.wrappers.transform_{what}" for what in ("action", "observation", "reward"))


def require_savable(env_id: str, envs: VectorEnv) -> None:
    """Raises ValueError, with the reason, unless `get_states` can save the whole state of `envs`."""
    refusal = f"--exact_resume: not for --env {env_id}"
    if not isinstance(envs, SyncVectorEnv):
        raise ValueError(f"{refusal}: ale-py's vector environment has no call that gives or sets its state")
    for layer in _layers(envs.envs[0]):
        if _has_methods(layer):
            return  # it speaks for what it wraps as well
        if not _is_known(layer):
            needs = "needs get_state() and set_state(state), which give and take its state"
            raise ValueError(f"{refusal}: {type(layer).__name__} {needs}")


def get_states(envs: SyncVectorEnv) -> list[list[tuple[str, dict[str, Any]]]]:
    """The state of every environment: name and state of each layer, outermost wrapper first."""
    return [[(type(layer).__name__, _get(layer)) for layer in _savable_layers(env)] for env in envs.envs]


def set_states(envs: SyncVectorEnv, states: list[list[tuple[str, dict[str, Any]]]], has_ended: np.ndarray) -> None:
    """Restores states of `get_states` in environments that were reset.

    Args:
        envs: As many as there are states.
        states: Of environments made the same way.
        has_ended: bool [E]: the episode has ended, so the next step is a reset.

    Raises:
        ValueError: the environments have different layers.
    """
    for env, state in zip(envs.envs, states, strict=True):
        layers = list(_savable_layers(env))
        expected, found = [type(layer).__name__ for layer in layers], [name for name, _ in state]
        if expected != found:
            raise ValueError(f"{env}: the saved state is of {found}, not of {expected}")
        # From the inside: a wrapper that speaks for what it wraps has the last word.
        for layer, (_, own_state) in zip(reversed(layers), reversed(state), strict=True):
            _set(layer, own_state)
    envs._autoreset_envs = has_ended.copy()


def _layers(env: gymnasium.Env) -> Iterator[gymnasium.Env]:
    """The environment's wrappers from the outermost on, and the environment itself."""
    while isinstance(env, gymnasium.Wrapper):
        yield env
        env = env.env
    yield env


def _savable_layers(env: gymnasium.Env) -> Iterator[gymnasium.Env]:
    return (layer for layer in _layers(env) if _has_methods(layer) or _is_known(layer))


def _has_methods(layer: gymnasium.Env) -> bool:
    return hasattr(type(layer), "get_state") and hasattr(type(layer), "set_state")


def _is_known(layer: gymnasium.Env) -> bool:
    return type(layer) in _ATTRIBUTES or type(layer).__module__ in _STATELESS


def _get(layer: Any) -> dict[str, Any]:
    if _has_methods(layer):
        return layer.get_state()
    state = {name: getattr(layer, name) for name in _ATTRIBUTES.get(type(layer), ())}
    return state if isinstance(layer, gymnasium.Wrapper) else state | {"np_random": layer.np_random.bit_generator.state}


def _set(layer: Any, state: dict[str, Any]) -> None:
    if _has_methods(layer):
        layer.set_state(state)
        return
    for name in _ATTRIBUTES.get(type(layer), ()):
        setattr(layer, name, state[name])
    if not isinstance(layer, gymnasium.Wrapper):
        layer.np_random.bit_generator.state = state["np_random"]

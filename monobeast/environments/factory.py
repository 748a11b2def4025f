"""Makes environments from settings, and refuses settings that do not work."""

import dataclasses
import json
from collections.abc import Sequence
from contextlib import closing
from typing import Any

import numpy as np
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import VectorEnv

from monobeast import user_code
from monobeast.config import Config
from monobeast.environments.atari import ATARI_ONLY, check_kwargs, is_atari, make_native, make_with_screen
from monobeast.environments.registry import find_spec
from monobeast.environments.spaces import Spaces, require_supported
from monobeast.environments.sync import make_sync
from monobeast.environments.vector import VectorEnvironment
from monobeast.errors import describe

_PICTURES = "rgb_array"  # Gymnasium's name of the render mode that gives arrays


def resolve(config: Config) -> Config:
    """Fills settings that depend on the environment: those that are `None` or "auto".

    Environments made by a Python callable never count as Atari.

    Raises:
        ValueError: no such environment.
    """
    spec = None if user_code.is_call(config.env) else find_spec(config.env)
    atari = spec is not None and is_atari(spec)
    chosen = {
        "sticky_actions": float(spec.kwargs.get("repeat_action_probability", 0.25)) if atari else 0.0,
        "full_action_space": bool(spec.kwargs.get("full_action_space", False)) if atari else False,
        "life_loss_terminal": atari,
        "preset": ("atari_lstm" if config.use_lstm else "atari") if atari else "classic",
    }
    changes = {name: value for name, value in chosen.items() if getattr(config, name) is None}
    if config.reward_clipping == "auto":
        changes["reward_clipping"] = "abs_one" if atari else "none"
    return dataclasses.replace(config, **changes)


def make(
    config: Config, num_envs: int, seeds: Sequence[int], *, with_pictures: bool = False
) -> VectorEnvironment:
    """Makes `num_envs` environments; open settings of `config` are resolved.

    Args:
        config: the run's.
        num_envs: E.
        seeds: E ints in 0..2^31-1, for the first reset.
        with_pictures: whether `picture` is available; it costs time in every step.

    Raises:
        ValueError: wrong number or range of seeds; no such environment; it cannot be made with these settings (its own
            exception is the cause); unsupported spaces; no pictures.
    """
    if len(seeds) != num_envs or not all(0 <= seed < 2**31 for seed in seeds):
        raise ValueError(f"seeds: expected {num_envs} ints in 0..2^31-1, found {list(seeds)}")
    config = resolve(config)
    spec = find_spec(config.env)
    if with_pictures and not is_atari(spec):
        _require_pictures(config, spec)
    envs = _make_envs(config, spec, num_envs, with_pictures)
    try:
        require_supported(f"--env {config.env}", envs.single_observation_space, envs.single_action_space)
        # ALE takes an int32 array, SyncVectorEnv a list of Python ints.
        own_seeds = np.asarray(seeds, np.int32) if is_atari(spec) else [int(seed) for seed in seeds]
        return VectorEnvironment(envs, own_seeds, bool(config.life_loss_terminal))
    except Exception:
        envs.close()
        raise


def check(config: Config) -> Spaces:
    """Makes one environment, resets and closes it, so that what would fail in an actor fails before any actor starts.

    Raises:
        ValueError: as in `make` and `resolve`; a setting only for Atari; a failing reset (the environment's own
            exception is the cause).
    """
    spec = find_spec(config.env)
    if not is_atari(spec):
        _refuse_atari_only(config)
    environment = make(config, 1, [0])
    try:
        with closing(environment):
            environment.reset()
    except (Exception, SystemExit) as error:
        raise ValueError(f"{_named(config)}: its reset or close failed with {describe(error)}") from error
    return Spaces(environment.observation_space, environment.action_space)


def _make_envs(config: Config, spec: EnvSpec, num_envs: int, with_pictures: bool = False) -> VectorEnv:
    env_kwargs: dict[str, Any] = json.loads(config.env_kwargs)
    if is_atari(spec):
        check_kwargs(env_kwargs)
    try:
        if is_atari(spec):
            make_atari = make_with_screen if with_pictures else make_native
            return make_atari(config, spec, num_envs, env_kwargs)
        return make_sync(spec, num_envs, env_kwargs | ({"render_mode": _PICTURES} if with_pictures else {}))
    except (Exception, SystemExit) as error:
        raise ValueError(f"{_named(config)}: making it failed with {describe(error)}") from error


def _require_pictures(config: Config, spec: EnvSpec) -> None:
    """Raises ValueError unless the environment can render, with one message instead of the many of environments."""
    envs = _make_envs(config, spec, 1)
    modes = envs.metadata.get("render_modes") or []
    envs.close()
    if _PICTURES not in modes:
        raise ValueError(
            f"{_named(config)}: has no pictures, since its render modes ({', '.join(map(str, modes)) or 'none'}) "
            f"lack {_PICTURES}"
        )


def _refuse_atari_only(config: Config) -> None:
    defaults = {setting.name: setting.default for setting in dataclasses.fields(Config)}
    for name, harmless in ATARI_ONLY.items():
        value = getattr(config, name)
        if value != defaults[name] and value not in harmless:
            raise ValueError(f"--{name} {value}: is for Atari only; leave it out for --env {config.env}")


def _named(config: Config) -> str:
    return f"--env {config.env}" + ("" if config.env_kwargs == "{}" else f" --env_kwargs {config.env_kwargs}")

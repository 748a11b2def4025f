"""Any Gymnasium environment, E of them stepped one after the other."""

from typing import Any

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv

from monobeast import trees
from monobeast.trees import Tree


class Mergeable(gymnasium.Wrapper):
    """What `SyncVectorEnv` can merge into arrays: observations of their space's shape, and of infos `lives` alone.

    It fails where entries of infos differ in type or shape from one environment to the next; nothing else of them is
    used here.

    Raises:
        ValueError: an observation, or a part of it, is of another shape than its space.
    """

    def __init__(self, env: gymnasium.Env) -> None:
        super().__init__(env)
        parts = trees.name_leaves(trees.of_space(env.observation_space), "observation")
        self._shapes = {name: part.shape for name, part in parts.items()}

    def reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        observation, info = self.env.reset(**kwargs)
        self._require_shapes(observation)
        return observation, _lives(info)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.env.step(action)
        self._require_shapes(observation)
        return observation, reward, terminated, truncated, _lives(info)

    def _require_shapes(self, observation: Tree) -> None:
        for name, part in trees.name_leaves(observation, "observation").items():
            expected, found = self._shapes.get(name), np.shape(part)
            if expected is not None and found != expected:
                raise ValueError(f"{name}: has shape {list(found)}, its space {list(expected)}")


def _lives(info: dict[str, Any]) -> dict[str, Any]:
    return {"lives": info["lives"]} if "lives" in info else {}


def make_sync(spec: EnvSpec, num_envs: int, env_kwargs: dict[str, Any]) -> VectorEnv:
    """`num_envs` environments of `spec`, stepped one after the other.

    Every step overwrites one array of observations (`copy=False`); callers must copy what they keep.
    """

    def make_one() -> gymnasium.Env:
        return Mergeable(gymnasium.make(spec, **env_kwargs))

    return SyncVectorEnv([make_one] * num_envs, copy=False, autoreset_mode=AutoresetMode.NEXT_STEP)

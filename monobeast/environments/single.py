"""Any Gymnasium environment, E of them stepped one after the other."""

from typing import Any

import gymnasium
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv


class LivesOnly(gymnasium.Wrapper):
    """Keeps only `lives` of an environment's info.

    `SyncVectorEnv` merges the infos of its environments into arrays, and fails if entries differ in type or shape.
    Nothing else in them is used here.
    """

    def reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        observation, info = self.env.reset(**kwargs)
        return observation, _lives(info)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.env.step(action)
        return observation, reward, terminated, truncated, _lives(info)


def _lives(info: dict[str, Any]) -> dict[str, Any]:
    return {"lives": info["lives"]} if "lives" in info else {}


def make_single(spec: EnvSpec, num_envs: int, env_kwargs: dict[str, Any]) -> VectorEnv:
    """`num_envs` environments of `spec`, stepped one after the other.

    Every step overwrites one array of observations (`copy=False`); callers must copy what they keep.
    """

    def make_one() -> gymnasium.Env:
        return LivesOnly(gymnasium.make(spec, **env_kwargs))

    return SyncVectorEnv([make_one] * num_envs, copy=False, autoreset_mode=AutoresetMode.NEXT_STEP)

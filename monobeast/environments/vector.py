"""E environments stepped together, with episode accounting."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv

from monobeast import trees
from monobeast.environments import state
from monobeast.environments.actions import seen_by_agents
from monobeast.environments.spaces import count_from_zero, from_zero
from monobeast.trees import Tree

_USUAL_FRAMES_PER_SECOND = 30.0  # Gymnasium's own, where an environment names none
_UNKNOWN_LIVES = -1  # below every count of lives, so that nothing is lost against it


class EnvStep(NamedTuple):
    """The results of E environments for a reset or for one action each, as NumPy arrays."""

    observation: Tree  # [E, ...], the space's dtype: x_{t+1}, an array or a tree of arrays; valid until the next call
    is_first: np.ndarray  # bool [E]: x_{t+1} opens an episode
    reward: np.ndarray  # float32 [E]: as the environment gave it, unclipped; 0 in reset steps
    terminal: np.ndarray  # bool [E]: nothing after has value, by termination or by a lost life that counts as such
    done: np.ndarray  # bool [E]: the step ended the episode, by termination or truncation
    episode_return: np.ndarray  # float64 [E]: sum of the game's rewards so far; read where done
    episode_length: np.ndarray  # int64 [E]: steps so far, the reset step not counted; read where done


class VectorEnvironment:
    """Wraps a Gymnasium vector environment with NEXT_STEP autoreset.

    The step after the end of an episode is a *reset step*: its action is ignored, its reward is 0 and its observation
    opens the next episode. Observations of `Discrete(n, start=k)` and of MultiDiscrete, also as parts, are delivered as
    int64 from 0. `environments.actions` says how action spaces are adapted.
    """

    def __init__(self, envs: VectorEnv, seeds: Sequence[int] | np.ndarray, life_loss_terminal: bool):
        """Takes over `envs`.

        Args:
            envs: with NEXT_STEP autoreset and supported spaces.
            seeds: one per environment, in the form that `envs.reset` takes.
            life_loss_terminal: whether a decrease of `info["lives"]` sets `terminal`.

        Raises:
            RuntimeError: `envs` has another autoreset mode.
        """
        mode = envs.metadata.get("autoreset_mode")
        if mode != AutoresetMode.NEXT_STEP:
            raise RuntimeError(f"{envs}: autoreset mode must be {AutoresetMode.NEXT_STEP}, is {mode}")
        self.num_envs = envs.num_envs
        self.observation_space = from_zero(envs.single_observation_space)
        self._actions = seen_by_agents(envs.single_action_space)
        self.action_space = self._actions.space
        self._envs = envs
        self._seeds: Sequence[int] | np.ndarray | None = seeds
        self._life_loss_terminal = life_loss_terminal
        self._done: np.ndarray | None = None  # of the last step; None before the first reset
        self._clear()

    def reset(self) -> EnvStep:
        """Starts an episode in every environment; only the first call uses the seeds."""
        observation, info = self._envs.reset(seed=self._seeds)
        self._seeds = None
        self._clear()
        self._require_finite_parts(observation)
        self._done = np.zeros(self.num_envs, bool)
        everywhere, nowhere = np.ones(self.num_envs, bool), np.zeros(self.num_envs, bool)
        self._count_lives(everywhere, info)
        return EnvStep(
            observation=count_from_zero(self._envs.single_observation_space, observation),
            is_first=everywhere,
            reward=np.zeros(self.num_envs, np.float32),
            terminal=nowhere,
            done=nowhere.copy(),
            episode_return=self._return.copy(),
            episode_length=self._length.copy(),
        )

    def step(self, actions: np.ndarray) -> EnvStep:
        """Takes one step in every environment.

        Args:
            actions: [E, ...], with the dtype and shape of `action_space`; ignored where the last step was `done`. Real
                numbers may be out of bounds.

        Raises:
            ValueError: wrong shape, dtype or range of the actions, found before any environment sees them.
            RuntimeError: `reset` was not called, or an environment does not reset in the step after `done`.
        """
        if self._done is None:
            raise RuntimeError("step() before reset()")
        actions = self._actions.to_environment(self._actions.check(actions, self.num_envs))
        is_reset = self._done
        observation, reward, terminated, truncated, info = self._envs.step(actions)
        done = terminated | truncated
        if (is_reset & (done | (reward != 0))).any():
            raise RuntimeError(f"{self._envs}: no reset in the step after an episode's end")
        self._count(is_reset, reward)
        with np.errstate(over="ignore"):  # what is too large for a float32 is found in the next line
            reward = reward.astype(np.float32)
        self._require_finite("reward", reward)
        self._require_finite_parts(observation)
        lost_life = self._count_lives(is_reset, info)
        self._done = done
        return EnvStep(
            observation=count_from_zero(self._envs.single_observation_space, observation),
            is_first=is_reset,
            reward=reward,
            terminal=terminated | lost_life,
            done=done.copy(),
            episode_return=self._return.copy(),
            episode_length=self._length.copy(),
        )

    @property
    def frames_per_second(self) -> float:
        """Steps per second at normal game speed."""
        return float(self._envs.metadata.get("render_fps") or _USUAL_FRAMES_PER_SECOND)

    def picture(self) -> np.ndarray:
        """The rendered picture of the first environment: uint8 [height, width, 3]; valid until the next call.

        Raises:
            ValueError: its `render` lacks a package, or returns something else.
        """
        try:
            image = np.asarray((self._envs.render() or [None])[0])
        except gymnasium.error.DependencyNotInstalled as error:
            raise ValueError(f"the environment's pictures need a package: {error}") from error
        if image.dtype != np.uint8 or image.ndim != 3 or image.shape[-1] != 3:
            raise ValueError(f"render: expected uint8 [height, width, 3], found {image.dtype} {list(image.shape)}")
        return image

    def require_savable(self, env_id: str) -> None:
        """Raises ValueError, with the reason, unless `get_state` is possible."""
        state.require_savable(env_id, self._envs)

    def get_state(self) -> dict[str, Any]:
        """The exact state as plain values and arrays, for `set_state`; after a `reset`."""
        return {
            "envs": state.get_states(self._envs),
            "done": self._done,
            "return": self._return,
            "length": self._length,
            "lives": self._lives,
        }

    def set_state(self, saved: dict[str, Any]) -> None:
        """Restores the state of `get_state`; after a `reset`."""
        state.set_states(self._envs, saved["envs"], has_ended=saved["done"])
        self._done = saved["done"]
        self._return, self._length, self._lives = saved["return"], saved["length"], saved["lives"]

    def close(self) -> None:
        self._envs.close()

    def _clear(self) -> None:
        self._return = np.zeros(self.num_envs)
        self._length = np.zeros(self.num_envs, np.int64)
        self._lives = np.full(self.num_envs, _UNKNOWN_LIVES)

    def _require_finite_parts(self, observation: Tree) -> None:
        for name, values in trees.name_leaves(observation, "observation").items():
            self._require_finite(name, values)

    def _require_finite(self, name: str, values: np.ndarray) -> None:
        """Raises ValueError for NaN or infinity from an environment: one such number would spoil all weights."""
        if values.dtype.kind != "f" or np.isfinite(values).all():
            return
        env = int(np.argmin(np.isfinite(values).reshape(self.num_envs, -1).all(axis=1)))
        where = f"environment {env}, step {self._length[env]} of its episode"
        raise ValueError(f"{where}: {name} {values[env]} is not finite")

    def _count(self, is_reset: np.ndarray, reward: np.ndarray) -> None:
        self._return = np.where(is_reset, 0.0, self._return + reward)
        self._length = np.where(is_reset, 0, self._length + 1)

    def _count_lives(self, is_reset: np.ndarray, info: dict[str, Any]) -> np.ndarray:
        """Takes over the lives that are left, in environments that count them; bool [E]: whether one was lost."""
        previous = np.where(is_reset, _UNKNOWN_LIVES, self._lives)
        if self._life_loss_terminal and "lives" in info:
            is_given = info.get("_lives", True)  # Gymnasium's mask of the environments that gave the entry
            self._lives = np.where(is_given, info["lives"], previous)
        else:
            self._lives = previous
        return self._lives < previous

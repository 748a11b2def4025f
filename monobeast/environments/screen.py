"""Atari screens in original colors, beside the small gray images that an agent sees."""

from typing import Any

import numpy as np
from gymnasium.vector import VectorEnv, VectorWrapper

EMULATOR_FRAMES_PER_SECOND = 60


class WithScreen(VectorWrapper):
    """A vector environment whose `render` shows a twin: the same games with the same seeds and actions.

    This way rendering changes nothing of what the agent sees.

    Args:
        envs: The games that are played.
        twin: The same games with observations [E, 1, height, width, 3]: one frame, in color.
        frames_per_second: Steps per second of game time.
    """

    def __init__(self, envs: VectorEnv, twin: VectorEnv, frames_per_second: float) -> None:
        super().__init__(envs)
        self.metadata = envs.metadata | {"render_fps": frames_per_second}
        self._twin = twin
        self._screens = np.empty(0, np.uint8)

    def reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        observation, info = self.env.reset(**kwargs)
        self._screens, twin_info = self._twin.reset(**kwargs)
        _require_equal("frame number", info["frame_number"], twin_info["frame_number"])
        return observation, info

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.env.step(actions)
        self._screens, twin_reward, twin_terminated, twin_truncated, twin_info = self._twin.step(actions)
        _require_equal("frame number", info["frame_number"], twin_info["frame_number"])
        _require_equal("reward", reward, twin_reward)
        _require_equal("end", terminated | truncated, twin_terminated | twin_truncated)
        return observation, reward, terminated, truncated, info

    def render(self) -> tuple[Any, ...]:
        """The screen of each game after the last step: uint8 [height, width, 3]."""
        return tuple(self._screens[:, 0])

    def close(self, **kwargs: Any) -> None:
        self.env.close(**kwargs)
        self._twin.close(**kwargs)


def _require_equal(what: str, played: np.ndarray, shown: np.ndarray) -> None:
    """Raises RuntimeError unless both games are in the same state; otherwise the picture would be of another game."""
    if not np.array_equal(played, shown):
        raise RuntimeError(f"the game that is shown is not the one that is played: {what} {shown}, not {played}")

"""Catch: a game that can be learned in seconds."""

from typing import Any

import gymnasium
import numpy as np

_ROWS, _COLUMNS = 10, 5
_PIXEL = 255
_RENDER_SCALE = 16


class Catch(gymnasium.Env):
    """A ball falls one row per step, and a paddle on the bottom row must be below it at the end.

    As in bsuite and RLax. Observations are uint8 images with 10 rows and 5 columns, in which ball and paddle are one
    white pixel each. Actions: 0 left, 1 stay, 2 right. The ball starts in a random column of the top row, the paddle in
    the middle. The ninth step ends the episode, with reward 1 if the ball is caught and -1 if it is missed; all other
    rewards are 0. The maximum mean return is 1.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}

    def __init__(self, render_mode: str | None = None):
        self.render_mode = render_mode
        self.observation_space = gymnasium.spaces.Box(0, _PIXEL, (_ROWS, _COLUMNS), np.uint8)
        self.action_space = gymnasium.spaces.Discrete(3)
        self._ball_row = self._ball_column = 0
        self._paddle_column = _COLUMNS // 2

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self._ball_row, self._ball_column = 0, int(self.np_random.integers(_COLUMNS))
        self._paddle_column = _COLUMNS // 2
        return self._image(), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self._paddle_column = min(max(self._paddle_column + int(action) - 1, 0), _COLUMNS - 1)
        self._ball_row += 1
        is_over = self._ball_row == _ROWS - 1
        reward = 0.0
        if is_over:
            reward = 1.0 if self._paddle_column == self._ball_column else -1.0
        return self._image(), reward, is_over, False, {}

    def render(self) -> np.ndarray | None:
        if self.render_mode is None:
            return None
        image = self._image().repeat(_RENDER_SCALE, axis=0).repeat(_RENDER_SCALE, axis=1)
        return np.stack([image] * 3, axis=-1)

    def get_state(self) -> dict[str, Any]:
        """The exact state as plain values, for `set_state`."""
        places = {"ball": (self._ball_row, self._ball_column), "paddle": self._paddle_column}
        return places | {"np_random": self.np_random.bit_generator.state}

    def set_state(self, state: dict[str, Any]) -> None:
        """Restores the state of `get_state`."""
        self._ball_row, self._ball_column = state["ball"]
        self._paddle_column = state["paddle"]
        self.np_random.bit_generator.state = state["np_random"]

    def _image(self) -> np.ndarray:
        image = np.zeros((_ROWS, _COLUMNS), np.uint8)
        image[self._ball_row, self._ball_column] = _PIXEL
        image[_ROWS - 1, self._paddle_column] = _PIXEL
        return image

"""Catch with two choices at once: the paddle's move and its color."""

from typing import Any

import gymnasium
import numpy as np

from monobeast.environments.catch import Catch

_BRIGHTNESS = (85, 170, 255)  # of the ball's pixel, for each color


class ColorCatch(Catch):
    """Like `Catch`, but the ball has one of three colors, and only a paddle of the same color catches it.

    Actions are MultiDiscrete([3, 3]): left, stay or right as in Catch, and the paddle's color, which counts in the last
    step. The image shows the ball's color as its pixel's brightness. The maximum mean return is 1. A policy that is
    always below the ball and guesses its color gets -1/3 on average; one that knows the color and never moves gets
    -3/5.
    """

    def __init__(self, render_mode: str | None = None):
        super().__init__(render_mode)
        self.action_space = gymnasium.spaces.MultiDiscrete([3, len(_BRIGHTNESS)])
        self._color = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self._color = int(self.np_random.integers(len(_BRIGHTNESS)))
        return self._image(), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        move, color = action
        image, reward, is_over, is_truncated, info = super().step(move)
        is_dropped = is_over and color != self._color
        return image, -1.0 if is_dropped else reward, is_over, is_truncated, info

    def get_state(self) -> dict[str, Any]:
        """The exact state as plain values, for `set_state`."""
        return super().get_state() | {"color": self._color}

    def set_state(self, state: dict[str, Any]) -> None:
        """Restores the state of `get_state`."""
        super().set_state(state)
        self._color = state["color"]

    def _image(self) -> np.ndarray:
        image = super()._image()
        image[self._ball_row, self._ball_column] = _BRIGHTNESS[self._color]
        return image

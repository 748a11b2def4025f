"""Catch with a color: both parts of an action are needed."""

import itertools
import warnings

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from monobeast.environments.color_catch import ColorCatch

STAY = 1
COLORS = {85: 0, 170: 1, 255: 2}


def look(image):
    """Columns of ball and paddle and the ball's color, while the ball is above the bottom row."""
    above = image[:-1].max(axis=0)
    return int(above.argmax()), int(image[-1].argmax()), COLORS[int(above.max())]


def last_reward(choose, seed):
    environment = ColorCatch()
    image, _ = environment.reset(seed=seed)
    is_over = False
    while not is_over:
        image, reward, is_over, _, _ = environment.step(np.array(choose(*look(image))))
        assert is_over or reward == 0.0
    return reward


def follow(ball, paddle):
    return STAY + int(np.sign(ball - paddle))


def test_gymnasiums_own_checker_has_no_complaint():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(gymnasium.make("monobeast/ColorCatch-v0", render_mode="rgb_array").unwrapped)


@pytest.mark.parametrize("seed", range(10))
def test_the_ball_is_caught_below_it_in_its_color_alone(seed):
    assert last_reward(lambda ball, paddle, color: (follow(ball, paddle), color), seed) == 1.0
    assert last_reward(lambda ball, paddle, color: (follow(ball, paddle), (color + 1) % 3), seed) == -1.0
    assert last_reward(lambda ball, paddle, color: (2 - follow(ball, paddle) if ball != 2 else 0, color), seed) == -1.0


def test_every_column_comes_in_every_color():
    environment = ColorCatch()

    seen = {look(environment.reset(seed=seed)[0]) for seed in range(200)}

    assert seen == {(column, 2, color) for column, color in itertools.product(range(5), range(3))}


def test_it_goes_on_from_a_state_as_it_did():
    one, other = ColorCatch(), ColorCatch()
    one.reset(seed=1)
    other.reset(seed=2)
    one.step((0, 0))
    other.set_state(one.get_state())

    for _ in range(8):
        for mine, yours in zip(one.step((2, 1)), other.step((2, 1)), strict=True):
            assert np.array_equal(mine, yours)
    assert np.array_equal(one.reset()[0], other.reset()[0])

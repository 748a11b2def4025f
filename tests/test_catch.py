"""The game of Catch, and how it comes to be registered."""

import subprocess
import sys
import warnings

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import monobeast
from monobeast.environments.catch import Catch

LEFT, STAY, RIGHT = 0, 1, 2


def place(image):
    """Columns of ball and paddle, while the ball is above the bottom row."""
    return int(image[:-1].max(axis=0).argmax()), int(image[-1].argmax())


def toward_the_ball(image):
    ball, paddle = place(image)
    return STAY + int(np.sign(ball - paddle))


def away_from_the_ball(image):
    ball, _ = place(image)
    return LEFT if ball >= 2 else RIGHT


def rewards_of(policy, seed):
    environment = Catch()
    image, _ = environment.reset(seed=seed)
    rewards, terminated = [], False
    while not terminated:
        image, reward, terminated, truncated, _ = environment.step(policy(image))
        rewards.append(reward)
        assert not truncated
    return rewards


def test_gymnasiums_own_checker_has_no_complaint():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(gymnasium.make("monobeast/Catch-v0", render_mode="rgb_array").unwrapped)


@pytest.mark.parametrize(("policy", "last"), [(toward_the_ball, 1.0), (away_from_the_ball, -1.0)])
@pytest.mark.parametrize("seed", range(10))
def test_the_ninth_step_pays_for_ball_or_miss_and_no_other_pays(policy, last, seed):
    assert rewards_of(policy, seed) == [0.0] * 8 + [last]


def test_the_ball_starts_on_top_in_every_column_and_the_paddle_in_the_middle():
    environment = Catch()
    images = [environment.reset(seed=seed)[0] for seed in range(50)]

    assert {place(image) for image in images} == {(column, 2) for column in range(5)}
    assert all(image[0].sum() == 255 and image.sum() == 2 * 255 for image in images)


def test_the_ball_falls_one_row_a_step_in_its_column():
    environment = Catch()
    image, _ = environment.reset(seed=0)
    column = place(image)[0]

    rows = [int(environment.step(STAY)[0][:, column].argmax()) for _ in range(8)]

    assert rows == list(range(1, 9))


@pytest.mark.parametrize(("action", "columns"), [(LEFT, [1, 0, 0]), (STAY, [2, 2, 2]), (RIGHT, [3, 4, 4])])
def test_the_paddle_moves_one_column_and_stops_at_the_wall(action, columns):
    environment = Catch()
    environment.reset(seed=0)

    assert [place(environment.step(action)[0])[1] for _ in range(3)] == columns


def test_the_seed_decides_the_episodes_and_later_resets_go_on_from_there():
    def balls(seed):
        environment = Catch()
        images = [environment.reset(seed=seed)[0]] + [environment.reset()[0] for _ in range(30)]
        return [place(image)[0] for image in images]

    assert balls(3) == balls(3) != balls(4)
    assert len(set(balls(3))) == 5


def test_the_picture_is_the_game_enlarged_in_three_channels():
    environment = gymnasium.make("monobeast/Catch-v0", render_mode="rgb_array")
    image, _ = environment.reset(seed=0)

    picture = environment.render()

    assert picture.shape == (160, 80, 3) and picture.dtype == np.uint8
    assert (picture[::16, ::16] == image[..., None]).all()


def test_registering_twice_does_nothing():
    before = gymnasium.spec("monobeast/Catch-v0")

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        monobeast.register_environments()

    assert gymnasium.spec("monobeast/Catch-v0") is before


@pytest.mark.parametrize(
    "source",
    [
        "import gymnasium, monobeast; gymnasium.make('monobeast/Catch-v0')",
        "import gymnasium; gymnasium.make('monobeast:monobeast/Catch-v0')",
        "import monobeast; monobeast.register_environments(); import gymnasium; gymnasium.make('monobeast/Catch-v0')",
        "import monobeast.environments, gymnasium; gymnasium.make('monobeast/Catch-v0')",
    ],
)
def test_the_environment_is_found_without_being_installed(source):
    subprocess.run([sys.executable, "-W", "error", "-c", source], check=True)

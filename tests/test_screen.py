"""The picture of a game is of the very game that is played, in its own size and colors."""

import ale_py
import numpy as np
import pytest
from ale_py import roms
from ale_py.vector_env import AtariVectorEnv
from gymnasium.vector import AutoresetMode

from monobeast import environments
from monobeast.config import Config
from monobeast.environments.screen import WithScreen

LONG = pytest.mark.slow


class InfoSpy(AtariVectorEnv):
    """Keeps every answer to a step."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.answers = []

    def step(self, actions):
        observation, reward, terminated, truncated, info = super().step(actions)
        self.answers.append((int(reward[0]), bool(terminated[0] | truncated[0]), int(info["frame_number"][0])))
        return observation, reward, terminated, truncated, info


@pytest.fixture
def made(monkeypatch):
    """The vector environments of ale-py that are made: the twin first, then what is played."""
    envs = []

    def make(**kwargs):
        envs.append(InfoSpy(**kwargs))
        return envs[-1]

    monkeypatch.setattr("ale_py.vector_env.AtariVectorEnv", make)
    return envs


def make(env, with_pictures=True, **settings):
    return environments.make(Config(env=env, **settings), 1, [7], with_pictures=with_pictures)


def play(environment, num_steps):
    """Random actions; a reset from outside after every second episode, as a test does it."""
    generator = np.random.default_rng(0)
    steps, num_ends = [environment.reset()], 0
    for _ in range(num_steps):
        steps.append(environment.step(generator.integers(environment.action_space.n, size=1)))
        num_ends += int(steps[-1].done[0])
        if steps[-1].done[0] and num_ends % 2 == 0:
            steps.append(environment.reset())
    return steps


@pytest.mark.parametrize(
    ("game", "num_steps"),
    [
        ("SpaceInvaders", 150),
        pytest.param("Breakout", 1000, marks=LONG),
        pytest.param("Pong", 1000, marks=LONG),
        pytest.param("SpaceInvaders", 1000, marks=LONG),
    ],
)
def test_reward_end_and_frame_number_of_both_games_stay_equal(game, num_steps, made):
    environment = make(f"ALE/{game}-v5")

    play(environment, num_steps)

    twin, played = made
    assert len(played.answers) == num_steps
    assert twin.answers == played.answers
    assert any(reward for reward, _, _ in played.answers)


def test_what_is_played_is_the_same_without_pictures():
    plain, filmed = (play(make("ALE/Breakout-v5", with_pictures), 60) for with_pictures in (False, True))

    assert all(np.array_equal(one.observation, other.observation) for one, other in zip(plain, filmed, strict=True))


@pytest.mark.parametrize(("game", "size"), [("Pong", (210, 160, 3)), ("AirRaid", (250, 160, 3))])
def test_the_picture_is_as_large_as_the_screen(game, size):
    environment = make(f"ALE/{game}-v5")
    environment.reset()

    picture = environment.picture()

    assert (picture.shape, picture.dtype) == (size, np.uint8)


def test_the_colors_are_the_emulators_own():
    emulator = ale_py.ALEInterface()
    emulator.loadROM(roms.get_rom_path("pong"))
    for _ in range(200):
        emulator.act(0)
    environment = make("ALE/Pong-v5")

    play(environment, 20)

    assert _colors(environment.picture()) == _colors(emulator.getScreenRGB())


def _colors(picture):
    return {tuple(color) for color in np.unique(picture.reshape(-1, 3), axis=0).tolist()}


@pytest.mark.parametrize(("frame_skip", "expected"), [(4, 15.0), (1, 60.0)])
def test_a_second_of_the_game_has_sixty_frames(frame_skip, expected):
    assert make("ALE/Pong-v5", frame_skip=frame_skip).frames_per_second == expected


def test_games_that_part_are_no_film():
    arguments = {"num_envs": 1, "num_threads": 1, "autoreset_mode": AutoresetMode.NEXT_STEP, "frameskip": 4}
    played = AtariVectorEnv("pong", **arguments)
    twin = AtariVectorEnv("pong", **arguments | {"frameskip": 2})
    environment = WithScreen(played, twin, 15.0)
    environment.reset(seed=np.array([1], np.int32))

    with pytest.raises(RuntimeError, match="not the one that is played: frame number"):
        environment.step(np.array([0]))


def test_any_environment_with_rgb_arrays_has_pictures_at_its_own_speed():
    environment = make("monobeast/Catch-v0")
    environment.reset()

    assert environment.picture().shape == (160, 80, 3)
    assert environment.frames_per_second == 10


def test_an_environment_without_pictures_is_refused():
    with pytest.raises(ValueError, match=r"Memory-v0: has no pictures, since its render modes \(none\) lack rgb_array"):
        make("monobeast/Memory-v0")

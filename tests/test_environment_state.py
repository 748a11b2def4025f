"""One environment goes on from another's state as that does."""

import warnings

import gymnasium
import numpy as np
import pytest
from gymnasium.envs.classic_control import CartPoleEnv
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.vector.utils import batch_space
from gymnasium.wrappers import ClipReward, FlattenObservation, FrameStackObservation
from stub_environments import Savable, stub_config

from monobeast import environments, plain_values
from monobeast.config import Config
from monobeast.environments import EnvStep
from monobeast.environments.state import get_states, require_savable, set_states

LIMIT = '{"max_episode_steps": 7}'
CONFIGS = {
    "catch": Config(env="monobeast/Catch-v0"),
    "memory": Config(env="monobeast/Memory-v0"),
    "cartpole": Config(env="CartPole-v1"),
    "acrobot": Config(env="Acrobot-v1", env_kwargs=LIMIT),
    "mountain car": Config(env="MountainCar-v0", env_kwargs=LIMIT),
    "mountain car, continuous": Config(env="MountainCarContinuous-v0", env_kwargs=LIMIT),
    "pendulum": Config(env="Pendulum-v1", env_kwargs=LIMIT),
    "color catch": Config(env="monobeast/ColorCatch-v0"),
    "lives that count": stub_config("Savable-v0", life_loss_terminal=True),
}


def play(environment, actions):
    return [EnvStep(*(np.copy(field) for field in environment.step(action))) for action in actions]


def make_and_reset(config, seeds):
    environment = environments.make(config, len(seeds), seeds)
    environment.reset()
    return environment


@pytest.mark.parametrize("num_steps", [1, 4, 7, 8, 9, 12, 50])  # 7, 9, 12: on the end of some episodes
@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_environments_go_on_from_the_state_of_others_as_those_do(config, num_steps):
    one = make_and_reset(config, [1, 2])
    space = batch_space(one.action_space, 2)
    space.seed(0)
    actions = [space.sample() for _ in range(num_steps + 40)]
    play(one, actions[:num_steps])
    state = plain_values.pack(one.get_state())

    other = make_and_reset(config, [3, 4])
    other.set_state(plain_values.unpack(state))

    for expected, found in zip(*(play(env, actions[num_steps:]) for env in (one, other)), strict=True):
        for before, after in zip(expected, found, strict=True):
            np.testing.assert_array_equal(after, before, strict=True)


def vector_of(*make_one):
    return SyncVectorEnv(make_one, autoreset_mode=AutoresetMode.NEXT_STEP)


def state_of(envs):
    return plain_values.unpack(plain_values.pack(get_states(envs)))


def test_a_pole_that_has_fallen_stays_fallen():
    one, other = (gymnasium.make("CartPole-v1", disable_env_checker=True) for _ in range(2))
    one.reset(seed=0)
    while not one.step(1)[2]:
        pass
    other.reset(seed=1)

    set_states(vector_of(lambda: other), state_of(vector_of(lambda: one)), np.ones(1, bool))

    assert other.step(1)[1] == 0.0  # reward of a step beyond the end; else 1


def test_gymnasiums_checker_does_not_warn_again(recwarn):
    class Odd(Savable):
        def step(self, action):
            observation, _, *rest = super().step(action)
            return observation, "1.0", *rest  # no number

    def make_one():
        return gymnasium.wrappers.PassiveEnvChecker(Odd())

    warnings.simplefilter("always")
    one, other = vector_of(make_one), vector_of(make_one)
    one.reset()
    one.step(np.array([0]))
    other.reset()
    num_warnings = sum("reward" in str(warning.message) for warning in recwarn)

    set_states(other, state_of(one), np.zeros(1, bool))
    other.step(np.array([0]))

    assert num_warnings > 0 and num_warnings == sum("reward" in str(warning.message) for warning in recwarn)


class Counting(gymnasium.Wrapper):
    """Counts its steps; tells a state for itself and for what it wraps."""

    num_steps = 0

    def step(self, action):
        self.num_steps += 1
        return super().step(action)

    def get_state(self):
        return {"num_steps": self.num_steps, "inner": getattr(self.unwrapped, "step_number", None)}

    def set_state(self, state):
        self.num_steps, self.unwrapped.step_number = state["num_steps"], state["inner"]


def test_a_wrapper_speaks_for_itself_and_for_what_it_wraps():
    one, other = (vector_of(lambda: Counting(gymnasium.make("stub_environments:Fixed5-v0"))) for _ in range(2))
    require_savable("it", one)
    one.reset()
    for _ in range(3):
        one.step(np.array([0]))
    other.reset()

    set_states(other, state_of(one), np.zeros(1, bool))

    assert other.envs[0].num_steps == other.envs[0].unwrapped.step_number == 3
    assert [bool(other.step(np.array([0]))[2][0]) for _ in range(2)] == [False, True]


def test_what_a_wrapper_wraps_is_asked_too():
    one, other = (vector_of(lambda: Counting(Savable())) for _ in range(2))
    one.reset()
    one.step(np.array([0]))
    other.reset()

    set_states(other, state_of(one), np.zeros(1, bool))

    assert (other.step(np.array([0]))[0] == one.step(np.array([0]))[0]).all()


def test_a_wrapper_has_the_last_word():
    class Mended(Counting):
        def get_state(self):
            return super().get_state() | {"inner": 99}

    one, other = vector_of(lambda: Mended(Savable())), vector_of(lambda: Mended(Savable()))
    for envs in (one, other):
        envs.reset()

    set_states(other, state_of(one), np.zeros(1, bool))

    assert other.envs[0].unwrapped.step_number == 99


def test_the_state_of_another_environment_is_refused():
    one, other = vector_of(lambda: gymnasium.make("CartPole-v1")), vector_of(Savable)
    one.reset()
    other.reset()

    with pytest.raises(ValueError, match=r"state is of \['Savable'\], not of \['TimeLimit', .*'CartPoleEnv'\]"):
        set_states(one, state_of(other), np.zeros(1, bool))


class HeavierPole(CartPoleEnv):
    """May have more state than a CartPole has."""


@pytest.mark.parametrize(
    ("make_one", "culprit"),
    [
        (lambda: gymnasium.make("stub_environments:Fixed5-v0"), "Fixed"),
        (lambda: FrameStackObservation(Savable(), 2), "FrameStackObservation"),
        (HeavierPole, "HeavierPole"),
    ],
)
def test_whose_state_cannot_be_told_is_named(make_one, culprit):
    with pytest.raises(ValueError, match=rf"--exact_resume: not for --env it: {culprit} needs get_state\(\) and set_s"):
        require_savable("it", vector_of(make_one))


def test_gymnasiums_wrappers_without_a_state_are_no_hindrance():
    envs = vector_of(lambda: ClipReward(FlattenObservation(gymnasium.make("CartPole-v1")), 0, 1))

    require_savable("it", envs)
    envs.reset()
    set_states(envs, state_of(envs), np.zeros(1, bool))

"""Atari on ale-py's own vector environment: real games, few steps."""

import inspect
import subprocess
import sys

import ale_py.vector_env
import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

from monobeast import environments
from monobeast.config import Config

PONG = "ALE/Pong-v5"


@pytest.fixture
def made(monkeypatch):
    """The arguments with which AtariVectorEnv is made, and the infos that it gives, filled as it is used."""
    original = ale_py.vector_env.AtariVectorEnv
    seen = {"infos": [], "resets": []}

    class Spy(original):
        def __init__(self, *args, **kwargs):
            assert not args
            seen["kwargs"] = kwargs
            super().__init__(**kwargs)

        def reset(self, **kwargs):
            seen["resets"].append({name: np.asarray(value).tolist() for name, value in kwargs.items()})
            result = super().reset(**kwargs)
            seen["infos"].append(result[-1])
            return result

        def step(self, actions):
            result = super().step(actions)
            seen["infos"].append(result[-1])
            return result

    monkeypatch.setattr(ale_py.vector_env, "AtariVectorEnv", Spy)
    return seen


def make(env, seeds=(0,), **settings):
    return environments.make(Config(env=env, **settings), len(seeds), seeds)


def play(environment, num_steps, seed=0):
    """The answers to a reset and to `num_steps` random actions, as a list of EnvStep."""
    generator = np.random.default_rng(seed)
    steps = [environment.reset()]
    for _ in range(num_steps):
        steps.append(environment.step(generator.integers(environment.action_space.n, size=environment.num_envs)))
    return steps


@pytest.mark.parametrize(
    ("env", "sticky_actions"),
    [(PONG, 0.25), ("Pong-v0", 0.25), ("Pong-v4", 0.0), ("PongNoFrameskip-v0", 0.25), ("PongNoFrameskip-v4", 0.0)],
)
@pytest.mark.filterwarnings("ignore:.*is out of date")
def test_the_id_decides_over_sticky_actions_and_atari_over_clipping_and_lives(env, sticky_actions):
    resolved = environments.resolve(Config(env=env))

    assert (resolved.sticky_actions, resolved.full_action_space) == (sticky_actions, False)
    assert (resolved.reward_clipping, resolved.life_loss_terminal) == ("abs_one", True)


def test_flags_decide_over_the_id():
    config = Config(
        env=PONG, sticky_actions=0.1, full_action_space=True, reward_clipping="none", life_loss_terminal=False
    )

    resolved = environments.resolve(config)

    assert (resolved.sticky_actions, resolved.full_action_space) == (0.1, True)
    assert (resolved.reward_clipping, resolved.life_loss_terminal) == ("none", False)
    assert environments.check(config).action == Discrete(18)


def test_every_argument_is_named_and_the_traps_among_them_are_avoided(made):
    make("Pong-v4", seeds=(0, 1, 2))

    kwargs = made["kwargs"]
    original = ale_py.vector_env.AtariVectorEnv.__mro__[1]
    assert set(kwargs) == set(inspect.signature(original).parameters)
    assert (kwargs["num_envs"], kwargs["batch_size"], kwargs["num_threads"]) == (3, 3, 1)
    assert (kwargs["reward_clipping"], kwargs["episodic_life"], kwargs["life_loss_info"]) == (False, False, False)
    assert (kwargs["game"], kwargs["repeat_action_probability"]) == ("pong", 0.0)
    assert kwargs["use_fire_reset"] is True and kwargs["maxpool"] is True and kwargs["stack_num"] == 4


@pytest.mark.parametrize("env", [PONG, "PongNoFrameskip-v4", "Pong-v4"])
@pytest.mark.parametrize(("settings", "frames"), [({}, 40), ({"frame_skip": 2}, 20)])
def test_frames_are_skipped_once_whatever_the_id(env, settings, frames, made):
    play(make(env, **settings), 10)

    first, last = made["infos"][0]["frame_number"], made["infos"][-1]["frame_number"]
    assert (last - first).tolist() == [frames]


@pytest.mark.parametrize("env", [PONG, "PongNoFrameskip-v4"])
def test_observations_are_four_gray_frames_of_84_by_84(env):
    spaces = environments.check(Config(env=env))

    assert spaces == (gymnasium.spaces.Box(0, 255, (4, 84, 84), np.uint8), Discrete(6))


@pytest.mark.parametrize(
    ("game", "noop_max", "expected"),
    [
        ("Tutankham", 0, {0}),
        ("Tutankham", 1, {0, 1}),
        ("Tutankham", 3, {0, 1, 2, 3}),
        # Games with a FIRE action press it once after the reset, in place of one no-op.
        ("Pong", 0, {1}),
        ("Pong", 3, {1, 2, 3}),
    ],
)
def test_no_ops_after_a_reset_are_at_most_noop_max_and_reach_it(game, noop_max, expected, made):
    environment = make(f"ALE/{game}-v5", noop_max=noop_max, seeds=(0, 1), max_episode_frames=1)

    play(environment, 60)

    # Every step reaches the limit of frames here, so that every other info is that of a reset.
    frames = {int(frame) for info in made["infos"][::2] for frame in info["episode_frame_number"]}
    assert frames == expected


def test_an_episode_is_truncated_after_its_frames_and_the_next_step_resets():
    steps = play(make(PONG, max_episode_frames=100, noop_max=0), 52)

    assert [time for time, step in enumerate(steps) if step.done.any()] == [25, 51]
    assert [time for time, step in enumerate(steps) if step.is_first.any()] == [0, 26, 52]
    assert not any(step.terminal.any() for step in steps)
    assert steps[25].episode_length.tolist() == [25] and steps[51].episode_length.tolist() == [25]


def test_games_that_end_at_different_times_are_never_reset_from_outside(made):
    """A partial reset of the native environment raises or hangs; its own autoreset needs none."""
    steps = play(make("BreakoutNoFrameskip-v4", seeds=(0, 1), frame_skip=20), 120)

    ends = [[time for time, step in enumerate(steps) if step.done[env]] for env in (0, 1)]
    assert ends[0] and ends[1] and ends[0] != ends[1]
    assert made["resets"] == [{"seed": [0, 1]}]


def test_a_lost_ball_of_breakout_is_terminal_and_the_game_goes_on_to_its_end(made):
    steps = play(make("BreakoutNoFrameskip-v4", life_loss_terminal=True, max_episode_frames=2000), 500)

    lives = [int(info["lives"][0]) for info in made["infos"]]
    lost = [time for time in range(1, len(lives)) if lives[time] < lives[time - 1]]
    assert lost and [time for time, step in enumerate(steps) if step.terminal[0]] == lost
    assert any(not steps[time].done[0] for time in lost)
    ends = [step for step in steps if step.done[0]]
    assert ends and all(step.episode_length[0] > 50 for step in ends)


def test_without_life_loss_a_lost_ball_of_breakout_is_nothing():
    steps = play(make("BreakoutNoFrameskip-v4", life_loss_terminal=False, max_episode_frames=2000), 500)

    terminal, done = (np.concatenate([getattr(step, name) for step in steps]) for name in ("terminal", "done"))
    assert done.any() and (terminal <= done).all()


def test_returns_are_the_unclipped_score():
    # A hit alien of Space Invaders scores 5 to 30.
    steps = play(make("SpaceInvadersNoFrameskip-v4", max_episode_frames=1600), 450)

    rewards = np.concatenate([step.reward for step in steps])
    (end, *_) = [time for time, step in enumerate(steps) if step.done[0]]
    assert rewards.max() >= 5
    assert steps[end].episode_return[0] == rewards[: end + 1].sum() > 0
    assert rewards.dtype == np.float32


def test_the_same_seeds_and_actions_repeat_the_game_and_others_do_not():
    def stream(seeds):
        return np.stack([step.observation for step in play(make(PONG, seeds=seeds), 60)])

    first, again, other = stream((5, 2**31 - 1)), stream((5, 2**31 - 1)), stream((5, 7))

    assert (first == again).all()
    assert (first[:, 0] == other[:, 0]).all() and (first[:, 1] != other[:, 1]).any()


def test_an_action_out_of_range_is_refused_before_it_hangs_the_emulator():
    environment = make(PONG, seeds=(0, 1))
    environment.reset()

    with pytest.raises(ValueError, match="actions: expected 0 to 5"):
        environment.step(np.array([0, 6]))

    assert environment.step(np.array([0, 5])).episode_length.tolist() == [1, 1]


@pytest.mark.parametrize("game", ["VideoCheckers", "Backgammon"])
def test_games_without_a_no_op_run(game):
    steps = play(make(f"ALE/{game}-v5", max_episode_frames=400), 200)

    assert sum(step.is_first.sum() for step in steps) > 1


def test_arguments_of_the_native_environment_are_passed_on():
    config = Config(env=PONG, env_kwargs='{"img_height": 42, "img_width": 36, "stack_num": 2, "grayscale": false}')

    assert environments.check(config).observation.shape == (2, 42, 36, 3)


@pytest.mark.parametrize(
    ("name", "flag"),
    [
        ("game", "--env"),
        ("num_envs", "--envs_per_actor"),
        ("batch_size", "--envs_per_actor"),
        ("num_threads", "--num_actors"),
        ("autoreset_mode", "NEXT_STEP"),
        ("frameskip", "--frame_skip"),
        ("noop_max", "--noop_max"),
        ("repeat_action_probability", "--sticky_actions"),
        ("full_action_space", "--full_action_space"),
        ("max_num_frames_per_episode", "--max_episode_frames"),
        ("episodic_life", "--life_loss_terminal"),
        ("life_loss_info", "--life_loss_terminal"),
        ("reward_clipping", "--reward_clipping"),
    ],
)
def test_an_argument_that_has_a_flag_or_would_break_the_accounting_is_refused(name, flag):
    with pytest.raises(ValueError, match=f"--env_kwargs {name}: .*{flag}"):
        environments.check(Config(env=PONG, env_kwargs=f'{{"{name}": 1}}'))


@pytest.mark.parametrize("name", ["img_height", "img_width", "stack_num"])
@pytest.mark.parametrize("value", ["0", "-1", "1.5", '"a"'])
def test_a_size_that_would_hang_the_emulator_is_refused(name, value):
    with pytest.raises(ValueError, match=f"--env_kwargs {name} .*at least 1"):
        environments.check(Config(env=PONG, env_kwargs=f'{{"{name}": {value}}}'))


@pytest.mark.parametrize("name", ["frame_skip", "obs_type", "mode"])
def test_unknown_arguments_are_refused_in_the_librarys_own_words(name):
    with pytest.raises(ValueError, match=f"--env_kwargs .*unexpected keyword argument '{name}'"):
        environments.check(Config(env=PONG, env_kwargs=f'{{"{name}": 4}}'))


def test_continuous_actions_are_a_box():
    config = Config(env=PONG, env_kwargs='{"continuous": true}')
    environment = environments.make(config, 2, [1, 2])
    environment.reset()

    step = environment.step(np.array([[9.0, -9.0, 0.5], [0.0, 0.0, 0.0]], np.float32))  # some of them out of bounds
    environment.close()

    assert environments.check(config).action == Box(-1, 1, (3,), np.float32)
    assert step.observation.shape == (2, 4, 84, 84)


@pytest.mark.parametrize(
    ("env", "suggestion"),
    [
        ("Pong-v5", "ALE/Pong-v5"),
        ("ALE/Pnog-v5", "ALE/Pong-v5"),
        ("ALE/NoSuchGame-v5", "ALE/"),
        ("ALE/Pong", "ALE/Pong-v5"),
    ],
)
def test_an_unknown_game_is_refused_with_a_suggestion(env, suggestion):
    with pytest.raises(ValueError, match=f"--env {env}: no such environment; did you mean {suggestion}"):
        environments.check(Config(env=env))


def test_a_fresh_process_knows_the_games_without_having_imported_ale_py():
    source = (
        "from monobeast import environments; from monobeast.config import Config; "
        "print(environments.make(Config(env='PongNoFrameskip-v4'), 1, [0]).reset().observation.shape)"
    )

    played = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=True)

    assert played.stdout == "(1, 4, 84, 84)\n"


def test_an_id_with_wrappers_of_its_own_keeps_them():
    gymnasium.register(
        "FramedPong-v0",
        entry_point="ale_py.env:AtariEnv",
        kwargs={"game": "pong"},
        additional_wrappers=(gymnasium.wrappers.GrayscaleObservation.wrapper_spec(),),
    )

    assert environments.check(Config(env="FramedPong-v0")).observation.shape == (210, 160)

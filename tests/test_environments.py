"""Episodes of environments whose every number is known: accounting, ends, resets, spaces."""

import re

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Dict, Discrete
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from stub_environments import Fixed, Lives, Stub, stub_config

from monobeast import environments
from monobeast.config import Config
from monobeast.environments import VectorEnvironment
from monobeast.environments.sync import Mergeable


def stub(name, seeds=(0,), **settings):
    return environments.make(stub_config(name, **settings), len(seeds), seeds)


def play(environment, num_steps, action=0):
    """The answers to a reset and to `num_steps` steps, one EnvStep whose arrays have a time axis in front."""
    actions = np.full(environment.num_envs, action)
    steps = [environment.reset()]
    steps = [steps[0]._replace(observation=steps[0].observation.copy())]
    for _ in range(num_steps):
        step = environment.step(actions)
        steps.append(step._replace(observation=step.observation.copy()))
    return environments.EnvStep(*map(np.stack, zip(*steps, strict=True)))


def where(flags):
    """Times at which a flag of the first environment is set; 0 is the reset."""
    return np.flatnonzero(flags[:, 0]).tolist()


@pytest.mark.parametrize(
    ("name", "terminal"), [("Fixed-v0", [5, 11]), ("Trunc-v0", []), ("Both-v0", [5, 11])]
)
def test_terminal_is_set_by_termination_even_with_truncation_and_done_by_either(name, terminal):
    played = play(stub(name, n=5), 12)

    assert where(played.terminal) == terminal
    assert where(played.done) == [5, 11]


def test_the_step_after_an_end_opens_the_next_episode_without_reward_or_end():
    played = play(stub("Fixed-v0", n=5), 12)

    assert where(played.is_first) == [0, 6, 12]
    assert where(played.reward == 0) == [0, 6, 12]
    assert not (played.is_first & played.done).any() and not (played.is_first & played.terminal).any()


def test_the_observation_after_an_end_by_time_is_the_final_one_and_the_next_is_the_first():
    played = play(stub("Counter-v0", truncate_at=5), 8)

    assert played.observation[:, 0, 0].tolist() == [0, 1, 2, 3, 4, 5, 0, 1, 2]


def test_with_a_horizon_nothing_seen_tells_the_step_and_time_alone_ends_an_episode():
    played = play(stub("Horizon-v0", horizon=3), 8)

    assert (played.observation == 1).all()
    assert (where(played.is_first), where(played.done), where(played.terminal)) == ([0, 4, 8], [3, 7], [])
    assert played.reward[:, 0].tolist() == [0, 1, 1, 1, 0, 1, 1, 1, 0]


@pytest.mark.parametrize("length", [5, 100])
def test_transitions_that_are_no_reset_steps_pair_observations_one_apart(length):
    played = play(stub("Counter-v0", terminate_at=length), 3 * length)

    is_reset = played.is_first[1:, 0]
    differences = np.diff(played.observation[:, 0, 0])
    assert (differences[~is_reset] == 1).all()
    assert (differences[is_reset] == -length).all()
    assert played.reward[1:, 0].sum() == 3 * length - is_reset.sum()


@pytest.mark.parametrize("reward_clipping", ["abs_one", "none"])
def test_rewards_and_returns_are_the_games_whatever_the_learner_clips(reward_clipping):
    played = play(stub("Fixed-v0", n=7, reward=10.0, reward_clipping=reward_clipping), 16)

    assert played.reward[1:8].tolist() == [[10.0]] * 7
    assert played.episode_return[played.done].tolist() == [70.0, 70.0]
    assert played.episode_length[played.done].tolist() == [7, 7]


def test_returns_are_summed_in_float64():
    # In float32, 2^24 + 1 rounds to 2^24.
    played = play(stub("Fixed-v0", n=2, reward=float(2**24 + 1)), 2)

    assert played.episode_return[played.done].tolist() == [2.0**25 + 2]


@pytest.mark.parametrize(("life_loss_terminal", "terminal"), [(True, [10, 20, 30, 41]), (False, [30])])
def test_a_lost_life_sets_terminal_alone_and_the_game_is_one_episode(life_loss_terminal, terminal):
    played = play(stub("Lives-v0", life_loss_terminal=life_loss_terminal), 45)

    assert where(played.terminal) == terminal
    assert where(played.done) == [30]
    assert where(played.is_first) == [0, 31]
    assert played.observation[:31, 0, 0].tolist() == list(range(31))
    assert played.episode_return[played.done].tolist() == [30.0]
    assert played.episode_length[played.done].tolist() == [30]


def test_a_game_that_ends_right_after_a_lost_life_opens_the_next():
    played = play(stub("Lives-v0", lives=2, steps=1, life_loss_terminal=True), 6)

    assert where(played.terminal) == [1, 2, 4, 5]
    assert (where(played.done), where(played.is_first)) == ([2, 5], [0, 3, 6])
    assert played.episode_length[played.done].tolist() == [2, 2]


@pytest.mark.parametrize("others", [[], [Lives, Lives]], ids=["alone", "beside some that always tell"])
def test_lives_count_only_against_lives_seen_in_the_same_episode(others):
    class Forgetful(Stub):
        """Tells its lives in steps 2 and 3 of four only: 5 and 4 in the first episode, then 3 and 2."""

        def step(self, action):
            observation, reward, *_ = super().step(action)
            self.lives = getattr(self, "lives", 6) - (self.step_number in (2, 3))
            info = {"lives": self.lives} if self.step_number in (2, 3) else {}
            return observation, reward, False, self.step_number == 4, info

    envs = SyncVectorEnv([Forgetful, *others], autoreset_mode=AutoresetMode.NEXT_STEP)

    played = play(VectorEnvironment(envs, [0, 1, 2][: envs.num_envs], life_loss_terminal=True), 9)

    assert where(played.terminal) == [3, 8]


def test_environments_of_one_vector_end_and_count_on_their_own():
    envs = SyncVectorEnv([lambda: Fixed(2), lambda: Fixed(3, reward=5.0)], autoreset_mode=AutoresetMode.NEXT_STEP)

    played = play(VectorEnvironment(envs, [0, 1], life_loss_terminal=False), 7)

    assert played.done.T.astype(int).tolist() == [[0, 0, 1, 0, 0, 1, 0, 0], [0, 0, 0, 1, 0, 0, 0, 1]]
    assert played.episode_return.T.tolist() == [[0, 1, 2, 0, 1, 2, 0, 1], [0, 5, 10, 15, 0, 5, 10, 15]]
    assert played.episode_length.T.tolist() == [[0, 1, 2, 0, 1, 2, 0, 1], [0, 1, 2, 3, 0, 1, 2, 3]]


def test_a_second_reset_opens_new_episodes_and_clears_the_counts():
    environment = stub("RandStart-v0", seeds=(7,))
    first = play(environment, 3)

    again = environment.reset()

    assert again.is_first.all() and again.episode_return.tolist() == [0.0] and again.episode_length.tolist() == [0]
    assert (again.observation != first.observation[0]).any()


def test_writing_into_an_answer_does_not_change_the_next():
    environment = stub("Lives-v0", life_loss_terminal=True)
    for array in environment.reset()[1:]:
        array[:] = True
    for _ in range(5):
        for array in environment.step(np.array([0]))[1:]:
            array[:] = True

    step = environment.step(np.array([0]))

    assert [array.tolist() for array in step] == [[[6.0] * 3], [False], [1.0], [False], [False], [6.0], [6]]


@pytest.mark.parametrize("mode", [AutoresetMode.SAME_STEP, AutoresetMode.DISABLED])
def test_another_autoreset_mode_is_refused(mode):
    envs = SyncVectorEnv([Fixed], autoreset_mode=mode)

    with pytest.raises(RuntimeError, match="autoreset mode"):
        VectorEnvironment(envs, [0], life_loss_terminal=False)


def test_an_environment_that_says_next_step_and_does_otherwise_is_found_out():
    envs = SyncVectorEnv([Fixed], autoreset_mode=AutoresetMode.SAME_STEP)
    envs.metadata["autoreset_mode"] = AutoresetMode.NEXT_STEP
    environment = VectorEnvironment(envs, [0], life_loss_terminal=False)

    with pytest.raises(RuntimeError, match="no reset in the step after"):
        play(environment, 6)


def test_a_step_before_the_first_reset_is_refused():
    with pytest.raises(RuntimeError, match="before reset"):
        stub("Fixed5-v0").step(np.zeros(1, np.int64))


@pytest.mark.parametrize(
    "actions",
    [np.array([0, 2]), np.array([-1, 0]), np.array([0]), np.array([[0], [0]]), np.array([0.0, 1.0]), [False, True]],
    ids=["too high", "negative", "too few", "rank 2", "float", "bool"],
)
def test_actions_are_refused_before_any_environment_sees_them(actions):
    environment = stub("Counter-v0", seeds=(0, 1))
    environment.reset()

    with pytest.raises(ValueError, match="actions: expected"):
        environment.step(actions)

    assert environment.step(np.array([1, 1])).episode_length.tolist() == [1, 1]


def test_discrete_spaces_count_from_zero_whatever_their_start():
    environment = stub("Echo-v0", n=4, start=-2)

    first = environment.reset().observation
    echoes = [environment.step(np.array([action])).observation for action in range(4)]

    assert environment.observation_space == environment.action_space == gymnasium.spaces.Discrete(4)
    assert np.concatenate([first, *echoes]).tolist() == [0, 0, 1, 2, 3]
    assert {echo.dtype for echo in echoes} == {np.dtype(np.int64)}


@pytest.mark.parametrize("k", [0, 1, 4])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_an_observation_that_is_not_finite_is_refused_with_its_step(k, value):
    class Broken(Stub):
        def observation(self):
            return np.array([1, value if self.step_number == k else 1, 1], np.float32)

    envs = SyncVectorEnv([Fixed, Broken], autoreset_mode=AutoresetMode.NEXT_STEP)

    message = f"environment 1, step {k} of its episode: observation .*{value}.* is not finite"
    with pytest.raises(ValueError, match=message):
        play(VectorEnvironment(envs, [0, 1], life_loss_terminal=False), k)


@pytest.mark.parametrize("k", [0, 2])
@pytest.mark.parametrize("in_parts", [False, True])
def test_an_observation_of_another_shape_than_its_space_is_refused_by_its_name(k, in_parts):
    class Broken(Stub):
        def observation(self):
            own = np.ones(2 if self.step_number == k else 3, np.float32)
            return {"rest": 0, "mine": own} if in_parts else own

    stub = Broken()
    if in_parts:
        stub.observation_space = Dict(rest=Discrete(2), mine=stub.observation_space)
    name = "observation['mine']" if in_parts else "observation"

    with pytest.raises(ValueError, match=re.escape(f"{name}: has shape [2], its space [3]")):
        environment = Mergeable(stub)
        environment.reset()
        for _ in range(k):
            environment.step(0)
    assert stub.step_number == k


@pytest.mark.parametrize(
    ("value", "dtype", "shape"),
    [
        (0.5, "float32", (8,)),
        (-3.7, "float64", (2, 2)),
        (1000, "int16", (3,)),
        (255, "uint8", (3, 36, 36)),
        (1, "int8", ()),
    ],
)
def test_observations_keep_number_dtype_and_shape(value, dtype, shape):
    environment = stub("Constant-v0", seeds=(0, 1), value=value, dtype=dtype, shape=shape)

    observation = environment.reset().observation

    assert observation.dtype == dtype and observation.shape == (2, *shape)
    assert (observation == np.asarray(value, dtype)).all()


def test_one_seed_gives_new_starts_in_every_episode_and_the_same_starts_again():
    def starts():
        played = play(stub("RandStart-v0", seeds=(7,), n=3), 16)
        return [tuple(observation) for observation in played.observation[played.is_first]]

    first, second = starts(), starts()

    assert len(first) == len(set(first)) == 5
    assert first == second


def test_every_environment_gets_the_seed_of_its_place():
    def start(seeds):
        return stub("RandStart-v0", seeds=seeds).reset().observation.copy()

    assert (start((3, 4))[::-1] == start((4, 3))).all()


@pytest.mark.parametrize("seeds", [(-1,), (2**31,), ()])
def test_seeds_out_of_range_or_number_are_refused(seeds):
    with pytest.raises(ValueError, match="seeds: expected 1"):
        environments.make(stub_config("Fixed5-v0"), 1, seeds)


def test_infos_that_do_not_fit_each_other_do_no_harm():
    class Ragged(Stub):
        def step(self, action):
            observation, *rest, _ = super().step(action)
            return observation, *rest, {"path": np.zeros(self.step_number), "note": None if action else 1}

    gymnasium.register("Ragged-v0", Ragged)
    environment = environments.make(Config(env="Ragged-v0"), 2, [0, 1])
    environment.reset()

    for actions in ([0, 1], [1, 0]):
        assert environment.step(np.array(actions)).reward.tolist() == [1.0, 1.0]


@pytest.mark.parametrize("env", ["CartPole-v1", "monobeast/Catch-v0", "stub_environments:Fixed5-v0"])
def test_what_is_left_open_is_resolved_for_environments_other_than_atari(env):
    resolved = environments.resolve(Config(env=env))

    assert (resolved.reward_clipping, resolved.life_loss_terminal) == ("none", False)
    assert (resolved.sticky_actions, resolved.full_action_space) == (0.0, False)
    assert environments.resolve(resolved) == resolved


def test_what_is_set_is_left_by_resolve():
    config = stub_config("Lives-v0", life_loss_terminal=True, reward_clipping="abs_one")

    resolved = environments.resolve(config)

    assert resolved.life_loss_terminal is True and resolved.reward_clipping == "abs_one"


def test_check_gives_the_spaces_that_the_network_sees():
    assert environments.check(stub_config("Echo-v0", n=5, start=3)) == (Discrete(5), Discrete(5))


def test_a_single_action_is_supported():
    environment = stub("OddSpaces-v0", action="one")

    assert environments.check(stub_config("OddSpaces-v0", action="one")).action == Discrete(1)
    assert play(environment, 3).reward[1:].tolist() == [[1.0]] * 3

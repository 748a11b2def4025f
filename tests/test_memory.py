"""The game of Memory: its rules, and what can be had in it with memory and without."""

import itertools
import warnings

import gymnasium
import pytest
from gymnasium.spaces import Discrete
from gymnasium.utils.env_checker import check_env

from monobeast import environments
from monobeast.config import Config
from monobeast.environments.memory import Memory

WAIT = 0
# Returns are sums of up to 11 float64 terms.
TOLERANCE = {"abs": 1e-12}


def seeds_of_cues(environment):
    """A seed for each cue, by the cue."""
    seeds = {}
    for seed in range(200):
        seeds.setdefault(environment.reset(seed=seed)[0], seed)
    return seeds


def play(environment, seed, actions):
    """Observations, rewards and ends of an episode's first steps."""
    observations, rewards, ends = [environment.reset(seed=seed)[0]], [], []
    for action in actions:
        observation, reward, terminated, truncated, _ = environment.step(action)
        observations.append(observation)
        rewards.append(reward)
        ends.append((terminated, truncated))
    return observations, rewards, ends


def test_gymnasiums_own_checker_has_no_complaint():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(gymnasium.make("monobeast/Memory-v0").unwrapped)


def test_without_arguments_there_are_two_cues_and_ten_blanks():
    environment = gymnasium.make("monobeast/Memory-v0")

    observations, rewards, ends = play(environment, 0, [WAIT] * 12)

    assert observations[1:] == [2] * 10 + [3, 3]
    assert rewards[:-1] == [0.0] * 11 and rewards[-1] in (0.0, 1.0)
    assert ends == [(False, False)] * 11 + [(True, False)]
    assert (environment.observation_space.n, environment.action_space.n) == (4, 2)


@pytest.mark.parametrize("num_cues", [2, 3, 10])
def test_every_cue_appears(num_cues):
    assert sorted(seeds_of_cues(Memory(num_cues))) == list(range(num_cues))


@pytest.mark.parametrize("delay", [0, 1, 7])
def test_after_the_first_observation_none_depends_on_the_cue(delay):
    environment = Memory(3, delay)
    actions = [step % 3 for step in range(delay + 2)]
    played = {cue: play(environment, seed, actions) for cue, seed in seeds_of_cues(environment).items()}

    for cue, (observations, rewards, ends) in played.items():
        assert observations == [cue] + [3] * delay + [4, 4]
        assert (rewards[:-1], ends) == (played[0][1][:-1], played[0][2])


@pytest.mark.parametrize("delay", [0, 3])
@pytest.mark.parametrize("answer", [0, 1, 2])
def test_the_right_answer_alone_is_paid(delay, answer):
    environment = Memory(3, delay)

    for cue, seed in seeds_of_cues(environment).items():
        _, rewards, _ = play(environment, seed, [WAIT] * (delay + 1) + [answer])
        assert rewards == [0.0] * (delay + 1) + [float(answer == cue)]


def test_before_the_question_each_action_that_does_not_wait_has_its_share_of_a_cost_of_one():
    _, rewards, _ = play(Memory(3, 3), 0, [1, WAIT, 2, 1])

    assert rewards == [-0.25, 0.0, -0.25, -0.25]


@pytest.mark.parametrize(("num_cues", "delay"), [(2, 3), (3, 1)])
def test_actions_drawn_at_random_bring_two_over_the_number_of_cues_less_one(num_cues, delay):
    environment = Memory(num_cues, delay)
    seeds = seeds_of_cues(environment).values()

    episodes = itertools.product(seeds, itertools.product(range(num_cues), repeat=delay + 2))
    returns = [sum(play(environment, seed, actions)[1]) for seed, actions in episodes]

    assert sum(returns) / len(returns) == pytest.approx(2 / num_cues - 1, **TOLERANCE)


def test_the_seed_decides_the_cues_and_later_resets_go_on_from_there():
    def cues(seed):
        environment = Memory()
        return [environment.reset(seed=seed)[0]] + [environment.reset()[0] for _ in range(30)]

    assert cues(3) == cues(3) != cues(4)
    assert set(cues(3)) == {0, 1}


# What a policy may look at, given all that it has seen: (observation, last action, last reward), from the first on.
# The number of steps is more than an agent sees. With it no situation comes twice in an episode, so that the mean
# return is linear in the probabilities of the actions in each, and no stochastic policy is better than all others.
def without_memory(seen):
    return len(seen), seen[-1]


def with_memory(seen):
    return tuple(seen)


class NoActionYet(Exception):
    """Holds the situation for which a policy is still to be chosen."""


def return_of(policy, looks_at, environment, seed, discounting):
    seen, total, terminated = [(environment.reset(seed=seed)[0], None, None)], 0.0, False
    while not terminated:
        situation = looks_at(seen)
        if situation not in policy:
            raise NoActionYet(situation)
        action = policy[situation]
        observation, reward, terminated, truncated, _ = environment.step(action)
        assert not truncated
        total += discounting ** (len(seen) - 1) * reward
        seen.append((observation, action, reward))
    return total


def best_mean_return(looks_at, environment, discounting=1.0):
    """Over all deterministic policies, by trying each."""
    seeds = seeds_of_cues(environment).values()

    def best_from(policy):
        try:
            return sum(return_of(policy, looks_at, environment, seed, discounting) for seed in seeds) / len(seeds)
        except NoActionYet as missing:
            (situation,) = missing.args
            return max(best_from(policy | {situation: action}) for action in range(environment.action_space.n))

    return best_from({})


@pytest.mark.parametrize(("num_cues", "delay"), [(2, 0), (2, 2), (3, 0)])
def test_with_memory_the_best_mean_return_is_one(num_cues, delay):
    assert best_mean_return(with_memory, Memory(num_cues, delay)) == 1


@pytest.mark.parametrize("discounting", [1.0, 0.99, 0.5])
@pytest.mark.parametrize(("num_cues", "delay"), [(2, 0), (2, 1), (2, 3), (3, 0), (3, 1)])
def test_without_memory_the_best_mean_return_is_chance(num_cues, delay, discounting):
    best = best_mean_return(without_memory, Memory(num_cues, delay), discounting)

    assert best == pytest.approx(discounting ** (delay + 1) / num_cues, **TOLERANCE)


def test_were_waiting_free_the_last_action_would_serve_as_memory():
    class Free(gymnasium.RewardWrapper):
        def reward(self, reward):
            return max(reward, 0.0)

    assert best_mean_return(without_memory, Free(Memory(2, 2))) == 1


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"num_cues": 1}, "num_cues 1: must be an int of at least 2"),
        ({"num_cues": 2.5}, "num_cues 2.5: must be an int of at least 2"),
        ({"num_cues": "3"}, "num_cues '3': must be an int of at least 2"),
        ({"delay": -1}, "delay -1: must be an int of at least 0"),
        ({"delay": True}, "delay True: must be an int of at least 0"),
    ],
)
def test_a_keyword_out_of_its_range_is_refused_by_name(keywords, message):
    with pytest.raises(ValueError, match=message):
        Memory(**keywords)


def test_env_kwargs_reach_it_and_are_refused_in_its_own_words():
    def check(env_kwargs):
        return environments.check(Config(env="monobeast/Memory-v0", env_kwargs=env_kwargs))

    assert check('{"num_cues": 5, "delay": 3}') == (Discrete(7), Discrete(5))
    with pytest.raises(ValueError, match='--env_kwargs .*"delay": -1.*: delay -1: must be an int of at least 0'):
        check('{"delay": -1}')

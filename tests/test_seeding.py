"""Seeds that differ wherever something else draws, and repeat wherever the same does."""

import itertools

import pytest

from monobeast import seeding


VERSIONS = (1, 2, 510, 511, 512, 1_000_000)  # that are evaluated beside training


def seeds_of_run(seed, actors=8, envs=32, generations=3):
    """Every seed that a run uses, its evaluations included."""
    seeds = [seeding.network_seed(seed), seeding.evaluation_sampling_seed(seed), *seeding.evaluation_seeds(seed, envs)]
    for version in VERSIONS:
        seeds += [seeding.evaluation_sampling_seed(seed, version), *seeding.evaluation_seeds(seed, 1, version)]
    for actor, generation in itertools.product(range(actors), range(generations)):
        seeds += seeding.environment_seeds(seed, actor, generation, envs)
        seeds += [seeding.sampling_seed(seed, actor, generation), seeding.actor_seed(seed, actor, generation)]
    seeds += [seeding.learner_seed(seed, num_resumes) for num_resumes in range(4)]
    return seeds


@pytest.mark.parametrize("first", [0, 1, 6, 2**31 - 2, 2**32 - 1, 2**63 - 4])
def test_actors_environments_restarts_and_runs_with_neighboring_seeds_share_no_seed(first):
    seeds = [seed for run in range(first, first + 4) for seed in seeds_of_run(run)]

    assert len(seeds) == 4 * (8 * 3 * 34 + 4 + 34 + 2 * len(VERSIONS))
    assert len(set(seeds)) == len(seeds)


def test_a_large_run_shares_no_seed_where_chance_alone_would_repeat_some():
    # Among 62,000 numbers of 28 bits drawn at random, seven pairs would be equal.
    seeds = seeds_of_run(seed=1, actors=16, envs=64, generations=60)

    assert len(set(seeds)) == len(seeds) > 62_000


@pytest.mark.parametrize("num_envs", [8, 1100])
@pytest.mark.parametrize("number", [255, 510, 511, 512])
def test_large_actor_environment_and_restart_numbers_are_kept_apart_too(number, num_envs):
    processes = list(itertools.product((0, number, number + 1), repeat=2))

    seeds = [seed for process in processes for seed in seeding.environment_seeds(5, *process, num_envs)]

    assert len(set(seeds)) == len(processes) * num_envs


def test_seeds_are_ints_of_31_bits_spread_over_the_range():
    seeds = [seed for run in range(8) for seed in seeds_of_run(run, actors=2, envs=8)]

    assert {type(seed) for seed in seeds} == {int}
    assert 0 <= min(seeds) < 2**27 and 2**31 - 2**27 < max(seeds) < 2**31


def test_the_same_run_has_the_same_seeds():
    assert seeds_of_run(42) == seeds_of_run(42)


@pytest.mark.parametrize("other", [9, 17, 2**32 + 1])
def test_runs_whose_seeds_agree_modulo_8_share_no_seed_either(other):
    assert not set(seeds_of_run(1)) & set(seeds_of_run(other))


def test_an_environment_keeps_its_seed_when_more_join():
    assert seeding.environment_seeds(1, 0, 0, 8)[:4] == seeding.environment_seeds(1, 0, 0, 4)


def test_a_drawn_seed_is_a_fresh_one_of_31_bits():
    drawn = [seeding.draw_seed() for _ in range(5)]

    assert len(set(drawn)) > 1 and all(0 <= seed < 2**31 for seed in drawn)

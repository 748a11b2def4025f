"""Smaller settings."""

import pytest
from resource_needs import make_config

from monobeast.resources import smaller_settings


@pytest.mark.parametrize(
    ("settings", "limit", "expected"),
    [
        ({"num_buffers": 1000}, ("num_buffers", 437), {"num_buffers": 430}),
        ({"num_buffers": 1000}, ("num_buffers", 1), {}),  # never fewer than there are actors
        ({"envs_per_actor": 80}, ("envs_per_actor", 47), {"envs_per_actor": 40}),  # a multiple of the batch
        ({"batch_size": 64}, ("batch_size", 30), {"batch_size": 24}),  # a multiple of what a slot holds
        ({"batch_size": 4}, ("batch_size", 3), {"batch_size": 1}),
        ({"num_actors": 90}, ("num_buffers", 50), {"num_actors": 25}),  # the default number of slots follows
        ({"num_actors": 90, "num_buffers": 90}, ("num_actors", 80), {"num_actors": 80}),
        ({"unroll_length": 1}, ("unroll_length", 0), {}),
    ],
)
def test_the_way_out_is_the_largest_value_that_is_allowed(settings, limit, expected):
    name, most = limit

    assert smaller_settings.find(make_config(**settings), lambda config: getattr(config, name) <= most) == expected


@pytest.mark.parametrize(
    ("batch_size", "envs_per_actor", "half"),
    [(64, 8, 32), (24, 8, 8), (40, 8, 16), (16, 16, 8), (6, 12, 3), (4, 12, 2), (1, 8, None)],
)
def test_half_a_batch_is_one_that_settings_allow(batch_size, envs_per_actor, half):
    config = make_config(batch_size=batch_size, envs_per_actor=envs_per_actor)

    smaller = smaller_settings.halve_batch(config)

    assert (smaller and smaller.batch_size) == half


def test_the_flag_furthest_above_its_default_is_turned_down():
    def fits(config):
        return config.unroll_length * config.num_actors < 1000

    assert smaller_settings.find(make_config(unroll_length=20, num_actors=400), fits) == {"num_actors": 49}
    assert smaller_settings.find(make_config(unroll_length=4000, num_actors=4), fits) == {"unroll_length": 240}

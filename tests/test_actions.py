"""How agents see an environment's actions, and what it gets of theirs."""

import warnings

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete, MultiDiscrete
from stub_environments import Acts, stub_config

from monobeast import environments
from monobeast.environments.actions import seen_by_agents


def acts(space, num_envs=2):
    environment = environments.make(stub_config("Acts-v0", space=space), num_envs, range(num_envs))
    environment.reset()
    return environment


def reached(space, actions):
    """What the environments got of the actions, flattened."""
    environment = acts(space, len(actions))
    return environment.step(np.array(actions, environment.action_space.dtype)).observation.tolist()


def box(low, high):
    return Box(np.array(low, np.float32), np.array(high, np.float32))


INFINITY = np.inf
SEEN = {
    "two": MultiDiscrete([3, 2]),
    "one": MultiDiscrete([4]),
    "table": MultiDiscrete([3, 2, 2, 4]),
    "started": MultiDiscrete([3, 2]),
    "int32": MultiDiscrete([3, 2]),
    "numbers": box([-1, -1, -INFINITY], [1, 1, INFINITY]),
    "number": box([-1], [1]),
    "matrix": box([-1] * 4, [1] * 4),
    "positive": box([0], [INFINITY]),
    "endless": box([-INFINITY] * 2, [INFINITY] * 2),
}


@pytest.mark.parametrize("space", Acts.ACTIONS)
def test_an_agent_sees_one_axis_from_0_or_of_scale_1(space):
    spaces = environments.check(stub_config("Acts-v0", space=space))

    assert spaces.action == SEEN[space]
    assert seen_by_agents(spaces.action).space == spaces.action  # what is seen is seen as it is


@pytest.mark.parametrize("space", Acts.ACTIONS)
def test_whatever_an_agent_draws_reaches_the_environment_as_an_action_of_its_own(space):
    environment, random = acts(space), np.random.default_rng(1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(50):
            seen = environment.action_space
            actions = np.stack([seen.sample() for _ in range(2)])
            if isinstance(seen, Box):
                actions = random.normal(0, 100, actions.shape).astype(np.float32)  # an agent's may be out of bounds
            environment.step(actions)


@pytest.mark.parametrize(
    ("space", "actions", "expected"),
    [
        ("two", [[2, 1], [0, 0]], [[2, 1], [0, 0]]),
        ("table", [[2, 1, 0, 3]], [[2, 1, 0, 3]]),
        ("started", [[0, 1], [2, 0]], [[-1, 6], [1, 5]]),
        ("numbers", [[0.5, -1.0, 70.0], [-9.0, 9.0, 0.0]], [[1.0, 0.0, 70.0], [-2.0, 10.0, 0.0]]),
        ("number", [[0.5], [-3.0]], [[1.0], [-2.0]]),
        ("matrix", [[-1.0, 0.0, 1.0, 2.0]], [[-1.0, 1.0, 3.0, 3.0]]),
        ("positive", [[-4.0], [4.0]], [[0.0], [4.0]]),
        ("endless", [[-4.0, 1e6]], [[-4.0, 1e6]]),
    ],
)
def test_start_shape_and_scale_are_the_environments_again(space, actions, expected):
    assert reached(space, actions) == expected


def test_rounding_does_not_lead_out_of_bounds():
    space = Box(np.float32(-0.1), np.float32(0.3), (1,), np.float32)
    seen = seen_by_agents(space)
    actions = np.linspace(-1, 1, 1001, dtype=np.float32)[:, None]

    own = seen.to_environment(seen.check(actions, len(actions)))

    assert all(each in space for each in own) and own[0] == space.low and own[-1] == space.high


@pytest.mark.parametrize(
    ("space", "actions", "message"),
    [
        ("two", np.zeros((2, 3), np.int64), r"expected int64 \[2, 2\], found int64 \[2, 3\]"),
        ("two", np.zeros((2, 2)), r"expected int64 \[2, 2\], found float64 \[2, 2\]"),
        ("two", np.array([[0, 0], [0, 2]]), r"expected 0 to \[2, 1\], found \[\[0, 0\], \[0, 2\]\]"),
        ("two", np.array([[0, 0], [-1, 0]]), r"expected 0 to \[2, 1\], found \[\[0, 0\], \[-1, 0\]\]"),
        ("number", np.zeros(2, np.float32), r"expected float32 \[2, 1\], found float32 \[2\]"),
        ("number", np.zeros((2, 1), np.int64), r"expected float32 \[2, 1\], found int64 \[2, 1\]"),
        ("number", np.array([[np.nan], [0.0]], np.float32), r"expected finite numbers, found \[\[nan\], \[0.0\]\]"),
    ],
)
def test_what_is_no_action_is_refused_before_any_environment_sees_it(space, actions, message):
    with pytest.raises(ValueError, match=f"actions: {message}"):
        acts(space).step(actions)


def test_a_single_choice_is_as_before():
    seen = seen_by_agents(Discrete(3, start=-1))

    assert seen.space == Discrete(3)
    assert seen.to_environment(seen.check(np.array([0, 2]), 2)).tolist() == [-1, 1]

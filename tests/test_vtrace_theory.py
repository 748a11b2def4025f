"""What the paper says follows from V-trace, on a Markov decision process whose every trajectory is known.

An update is exact: the mean of `from_importance_weights` over all trajectories of three steps, each with its
probability under mu. So nothing here is a matter of samples, and what is left is rounding, below 1e-12.
"""

import itertools

import numpy as np
import pytest
import torch
from exact_vtrace import exact_vtrace
from hypothesis import given, settings
from hypothesis import strategies as st

from monobeast import vtrace

GAMMA = 0.8
N = 3  # steps of an update
# Three states, two actions: where an action leads, what it earns, and who takes it. Ratios are 0.14 to 3.
TRANSITIONS = np.array(
    [[[0.7, 0.2, 0.1], [0.1, 0.3, 0.6]], [[0.2, 0.5, 0.3], [0.6, 0.1, 0.3]], [[0.3, 0.3, 0.4], [0.0, 1.0, 0.0]]]
)
REWARDS = np.array([[1.0, -2.0], [0.5, 3.0], [-1.0, 2.0]])
PI = np.array([[0.9, 0.1], [0.2, 0.8], [0.4, 0.6]])
MU = np.array([[0.3, 0.7], [0.4, 0.6], [0.7, 0.3]])
RHO_BARS = [0.25, 0.5, 1.0, 1.5, None]


def all_trajectories():
    """states [N+1, B], actions [N, B], and the probability of each under mu, given its first state."""
    paths = list(itertools.product(range(3), *([range(2), range(3)] * N)))
    states, actions = np.array(paths)[:, 0::2].T, np.array(paths)[:, 1::2].T
    steps = MU[states[:-1], actions] * TRANSITIONS[states[:-1], actions, states[1:]]
    return states, actions, steps.prod(axis=0)


STATES, ACTIONS, PROBABILITIES = all_trajectories()


def update(values, **parameters):
    """V-trace's operator: the expected target in each state, where `values` is V."""
    taken = STATES[:-1], ACTIONS
    inputs = {
        "log_rhos": np.log(PI[taken] / MU[taken]),
        "discounts": np.full(ACTIONS.shape, GAMMA),
        "rewards": REWARDS[taken],
        "values": values[STATES[:-1]],
        "bootstrap_value": values[STATES[-1]],
    }
    result = vtrace.from_importance_weights(**{k: torch.from_numpy(v) for k, v in inputs.items()}, **parameters)
    return np.bincount(STATES[0], PROBABILITIES * result.vs[0].numpy())


def solve_update(**parameters):
    """The operator is linear: its matrix, and its fixed point."""
    offset = update(np.zeros(3), **parameters)
    matrix = np.stack([update(one, **parameters) - offset for one in np.eye(3)], axis=1)
    return matrix, np.linalg.solve(np.eye(3) - matrix, offset)


def value_of(policy):
    """V of a policy, by its Bellman equation."""
    transitions = np.einsum("sa,sat->st", policy, TRANSITIONS)
    return np.linalg.solve(np.eye(3) - GAMMA * transitions, (policy * REWARDS).sum(axis=1))


def chosen_policy(rho_bar):
    """Equation (3): min(rho-bar mu, pi), normalized."""
    clipped = np.minimum(np.inf if rho_bar is None else rho_bar * MU, PI)
    return clipped / clipped.sum(axis=1, keepdims=True)


def test_the_ratios_are_on_both_sides_of_every_clip():
    np.testing.assert_allclose(PROBABILITIES.sum(), 3)
    np.testing.assert_allclose(MU.sum(axis=1), 1)
    assert (PI / MU).min() < min(RHO_BARS[:-1]) and (PI / MU).max() > max(RHO_BARS[:-1])


@pytest.mark.parametrize("rho_bar", RHO_BARS)
def test_repeated_updates_converge_to_the_value_of_the_policy_that_rho_bar_chooses(rho_bar):
    """Equation (3)."""
    values = np.array([10.0, -10.0, 0.0])
    for _ in range(400):
        values = update(values, clip_rho_threshold=rho_bar)

    np.testing.assert_allclose(values, value_of(chosen_policy(rho_bar)), rtol=0, atol=1e-6)


def test_another_rho_bar_leads_elsewhere():
    values = [solve_update(clip_rho_threshold=rho_bar)[1] for rho_bar in RHO_BARS]

    assert all(np.abs(one - other).max() > 0.1 for one, other in itertools.combinations(values, 2))
    np.testing.assert_allclose(values[-1], value_of(PI), atol=1e-12)


@pytest.mark.parametrize("lambda_", [1.0, 0.5])
@pytest.mark.parametrize("c_bar", [0.0, 0.3, 1.0, 2.0, None])
@pytest.mark.parametrize("rho_bar", RHO_BARS)
def test_the_fixed_point_does_not_move_with_c_bar_nor_lambda(rho_bar, c_bar, lambda_):
    """Theorem 1."""
    _, fixed_point = solve_update(clip_rho_threshold=rho_bar, clip_c_threshold=c_bar, lambda_=lambda_)

    np.testing.assert_allclose(fixed_point, value_of(chosen_policy(rho_bar)), atol=1e-10)


def test_toward_rho_bar_0_the_fixed_point_is_the_value_of_mu():
    """Below the least ratio, min(rho-bar mu, pi) is rho-bar mu."""
    distances = [
        np.abs(solve_update(clip_rho_threshold=rho_bar)[1] - value_of(MU)).max() for rho_bar in (1.0, 0.5, 0.25, 0.01)
    ]

    assert distances == sorted(distances, reverse=True) and distances[-2] > 0.01
    assert distances[-1] < 1e-10


def test_mu_and_pi_have_other_values():
    assert np.abs(value_of(MU) - value_of(PI)).max() > 1


@pytest.mark.parametrize("c_bar", [0.0, 0.25])
@pytest.mark.parametrize("rho_bar", RHO_BARS)
def test_the_contraction_is_the_one_of_theorem_1(rho_bar, c_bar):
    """Theorem 1, whose c-bar is at most rho-bar: eta = 1 - (1 - gamma) E sum gamma^t c_0 .. c_{t-1} rho_t, to t < N."""
    matrix, _ = solve_update(clip_rho_threshold=rho_bar, clip_c_threshold=c_bar)
    ratios = PI / MU
    rho, c = (np.minimum(ratios, np.inf if bar is None else bar) for bar in (rho_bar, c_bar))
    expected_rho, traces = (MU * rho).sum(axis=1), np.einsum("sa,sat->st", MU * c, TRANSITIONS)
    total = sum(GAMMA**t * np.linalg.matrix_power(traces, t) @ expected_rho for t in range(N))

    assert matrix.min() > -1e-12
    np.testing.assert_allclose(np.abs(matrix).sum(axis=1), 1 - (1 - GAMMA) * total)
    assert np.abs(matrix).sum(axis=1).max() <= 1 - (1 - GAMMA) * expected_rho.min() + 1e-12


def test_a_larger_c_bar_contracts_faster():
    """What c-bar is for."""
    norms = [np.abs(solve_update(clip_c_threshold=c_bar)[0]).sum(axis=1).max() for c_bar in (0.0, 0.3, 0.6, 1.0)]

    assert norms == sorted(norms, reverse=True) and norms[0] - norms[-1] > 0.05


NUMBERS = st.floats(-10, 10, width=32)
LOG_RATIOS = st.floats(-3, 3, width=32) | st.sampled_from([0.0, -float("inf"), -800.0])
CLIPS = st.none() | st.floats(0, 4, width=32)


@st.composite
def cases(draw):
    """Inputs [T, B] whose episodes may end in any row, with a reset step behind or without, and parameters."""
    T, B = draw(st.integers(1, 6)), draw(st.integers(1, 3))

    def rows(elements):
        return draw(st.lists(st.lists(elements, min_size=B, max_size=B), min_size=T, max_size=T))

    inputs = {"log_rhos": rows(LOG_RATIOS), "discounts": rows(st.sampled_from([0.0, 0.9, 1.0]))}
    inputs |= {"rewards": rows(NUMBERS), "values": rows(NUMBERS)}
    inputs["bootstrap_value"] = draw(st.lists(NUMBERS, min_size=B, max_size=B))
    clips = ("clip_rho_threshold", "clip_pg_rho_threshold", "clip_c_threshold")
    return inputs, {name: draw(CLIPS) for name in clips} | {"lambda_": draw(st.floats(0, 1, width=32))}


def compute(inputs, parameters):
    tensors = {name: torch.tensor(value, dtype=torch.float64) for name, value in inputs.items()}
    return vtrace.from_importance_weights(**tensors, **parameters)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(cases())
def test_any_inputs_give_the_exact_sum(case):
    """Equation (1)."""
    exact, found = exact_vtrace(*case), compute(*case)

    for name, values in exact.items():
        np.testing.assert_allclose(getattr(found, name).numpy(), values, rtol=1e-9, atol=1e-9)


@settings(max_examples=30, deadline=None, derandomize=True)
@given(cases(), cases(), st.data())
def test_columns_do_not_mix(case, other, data):
    (inputs, parameters), (others, _) = case, other
    T, B = len(inputs["rewards"]), len(inputs["rewards"][0])
    b = data.draw(st.integers(0, B - 1))
    changed = {name: [list(row) for row in inputs[name]] for name in inputs if name != "bootstrap_value"}
    for name, rows in changed.items():
        for t in range(T):
            rows[t][b] = others[name][t % len(others[name])][0]
    changed["bootstrap_value"] = list(inputs["bootstrap_value"])
    changed["bootstrap_value"][b] = others["bootstrap_value"][0]
    rest = [i for i in range(B) if i != b]

    for before, after in zip(compute(inputs, parameters), compute(changed, parameters), strict=True):
        assert torch.equal(before[:, rest], after[:, rest])


@settings(max_examples=30, deadline=None, derandomize=True)
@given(cases(), st.data())
def test_a_zero_discount_splits_a_column(case, data):
    inputs, parameters = case
    T, B = len(inputs["rewards"]), len(inputs["rewards"][0])
    end = data.draw(st.integers(0, T - 1)) + 1
    inputs["discounts"][end - 1] = [0.0] * B
    first = {name: rows[:end] for name, rows in inputs.items()} | {"bootstrap_value": [0.0] * B}
    second = {name: rows[end:] for name, rows in inputs.items()} | {"bootstrap_value": inputs["bootstrap_value"]}
    parts = [compute(part, parameters) for part in (first, second) if part["rewards"]]

    for whole, of_parts in zip(compute(inputs, parameters), zip(*parts, strict=True), strict=True):
        assert torch.equal(whole, torch.cat(of_parts))

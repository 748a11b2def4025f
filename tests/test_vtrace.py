"""V-trace against vectors, against equation (1) written out, and against what the paper says follows from it.

All in float64 within 1e-12 (relative, and absolute near 0): rounding errors of the longest sum here, 128 terms of size
1, and of the largest cancellation were seen below 2e-14, and a wrong formula is off by more than 1e-3.
"""

import math
from functools import partial

import numpy
import pytest
import torch

from monobeast import vtrace
from monobeast.vtrace_vectors import load_cases

INFINITY = float("inf")

tensor64 = partial(torch.tensor, dtype=torch.float64)
assert_close = partial(torch.testing.assert_close, rtol=1e-12, atol=1e-12)


def random_inputs(T, B, seed=0):
    """Arguments of `from_importance_weights`; log_rhos to both sides of the clips, some discounts 0."""
    generator = torch.Generator().manual_seed(seed)
    draw = partial(torch.randn, generator=generator, dtype=torch.float64)
    alive = torch.rand(T, B, generator=generator, dtype=torch.float64) < 0.9
    return {
        "log_rhos": draw(T, B),
        "discounts": 0.95 * alive.double(),
        "rewards": draw(T, B),
        "values": draw(T, B),
        "bootstrap_value": draw(B),
    }


def rows(inputs, first, end):
    """The same trajectories, from row `first` to before row `end`; V(x_end) bootstraps."""
    states = torch.cat([inputs["values"], inputs["bootstrap_value"][None]])
    over_time = {name: inputs[name][first:end] for name in ("log_rhos", "discounts", "rewards", "values")}
    return {**over_time, "bootstrap_value": states[end]}


def equations_1_and_4(inputs, clip_rho_threshold=1.0, clip_pg_rho_threshold=1.0, clip_c_threshold=1.0, lambda_=1.0):
    """v_s as the double sum of equation (1), n = T - s, and the advantage of equation (4)."""
    gamma, r = inputs["discounts"], inputs["rewards"]
    V = torch.cat([inputs["values"], inputs["bootstrap_value"][None]])
    weights = inputs["log_rhos"].exp()
    rho, rho_pg, c = [
        torch.minimum(weights, tensor64(INFINITY if threshold is None else threshold))
        for threshold in (clip_rho_threshold, clip_pg_rho_threshold, clip_c_threshold)
    ]
    T, vs = len(r), V.clone()
    for s in range(T):
        for t in range(s, T):
            delta = rho[t] * (r[t] + gamma[t] * V[t + 1] - V[t])
            vs[s] += (gamma[s:t] * lambda_ * c[s:t]).prod(dim=0) * delta
    return vs[:T], torch.stack([rho_pg[s] * (r[s] + gamma[s] * vs[s + 1] - V[s]) for s in range(T)])


@pytest.mark.parametrize("case", load_cases(), ids=lambda case: case.name)
def test_published_vectors(case):
    inputs = {name: torch.from_numpy(value) for name, value in case.inputs.items()}
    result = vtrace.from_importance_weights(**inputs, **case.params)
    assert_close(result.vs, torch.from_numpy(case.expected["vs"]))
    assert_close(result.pg_advantages, torch.from_numpy(case.expected["pg_advantages"]))


@pytest.mark.parametrize("T, B", [(1, 1), (1, 3), (6, 1), (4, 4), (9, 3)])
@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"clip_rho_threshold": 0.7, "clip_pg_rho_threshold": 2.0, "clip_c_threshold": 1.3, "lambda_": 0.8},
        {"clip_rho_threshold": None, "clip_pg_rho_threshold": None, "clip_c_threshold": None},
    ],
    ids=["paper", "all different", "no clips"],
)
def test_equals_the_double_sum_of_the_paper(T, B, parameters):
    """Equation (1) with lambda of remark 2, equation (4)."""
    inputs = random_inputs(T, B, seed=10 * T + B)
    vs, pg_advantages = equations_1_and_4(inputs, **parameters)
    result = vtrace.from_importance_weights(**inputs, **parameters)
    assert_close(result.vs, vs)
    assert_close(result.pg_advantages, pg_advantages)


@pytest.mark.parametrize(
    "clips, vs, pg_advantages",
    [
        ({}, [3.16, 2.40], [2.66, 1.40]),
        ({"clip_pg_rho_threshold": 3.0}, [3.16, 2.40], [7.98, 1.40]),
        ({"clip_rho_threshold": None}, [7.36, 2.40], [2.66, 1.40]),
        ({"clip_c_threshold": 0.5}, [2.53, 2.40], [2.66, 1.40]),
    ],
)
def test_each_clip_acts_on_its_own_weights(clips, vs, pg_advantages):
    inputs = {
        "log_rhos": tensor64([[4.0], [0.5]]).log(),
        "discounts": tensor64([[0.9], [0.9]]),
        "rewards": tensor64([[1.0], [2.0]]),
        "values": tensor64([[0.5], [1.0]]),
        "bootstrap_value": tensor64([2.0]),
    }
    result = vtrace.from_importance_weights(**inputs, **clips)
    assert_close(result.vs[:, 0], tensor64(vs))
    assert_close(result.pg_advantages[:, 0], tensor64(pg_advantages))


def test_the_reward_of_the_last_step_counts():
    zeros = torch.zeros(4, 1, dtype=torch.float64)
    rewards = tensor64([[0.0], [0.0], [0.0], [1.0]])
    result = vtrace.from_importance_weights(zeros, torch.full_like(zeros, 0.9), rewards, zeros, zeros[0])
    assert_close(result.vs[:, 0], tensor64([0.729, 0.81, 0.9, 1.0]))


def test_on_policy_targets_are_n_step_returns():
    """Equation (2)."""
    inputs = random_inputs(T=7, B=3)
    inputs["log_rhos"] = torch.zeros(7, 3, dtype=torch.float64)
    result = vtrace.from_importance_weights(**inputs)
    n_step_return = inputs["bootstrap_value"]  # equation (2), from its end
    for s in reversed(range(7)):
        n_step_return = inputs["rewards"][s] + inputs["discounts"][s] * n_step_return
        assert_close(result.vs[s], n_step_return)


def test_neighboring_targets_satisfy_remark_1():
    """Remark 1."""
    inputs = random_inputs(T=8, B=2)
    gamma, V = inputs["discounts"][:-1], inputs["values"]
    rho = c = inputs["log_rhos"].exp().clamp(max=1)[:-1]
    delta = rho * (inputs["rewards"][:-1] + gamma * V[1:] - V[:-1])
    vs = vtrace.from_importance_weights(**inputs).vs
    assert_close(vs[:-1], V[:-1] + delta + gamma * c * (vs[1:] - V[1:]))


def test_zero_discount_cuts_the_trace():
    inputs, other = random_inputs(T=8, B=2, seed=1), random_inputs(T=8, B=2, seed=2)
    mixed = {name: torch.cat([inputs[name][:4], other[name][4:]]) for name in inputs if name != "bootstrap_value"}
    inputs["discounts"][3] = mixed["discounts"][3] = 0
    result = vtrace.from_importance_weights(**inputs)
    after_another_end = vtrace.from_importance_weights(**mixed, bootstrap_value=other["bootstrap_value"])
    assert torch.equal(result.vs[:4], after_another_end.vs[:4])
    assert torch.equal(result.pg_advantages[:4], after_another_end.pg_advantages[:4])
    assert not torch.isclose(result.vs[4:], after_another_end.vs[4:]).any()


@pytest.mark.parametrize("reset_step", [0, 3, 7])
def test_a_log_rho_of_minus_infinity_splits_the_trajectory(reset_step):
    inputs = random_inputs(T=8, B=2)
    inputs["discounts"][:] = 0.95  # a truncation: the end before the reset step bootstraps from V(x) there
    inputs["log_rhos"][reset_step] = -INFINITY
    result = vtrace.from_importance_weights(**inputs)
    assert torch.equal(result.vs[reset_step], inputs["values"][reset_step])
    assert torch.equal(result.pg_advantages[reset_step], torch.zeros(2, dtype=torch.float64))
    for first, end in [(0, reset_step), (reset_step + 1, 8)]:
        if first < end:
            part = vtrace.from_importance_weights(**rows(inputs, first, end))
            assert_close(result.vs[first:end], part.vs)
            assert_close(result.pg_advantages[first:end], part.pg_advantages)


@pytest.mark.parametrize("last_discount", [0.0, 0.95], ids=["terminated", "truncated"])
def test_two_episodes_in_one_column_equal_two_batches(last_discount):
    first, second = random_inputs(T=3, B=1, seed=1), random_inputs(T=5, B=1, seed=2)
    first["discounts"][-1] = last_discount
    reset = {"log_rhos": -INFINITY, "discounts": 0.95, "rewards": 0.0, "values": first["bootstrap_value"].item()}
    column = {name: torch.cat([first[name], tensor64([[reset[name]]]), second[name]]) for name in reset}
    together = vtrace.from_importance_weights(**column, bootstrap_value=second["bootstrap_value"])
    for part, of_column in [(first, slice(0, 3)), (second, slice(4, 9))]:
        alone = vtrace.from_importance_weights(**part)
        assert_close(together.vs[of_column], alone.vs)
        assert_close(together.pg_advantages[of_column], alone.pg_advantages)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_extreme_log_rhos_are_clipped_not_nan(dtype):
    inputs = {name: value.to(dtype) for name, value in random_inputs(T=4, B=1).items()}
    inputs["log_rhos"] = torch.tensor([[800.0], [-800.0], [-INFINITY], [INFINITY]], dtype=dtype)
    on_or_off = {**inputs, "log_rhos": torch.tensor([[0.0], [-INFINITY], [-INFINITY], [0.0]], dtype=dtype)}
    result, expected = vtrace.from_importance_weights(**inputs), vtrace.from_importance_weights(**on_or_off)
    for found, wanted in zip(result, expected):
        assert found.dtype == dtype and found.isfinite().all()
        assert torch.equal(found, wanted)


@pytest.mark.parametrize("name", ["clip_rho_threshold", "clip_pg_rho_threshold", "clip_c_threshold"])
def test_a_threshold_may_be_none_or_a_tensor(name):
    inputs = random_inputs(T=6, B=2)
    compute = partial(vtrace.from_importance_weights, **inputs)
    for same, as_float in [(None, INFINITY), (torch.tensor(0.5), 0.5)]:
        for found, wanted in zip(compute(**{name: same}), compute(**{name: as_float})):
            assert torch.equal(found, wanted)


def test_nothing_carries_a_gradient_and_no_argument_is_changed():
    inputs = {name: value.requires_grad_() for name, value in random_inputs(T=5, B=2).items()}
    before = {name: value.detach().clone() for name, value in inputs.items()}
    assert not any(result.requires_grad for result in vtrace.from_importance_weights(**inputs))
    assert all(torch.equal(inputs[name], before[name]) for name in inputs)
    logits, actions = torch.randn(5, 2, 3, requires_grad=True), torch.zeros(5, 2, dtype=torch.int64)
    del inputs["log_rhos"]
    assert not any(result.requires_grad for result in vtrace.from_logits(logits, logits + 1, actions, **inputs))
    assert not vtrace.action_log_probs(logits, actions).requires_grad


def test_further_axes_broadcast():
    flat = random_inputs(T=4, B=3)
    values = torch.randn(4, 3, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    deep = {name: value[..., None] for name, value in flat.items()} | {"values": values}
    result = vtrace.from_importance_weights(**deep)
    for k in range(5):
        of_one = vtrace.from_importance_weights(**{**flat, "values": values[..., k]})
        assert_close(result.vs[..., k], of_one.vs)
        assert_close(result.pg_advantages[..., k], of_one.pg_advantages)


@pytest.mark.parametrize(
    "change, message",
    [
        ({"rewards": torch.zeros(5, 1)}, r"rewards: expected shape \[5, 3\], found \[5, 1\]"),
        ({"values": torch.zeros(3, 5)}, r"values: expected shape \[5, 3\], found \[3, 5\]"),
        ({"discounts": torch.zeros(3)}, r"discounts: expected shape \[5, 3\], found \[3\]"),
        ({"values": torch.zeros(1, 3)}, r"values: expected shape \[5, 3\], found \[1, 3\]"),
        ({"bootstrap_value": torch.zeros(3, 1)}, r"bootstrap_value: expected shape \[3\], found \[3, 1\]"),
        ({"bootstrap_value": torch.zeros(1)}, r"bootstrap_value: expected shape \[3\], found \[1\]"),
        ({"bootstrap_value": torch.zeros(())}, r"bootstrap_value: expected shape \[3\], found \[\]"),
        ({"log_rhos": torch.zeros(3)}, r"log_rhos: expected shape \[5, 3\], found \[3\]"),
        ({"log_rhos": torch.zeros(3, 5)}, r"log_rhos: expected shape \[5, 3\], found \[3, 5\]"),
        ({"clip_rho_threshold": -1.0}, "clip_rho_threshold: expected None or a number of at least 0, found -1.0"),
        ({"clip_pg_rho_threshold": float("nan")}, "clip_pg_rho_threshold: expected .*, found nan"),
        ({"clip_c_threshold": torch.ones(3)}, r"clip_c_threshold: expected a tensor of shape \[\], found \[3\]"),
        ({"lambda_": 1.5}, "lambda_: expected a number from 0 to 1, found 1.5"),
        ({"lambda_": float("nan")}, "lambda_: expected a number from 0 to 1, found nan"),
        ({"lambda_": torch.ones(3)}, r"lambda_: expected a tensor of shape \[\], found \[3\]"),
        ({"rewards": torch.zeros(5, 3).long()}, "rewards: expected a dtype of floats, found torch.int64"),
        ({"discounts": torch.ones(5, 3).bool()}, "discounts: expected a dtype of floats, found torch.bool"),
        ({"values": torch.zeros(5, 3, device="meta")}, "values: expected a tensor on cpu, as the others, found .*meta"),
        ({"log_rhos": torch.zeros(5, 3, device="meta")}, "log_rhos: expected a tensor on cpu, as the others"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(change, message):
    with pytest.raises(ValueError, match=message):
        vtrace.from_importance_weights(**{**random_inputs(T=5, B=3), **change})


@pytest.mark.parametrize("shape", [(3,), (0, 3)])
def test_no_step_and_no_column_are_refused(shape):
    with pytest.raises(ValueError, match=r"log_rhos: expected shape \[T, B, ...\] with T at least 1, found \["):
        vtrace.from_importance_weights(*[torch.zeros(shape)] * 4, torch.zeros(3))


@pytest.mark.parametrize("value", [[[0.0]], None, 1.0, numpy.zeros((5, 3))], ids=["list", "None", "float", "array"])
@pytest.mark.parametrize("name", ["log_rhos", "discounts", "rewards", "values", "bootstrap_value"])
def test_what_is_no_tensor_is_refused_by_name(name, value):
    with pytest.raises(TypeError, match=f"{name}: expected a tensor, found a {type(value).__name__}"):
        vtrace.from_importance_weights(**{**random_inputs(T=5, B=3), name: value})


@pytest.mark.parametrize("value", ["1", [1.0], numpy.ones(2)], ids=["text", "list", "array"])
@pytest.mark.parametrize("name", ["clip_rho_threshold", "clip_pg_rho_threshold", "clip_c_threshold", "lambda_"])
def test_what_is_no_number_is_refused_by_name(name, value):
    with pytest.raises(TypeError, match=f"{name}: expected .*a number or a tensor, found a "):
        vtrace.from_importance_weights(**random_inputs(T=5, B=3), **{name: value})


@pytest.mark.parametrize("value", [numpy.float32(0.5), torch.tensor(0.5), torch.tensor(0.5, dtype=torch.float64)])
def test_lambda_and_thresholds_may_be_numbers_of_any_kind(value):
    inputs = random_inputs(T=5, B=3)
    for name in ("lambda_", "clip_c_threshold"):
        found = vtrace.from_importance_weights(**inputs, **{name: value})
        assert torch.equal(found.vs, vtrace.from_importance_weights(**inputs, **{name: 0.5}).vs)


@pytest.mark.parametrize(
    "name, size",
    [("log_rhos", (4, 3, 6)), ("rewards", (4, 3, 6)), ("bootstrap_value", (3, 6)), ("bootstrap_value", (4,))],
)
def test_further_axes_that_do_not_broadcast_are_refused(name, size):
    inputs = {key: value[..., None].expand(*value.shape, 5) for key, value in random_inputs(T=4, B=3).items()}
    with pytest.raises(ValueError, match=f"{name}: expected shape .*3, 5.*, found"):
        vtrace.from_importance_weights(**{**inputs, name: torch.zeros(size)})


def test_action_log_probs_are_logs_of_the_softmax():
    probabilities = tensor64([[[0.1, 0.2, 0.7], [0.5, 0.25, 0.25]]])  # [1, 2, 3]
    log_probs = vtrace.action_log_probs(probabilities.log() + 5, torch.tensor([[2, 0]]))
    assert_close(log_probs, tensor64([[0.7, 0.5]]).log())


def test_from_logits_takes_the_target_over_the_behavior_policy():
    inputs = random_inputs(T=2, B=1)
    del inputs["log_rhos"]
    inputs["discounts"][:] = 0.95
    behavior = tensor64([[[0.5, 0.5]], [[0.8, 0.2]]]).log()
    target = tensor64([[[0.9, 0.1]], [[0.4, 0.6]]]).log()
    parameters = {"clip_rho_threshold": 1.5, "clip_pg_rho_threshold": 2.5, "clip_c_threshold": 1.2, "lambda_": 0.9}
    result = vtrace.from_logits(behavior, target, torch.tensor([[0], [1]]), **inputs, **parameters)
    assert_close(result.behavior_action_log_probs, tensor64([[0.5], [0.2]]).log())
    assert_close(result.target_action_log_probs, tensor64([[0.9], [0.6]]).log())
    assert_close(result.log_rhos, tensor64([[1.8], [3.0]]).log())
    vs, pg_advantages = equations_1_and_4({**inputs, "log_rhos": result.log_rhos}, **parameters)
    assert_close(result.vs, vs)
    assert_close(result.pg_advantages, pg_advantages)


@pytest.mark.parametrize(
    "change, message",
    [
        ({"actions": torch.zeros(5, 3)}, "actions: expected dtype torch.int64, found torch.float32"),
        ({"actions": torch.full((5, 3), 4)}, "actions: expected 0 to 3, as behavior_policy_logits has, found 4 to 4"),
        ({"actions": torch.full((5, 3), -1)}, "actions: expected 0 to 3, .*, found -1 to -1"),
        ({"target_policy_logits": torch.zeros(5, 3, 4).long()}, "target_policy_logits: expected a dtype of floats"),
        ({"behavior_policy_logits": torch.zeros(5, 2, 4)}, r"behavior_policy_logits: .*\[5, 3, A\].*found \[5, 2, 4\]"),
        ({"target_policy_logits": torch.zeros(5, 3)}, r"target_policy_logits: .*\[5, 3, A\].*found \[5, 3\]"),
        ({"target_policy_logits": torch.zeros(5, 3, 6)}, r"target_policy_logits: .*\[5, 3, 4\], found \[5, 3, 6\]"),
    ],
)
def test_from_logits_refuses_by_name(change, message):
    inputs = random_inputs(T=5, B=3)
    inputs.pop("log_rhos")
    inputs |= {name: torch.zeros(5, 3, 4) for name in ("behavior_policy_logits", "target_policy_logits")}
    inputs["actions"] = torch.zeros(5, 3, dtype=torch.int64)
    with pytest.raises(ValueError, match=message):
        vtrace.from_logits(**{**inputs, **change})


def without_log_rhos(inputs):
    return {name: value for name, value in inputs.items() if name != "log_rhos"}


@pytest.mark.parametrize("case", load_cases(), ids=lambda case: case.name)
def test_published_vectors_from_the_log_probabilities_of_both_policies(case):
    inputs = {name: torch.from_numpy(value) for name, value in case.inputs.items()}
    log_rhos = inputs["log_rhos"]
    behavior = torch.full_like(log_rhos, -0.25)  # a power of 2: the difference is log_rhos again, where those are small
    target = log_rhos + behavior

    result = vtrace.from_action_log_probs(behavior, target, **without_log_rhos(inputs), **case.params)

    assert_close(result.log_rhos, log_rhos)
    assert_close(result.vs, torch.from_numpy(case.expected["vs"]))
    assert_close(result.pg_advantages, torch.from_numpy(case.expected["pg_advantages"]))


@pytest.mark.parametrize("T, B", [(1, 1), (6, 3)])
def test_an_action_of_two_parts_is_one_action_of_all_their_combinations(T, B):
    """pi(a, b|x) = pi(a|x) pi(b|x): log probabilities added up are those of 2 * 3 combinations as single actions."""
    inputs = without_log_rhos(random_inputs(T, B, seed=3))
    generator = torch.Generator().manual_seed(4)
    first, second = (torch.randn(2, T, B, A, generator=generator, dtype=torch.float64) for A in (2, 3))
    a, b = (torch.randint(A, (T, B), generator=generator) for A in (2, 3))
    joint = (first.unsqueeze(-1) + second.unsqueeze(-2)).flatten(-2)  # [2, T, B, 6]: the logits of (a, b) at 3 a + b
    behavior, target = (vtrace.action_log_probs(first[i], a) + vtrace.action_log_probs(second[i], b) for i in (0, 1))

    found = vtrace.from_action_log_probs(behavior, target, **inputs)
    expected = vtrace.from_logits(joint[0], joint[1], 3 * a + b, **inputs)

    for name in found._fields:
        assert_close(getattr(found, name), getattr(expected, name))


def log_density(a, mean, std):
    """Of a Gaussian, in Python's floats."""
    return math.log(math.exp(-(((a - mean) / std) ** 2) / 2) / (std * math.sqrt(2 * math.pi)))


def test_the_ratio_of_real_actions_is_that_of_the_product_of_their_densities():
    inputs = without_log_rhos(random_inputs(T=2, B=1))
    actions = [[0.3, -1.2], [-1.0, 2.0]]  # two numbers each; mu is N(0, 1) of both, pi N(0.5, 0.8) and N(-1, 2)
    behavior = [sum(log_density(a, 0.0, 1.0) for a in action) for action in actions]
    target = [log_density(a, 0.5, 0.8) + log_density(b, -1.0, 2.0) for a, b in actions]
    log_rhos = tensor64([[t - b] for t, b in zip(target, behavior)])

    found = vtrace.from_action_log_probs(tensor64(behavior)[:, None], tensor64(target)[:, None], **inputs)

    assert (log_rhos > 0).any() and (log_rhos < 0).any()
    vs, pg_advantages = equations_1_and_4({**inputs, "log_rhos": log_rhos})
    assert_close(found.vs, vs)
    assert_close(found.pg_advantages, pg_advantages)


def test_a_target_log_probability_of_minus_infinity_takes_the_step_out():
    inputs = without_log_rhos(random_inputs(T=3, B=2))
    behavior, target = torch.zeros(3, 2, dtype=torch.float64), torch.zeros(3, 2, dtype=torch.float64)
    target[1] = -INFINITY

    result = vtrace.from_action_log_probs(behavior, target, **inputs)

    assert_close(result.vs[1], inputs["values"][1])
    assert_close(result.pg_advantages[1], torch.zeros(2, dtype=torch.float64))


@pytest.mark.parametrize(
    "change, message",
    [
        ({"target_action_log_probs": torch.zeros(5, 1)}, r"target_action_log_probs: .*\[5, 3\].*\[5, 1\]"),
        ({"target_action_log_probs": torch.zeros(5, 3).long()}, "target_action_log_probs: expected a dtype of floats"),
        ({"behavior_action_log_probs": torch.zeros(5, 3, 2)}, r"behavior_action_log_probs: .*found \[5, 3, 2\]"),
        ({"rewards": torch.zeros(4, 3)}, r"rewards: expected shape \[5, 3\], found \[4, 3\]"),
        ({"bootstrap_value": torch.zeros(2)}, r"bootstrap_value: expected shape \[3\], found \[2\]"),
        ({"lambda_": 2}, "lambda_: expected a number from 0 to 1, found 2"),
    ],
)
def test_from_action_log_probs_refuses_by_name(change, message):
    inputs = without_log_rhos(random_inputs(T=5, B=3))
    inputs |= {name: torch.zeros(5, 3) for name in ("behavior_action_log_probs", "target_action_log_probs")}
    with pytest.raises(ValueError, match=message):
        vtrace.from_action_log_probs(**{**inputs, **change})


def test_further_axes_of_both_policies_do_not_broadcast_against_each_other():
    inputs = {name: value.unsqueeze(-1) for name, value in without_log_rhos(random_inputs(T=5, B=3)).items()}
    with pytest.raises(ValueError, match=r"target_action_log_probs: expected shape \[5, 3, 2\], found \[5, 3, 1\]"):
        vtrace.from_action_log_probs(torch.zeros(5, 3, 2), torch.zeros(5, 3, 1), **inputs)


def test_from_action_log_probs_carries_no_gradient():
    inputs = without_log_rhos(random_inputs(T=5, B=3))
    log_probs = torch.zeros(5, 3, requires_grad=True)

    assert not any(each.requires_grad for each in vtrace.from_action_log_probs(log_probs, log_probs - 1, **inputs))


@pytest.mark.parametrize("name", ["policy_logits", "actions"])
def test_action_log_probs_refuse_what_is_no_tensor(name):
    inputs = {"policy_logits": torch.zeros(5, 3, 4), "actions": torch.zeros(5, 3, dtype=torch.int64)}
    with pytest.raises(TypeError, match=f"{name}: expected a tensor, found a list"):
        vtrace.action_log_probs(**{**inputs, name: [0]})


def test_calls_written_for_torchbeast_work():
    inputs = {name: value.float() for name, value in random_inputs(T=6, B=4).items()}
    inputs["discounts"] = inputs["discounts"].double()  # as from NumPy: dtypes mix, thresholds are tensors
    thresholds = {"clip_rho_threshold": torch.tensor(3.7), "clip_pg_rho_threshold": torch.tensor(2.2)}
    result = vtrace.from_importance_weights(**inputs, **thresholds)
    in_float64 = {name: value.double() for name, value in inputs.items()}
    vs, pg_advantages = equations_1_and_4(in_float64, clip_rho_threshold=3.7, clip_pg_rho_threshold=2.2)
    torch.testing.assert_close(result._asdict()["vs"], vs, rtol=1e-5, atol=1e-5)  # log_rhos are float32
    torch.testing.assert_close(result._asdict()["pg_advantages"], pg_advantages, rtol=1e-5, atol=1e-5)

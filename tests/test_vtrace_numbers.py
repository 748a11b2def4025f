"""V-trace in float32 and below, and far outside exp's range."""

import numpy as np
import pytest
import torch

from monobeast import vtrace
from monobeast.vtrace_check import check_vtrace, compare
from monobeast.vtrace_vectors import load_cases

INFINITY = float("inf")


def tensors(case, dtype):
    return {name: torch.from_numpy(value).to(dtype) for name, value in case.inputs.items()}


def test_float32_is_within_1e_5_of_the_columns_largest_magnitude():
    check_vtrace(vtrace.from_importance_weights, dtype="float32", tolerance=1e-5)


def test_the_scale_is_that_of_a_column_and_cancellation_costs_more_of_a_small_value():
    case = next(case for case in load_cases() if case.name == "differences of large values")
    result = vtrace.from_importance_weights(**tensors(case, torch.float32), **case.params)
    errors = np.abs(result.pg_advantages.double().numpy() - case.expected["pg_advantages"])

    assert (errors / np.abs(case.expected["pg_advantages"])).max() > 1e-5
    report = compare(vtrace.from_importance_weights, dtype="float32", tolerance=1e-6)
    assert next(one for one in report.comparisons if one.case.name == case.name).advantages_error < 1e-6


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_less_than_float32_is_computed_in_float32(dtype):
    case = next(case for case in load_cases() if case.name == "typical")
    inputs = tensors(case, dtype)

    found = vtrace.from_importance_weights(**inputs, **case.params)
    expected = vtrace.from_importance_weights(**{name: value.float() for name, value in inputs.items()}, **case.params)

    for one, other in zip(found, expected, strict=True):
        assert one.dtype == torch.float32 and torch.equal(one, other)


@pytest.mark.parametrize("name", ["log_rhos", "discounts", "rewards", "values", "bootstrap_value"])
def test_one_input_of_less_than_float32_takes_no_digits_from_the_others(name):
    case = next(case for case in load_cases() if case.name == "typical")
    inputs = tensors(case, torch.float32)
    inputs[name] = inputs[name].bfloat16()

    found = vtrace.from_importance_weights(**inputs, **case.params)
    expected = vtrace.from_importance_weights(**{**inputs, name: inputs[name].float()}, **case.params)

    assert all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_log_probs_of_less_than_float32_are_computed_in_float32(dtype):
    generator = torch.Generator().manual_seed(0)
    behavior, target = (torch.randn(5, 2, 6, generator=generator).to(dtype) for _ in range(2))
    actions = torch.randint(6, (5, 2), generator=generator)
    states = torch.zeros(5, 2, dtype=dtype)

    found = vtrace.from_logits(behavior, target, actions, states + 0.5, states + 1, states, states[0])
    expected = target.float().log_softmax(-1).gather(-1, actions[..., None])[..., 0]

    assert torch.equal(found.target_action_log_probs, expected)
    assert all(tensor.dtype == torch.float32 for tensor in found)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("threshold", [0.0, 1.0, 3.7])
def test_extreme_log_ratios_give_finite_results(dtype, threshold):
    log_rhos = torch.tensor([[800.0, -800.0, -INFINITY], [-INFINITY, 800.0, -800.0], [0.0, -800.0, 800.0]])
    ones = torch.ones(3, 3, dtype=dtype)
    clips = dict.fromkeys(["clip_rho_threshold", "clip_pg_rho_threshold", "clip_c_threshold"], threshold)

    result = vtrace.from_importance_weights(log_rhos.to(dtype), 0.9 * ones, ones, 2 * ones, ones[0], **clips)

    assert all(tensor.isfinite().all() for tensor in result)
    weights = torch.tensor([[threshold, 0, 0], [0, threshold, 0], [min(threshold, 1.0), 0, threshold]])
    assert torch.equal(result.pg_advantages != 0, weights != 0)

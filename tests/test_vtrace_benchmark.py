"""The forms that the benchmark times agree to rounding; nothing is timed here."""

import functools
import shutil
import subprocess
import sys

import pytest
import torch

from monobeast import vtrace
from monobeast.benchmarks.vtrace import find_forms, make_form, make_inputs, scan_backward

# float64: the two orders of summation of up to 1280 terms of size 1.
assert_close = functools.partial(torch.testing.assert_close, rtol=1e-12, atol=1e-12)
needs_a_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler")


def in_float64(T, B):
    return {name: tensor.double() for name, tensor in make_inputs(T, B, "cpu").items()}


@pytest.mark.parametrize("T", [1, 2, 3, 4, 5, 7, 8, 9, 20, 31, 80, 1280])
def test_the_scan_agrees_with_the_loop(T):
    inputs = in_float64(T, B=3)

    found = make_form("scan")(**inputs)

    for one, other in zip(found, vtrace.from_clipped_weights(**inputs), strict=True):
        assert_close(one, other)


def test_the_inputs_hold_ends_and_steps_without_weight():
    inputs = make_inputs(80, 32, "cpu")

    assert (inputs["discounts"] == 0).any() and (inputs["cs"] == 0).any()
    assert (inputs["cs"] == 1).any() and ((inputs["cs"] > 0) & (inputs["cs"] < 1)).any()


def test_the_scan_takes_factors_that_broadcast():
    deltas, factors = torch.randn(5, 2, 3, dtype=torch.float64), torch.rand(5, 2, 1, dtype=torch.float64)

    assert_close(scan_backward(deltas, factors), vtrace.accumulate_backward(deltas.clone(), factors))


@pytest.mark.slow
@needs_a_compiler
@pytest.mark.parametrize(
    ("name", "T"),
    [("compiled loop", 1), ("compiled loop", 20), *(("compiled scan", T) for T in (1, 2, 3, 20, 31, 320))],
)
def test_a_compiled_form_agrees_with_the_loop(name, T):
    inputs = in_float64(T, B=8)

    for one, other in zip(make_form(name)(**inputs), make_form("loop")(**inputs), strict=True):
        assert_close(one, other)


def test_a_long_loop_is_not_compiled():
    assert find_forms(80) == ["loop", "scan", "compiled loop", "compiled scan"]
    assert find_forms(81) == ["loop", "scan", "compiled scan"]


@pytest.mark.slow
@needs_a_compiler
def test_the_benchmark_prints_a_row_for_each_shape_and_form():
    command = [sys.executable, "-m", "monobeast.benchmarks.vtrace", "--T", "5", "--B", "2", "3", "--seconds", "0.01"]

    out = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()

    assert [line.split()[:2] for line in out[2:]] == [["5", "2"]] * 4 + [["5", "3"]] * 4

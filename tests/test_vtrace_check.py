"""The checker accepts what is right, however it is written, and names what is wrong with the rest."""

import functools

import numpy as np
import pytest
import vtrace_implementations as implementations

import monobeast
from monobeast import vtrace
from monobeast.__main__ import run_command
from monobeast.vtrace_check import check_vtrace, compare
from monobeast.vtrace_faults import FAULTS, Outputs, make_terms, solve
from monobeast.vtrace_vectors import load_cases, load_kinds

CASES = load_cases()


def check_command(capfd, *arguments):
    """Runs the command in this process: its exit code, output and errors."""
    exit_code = run_command(["check-vtrace", *arguments])
    return (exit_code, *capfd.readouterr())


def counts(report):
    verdicts = [comparison.verdict for comparison in report.comparisons]
    return {verdict: verdicts.count(verdict) for verdict in set(verdicts)}


@pytest.mark.parametrize("function", [vtrace.from_importance_weights, implementations.right])
def test_a_function_with_every_argument_agrees_on_every_case(function):
    assert counts(monobeast.check_vtrace(function)) == {"agrees": len(CASES)}


@pytest.mark.parametrize(
    "function", [vtrace.from_logits, implementations.of_logits, implementations.of_log_probs, implementations.in_torch]
)
def test_log_probs_logits_and_tensors_are_made_for_who_asks_for_them(function):
    assert counts(check_vtrace(function))["agrees"] > 20


def test_a_function_is_called_by_position_where_its_order_is_given():
    with pytest.raises(ValueError, match=r"does not tell its arguments: name them in their order \(--order\)"):
        check_vtrace(implementations.anything)
    order = "log_rhos discounts r_t values bootstrap rho_bar pg_rho_bar c_bar lambda_".split()
    assert counts(check_vtrace(implementations.anything, order=order)) == {"agrees": len(CASES)}


def test_errors_serve_for_targets_and_v_t_for_the_bootstrap_value():
    report = check_vtrace(implementations.errors_of_transitions)
    left_out = {one.case.name for one in report.comparisons if one.verdict == "left out"}

    assert left_out == {case.name for case in CASES if case.params["clip_c_threshold"] != 1.0}


def test_a_function_that_lacks_an_argument_is_checked_where_it_is_not_needed():
    report = check_vtrace(implementations.in_float32)
    left_out = [one for one in report.comparisons if one.verdict == "left out"]

    expected = [case.name for case in CASES if set(case.params.values()) != {1.0}]
    assert [one.case.name for one in left_out] == expected
    assert left_out[0].remark == "takes no clip_rho_threshold, clip_pg_rho_threshold"


def test_float32_has_a_tolerance_of_its_own():
    assert check_vtrace(implementations.right, dtype="float32").agrees
    report = compare(implementations.in_float32, tolerance=1e-9)
    assert "DIFFERS (by rounding, as of float32)" in str(report) and not report.faults


def test_errors_in_float32_have_the_tolerance_of_float32_although_v_does_not():
    @functools.wraps(implementations.errors_of_transitions)
    def rounded(**named):
        outputs = implementations.errors_of_transitions(**named)
        return outputs | {"errors": outputs["errors"].astype(np.float32)}

    assert check_vtrace(rounded).agrees


def test_kinds_are_left_out_as_asked():
    report = check_vtrace(implementations.right, skip=["long", "square"])

    assert {one.case.kind for one in report.comparisons if one.verdict == "left out"} == {"long", "square"}
    with pytest.raises(ValueError, match="no kind short; there are one step, "):
        check_vtrace(implementations.right, skip=["short"])
    assert not compare(implementations.right, skip=load_kinds()).agrees  # nothing was checked


@pytest.mark.filterwarnings("ignore:invalid value")  # c of exp(800), times 0
@pytest.mark.parametrize(("mistake", "name"), implementations.MISTAKES.items())
def test_a_mistake_is_caught_and_named(mistake, name):
    report = compare(functools.partial(implementations.wrong, mistake=mistake), skip=["long"])  # for the time it takes

    assert not report.agrees and report.faults
    assert all(text.startswith(f"these are the numbers of: {name} (") for text in report.faults.values())


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_terms_that_faults_change_are_right_before(case):
    for found, expected in zip(solve(make_terms(case)), Outputs(**case.expected), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


def test_every_fault_can_be_told_from_every_other():
    numbers = [np.concatenate([np.ravel(array) for case in CASES for array in f.compute(case)]) for f in FAULTS]
    right = np.concatenate([np.ravel(array) for case in CASES for array in case.expected.values()])

    for i, one in enumerate(numbers):
        for other in (right, *numbers[:i]):
            assert not np.allclose(one, other, rtol=1e-3, atol=1e-3, equal_nan=True)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (implementations.three_outputs, "FAILED (expected two outputs, vs and pg_advantages, in this order or by name"),
        (implementations.transposed, "FAILED (vs: expected shape [20, 4], found [4, 20])"),
        (implementations.not_a_number, "DIFFERS (vs is nan at [0, 0])"),
        (implementations.raising, "FAILED (raised KeyError: 'no such thing')"),
        (implementations.raising, '    raise KeyError("no such thing")\n'),
    ],
)
def test_a_function_that_goes_wrong_is_told_how(function, message):
    with pytest.raises(AssertionError) as raised:
        check_vtrace(function)
    assert message in str(raised.value)


def test_of_two_mistakes_each_is_named_where_it_shows():
    def function(lambda_, clip_rho_threshold, **given):
        mistake = "one clip for both" if lambda_ == 1.0 else "no lambda"
        return implementations.wrong(**given, lambda_=lambda_, clip_rho_threshold=clip_rho_threshold, mistake=mistake)

    function = functools.wraps(implementations.right)(function)
    faults = compare(function, skip=["long"]).faults

    assert "one clip for both rhos" in faults["rho-bar"] and "lambda" not in faults["rho-bar"]
    assert "lambda left out" in faults["lambda"] and "one clip" not in faults["lambda"]


def test_what_no_mistake_explains_has_the_usual_one():
    def noisy(log_rhos, discounts, rewards, values, bootstrap_value):
        return [array + 0.01 for array in implementations.right(log_rhos, discounts, rewards, values, bootstrap_value)]

    assert compare(noisy).faults["square"] == "usually time and batch swapped"


def test_the_command_prints_a_table_and_exits_by_the_verdict(capfd):
    exit_code, out, _ = check_command(capfd, "vtrace_implementations:right")
    assert exit_code == 0
    assert out.startswith("case ") and "\ntypical                               off policy " in out
    assert f"\n{len(CASES)} cases: {len(CASES)} agrees\n" in out

    swapped = "log_rhos,rewards,discounts,values,bootstrap_value"
    exit_code, out, _ = check_command(capfd, "vtrace_implementations:right", "--order", swapped)
    assert exit_code == 1 and "DIFFERS" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["vtrace_implementations"], "must be MODULE:FUNCTION, such as my_package.vtrace:from_importance_weights"),
        (["no_such.module:f"], "module no_such.module can't be imported (ModuleNotFoundError: "),
        (["vtrace_implementations:rihgt"], "vtrace_implementations has no rihgt; did you mean right?"),
        (["vtrace_implementations:not_a_function"], "is no function, but of type int"),
        (["vtrace_implementations:of_gamma"], "argument gamma: no case has it; known are log_rhos, rhos, "),
        (["vtrace_implementations:without_values"], "takes none of values; it takes log_rhos, discounts, rewards"),
        (["vtrace_implementations:right", "--order", "log_rhos,gamma"], "argument gamma: no case has it"),
        (["vtrace_implementations:right", "--skip", "short"], "no kind short; there are one step, "),
    ],
)
def test_what_cannot_be_checked_is_refused(capfd, arguments, message):
    exit_code, out, err = check_command(capfd, *arguments)

    assert exit_code == 2 and out == ""
    assert err.startswith("monobeast check-vtrace: error: ") and message in err and err.count("\n") == 1

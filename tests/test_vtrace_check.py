"""The checker accepts what is right, however it is written, and names what is wrong with the rest."""

import functools
import importlib
import signal
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
import vtrace_implementations as implementations

import monobeast
from monobeast import vtrace
from monobeast.__main__ import run_command
from monobeast.vtrace_check import check_vtrace, compare
from monobeast.vtrace_check.arguments import ARGUMENTS
from monobeast.vtrace_check.comparison import compare_outputs
from monobeast.vtrace_check.diagnosis import explain
from monobeast.vtrace_check.mistakes import MISTAKES
from monobeast.vtrace_check.outputs import Found
from monobeast.vtrace_check.terms import Outputs, make_terms, solve
from monobeast.vtrace_vectors import load_cases, load_kinds

CASES = load_cases()
PACKAGE = Path(monobeast.__file__).parent
checking = importlib.import_module("monobeast.vtrace_check.check")


def check_command(capfd, *arguments):
    """Runs the command in this process: its exit code, output and errors."""
    exit_code = run_command(["check-vtrace", *arguments])
    return (exit_code, *capfd.readouterr())


def counts(report):
    verdicts = [comparison.verdict for comparison in report.comparisons]
    return {verdict: verdicts.count(verdict) for verdict in set(verdicts)}


def left_out(report):
    return {one.case.name: one.remark for one in report.comparisons if one.verdict == "left out"}


def remarks(report):
    return {one.remark for one in report.comparisons if one.verdict not in ("agrees", "left out")}


@pytest.mark.parametrize(
    "function", [vtrace.from_importance_weights, vtrace.from_action_log_probs, implementations.right]
)
def test_a_function_with_every_argument_agrees_on_every_case(function):
    assert counts(monobeast.check_vtrace(function)) == {"agrees": len(CASES)}


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(
    "function",
    [
        vtrace.from_logits,
        implementations.of_logits,
        implementations.of_log_probs,
        implementations.in_torch,
        implementations.torchrl_names,
    ],
)
def test_log_probs_logits_and_tensors_are_made_for_who_asks_for_them(function, dtype):
    assert counts(check_vtrace(function, dtype=dtype))["agrees"] > 20


@pytest.mark.parametrize("separator", [",", " ", ", "])
def test_a_function_is_called_by_position_where_its_order_is_given(separator):
    with pytest.raises(ValueError, match=r"does not tell its arguments: name them in their order \(--order\)"):
        check_vtrace(implementations.anything)
    order = "log_rhos discounts r_t values bootstrap rho_bar pg_rho_bar c_bar lambda_".split()
    assert counts(check_vtrace(implementations.anything, order=separator.join(order))) == {"agrees": len(CASES)}


def test_a_function_is_called_by_position_as_far_as_its_signature_goes():
    report = check_vtrace(implementations.with_steps(implementations.torchrl_names), skip=iter(["long"]))

    assert counts(report)["agrees"] > 20


def test_an_optional_argument_that_nobody_knows_does_not_move_the_others():
    report = check_vtrace(implementations.optional_first)

    assert "Left at their defaults: debug, lambda_, baseline." in report.notes
    assert "takes no lambda_" in left_out(report).values()


def test_errors_serve_for_targets_and_v_t_for_the_bootstrap_value():
    report = check_vtrace(implementations.errors_of_transitions)

    assert {*left_out(report)} == {case.name for case in CASES if case.params["clip_c_threshold"] != 1.0}
    assert "Left at their defaults: debug." in report.notes


def test_a_function_that_lacks_an_argument_is_checked_where_it_is_not_needed():
    found = left_out(check_vtrace(implementations.in_torch))

    assert [*found] == [case.name for case in CASES if set(case.params.values()) != {1.0}]
    assert found["no clipping of rho"] == "takes no clip_rho_threshold, clip_pg_rho_threshold"


def test_a_function_of_two_axes_is_right_without_the_others():
    found = left_out(check_vtrace(implementations.two_axes))

    assert found["an axis after B"].startswith("takes [T, B] alone: raised ValueError: too many values to unpack")


def test_nothing_is_said_of_tensors_where_every_case_is_left_out():
    report = compare(implementations.right, skip=load_kinds())

    assert not report.agrees and not report.raises_everywhere and not any("torch" in note for note in report.notes)


def test_a_function_that_is_wrong_beyond_two_axes_alone_is_told_how_to_leave_them_out():
    def function(log_rhos, discounts, rewards, values, bootstrap_value):
        outputs = implementations.right(log_rhos, discounts, rewards, values, bootstrap_value)
        return [array[..., ::-1] if array.ndim > 2 else array for array in outputs]

    assert 'If it is of [T, B] alone: --skip "further axes".' in compare(function).notes


@pytest.mark.parametrize(
    ("function", "note"),
    [
        (implementations.in_torch, "It was called with torch tensors of float64: log_rhos, discounts, "),
        (implementations.torchrl_names, "It was called with NumPy arrays of float64: target_action_log_probs, "),
        (implementations.raising(OSError()), "With torch tensors, too, it raises in every case."),
    ],
)
def test_torch_gets_its_tensors_where_arrays_raise_in_every_case(function, note):
    assert any(found.startswith(note) for found in compare(function).notes)


@pytest.mark.parametrize(
    ("dtype", "advice"),
    [("float32 then float64", "--tolerance 1e-5."), ("float16", "--tolerance 1e-2.")],
)
def test_a_small_error_is_told_as_what_it_is_and_what_to_do_is_said_once(dtype, advice):
    function = functools.partial(implementations.in_precision, dtype)
    report = compare(function, skip=["extreme ratios", "magnitudes", "long"])

    assert remarks(report) == {f"within {dtype.split()[0]}'s tolerance"} and not report.diagnoses
    assert str(report).count(advice) == 1


def test_a_report_sums_up_what_was_not_checked():
    def unclipped(log_rhos, discounts, rewards, values, bootstrap_value, lambda_):
        return vtrace.from_importance_weights(log_rhos, discounts, rewards, values, bootstrap_value, lambda_=lambda_)

    partial = compare(unclipped, arrays="torch", skip=["long", "square"])
    whole = compare(implementations.right)

    assert partial.agrees and str(partial).splitlines()[-1] == (
        "Not checked: rho-bar, c-bar, long, square, all at once; in part lambda, extreme ratios; "
        "it takes no clip_rho_threshold, clip_pg_rho_threshold, clip_c_threshold."
    )
    assert "Not checked" not in str(whole)


def test_outputs_in_float32_have_a_tolerance_of_their_own():
    assert check_vtrace(implementations.right, dtype="float32").agrees
    assert check_vtrace(implementations.in_float32).agrees
    assert remarks(compare(implementations.in_float32, tolerance=1e-9)) == {"within float32's tolerance"}


def test_outputs_of_inputs_in_float32_have_that_tolerance_although_they_are_float64():
    @functools.wraps(implementations.right)
    def widened(*arguments):
        return [array.astype(np.float64) for array in implementations.right(*arguments)]

    assert check_vtrace(widened, dtype="float32").agrees
    assert remarks(compare(implementations.right, dtype="float32", tolerance=1e-9)) == {"within float32's tolerance"}


def test_errors_in_float32_have_the_tolerance_of_float32_although_v_does_not():
    @functools.wraps(implementations.errors_of_transitions)
    def rounded(**named):
        outputs = implementations.errors_of_transitions(**named)
        return outputs | {"errors": outputs["errors"].astype(np.float32)}

    assert check_vtrace(rounded).agrees


@pytest.mark.parametrize(
    ("convert", "agrees"),
    [
        (np.longdouble, True),
        (lambda array: torch.from_numpy(array).float(), True),
        (lambda array: torch.from_numpy(array).bfloat16(), False),
        (lambda array: [torch.from_numpy(row).requires_grad_() for row in array], True),
    ],
    ids=["longdouble", "float32 tensor", "bfloat16 tensor", "list of rows"],
)
def test_outputs_of_any_kind_of_array_are_read(convert, agrees):
    def function(log_rhos, discounts, rewards, values, bootstrap_value):
        return [convert(x) for x in implementations.right(log_rhos, discounts, rewards, values, bootstrap_value)]

    report = compare(function)
    assert report.agrees == agrees and "FAILED" not in counts(report)


def test_no_error_of_longdouble_is_taken_for_one_of_float32():
    def function(log_rhos, discounts, rewards, values, bootstrap_value):
        right = implementations.right(log_rhos, discounts, rewards, values, bootstrap_value)
        return [np.longdouble(x) * (1 + 1e-7) for x in right]

    assert not compare(function).agrees


def test_kinds_are_left_out_as_asked():
    for skip in (["long", "square"], iter(["long", "square"])):
        report = check_vtrace(implementations.right, skip=skip)
        assert {one.case.kind for one in report.comparisons if one.verdict == "left out"} == {"long", "square"}
    assert check_vtrace(implementations.right, skip="long").agrees
    assert not compare(implementations.right, skip=load_kinds()).agrees  # nothing was checked


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", implementations.MISTAKES)
def test_a_mistake_is_caught_and_named(name, dtype):
    mistake, title = implementations.MISTAKES[name]
    report = compare(functools.partial(implementations.wrong, mistake=mistake), dtype=dtype, skip=["long"])

    assert not report.agrees and report.diagnoses
    assert all(f"these are the numbers of: {title} (" in text for text in report.diagnoses.values()), report.diagnoses


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(
    ("function", "title"),
    [
        (implementations.terminating_where_done, "truncation taken for a termination (discount 0 where"),
        (implementations.crossing_resets, "next episode's value leaking past a cut (a reset step counts"),
    ],
)
def test_a_mistake_of_who_is_told_where_episodes_end_is_caught_and_named(function, title, dtype):
    diagnoses = compare(function, dtype=dtype).diagnoses

    assert diagnoses and all(f"these are the numbers of: {title}" in text for text in diagnoses.values()), diagnoses


@pytest.mark.parametrize("name", implementations.READINGS)
def test_a_policy_that_is_read_wrongly_is_caught_and_named(name):
    read, title = implementations.READINGS[name]
    report = compare(functools.partial(implementations.of_logits, read=read), skip=["long"])

    expected = f"these are the numbers of: {title} (" if title else "no known mistake gives these numbers"
    assert report.diagnoses and all(expected in text for text in report.diagnoses.values()), report.diagnoses


def test_time_and_batch_swapped_throughout_is_named_where_it_does_not_raise():
    diagnoses = compare(implementations.along_axis_1, skip=["further axes"]).diagnoses

    assert "numbers of: time and batch swapped (" in diagnoses["square"]


@pytest.mark.parametrize("largest", [29, 79])
def test_a_log_ratio_is_not_clamped_at_anything_that_fits_into_float32(largest):
    assert [*compare(functools.partial(implementations.clamped, largest=largest)).diagnoses] == ["extreme ratios"]


@pytest.mark.parametrize("function", [implementations.clamped, implementations.zeros_where_large])
def test_outputs_far_too_small_are_not_taken_for_those_of_a_mistake(function):
    diagnoses = compare(function).diagnoses

    assert [*diagnoses] == ["extreme ratios"]
    assert diagnoses["extreme ratios"].endswith("; what its cases have: log ratios of -inf, and far beyond exp's range")


def test_zeros_are_not_what_a_mistake_gives_of_a_case_whose_right_numbers_are_large():
    case = next(case for case in CASES if case.name == "e^80, not clipped")
    zeros = np.zeros_like(case.expected["vs"])

    diagnoses = explain([compare_outputs(case, Found(Outputs(zeros, zeros), "float64"))], ())
    assert "the numbers of:" not in diagnoses["extreme ratios"]


def test_a_mistake_that_would_show_in_what_agrees_is_not_named():
    def mistake(now, parts):
        if parts.c_bar != 0.4:  # which would be clipped at rho-bar, 0.7
            implementations.MISTAKES["clipped_rho_for_c"][0](now, parts)

    diagnoses = compare(functools.partial(implementations.wrong, mistake=mistake), skip=["long"]).diagnoses
    assert "c-bar" in diagnoses and not any("c is clipped at rho-bar" in text for text in diagnoses.values()), diagnoses


def test_errors_are_relative_to_their_own_column():
    report = compare(implementations.slightly_wrong, skip={*load_kinds()} - {"magnitudes"})

    assert {one.case.name for one in report.comparisons if one.verdict == "DIFFERS"} >= {"columns of unlike size"}


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("arrays", ["numpy", "torch"])
def test_a_function_that_changes_its_arguments_has_failed(arrays, dtype):
    report = compare(implementations.changing, arrays=arrays, dtype=dtype)

    changed = {remark for remark in remarks(report) if "in place" in remark}
    assert "changes discounts, rewards in place, which the caller may still need" in changed
    assert not report.agrees and "agrees" not in counts(report)
    assert check_vtrace(implementations.right).agrees  # later calls have what they should


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_terms_that_mistakes_change_are_right_before(case):
    for found, expected in zip(solve(make_terms(case)), Outputs(**case.expected), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


def test_every_mistake_can_be_told_from_every_other():
    cases = [case for case in CASES if case.kind not in ("long", "further axes")]
    numbers = [np.concatenate([np.ravel(array) for case in cases for array in f.compute(case)]) for f in MISTAKES]
    right = np.concatenate([np.ravel(array) for case in cases for array in case.expected.values()])

    for i, one in enumerate(numbers):
        for other in (right, *numbers[:i]):
            assert not np.allclose(one, other, rtol=1e-3, atol=1e-3, equal_nan=True)


@pytest.mark.parametrize(
    ("result", "remark"),
    [
        (lambda V: (V, V, V), "expected two outputs, vs and pg_advantages, in this order or by name; found 3 outputs"),
        (lambda V: {"v": V, "a": V}, "found a dict of v, a; known are vs (or v_s, targets, "),
        (None, "found a NoneType"),
        (lambda V: (V.swapaxes(0, 1), V), "vs: expected shape [20, 4], found [4, 20]"),
        (lambda V: (V * np.nan, V), "vs is nan at [0, 0]"),
        (lambda V: (V + 1j, V), "vs: expected real numbers, found complex128"),
        (lambda V: (V, V.astype(str)), "pg_advantages: expected real numbers, found <U32"),
        (lambda V: (np.ma.masked_invalid(V), V), "vs: expected real numbers, found a masked array"),
        (lambda V: ([*V[1:], [0.0] * 9], V), "vs: can't be read as an array (ValueError: "),
        (lambda V: (V > 0, V), "vs: expected real numbers, found bool"),
    ],
)
def test_outputs_that_cannot_be_compared_are_told(result, remark):
    assert any(remark in found for found in remarks(compare(implementations.giving(result))))


@pytest.mark.parametrize(
    ("error", "remark"),
    [
        (KeyError("no such thing"), "raised KeyError: 'no such thing'"),
        (SystemExit(0), "raised SystemExit: 0"),
        (GeneratorExit(), "raised GeneratorExit"),
        (ValueError("one\ntwo"), "raised ValueError: one ..."),
        (ValueError("a\x1b[31mb\tc"), r"raised ValueError: a\x1b[31mb c"),
    ],
)
def test_a_function_that_raises_has_failed_and_is_told_how(error, remark):
    with pytest.raises(AssertionError) as raised:
        check_vtrace(implementations.raising(error))
    table, _, rest = str(raised.value).partition("\n\n")

    assert table.count(f"FAILED ({remark})") == 1 and table.count("FAILED (the same)") > 20
    assert "    raise error\n" in rest


def test_an_interrupt_ends_the_check_only_where_it_can_come_from_the_keyboard():
    function = implementations.raising(KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        compare(function)
    before = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        assert remarks(compare(function)) == {"raised KeyboardInterrupt"}
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_function_that_hangs_in_c_is_ended_by_a_signal(number, tmp_path):
    head = "def f(log_rhos, discounts, rewards, values, bootstrap_value):"
    (tmp_path / "hanging.py").write_text(f"{head}\n    print('hangs', flush=True)\n    sum(range(10**15))\n")
    command = [sys.executable, "-m", "monobeast", "check-vtrace", "hanging:f"]
    environment = {"PYTHONPATH": f"{tmp_path}:{PACKAGE.parent}"}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout.readline() == "hangs\n"
            process.send_signal(number)
            assert process.wait(timeout=60) == -number
        finally:
            process.kill()


def test_signals_are_handled_as_before_once_the_command_is_done(capfd):
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    check_command(capfd, "vtrace_implementations:exiting")

    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


def test_a_function_that_hangs_is_told_where(monkeypatch, capfd):
    monkeypatch.setattr(checking, "PATIENCE_S", 0.01)
    compare(implementations.hanging, skip={*load_kinds()} - {"square"})

    assert capfd.readouterr().err == "still in case 'as many steps as trajectories' after 0.01 s\n"


def test_nothing_is_said_of_a_ratio_that_overflows_before_its_clip():
    def function(log_rhos, discounts, rewards, values, bootstrap_value):
        np.exp(log_rhos)
        return implementations.right(log_rhos, discounts, rewards, values, bootstrap_value)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert check_vtrace(function).agrees


def test_of_two_mistakes_each_is_named_where_it_shows():
    def mistake(now, parts):
        name = "one_clip_for_both" if parts.lambda_ == 1.0 else "no_lambda"
        implementations.MISTAKES[name][0](now, parts)

    diagnoses = compare(functools.partial(implementations.wrong, mistake=mistake), skip=["long"]).diagnoses

    in_these = "in these kinds alone, the numbers of:"
    assert diagnoses["rho-bar"].startswith(f"vs agree, the advantages differ: {in_these} one ")
    assert f"{in_these} lambda left out" in diagnoses["lambda"]


def exaggerate(known):
    """What is found of a function whose every error is larger than the mistake's, which no known mistake gives."""
    comparisons = []
    for case in [case for case in CASES if case.kind != "long"]:
        with np.errstate(invalid="ignore"):
            pairs = zip(known.compute(case), case.expected.values(), strict=True)
            outputs = Outputs(*(right + 1.37 * (wrong - right) for wrong, right in pairs))
        comparisons.append(compare_outputs(case, Found(outputs, "float64")))
    return comparisons


@pytest.mark.parametrize("known", [*{known.name: known for known in MISTAKES}.values()], ids=lambda known: known.name)
def test_of_numbers_that_nothing_gives_it_is_told_which_mistakes_show_there_and_in_nothing_that_agrees(known):
    comparisons = exaggerate(known)
    diagnoses = explain(comparisons, ["target_policy_logits"])

    assert diagnoses
    assert all("no known mistake gives these numbers; what shows here," in text for text in diagnoses.values())
    assert all(known.name in text.partition("agrees: ")[2].split(", ") for text in diagnoses.values()), diagnoses


def test_of_vs_that_are_wrong_in_some_kinds_alone_the_mistakes_are_told_that_show_in_vs_there():
    def function(log_rhos, discounts, rewards, values, bootstrap_value, lambda_=1.0):
        vs, advantages = implementations.right(log_rhos, discounts, rewards, values, bootstrap_value, lambda_=lambda_)
        return vs + (lambda_ != 1.0), 2.0 * advantages + 1.0

    diagnoses = compare(function).diagnoses
    told = {kind: text.partition("agrees: ")[2].split(", ") for kind, text in diagnoses.items()}
    assert "lambda left out" in told["lambda"] and "lambda left out" not in told["off policy"]
    assert "pi and mu swapped" in told["off policy"] and "pi and mu swapped" not in told["lambda"]


def test_of_a_kind_that_none_shows_in_alone_it_is_told_what_its_cases_have():
    def function(log_rhos, discounts, rewards, values, bootstrap_value):
        if len(rewards) == 1:
            raise RuntimeError("too short")
        return implementations.right(log_rhos, discounts, rewards, values, bootstrap_value)

    diagnoses = compare(function).diagnoses
    assert [*diagnoses] == ["one step"] and "raised RuntimeError: too short" in str(compare(function))
    assert diagnoses["one step"].startswith("no numbers to compare: no single known mistake shows here, ")
    assert diagnoses["one step"].endswith("what its cases have: T = 1, an end or a reset step among them")


def test_of_a_function_that_always_raises_no_mistake_is_told():
    assert {*compare(implementations.raising(OSError())).diagnoses.values()} == {"no numbers in any case"}


def test_a_sum_in_float16_is_told_from_its_errors():
    function = functools.partial(implementations.in_precision, "float16 then float64")

    diagnoses = compare(function, skip=["magnitudes", "long", "extreme ratios"]).diagnoses
    assert diagnoses and all(text.endswith(", as of a sum in float16") for text in diagnoses.values()), diagnoses


@pytest.mark.parametrize(
    ("by", "what", "mistake", "other"),
    [
        ((1.0, 0.0), "vs differ, the advantages agree", "vs - V returned for vs", "pi and mu swapped"),
        ((0.0, 1.0), "vs agree, the advantages differ", "pi and mu swapped", "vs - V returned for vs"),
        ((1.0, 1.0), "vs and advantages differ", "outputs swapped", "pi and mu swapped"),
    ],
)
def test_the_mistakes_are_told_that_show_in_what_is_wrong_and_in_the_most_of_it(by, what, mistake, other):
    def function(log_rhos, discounts, rewards, values, bootstrap_value):
        outputs = implementations.right(log_rhos, discounts, rewards, values, bootstrap_value)
        return [array * (1.0 + size) + size for array, size in zip(outputs, by)]

    text = compare(function).diagnoses["off policy"]
    assert text.startswith(f"{what}: no known mistake gives these numbers; ") and mistake in text and other not in text


def test_the_command_prints_a_table_and_exits_by_the_verdict(capfd):
    exit_code, out, err = check_command(capfd, "vtrace_implementations:right")
    assert exit_code == 0 and err == ""
    assert out.startswith("case ") and "\ntypical                               off policy " in out
    assert f"\n{len(CASES)} cases: {len(CASES)} agree\n" in out

    swapped = "log_rhos,rewards,discounts,values,bootstrap_value"
    exit_code, out, _ = check_command(capfd, "vtrace_implementations:right", "--order", swapped)
    assert exit_code == 1 and "DIFFERS" in out


def test_a_function_that_exits_with_0_has_failed_nevertheless(capfd):
    exit_code, out, _ = check_command(capfd, "vtrace_implementations:exiting")

    assert exit_code == 1 and "FAILED (raised SystemExit: 0)" in out


@pytest.mark.parametrize("text", ["raise SystemExit(0)", "from argparse import *; ArgumentParser().parse_args(['-x'])"])
def test_a_module_that_exits_can_not_be_imported(text, tmp_path, monkeypatch, capfd):
    (tmp_path / "exiting_module.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    exit_code, _, err = check_command(capfd, "exiting_module:f")

    assert exit_code == 2 and "importing module 'exiting_module' failed with SystemExit: " in err


def test_a_report_survives_an_output_that_knows_ascii_alone(tmp_path):
    head = "def f(log_rhos, discounts, rewards, values, bootstrap_value):"
    text = f"{head}\n    raise ValueError('π is missing\\nand more')\n"
    (tmp_path / "without_ascii.py").write_text(text, encoding="utf-8")
    command = [sys.executable, "-m", "monobeast", "check-vtrace", "without_ascii:f", "--arrays", "numpy"]
    environment = {"PYTHONIOENCODING": "ascii", "PYTHONPATH": f"{tmp_path}:{PACKAGE.parent}"}
    result = subprocess.run(command, env=environment, capture_output=True, text=True)

    assert result.returncode == 1 and result.stderr == ""
    assert r"FAILED (raised ValueError: \u03c0 is missing ...)" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["vtrace_implementations"], "must be MODULE:FUNCTION, such as my_package.vtrace:from_importance_weights"),
        (["no_such.module:f"], "importing module 'no_such.module' failed with ModuleNotFoundError: "),
        (["./package/no_such.py:f"], "; did you mean package.no_such:f?"),
        (["no_such.py:f"], "; did you mean no_such:f?"),
        (["no-package/file.py:f"], "; did you mean file:f, with no-package in PYTHONPATH?"),
        (["/no/such/file.py:f"], "; did you mean file:f, with /no/such in PYTHONPATH?"),
        (["vtrace_implementations:rihgt"], "has no 'rihgt'; did you mean vtrace_implementations:right?"),
        (["vtrace_implementations:not_a_function"], "is no function, but of type int"),
        (["vtrace_implementations:of_gamma"], "argument gamma: no case has it; known are log_rhos, rhos, "),
        (["vtrace_implementations:without_values"], "takes none of values; it takes log_rhos, discounts, rewards. "),
        (["vtrace_implementations:without_values"], "or wrap the function (docs/vtrace.md)"),
        (["vtrace_implementations:without_mu"], "target_action_log_probs with behavior_action_log_probs"),
        (["vtrace_implementations:values_twice"], "argument baseline: is another name of values, which the function"),
        (["vtrace_implementations:right", "--order", "log_rhos,gamma"], "argument gamma: no case has it"),
        (["vtrace_implementations:right", "--order", ""], "order: names no argument; must be like log_rhos,"),
        (["vtrace_implementations:right", "--order", " , "], "order: names no argument"),
        (["vtrace_implementations:right", "--order", "log_rhos,log_rho"], "order: log_rhos named more than once"),
        (["vtrace_implementations:right", "--skip", "short"], "skip short: must be of one step, "),
        (["vtrace_implementations:right", "--tolerance", "inf"], "tolerance inf: must be a number from 0 to 0.1"),
        (["vtrace_implementations:right", "--tolerance", "nan"], "tolerance nan: must be"),
        (["vtrace_implementations:right", "--tolerance=-1"], "tolerance -1.0: must be"),
    ],
)
def test_what_cannot_be_checked_is_refused(capfd, arguments, message):
    exit_code, out, err = check_command(capfd, *arguments)

    assert exit_code == 2 and out == ""
    assert err.startswith("monobeast check-vtrace: error: ") and message in err and err.count("\n") == 1


@pytest.mark.parametrize(
    ("option", "value", "expected"),
    [
        ("order", 5, "expected names, found 5"),
        ("order", [1, 2], r"expected names, found \[1, 2\]"),
        ("skip", None, "expected names, found None"),
        ("skip", [1], r"expected names, found \[1\]"),
        ("tolerance", "a", "expected a number or None, found 'a'"),
    ],
)
def test_an_option_of_another_type_is_refused_by_its_name(option, value, expected):
    with pytest.raises(TypeError, match=f"{option}: {expected}"):
        check_vtrace(implementations.right, **{option: value})


@pytest.mark.parametrize("function", [None, 3, "module:function"])
def test_what_is_no_function_is_refused(function):
    with pytest.raises(TypeError, match="function: expected one, found .*; MODULE:FUNCTION is for the command line"):
        check_vtrace(function)


def test_every_name_is_of_one_argument():
    names = [other for name, (_, others) in ARGUMENTS.items() for other in (name, *others.split())]

    assert len(names) == len({*names})

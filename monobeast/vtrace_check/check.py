"""Runs a V-trace function on the vectors."""

import importlib.util
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, SupportsFloat

from monobeast.errors import describe
from monobeast.vtrace_check.adapter import ARRAYS, DTYPES, Adapter
from monobeast.vtrace_check.comparison import DIFFERS, FAILED, LEFT_OUT, Comparison, compare_outputs
from monobeast.vtrace_check.diagnosis import explain
from monobeast.vtrace_check.messages import write_power
from monobeast.vtrace_check.outputs import OutputError
from monobeast.vtrace_check.report import Report
from monobeast.vtrace_check.signature import Call, read_names, read_order, read_signature
from monobeast.vtrace_vectors import Case, load_cases, load_kinds

LARGEST_TOLERANCE = 0.1
PATIENCE_S = 5.0  # after which a case is told that does not end
_FURTHER_AXES = "further axes"  # kind of the cases that have more than [T, B]


def check_vtrace(
    function: Callable[..., Any],
    *,
    order: str | Iterable[str] | None = None,
    arrays: str | None = None,
    dtype: str = "float64",
    tolerance: float | None = None,
    skip: str | Iterable[str] = (),
) -> Report:
    """Compares a V-trace function with exact numbers, for use in a test.

    Arguments are matched by name: ratios, log ratios, log probabilities or logits; docs/vtrace.md lists the names.

    Args:
        function: Returns vs and advantages, [T, B] like its inputs, as a tuple or an object with these names.
        order: names of its arguments in order, to call it by position; None: it is called by its signature.
        arrays: "numpy" or "torch"; None: NumPy's, or torch's if it raises in every case with NumPy's.
        dtype: "float64" or "float32", of the inputs.
        tolerance: largest error that agrees, relative to the largest magnitude in a trajectory; None: 1e-9, or 1e-5 if
            inputs or outputs have float32 or less.
        skip: kinds of cases to leave out, or one of them.

    Returns:
        The report.

    Raises:
        AssertionError: a case differs, or none was checked; the message is the report.
        TypeError: `function` is not callable, or an option has a wrong type.
        ValueError: the function cannot be called with V-trace's arguments, or an option has a wrong value.
    """
    report = compare(function, order=order, arrays=arrays, dtype=dtype, tolerance=tolerance, skip=skip)
    if not report.agrees:
        raise AssertionError(f"V-trace differs from equation (1)\n{report}")
    return report


def compare(
    function: Callable[..., Any],
    *,
    order: str | Iterable[str] | None = None,
    arrays: str | None = None,
    dtype: str = "float64",
    tolerance: float | None = None,
    skip: str | Iterable[str] = (),
) -> Report:
    """Like `check_vtrace`, but returns the report even if cases differ."""
    if not callable(function):
        raise TypeError(f"function: expected one, found {function!r}; MODULE:FUNCTION is for the command line")
    skipped = _check_options(arrays, dtype, tolerance, skip)
    how = read_signature(function) if order is None else read_order(order)
    first = report = _run(Adapter(function, how, arrays or ARRAYS[0], dtype), how, tolerance, skipped)
    if arrays is None and report.raises_everywhere and importlib.util.find_spec("torch"):
        report = _run(Adapter(function, how, "torch", dtype), how, tolerance, skipped)
        if report.raises_everywhere:
            first.notes.append("With torch tensors, too, it raises in every case.")
            return first
    return report


def _check_options(arrays: str | None, dtype: str, tolerance: float | None, skip: str | Iterable[str]) -> set[str]:
    """The kinds to skip."""
    if arrays not in (None, *ARRAYS) or dtype not in DTYPES:
        raise ValueError(f"arrays {arrays}, dtype {dtype}: must be of {', '.join(ARRAYS)}; {', '.join(DTYPES)}")
    if not isinstance(tolerance, SupportsFloat | None):
        raise TypeError(f"tolerance: expected a number or None, found {tolerance!r}")
    if tolerance is not None and not 0 <= tolerance <= LARGEST_TOLERANCE:
        raise ValueError(f"tolerance {tolerance}: must be a number from 0 to {LARGEST_TOLERANCE}")
    skipped = {skip} if isinstance(skip, str) else {*read_names("skip", skip)}
    if unknown := sorted(skipped - {*load_kinds()}):
        raise ValueError(f"skip {', '.join(unknown)}: must be of {', '.join(load_kinds())}")
    return skipped


def _run(adapter: Adapter, how: Call, tolerance: float | None, skipped: set[str]) -> Report:
    comparisons = []
    for case in load_cases():
        missing = adapter.find_missing(case)
        if missing or case.kind in skipped:
            remark = f"takes no {', '.join(missing)}" if missing else "skipped"
            comparisons.append(Comparison(case, LEFT_OUT, remark=remark, missing=tuple(missing)))
        else:
            with _tell_if_slow(case.name):
                comparisons.append(_check(adapter, case, tolerance))
    comparisons = _leave_out_further_axes(comparisons)
    notes = [f"It was {adapter}.", *([f"Left at their defaults: {', '.join(how.left)}."] if how.left else [])]
    return Report(comparisons, explain(comparisons, how.taken), notes + _advise(comparisons))


def _check(adapter: Adapter, case: Case, tolerance: float | None) -> Comparison:
    try:
        return compare_outputs(case, adapter.call(case), tolerance)
    except OutputError as error:
        return Comparison(case, FAILED, remark=str(error))
    except BaseException as error:  # of any kind, sys.exit(0) included: it is somebody else's code
        if _may_be_ctrl_c(error):
            raise
        remark = f"raised {describe(error, is_short=True)}"
        return Comparison(case, FAILED, remark=remark, raised=traceback.format_exc())


def _may_be_ctrl_c(error: BaseException) -> bool:
    """Whether an exception may come from Ctrl-C: only if SIGINT has Python's default handler."""
    is_interrupt = isinstance(error, KeyboardInterrupt)
    return is_interrupt and signal.getsignal(signal.SIGINT) is signal.default_int_handler


@contextmanager
def _tell_if_slow(name: str) -> Iterator[None]:
    """Reports on standard error in which case a function hangs."""
    message = f"still in case {name!r} after {PATIENCE_S:g} s"
    timer = threading.Timer(PATIENCE_S, lambda: print(message, file=sys.stderr, flush=True))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _leave_out_further_axes(comparisons: list[Comparison]) -> list[Comparison]:
    """Leaves out the cases with further axes, if the function raised in all of these and in no other."""
    further = {one.case.kind == _FURTHER_AXES for one in comparisons if one.raised}
    checked = [one for one in comparisons if one.case.kind == _FURTHER_AXES and one.verdict != LEFT_OUT]
    if further != {True} or not all(one.raised for one in checked):
        return comparisons
    return [
        Comparison(one.case, LEFT_OUT, remark=f"takes [T, B] alone: {one.remark}") if one in checked else one
        for one in comparisons
    ]


def _advise(comparisons: list[Comparison]) -> list[str]:
    """Advice if the reason may be something other than a mistake."""
    wrong = [one for one in comparisons if one.verdict in (DIFFERS, FAILED)]
    notes = []
    if small := [one for one in wrong if one.is_small]:
        notes = [f"If that precision is meant: --tolerance {write_power(small[0].rounding)}."]
    if wrong and {one.case.kind for one in wrong} == {_FURTHER_AXES}:
        notes.append(f'If it is of [T, B] alone: --skip "{_FURTHER_AXES}".')
    return notes

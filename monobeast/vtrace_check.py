"""Somebody's V-trace function against the package's vectors: where it differs, and by which mistake."""

import traceback
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np

from monobeast.vtrace_adapter import Adapter, OutputError
from monobeast.vtrace_faults import FAULTS, Outputs
from monobeast.vtrace_vectors import Array, Case, load_cases, load_kinds

# Relative to the largest magnitude in a trajectory. Rounding was seen to stay a hundred times below; faults do not.
_TOLERANCES = {"float64": 1e-9}
_TOLERANCE_OF_LESS = 1e-5
_ROUNDING = "by rounding, as of float32"
_AGREES, _DIFFERS, _FAILED, _LEFT_OUT = "agrees", "DIFFERS", "FAILED", "left out"


class Comparison(NamedTuple):
    """One case."""

    case: Case
    verdict: str
    vs_error: float | None = None  # largest, relative to the largest magnitude in the trajectory; None: no number
    advantages_error: float | None = None
    remark: str = ""  # why there is no number, or the verdict
    faults: tuple[str, ...] = ()  # mistakes that give these very outputs


class Report(NamedTuple):
    """All cases. Its text is a table."""

    comparisons: list[Comparison]
    first_traceback: str = ""  # of the first case in which the function raised

    @property
    def agrees(self) -> bool:
        """Whether no case differs, and at least one was checked."""
        return {one.verdict for one in self.comparisons} - {_LEFT_OUT} == {_AGREES}

    @property
    def faults(self) -> dict[str, str]:
        """What explains each kind that differs: a mistake that gives all its wrong numbers, or else the usual one."""
        differing = [one for one in self.comparisons if one.verdict == _DIFFERS and one.remark != _ROUNDING]
        return {kind: _explain(kind, differing) for kind in dict.fromkeys(one.case.kind for one in differing)}

    def __str__(self) -> str:
        lines = [f"{'case':37} {'kind':14} {'vs':>8} {'advant.':>8}  verdict"]
        lines += [_describe(comparison) for comparison in self.comparisons]
        counts = Counter(one.verdict for one in self.comparisons)
        lines += ["", "Errors are relative to the largest magnitude in their trajectory."]
        lines += [f"{len(self.comparisons)} cases: " + ", ".join(f"{n} {verdict}" for verdict, n in counts.items())]
        for text in dict.fromkeys(self.faults.values()):
            lines.append(f"{', '.join(kind for kind in self.faults if self.faults[kind] == text)}: {text}")
        return "\n".join([*lines, *(["", self.first_traceback.rstrip()] if self.first_traceback else [])])


def check_vtrace(function: Callable[..., Any], **options: Any) -> Report:
    """Compares a function with the vectors, for use in a test.

    Args:
        function: Any V-trace from ratios, log ratios, log probabilities or logits; see `vtrace_adapter`.
        options: of `compare`.

    Returns:
        The report.

    Raises:
        AssertionError: a case differs; the message is the report.
        ValueError: the function can't be called with what V-trace has.
    """
    report = compare(function, **options)
    if not report.agrees:
        raise AssertionError(f"V-trace differs from equation (1)\n{report}")
    return report


def compare(
    function: Callable[..., Any],
    order: list[str] | None = None,
    arrays: str | None = None,
    dtype: str = "float64",
    tolerance: float | None = None,
    skip: Iterable[str] = (),
) -> Report:
    """Calls a function with every case and compares.

    Args:
        function, order, arrays, dtype: as in `Adapter`.
        tolerance: largest error that agrees; None: 1e-9 for outputs in float64, 1e-5 for others.
        skip: kinds of cases to leave out.
    """
    if unknown := sorted({*skip} - {*load_kinds()}):
        raise ValueError(f"no kind {', '.join(unknown)}; there are {', '.join(load_kinds())}")
    adapter, comparisons, first_traceback = Adapter(function, order, arrays, dtype), [], ""
    for case in load_cases():
        missing = adapter.find_missing(case)
        if missing or case.kind in skip:
            remark = f"takes no {', '.join(missing)}" if missing else ""
            comparisons.append(Comparison(case, _LEFT_OUT, remark=remark))
            continue
        try:
            outputs, found_dtype = adapter.call(case)
        except OutputError as error:
            comparisons.append(Comparison(case, _FAILED, remark=str(error)))
        except Exception as error:  # of any kind: it is somebody else's code
            comparisons.append(Comparison(case, _FAILED, remark=f"raised {type(error).__name__}: {error}"))
            first_traceback = first_traceback or traceback.format_exc()
        else:
            limit = _TOLERANCES.get(str(found_dtype), _TOLERANCE_OF_LESS) if tolerance is None else tolerance
            comparisons.append(_compare(case, outputs, limit))
    return Report(comparisons, first_traceback)


def _compare(case: Case, found: Outputs, limit: float) -> Comparison:
    scale = _scale(case)
    errors = [_largest_error(*pair, scale) for pair in zip(found, Outputs(**case.expected), strict=True)]
    if all(error is not None and error <= limit for error in errors):
        return Comparison(case, _AGREES, errors[0], errors[1])
    if all(error is not None and error <= _TOLERANCE_OF_LESS for error in errors):
        return Comparison(case, _DIFFERS, errors[0], errors[1], _ROUNDING)
    remarks = [_locate(name, array) for name, array in zip(("vs", "advantages"), found) if not np.isfinite(array).all()]
    faults = tuple(str(fault) for fault in FAULTS if _is_same(fault.compute(case), found, scale, limit))
    return Comparison(case, _DIFFERS, errors[0], errors[1], ", ".join(remarks), faults)


def _largest_error(found: Array, expected: Array, scale: Array) -> float | None:
    return float((np.abs(found - expected) / scale).max()) if np.isfinite(found).all() else None


def _locate(name: str, array: Array) -> str:
    """Where the first number is that is none."""
    place = np.argwhere(~np.isfinite(array))[0].tolist()
    return f"{name} is {array[tuple(place)]} at {place}"


def _scale(case: Case) -> Array:
    """Largest magnitude in each trajectory, [B, ...]."""
    arrays = [case.inputs["rewards"], case.inputs["values"], case.inputs["bootstrap_value"][None]]
    largest = [np.abs(array).max(axis=0) for array in (*arrays, *case.expected.values())]
    scale = np.max(np.broadcast_arrays(*largest), axis=0)
    return np.where(scale > 0, scale, 1.0)


def _is_same(one: Outputs, other: Outputs, scale: Array, limit: float) -> bool:
    pairs = zip(one, other, strict=True)
    return all(np.allclose(a / scale, b / scale, rtol=0, atol=limit, equal_nan=True) for a, b in pairs)


def _explain(kind: str, differing: list[Comparison]) -> str:
    """The mistake that gives all numbers of the kind; of several, the one that explains most of the other kinds."""
    common = set.intersection(*(set(one.faults) for one in differing if one.case.kind == kind))
    if not common:
        return f"usually {load_kinds()[kind].usual_fault}"
    counts = Counter(fault for one in differing for fault in one.faults if fault in common)
    likely = [str(fault) for fault in FAULTS if counts[str(fault)] == max(counts.values())]
    return f"these are the numbers of: {', or '.join(likely)}"


def _describe(comparison: Comparison) -> str:
    case, verdict, vs_error, advantages_error, remark, _ = comparison
    errors = ["" if error is None else f"{error:.1e}" for error in (vs_error, advantages_error)]
    verdict += f" ({remark})" if remark else ""
    return f"{case.name:37} {case.kind:14} {errors[0]:>8} {errors[1]:>8}  {verdict}".rstrip()

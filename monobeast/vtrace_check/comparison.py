"""Compares a function's outputs for one case with the right ones."""

from typing import NamedTuple

import numpy as np

from monobeast.vtrace_check.outputs import Found
from monobeast.vtrace_check.terms import Outputs
from monobeast.vtrace_vectors import Array, Case

AGREES, DIFFERS, FAILED, LEFT_OUT = VERDICTS = "agrees", "DIFFERS", "FAILED", "left out"

# Relative to the largest magnitude in a trajectory. Rounding was seen to stay a hundred times below the first; mistakes
# do not. The others are what computing in that dtype may cost.
TOLERANCE = 1e-9
FLOAT32_TOLERANCE = 1e-5
FLOAT16_TOLERANCE = 1e-2
_FLOAT32_MAX = 1e38


class Comparison(NamedTuple):
    """One case."""

    case: Case
    verdict: str
    vs_error: float | None = None  # largest, relative to the largest magnitude in the trajectory; None: no number
    advantages_error: float | None = None
    remark: str = ""  # why there is no number, or the verdict
    outputs: Outputs | None = None
    rounding: float = FLOAT32_TOLERANCE  # largest error that may be that of the outputs' dtype, or at least of float32
    is_small: bool = False  # it differs by no more than that
    raised: str = ""  # the traceback, where the function raised
    missing: tuple[str, ...] = ()  # what the function would have to take for a case that is left out


def compare_outputs(case: Case, found: Found, tolerance: float | None = None) -> Comparison:
    """Measures the errors; a tolerance of None means that of their dtype, at most that of float32."""
    limit = (TOLERANCE if found.dtype == "float64" else FLOAT32_TOLERANCE) if tolerance is None else tolerance
    is_half = found.dtype in ("float16", "bfloat16")
    rounding = max(limit, FLOAT16_TOLERANCE if is_half else FLOAT32_TOLERANCE)
    vs_error, advantages_error = measure_errors(case, found.outputs)
    largest = np.inf if vs_error is None or advantages_error is None else max(vs_error, advantages_error)
    is_small = limit < largest <= rounding
    remark = ", ".join(filter(None, (_locate(*pair) for pair in zip(("vs", "advantages"), found.outputs))))
    if is_small:
        remark = f"within {'float16' if is_half else 'float32'}'s tolerance"
    verdict = AGREES if largest <= limit else DIFFERS
    return Comparison(case, verdict, vs_error, advantages_error, remark, found.outputs, rounding, is_small)


def measure_errors(case: Case, outputs: Outputs) -> tuple[float | None, float | None]:
    """Largest errors of vs and of the advantages, each relative to the largest magnitude in its trajectory."""
    expected = Outputs(**case.expected)
    scale = _measure_scale(case, expected)
    vs_error, advantages_error = (_largest_error(*pair, scale) for pair in zip(outputs, expected, strict=True))
    return vs_error, advantages_error


def is_same(case: Case, wrong: Outputs, found: Outputs, limit: float) -> bool:
    """Whether a mistake's numbers match those found, relative to the mistake's own magnitudes.

    Relative to the right numbers, all small numbers would match wherever those are large.

    Infinity and NaN match each other, since which of them appears depends on the order of the terms. A number found
    that is not finite also matches a mistake's number that exceeds float32.
    """
    scale = _measure_scale(case, Outputs(*(np.where(np.isfinite(array), array, 0.0) for array in wrong)))
    return all(_are_close(*pair, limit * scale) for pair in zip(wrong, found, strict=True))


def _are_close(wrong: Array, found: Array, limit: Array) -> bool:
    largest = np.abs(np.where(np.isfinite(wrong), wrong, np.inf)).max(axis=0)
    with np.errstate(invalid="ignore"):
        close = np.abs(wrong - found) <= limit
    return bool((close | (~np.isfinite(found) & (largest > _FLOAT32_MAX))).all())


def _measure_scale(case: Case, outputs: Outputs) -> Array:
    """Largest magnitude in each trajectory of the case and these outputs, [B, ...]."""
    arrays = [case.inputs["rewards"], case.inputs["values"], case.inputs["bootstrap_value"][None], *outputs]
    scale = np.max(np.broadcast_arrays(*(np.abs(array).max(axis=0) for array in arrays)), axis=0)
    return np.where(scale > 0, scale, 1.0)


def _largest_error(found: Array, expected: Array, scale: Array) -> float | None:
    return float((np.abs(found - expected) / scale).max()) if np.isfinite(found).all() else None


def _locate(name: str, array: Array) -> str:
    """Locates the first NaN, if any."""
    places = np.argwhere(~np.isfinite(array)).tolist()
    return f"{name} is {array[tuple(places[0])]} at {places[0]}" if places else ""

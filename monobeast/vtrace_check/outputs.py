"""Reads vs and advantages from a function's outputs, whatever their names and array types."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from monobeast.errors import describe
from monobeast.vtrace_check.terms import Outputs
from monobeast.vtrace_vectors import Array, Case

VS = ("vs", "v_s", "targets", "target_values", "vtrace_targets")
ERRORS = ("errors", "td_errors")  # v_s - V(x_s), which serves for vs
ADVANTAGES = ("pg_advantages", "pg_advantage", "advantages", "advantage")

_INEXACT = ("bfloat16", "float16", "float32")


class OutputError(ValueError):
    """A function did not return vs and advantages of the case's shape."""


class Found(NamedTuple):
    """Outputs in float64, and the least precise dtype of the originals or their inputs, at most "float64"."""

    outputs: Outputs
    dtype: str


def read_outputs(result: Any, case: Case) -> Found:
    """Reads a tuple (vs, advantages), or a named tuple, mapping or object with both under a usual name.

    Raises:
        OutputError: it does not fit.
    """
    named = _by_name(result)
    if named is None:
        if not isinstance(result, tuple | list) or len(result) != 2:
            raise OutputError(_describe_misfit(result))
        named = dict(zip(("vs", "pg_advantages"), result))
    arrays = {name: _read_array(name, value, case) for name, value in named.items()}
    dtypes = [dtype for _, dtype in arrays.values()]
    first, advantages = (array.astype(float) for array, _ in arrays.values())
    vs = first + case.inputs["values"] if next(iter(arrays)) in ERRORS else first
    return Found(Outputs(vs, advantages), next((name for name in _INEXACT if name in dtypes), "float64"))


def _by_name(result: Any) -> dict[str, Any] | None:
    """vs (or the errors in its place) and the advantages, by name; None if missing."""
    if isinstance(result, Mapping):
        members = dict(result)
    else:
        members = {name: getattr(result, name) for name in (*VS, *ERRORS, *ADVANTAGES) if hasattr(result, name)}
    first = next((name for name in (*VS, *ERRORS) if name in members), None)
    second = next((name for name in ADVANTAGES if name in members), None)
    return {first: members[first], second: members[second]} if first and second else None


def _describe_misfit(result: Any) -> str:
    found = f"{len(result)} outputs" if isinstance(result, tuple | list) else f"a {type(result).__name__}"
    if isinstance(result, Mapping):
        found += f" of {', '.join(map(str, result)) or 'nothing'}"
    known = f"vs (or {', '.join((*VS[1:], *ERRORS))}) and pg_advantages (or {', '.join(ADVANTAGES[1:])})"
    return f"expected two outputs, vs and pg_advantages, in this order or by name; found {found}; known are {known}"


def _read_array(name: str, value: Any, case: Case) -> tuple[Array, str]:
    """An array of real numbers of the case's shape, and the name of its dtype."""
    try:
        value, dtype = _to_numpy(value)
        array = np.asarray(value)
    except Exception as error:  # of any kind: a ragged list, a tensor of somebody else's
        raise OutputError(f"{name}: can't be read as an array ({describe(error, is_short=True)})") from None
    dtype = dtype or array.dtype.name
    if isinstance(value, np.ma.MaskedArray) or not (array.dtype.kind in "fiu" or dtype == "bfloat16"):
        found = "a masked array" if isinstance(value, np.ma.MaskedArray) else array.dtype
        raise OutputError(f"{name}: expected real numbers, found {found}")
    expected = case.expected["vs"].shape
    if array.shape != expected:
        raise OutputError(f"{name}: expected shape {list(expected)}, found {list(array.shape)}")
    return array, dtype


def _to_numpy(value: Any) -> tuple[Any, str]:
    """Converts to what NumPy can read, also tensors with gradients or on a GPU; returns the dtype if NumPy lacks it."""
    if isinstance(value, list | tuple):  # a row for each step
        rows = [_to_numpy(row) for row in value]
        return [row for row, _ in rows], next((dtype for _, dtype in rows if dtype), "")
    if not hasattr(value, "detach"):
        return value, ""
    value = value.detach().cpu()
    return (value.float(), "bfloat16") if str(value.dtype) == "torch.bfloat16" else (value, "")

"""Calls a V-trace function with a case."""

import copy
from collections.abc import Callable
from typing import Any

import numpy as np

from monobeast.vtrace_check.arguments import ARGUMENTS, DEFAULTS
from monobeast.vtrace_check.outputs import Found, OutputError, read_outputs
from monobeast.vtrace_check.signature import Call
from monobeast.vtrace_vectors import Case

ARRAYS = ("numpy", "torch")
DTYPES = ("float64", "float32")


class Adapter:
    """A function and how to call it.

    Args:
        function: Returns vs and advantages; see `outputs.read_outputs`.
        how: Its arguments.
        arrays: One of `ARRAYS`.
        dtype: One of `DTYPES`, for all arguments but integers.
    """

    def __init__(self, function: Callable[..., Any], how: Call, arrays: str, dtype: str) -> None:
        self._function = function
        self._how = how
        self._arrays = arrays
        self._dtype = dtype

    def __str__(self) -> str:
        kind = {"numpy": "NumPy arrays", "torch": "torch tensors"}[self._arrays]
        return f"called with {kind} of {self._dtype}: {', '.join(self._how.taken)}"

    def find_missing(self, case: Case) -> list[str]:
        """The parameters that the case needs but the function does not take."""
        taken = self._how.taken
        missing = [name for name, value in DEFAULTS.items() if name not in taken and case.params[name] != value]
        has_logits = {"target_policy_logits", "behavior_policy_logits"}.intersection(taken)
        return missing + (["axes after B"] if has_logits and case.expected["vs"].ndim > 2 else [])

    def call(self, case: Case) -> Found:
        """Calls the function.

        Raises:
            OutputError: its outputs do not fit, or it changed its inputs. Exceptions of the function pass through.
        """
        values = {name: self._prepare(ARGUMENTS[name][0](case)) for name in self._how.taken}
        copies = copy.deepcopy(values)  # which the function may change, and is told of
        given = {name: self._convert(value) for name, value in copies.items()}
        with np.errstate(all="ignore"):  # exp(800) overflows rightly where a clip follows
            result = self._function(
                *(given[name] for name in self._how.positional),
                **{own: given[name] for own, name in self._how.named.items()},
            )
        changed = [name for name, value in values.items() if not np.array_equal(copies[name], value)]
        if changed:
            raise OutputError(f"changes {', '.join(changed)} in place, which the caller may still need")
        found = read_outputs(result, case)
        return found._replace(dtype=self._dtype) if found.dtype == "float64" else found  # no more exact than its inputs

    def _prepare(self, value: Any) -> Any:
        """A number unchanged, an array in the requested dtype."""
        if not isinstance(value, np.ndarray):
            return value
        return value.astype(self._dtype) if value.dtype == float else value

    def _convert(self, value: Any) -> Any:
        """Converts an argument for the function; a tensor shares its memory with the array."""
        if not isinstance(value, np.ndarray) or self._arrays == "numpy":
            return value
        import torch

        return torch.from_numpy(value)

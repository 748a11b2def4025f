"""V-trace cases with their exact outputs, read from the package's vtrace_vectors.json.

The file is for any language and describes its members; this module turns it into arrays.
"""

import json
from functools import cache
from importlib import resources
from typing import Any, NamedTuple

import numpy as np

Array = np.ndarray


class Case(NamedTuple):
    """One input and its exact outputs by equation (1); float64 arrays."""

    name: str
    kind: str
    params: dict[str, Any]  # by the names of `vtrace.from_importance_weights`; None: no clip
    inputs: dict[str, Array]  # log_rhos, discounts, rewards, values: [T, B, ...]; bootstrap_value: [B, ...]
    ends: dict[str, Array]  # done, terminal, is_reset: bool [T, B]; empty where no episode ends with a reset step
    expected: dict[str, Array]  # vs, pg_advantages: [T, B, ...]


def load_cases() -> list[Case]:
    """All cases, in the order of the file."""
    return [*_make_cases()]


def load_kinds() -> dict[str, str]:
    """Descriptions of the kinds of cases, by name."""
    return {**_read()["kinds"]}


@cache
def _make_cases() -> list[Case]:
    return [_make_case(**case) for case in _read()["cases"]]


@cache
def _read() -> dict[str, Any]:
    return json.loads(resources.files("monobeast").joinpath("vtrace_vectors.json").read_text())


def _make_case(
    name: str,
    kind: str,
    params: dict[str, Any],
    inputs: dict[str, Any],
    expected: dict[str, Any],
    ends: dict[str, Any] | None = None,
) -> Case:
    return Case(name, kind, params, _arrays(inputs, float), _arrays(ends or {}, bool), _arrays(expected, float))


def _arrays(members: dict[str, Any], dtype: type) -> dict[str, Array]:
    return {name: np.array(value, dtype=dtype) for name, value in members.items()}  # float reads "-Infinity" as well

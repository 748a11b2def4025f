"""Calls somebody's V-trace function with a case, whatever its arguments and outputs are called.

Neither torch nor JAX is needed here: torch is imported for a function that takes its tensors, and a function of JAX
takes NumPy's arrays.
"""

import inspect
from collections.abc import Callable, Mapping
from types import CodeType
from typing import Any

import numpy as np

from monobeast.vtrace_arguments import ARGUMENTS, DEFAULTS, RATIOS, STATES, find_argument
from monobeast.vtrace_faults import Outputs
from monobeast.vtrace_vectors import Array, Case

ARRAYS = ("numpy", "torch")
DTYPES = ("float64", "float32")

_VS = ("vs", "v_s", "targets", "target_values", "vtrace_targets")
_ERRORS = ("errors", "td_errors")  # v_s - V(x_s)
_ADVANTAGES = ("pg_advantages", "pg_advantage", "advantages", "advantage")


class OutputError(ValueError):
    """A function returned what is no vs and advantages of the case's shape."""


class Adapter:
    """A function, and how it is called.

    Args:
        function: Gives vs and advantages, see `call`.
        order: Names of its positional arguments, one by one; None: it is called by its own arguments' names.
        arrays: One of `ARRAYS`; None: torch where the function's module uses it.
        dtype: One of `DTYPES`, of all that is no count.

    Raises:
        ValueError: it asks for something that no case has, or does not take what V-trace needs.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        order: list[str] | None = None,
        arrays: str | None = None,
        dtype: str = "float64",
    ) -> None:
        if arrays not in (None, *ARRAYS) or dtype not in DTYPES:
            raise ValueError(f"arrays {arrays}, dtype {dtype}: must be of {', '.join(ARRAYS)}; {', '.join(DTYPES)}")
        self._function = function
        self._is_torch = arrays == "torch" or (arrays is None and _uses_torch(function))
        self._dtype = dtype
        self._positional, self._named = (_resolve(order), {}) if order else _read_signature(function)
        self._taken = [*self._positional, *self._named.values()]
        for needed in (RATIOS, ("discounts",), ("rewards",), ("values",), STATES):
            if not set(self._taken).intersection(needed):
                raise ValueError(f"the function takes none of {', '.join(needed)}; it takes {', '.join(self._taken)}")

    def find_missing(self, case: Case) -> list[str]:
        """What the case needs, but the function does not take."""
        missing = [name for name, value in DEFAULTS.items() if name not in self._taken and case.params[name] != value]
        has_logits = "target_policy_logits" in self._taken
        return missing + (["axes after B"] if has_logits and case.expected["vs"].ndim > 2 else [])

    def call(self, case: Case) -> tuple[Outputs, np.dtype]:
        """Calls the function: its outputs in float64, and the least exact dtype that they came in.

        It may return a tuple (vs, advantages), or a named tuple, a mapping or an object that has both by a usual name;
        v_s - V(x_s), as `errors`, serves for vs.

        Raises:
            OutputError: what it returns does not fit. Whatever the function raises is let through.
        """
        positional = [self._convert(name, case) for name in self._positional]
        named = {own: self._convert(name, case) for own, name in self._named.items()}
        vs, advantages, base = _split(self._function(*positional, **named), case)
        for name, array in (("vs", vs), ("advantages", advantages)):
            expected = case.expected["vs"].shape
            if array.shape != expected:
                raise OutputError(f"{name}: expected shape {list(expected)}, found {list(array.shape)}")
        dtype = min(vs.dtype, advantages.dtype, key=lambda dtype: dtype.itemsize)
        return Outputs(vs.astype(float) + base, advantages.astype(float)), dtype

    def _convert(self, name: str, case: Case) -> Any:
        value = ARGUMENTS[name][0](case)
        if not isinstance(value, np.ndarray):
            return value
        array = value.astype(self._dtype) if value.dtype == float else np.array(value)
        if not self._is_torch:
            return array
        import torch

        return torch.from_numpy(array)


def _resolve(names: list[str]) -> list[str]:
    """Our names of these; ValueError for one that nobody knows."""
    return [find_argument(name) or _refuse(name) for name in names]


def _refuse(name: str) -> str:
    raise ValueError(
        f"argument {name}: no case has it; known are {', '.join(ARGUMENTS)}. Give it a default, name the arguments in "
        "their order (--order), or wrap the function"
    )


def _read_signature(function: Callable[..., Any]) -> tuple[list[str], dict[str, str]]:
    """Our names of the positional-only arguments, and of the others by the function's own."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        parameters = []
    if all(parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD) for parameter in parameters):
        raise ValueError("the function does not tell its arguments: name them in their order (--order)")
    positional, named = [], {}
    for parameter in parameters:
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        name = find_argument(parameter.name)
        if name is None and parameter.default is parameter.empty:
            _refuse(parameter.name)
        elif name and parameter.kind == parameter.POSITIONAL_ONLY:
            positional.append(name)
        elif name:
            named[parameter.name] = name
    return positional, named


def _uses_torch(function: Callable[..., Any]) -> bool:
    """Whether the function, its annotations or functions of its module that it calls name torch or a part of it.

    Where they name neither torch nor NumPy, whether the module has torch.
    """
    function = inspect.unwrap(getattr(function, "func", function))  # of functools.partial
    function = function if inspect.isroutine(function) else type(function).__call__
    known = getattr(function, "__globals__", {})
    packages = {_package(value) for value in _find_globals(function, known, set())}
    return "torch" in packages or ("numpy" not in packages and "torch" in map(_package, known.values()))


def _package(value: Any) -> str:
    name = getattr(value, "__name__" if inspect.ismodule(value) else "__module__", None)
    return name.split(".")[0] if isinstance(name, str) else ""


def _find_globals(function: Any, known: dict[str, Any], seen: set[str]) -> list[Any]:
    """Values of the global names that a function and the functions of its module below it use."""
    annotations = getattr(function, "__annotations__", {}).values()
    code = getattr(inspect.unwrap(function), "__code__", None)
    names = _names_in(code) - seen if code else set()
    found = [known[name] for name in sorted(names & known.keys())]
    seen |= names
    own = [value for value in found if inspect.isfunction(value) and value.__globals__ is known]
    return [*annotations, *found, *(inner for value in own for inner in _find_globals(value, known, seen))]


def _names_in(code: CodeType) -> set[str]:
    inner = (constant for constant in code.co_consts if isinstance(constant, CodeType))
    return {*code.co_names}.union(*map(_names_in, inner))


def _split(result: Any, case: Case) -> tuple[Array, Array, Array | float]:
    """Of what a function returned: vs less a base, advantages, and the base, which is V where it gave errors."""
    names = _names_of(result)
    if names and (advantages := _first(names, _ADVANTAGES)) is not None:
        if (vs := _first(names, _VS)) is not None:
            return _to_array(vs), _to_array(advantages), 0.0
        if (errors := _first(names, _ERRORS)) is not None:
            return _to_array(errors), _to_array(advantages), case.inputs["values"]
    if isinstance(result, tuple | list) and len(result) == 2:
        return _to_array(result[0]), _to_array(result[1]), 0.0
    found = f"{len(result)} outputs" if isinstance(result, tuple | list) else f"a {type(result).__name__}"
    raise OutputError(f"expected two outputs, vs and pg_advantages, in this order or by name; found {found}")


def _names_of(result: Any) -> dict[str, Any]:
    if isinstance(result, Mapping):
        return dict(result)
    if hasattr(result, "_asdict"):
        return result._asdict()
    known = (*_VS, *_ERRORS, *_ADVANTAGES)
    return {name: getattr(result, name) for name in known if hasattr(result, name)}


def _first(found: dict[str, Any], names: tuple[str, ...]) -> Any:
    return next((found[name] for name in names if name in found), None)


def _to_array(value: Any) -> Array:
    """NumPy's own of any array: a tensor that needs a gradient, or lies on a GPU, included."""
    value = value.detach().cpu() if hasattr(value, "detach") else value
    return np.asarray(value)

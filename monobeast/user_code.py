"""The user's own code: looks up `module:Name`, and finds the name by which a callable is recorded.

Importing a module runs its code. So only modules named by the user in this call are imported, never those named in a
checkpoint; see `runs.permission`.
"""

import difflib
import functools
import importlib
import os
import sys
import traceback
from collections.abc import Callable
from types import ModuleType
from typing import Any

from monobeast.errors import describe

_CALL = "(...)"
_OTHERS = (os.path.dirname(__file__), os.path.dirname(os.__file__))  # this package's folder, and Python's


def is_own(value: str) -> bool:
    """Whether a setting names the user's code, rather than this package's or an installed one."""
    return ":" in value


def is_call(value: str) -> bool:
    """Whether it is the record of a Python callable that cannot be found by name."""
    return value.endswith(_CALL)


def import_module(flag: str, value: str) -> tuple[ModuleType, str]:
    """Imports the module of `value`, module:Name; returns the module and Name.

    Raises:
        ValueError: the import failed; the message names the flag, the module and the error.
    """
    module, _, name = value.partition(":")
    what = f"{flag} {value}: importing module {module!r}"
    try:
        return attempt(what, lambda: importlib.import_module(module)), name
    except ValueError as error:
        is_missing = getattr(error.__cause__, "name", None) == module.partition(".")[0]
        where = ", neither in this folder nor installed" if is_missing else ""
        raise ValueError(f"{error}{where}{_hint_at_module(module, name)}") from error.__cause__


def look_up(flag: str, value: str) -> Any:
    """Imports the module of `value`, module:Name, and returns the object of that name, which may have dots.

    Raises:
        ValueError: as in `import_module`; or the module has no such name.
    """
    module, name = import_module(flag, value)
    found: Any = module
    place = f"{module.__name__}:"
    for part in name.split("."):
        if not hasattr(found, part):
            close = difflib.get_close_matches(part, dir(found), n=1)
            hint = f"; did you mean {place}{close[0]}?" if close else ""
            raise ValueError(f"{flag} {value}: module {module.__name__!r} has no {name!r}{hint}")
        found, place = getattr(found, part), f"{place}{part}."
    return found


def name_of(maker: Callable) -> str:
    """The record of a callable: module:Name, or as in `record_call` if it cannot be imported by that name.

    This is so for `functools.partial`, lambdas, and definitions within a function.
    """
    try:
        is_found = _get(sys.modules[maker.__module__], maker.__qualname__) is maker
    except (AttributeError, KeyError):
        is_found = False
    record = record_call(maker)
    return record.removesuffix(_CALL) if is_found else record


def record_call(maker: Callable) -> str:
    """The record of a callable whose result, not itself, is the setting: module:Name(...)."""
    named: Any = maker
    while isinstance(named, functools.partial):
        named = named.func
    if not hasattr(named, "__qualname__"):
        named = type(named)
    module = _name_of_main() if named.__module__ == "__main__" else named.__module__
    return f"{module}:{named.__qualname__}{_CALL}"


def attempt(what: str, call: Callable[[], Any]) -> Any:
    """The result of `call`.

    Raises:
        ValueError: it raised; the message begins with `what`, and the original exception is the cause.
    """
    try:
        return call()
    except (Exception, SystemExit) as error:  # SystemExit: a script that reads a command line when imported
        raise ValueError(f"{what} failed with {describe(error)}{_describe_place(error)}") from error


def kind_of(value: Any) -> str:
    """The type of a value with its article: "a Tensor", "an int"."""
    name = type(value).__name__
    return f"{'an' if name[0].lower() in 'aeiou' else 'a'} {name}"


def _hint_at_module(path: str, name: str) -> str:
    """For who gave a file's path for a module's name; "" for a name."""
    if not path.endswith(".py"):
        return ""
    parts = os.path.relpath(path.removesuffix(".py")).split(os.sep)
    if all(part.isidentifier() for part in parts):
        return f"; did you mean {'.'.join(parts)}:{name}?"
    return f"; did you mean {parts[-1]}:{name}, with {os.path.dirname(path)} in PYTHONPATH?"


def _describe_place(error: BaseException) -> str:
    """The last line of the user's code in an error's traceback; empty if there is none."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if _is_users(frame.filename)]
    return f" ({os.path.basename(frames[-1].filename)}, line {frames[-1].lineno})" if frames else ""


def _is_users(path: str) -> bool:
    return os.path.isfile(path) and not path.startswith(_OTHERS) and "-packages" not in path


def _get(module: ModuleType, name: str) -> Any:
    return functools.reduce(getattr, name.split("."), module)


def _name_of_main() -> str:
    """The name by which the running script can be imported from its folder."""
    main = sys.modules["__main__"]
    spec, path = getattr(main, "__spec__", None), getattr(main, "__file__", None)
    if spec is not None:
        return spec.name
    return "__main__" if path is None else os.path.splitext(os.path.basename(path))[0]

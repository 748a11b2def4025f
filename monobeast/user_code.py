"""Code of the user's own: what `module:Name` stands for, and by what name a callable is recorded.

Importing a module runs its code. So what is imported is what the user named in this call, and never what stands in a
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
    """Whether a setting names code of the user's, and not what comes with this package or is installed beside it."""
    return ":" in value


def is_call(value: str) -> bool:
    """Whether it is the record of a callable given from Python, which cannot be found by a name."""
    return value.endswith(_CALL)


def import_module(flag: str, value: str) -> tuple[ModuleType, str]:
    """Imports the module of `value`, module:Name; returns it, and Name.

    Raises:
        ValueError: that failed; the message names the flag, the module and the error.
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
    """What the module of `value`, module:Name, has under that name, which may have dots; the module is imported.

    Raises:
        ValueError: as `import_module`; the module has no such name.
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
    """What a callable is recorded as: module:Name, or as `record_call` has it where that name does not lead to it.

    So it is with what `functools.partial` makes, with lambdas, and with what is defined within a function.
    """
    try:
        is_found = _get(sys.modules[maker.__module__], maker.__qualname__) is maker
    except (AttributeError, KeyError):
        is_found = False
    record = record_call(maker)
    return record.removesuffix(_CALL) if is_found else record


def record_call(maker: Callable) -> str:
    """What is recorded where the callable itself is no setting, but what it gives is: module:Name(...)."""
    named: Any = maker
    while isinstance(named, functools.partial):
        named = named.func
    if not hasattr(named, "__qualname__"):
        named = type(named)
    module = _name_of_main() if named.__module__ == "__main__" else named.__module__
    return f"{module}:{named.__qualname__}{_CALL}"


def attempt(what: str, call: Callable[[], Any]) -> Any:
    """What `call` gives.

    Raises:
        ValueError: it raised; the message begins with `what`, and the user's own exception is the cause.
    """
    try:
        return call()
    except (Exception, SystemExit) as error:  # SystemExit: a script that reads a command line when imported
        raise ValueError(f"{what} failed with {describe(error)}{_describe_place(error)}") from error


def kind_of(value: Any) -> str:
    """The type of a value, as a sentence has it: "a Tensor", "an int"."""
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
    """The last line of the user's code that an error came through; nothing where it came through none."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if _is_users(frame.filename)]
    return f" ({os.path.basename(frames[-1].filename)}, line {frames[-1].lineno})" if frames else ""


def _is_users(path: str) -> bool:
    return os.path.isfile(path) and not path.startswith(_OTHERS) and "-packages" not in path


def _get(module: ModuleType, name: str) -> Any:
    return functools.reduce(getattr, name.split("."), module)


def _name_of_main() -> str:
    """By what name the script that is being run can be imported where it lies."""
    main = sys.modules["__main__"]
    spec, path = getattr(main, "__spec__", None), getattr(main, "__file__", None)
    if spec is not None:
        return spec.name
    return "__main__" if path is None else os.path.splitext(os.path.basename(path))[0]

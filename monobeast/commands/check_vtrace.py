"""`monobeast check-vtrace`: checks any V-trace function against the package's vectors."""

import argparse
import contextlib
import difflib
import importlib
import os
import signal
import sys
from collections.abc import Callable, Iterator
from typing import Any

from monobeast.vtrace_check.adapter import ARRAYS, DTYPES
from monobeast.vtrace_check.check import LARGEST_TOLERANCE, compare, may_be_ctrl_c
from monobeast.vtrace_check.comparison import FLOAT32_TOLERANCE, TOLERANCE
from monobeast.vtrace_check.messages import describe, write_power


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the flags of this command."""
    parser.description = (
        "Calls a V-trace function with cases whose exact outputs are known (vtrace_vectors.json, in the package), and "
        "names the mistake where it differs. Its arguments are known by their names: log_rhos or rhos, or log "
        "probabilities or logits and actions of both policies; discounts, rewards, values, bootstrap_value; "
        "clip_rho_threshold, clip_pg_rho_threshold, clip_c_threshold, lambda_. Cases that need one that it does not "
        "take are left out. docs/vtrace.md lists other names, and has examples of wrappers."
    )
    parser.epilog = "exit codes: 0 all agree, 1 something differs, 2 it cannot be called"
    parser.add_argument("function", metavar="MODULE:FUNCTION", help="such as my_package.vtrace:from_importance_weights")
    parser.add_argument(
        "--order", metavar="NAME,NAME,...", help="names of the arguments in their order, to call it by position"
    )
    parser.add_argument(
        "--arrays", choices=ARRAYS, help="what to call it with (default: numpy; torch if it raises in every case then)"
    )
    parser.add_argument("--dtype", choices=DTYPES, default="float64", help="of the arrays (default: %(default)s)")
    parser.add_argument(
        "--tolerance",
        type=float,
        metavar="FLOAT",
        help=f"largest error that agrees, 0 to {LARGEST_TOLERANCE} (default: {write_power(TOLERANCE)}; "
        f"{write_power(FLOAT32_TOLERANCE)} for float32 or less)",
    )
    parser.add_argument("--skip", action="append", default=[], metavar="KIND", help="leave out a kind of cases")


def run(arguments: argparse.Namespace) -> int:
    """Prints the table.

    Raises:
        ValueError: there is no such function, or it can't be called.
    """
    with _ended_by_signals():
        report = compare(
            find_function(arguments.function),
            order=arguments.order,
            arrays=arguments.arrays,
            dtype=arguments.dtype,
            tolerance=arguments.tolerance,
            skip=arguments.skip,
        )
    encoding = sys.stdout.encoding or "utf-8"
    print(str(report).encode(encoding, "backslashreplace").decode(encoding))  # a name may be what it can't show
    return 0 if report.agrees else 1


@contextlib.contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Lets Ctrl-C and SIGTERM end the process at once: a Python handler would wait for a function written in C."""
    before = {number: signal.signal(number, signal.SIG_DFL) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def find_function(place: str) -> Callable[..., Any]:
    """The function at `package.module:name`; a name may have dots.

    Raises:
        ValueError: it does not exist; the message says what does.
    """
    module_name, colon, names = place.partition(":")
    if not (module_name and colon and names):
        raise ValueError(f"{place}: must be MODULE:FUNCTION, such as my_package.vtrace:from_importance_weights")
    try:
        found: Any = importlib.import_module(module_name)
    except BaseException as error:  # of any kind, sys.exit(0) included: it is somebody else's code
        if may_be_ctrl_c(error):
            raise
        hint = _hint_at_module(place)
        raise ValueError(f"{place}: module {module_name} can't be imported ({describe(error)}){hint}") from None
    for name in names.split("."):
        if not hasattr(found, name):
            near = difflib.get_close_matches(name, dir(found), n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise ValueError(f"{place}: {module_name} has no {name}{hint}")
        found = getattr(found, name)
    if not callable(found):
        raise ValueError(f"{place}: is no function, but of type {type(found).__name__}")
    return found


def _hint_at_module(place: str) -> str:
    """A hint if a file's path was given instead of a module's name."""
    path, _, names = place.partition(":")
    if not path.endswith(".py"):
        return ""
    parts = os.path.relpath(path.removesuffix(".py")).split(os.sep)
    if all(part.isidentifier() for part in parts):
        return f"; did you mean {'.'.join(parts)}:{names}?"
    return f"; did you mean {parts[-1]}:{names}, with {os.path.dirname(path)} in PYTHONPATH?"

"""`monobeast check-vtrace`: checks any V-trace function against the package's vectors."""

import argparse
import contextlib
import signal
from collections.abc import Callable, Iterator
from typing import Any

from monobeast import user_code
from monobeast.vtrace_check.adapter import ARRAYS, DTYPES
from monobeast.vtrace_check.check import LARGEST_TOLERANCE, compare
from monobeast.vtrace_check.comparison import FLOAT32_TOLERANCE, TOLERANCE
from monobeast.vtrace_check.messages import write_power


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
    print(report)
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
    module, _, name = place.partition(":")
    if not (module and name):
        raise ValueError(f"{place}: must be MODULE:FUNCTION, such as my_package.vtrace:from_importance_weights")
    found = user_code.look_up("MODULE:FUNCTION", place)
    if not callable(found):
        raise ValueError(f"MODULE:FUNCTION {place}: is no function, but of type {type(found).__name__}")
    return found

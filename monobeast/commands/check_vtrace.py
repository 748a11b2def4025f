"""`monobeast check-vtrace`: runs somebody's V-trace function against the package's vectors."""

import argparse
import difflib
import importlib
from collections.abc import Callable
from typing import Any

from monobeast.vtrace_adapter import ARRAYS, DTYPES
from monobeast.vtrace_check import compare


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the flags of this command."""
    parser.description = (
        "Calls a V-trace function with cases whose exact outputs are known (vtrace_vectors.json, in the package), and "
        "names the mistake where it differs. Its arguments are known by their names: log_rhos or rhos, or log "
        "probabilities or logits of both policies; discounts, rewards, values, bootstrap_value; clip_rho_threshold, "
        "clip_pg_rho_threshold, clip_c_threshold, lambda_. Cases that need one that it does not take are left out. "
        "Exit codes: 0 all agree, 1 something differs."
    )
    parser.add_argument("function", metavar="MODULE:FUNCTION", help="such as my_package.vtrace:from_importance_weights")
    parser.add_argument(
        "--order", metavar="NAME,NAME,...", help="names of the arguments in their order, to call it by position"
    )
    parser.add_argument(
        "--arrays", choices=ARRAYS, help="what to call it with (default: torch where its module uses torch, else numpy)"
    )
    parser.add_argument("--dtype", choices=DTYPES, default="float64", help="(default: %(default)s)")
    parser.add_argument(
        "--tolerance", type=float, metavar="FLOAT", help="largest error (default: 1e-9; 1e-5 for outputs in float32)"
    )
    parser.add_argument("--skip", action="append", default=[], metavar="KIND", help="leave out a kind of cases")


def run(arguments: argparse.Namespace) -> int:
    """Prints the table.

    Raises:
        ValueError: there is no such function, or it can't be called.
    """
    report = compare(
        find_function(arguments.function),
        order=arguments.order.replace(",", " ").split() if arguments.order else None,
        arrays=arguments.arrays,
        dtype=arguments.dtype,
        tolerance=arguments.tolerance,
        skip=arguments.skip,
    )
    print(report)
    return 0 if report.agrees else 1


def find_function(place: str) -> Callable[..., Any]:
    """The function at `package.module:name`; a name may have dots.

    Raises:
        ValueError: it is not there; the message says what is.
    """
    module_name, colon, names = place.partition(":")
    if not (module_name and colon and names):
        raise ValueError(f"{place}: must be MODULE:FUNCTION, such as my_package.vtrace:from_importance_weights")
    try:
        found: Any = importlib.import_module(module_name)
    except Exception as error:  # of any kind: it is somebody else's code
        raise ValueError(f"{place}: module {module_name} can't be imported ({type(error).__name__}: {error})") from None
    for name in names.split("."):
        if not hasattr(found, name):
            near = difflib.get_close_matches(name, dir(found), n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise ValueError(f"{place}: {module_name} has no {name}{hint}")
        found = getattr(found, name)
    if not callable(found):
        raise ValueError(f"{place}: is no function, but of type {type(found).__name__}")
    return found

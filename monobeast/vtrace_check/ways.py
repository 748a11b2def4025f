"""Variants of a mistake: everywhere or in one place, shifted forward or back, with different edges."""

from collections.abc import Callable
from functools import partial

import numpy as np

from monobeast.vtrace_check import wrong_terms
from monobeast.vtrace_check.terms import Outputs, Terms, complete, follow
from monobeast.vtrace_check.wrong_terms import (
    Compute,
    FindRows,
    MakeTerms,
    add_to_last,
    everywhere,
    in_advantages,
    in_vs,
    only,
    shift,
    with_input_where,
    with_inputs,
    with_outputs,
    with_terms,
    with_traces_across,
)
from monobeast.vtrace_vectors import Array

Ways = dict[str, Compute]  # to make a mistake: how, and what it gives


def in_places(how: str, wrong: MakeTerms) -> Ways:
    """A mistake made everywhere, only in vs, or only in the advantages."""
    return {
        how: everywhere(wrong),
        f"{how}, in vs alone": in_vs(wrong),
        f"{how}, in the advantages alone": in_advantages(wrong),
    }


def of_ratios(how: str, wrong: MakeTerms) -> Ways:
    """A mistake that can also be made only in rho or only in c."""
    return {
        **in_places(how, wrong),
        f"{how}, in delta's rho alone": in_vs(only("rhos", wrong)),
        f"{how}, in c alone": in_vs(only("cs", wrong)),
    }


# By how many rows, the edge as `wrong_terms.shift` knows it, and both in words.
SHIFTS: list[tuple[int, int | float, str]] = [
    (-1, -1, "that of the next step, the last row's own for the last"),
    (-1, 0, "that of the next step, the first row's for the last"),
    (-1, 0.0, "that of the next step, 0 for the last"),
    (-1, 1.0, "that of the next step, 1 for the last"),
    (1, 0, "that of the step before, the first row's own for the first"),
    (1, -1, "that of the step before, the last row's for the first"),
    (1, 0.0, "that of the step before, 0 for the first"),
    (1, 1.0, "that of the step before, 1 for the first"),
]


def shifted(name: str, by: int, edge: int | float) -> MakeTerms:
    return with_terms(**{name: lambda terms, _: shift(getattr(terms, name), by, edge)})


def shifted_input(name: str, by: int, edge: int | float) -> MakeTerms:
    return with_inputs(**{name: lambda case: shift(case.inputs[name], by, edge)})


def shift_discounts() -> Ways:
    ways: Ways = {}
    for by, edge, how in SHIFTS:
        wrong = shifted_input("discounts", by, edge)
        ways |= in_places(how, wrong)
        ways[f"{how}, in delta alone"] = in_vs(only("discounts", wrong))
        ways[f"{how}, in delta and the advantages"] = everywhere(only("discounts", wrong))
    return ways | shift_in_trace("trace_discounts", ", in the trace alone")


def shift_in_trace(name: str, where: str = "") -> Ways:
    """A shift within the trace; without use of the last row, taking the next step's value has only one variant."""
    ways = {"that of the next step" + where: everywhere(shifted(name, -1, -1))}
    return ways | {how + where: everywhere(shifted(name, by, edge)) for by, edge, how in SHIFTS if by > 0}


def bootstrapped(last: Callable[[Terms], Array]) -> MakeTerms:
    """Terms with another V(x_T)."""
    return with_terms(next_values=lambda terms, _: follow(terms.values, last(terms)))


def add_to_last_target(how: str, more: Callable[[Terms], Array]) -> Ways:
    return {
        how: with_outputs(lambda right, terms: Outputs(add_to_last(right.vs, more(terms)), right.pg_advantages)),
        f"{how}, before the advantages": with_outputs(
            lambda right, terms: complete(add_to_last(right.vs, more(terms)), terms)
        ),
    }


def last_value(terms: Terms) -> Array:
    return terms.next_values[-1]


def discounted_last_value(terms: Terms) -> Array:
    return terms.discounts[-1] * terms.next_values[-1]


def swap_but(find: FindRows) -> MakeTerms:
    return with_inputs(log_rhos=lambda case: np.where(find(case), -np.inf, -case.inputs["log_rhos"]))


def leak(row: str, find: FindRows) -> Ways:
    return {
        **of_ratios(f"{row} counts as if its ratio were 1", with_input_where(find, "log_rhos", 0.0)),
        f"{row} has rho 0, but c 1": everywhere(with_traces_across(find)),
    }


def bootstrap_from_the_next_episode(row: str, find: FindRows) -> Ways:
    compute = partial(wrong_terms.bootstrap_from_the_next_episode, find=find)
    how = f"V(x_{{t+2}}) for V(x_{{t+1}}) before {row}"
    return {
        f"{how}, in delta and the advantage": partial(compute, in_delta=True, in_advantage=True),
        f"{how}, in delta": partial(compute, in_delta=True, in_advantage=False),
        f"{how}, in the advantage": partial(compute, in_delta=False, in_advantage=True),
    }

"""The terms of equations (1) and (4), and their solution, in NumPy; a mistake is a changed term.

They are never used as reference values: those come from the vectors.
"""

from typing import Any, NamedTuple

import numpy as np

from monobeast.vtrace_vectors import Array, Case


class Outputs(NamedTuple):
    """A function's outputs for a case: float64 [T, B, ...] each."""

    vs: Array
    pg_advantages: Array


class Terms(NamedTuple):
    """[T, B, ...] each."""

    rhos: Array
    pg_rhos: Array
    cs: Array  # lambda included
    discounts: Array  # in delta and in the advantage
    trace_discounts: Array  # in the trace; by right the same
    rewards: Array
    values: Array  # V(x_t)
    next_values: Array  # V(x_{t+1}), in delta


def make_terms(case: Case, **changed: Any) -> Terms:
    """The right terms, or those that follow from changed inputs or parameters of the case."""
    given: dict[str, Any] = {**case.inputs, **case.params, **changed}
    with np.errstate(over="ignore"):
        ratios = np.exp(given["log_rhos"])
    rhos, pg_rhos, cs = (
        np.minimum(ratios, np.inf if given[name] is None else given[name])
        for name in ("clip_rho_threshold", "clip_pg_rho_threshold", "clip_c_threshold")
    )
    shape = case.expected["vs"].shape
    values = np.broadcast_to(given["values"], shape)
    terms = (rhos, pg_rhos, given["lambda_"] * cs, given["discounts"], given["discounts"], given["rewards"], values)
    next_values = follow(values, np.broadcast_to(given["bootstrap_value"], shape[1:]))
    return Terms(*(np.broadcast_to(term, shape) for term in (*terms, next_values)))


def follow(rows: Array, last: Array) -> Array:
    """The values at t + 1: every row replaced by the next, the last one by `last`."""
    return np.concatenate([rows[1:], last[None]])


def solve(terms: Terms, after_last: Array | float = 0.0) -> Outputs:
    """Remark 1 and equation (4); `after_last` is v_T - V(x_T), which should be 0."""
    return complete(solve_vs(terms, after_last), terms)


def complete(vs: Array, terms: Terms) -> Outputs:
    """Adds the advantages that follow from vs, right or wrong."""
    return Outputs(vs, solve_advantages(terms, follow(vs, terms.next_values[-1])))


def solve_vs(terms: Terms, after_last: Array | float = 0.0) -> Array:
    """Remark 1."""
    vs_minus_values = np.zeros((len(terms.rewards) + 1, *terms.rewards.shape[1:]))
    vs_minus_values[-1] = after_last
    with np.errstate(invalid="ignore", over="ignore"):
        deltas = terms.rhos * (terms.rewards + terms.discounts * terms.next_values - terms.values)
        factors = terms.trace_discounts * terms.cs
        for t in reversed(range(len(deltas))):
            vs_minus_values[t] = deltas[t] + factors[t] * vs_minus_values[t + 1]
        return terms.values + vs_minus_values[:-1]


def solve_advantages(terms: Terms, vs_t_plus_1: Array) -> Array:
    """Equation (4), with the given values for v_{s+1}."""
    with np.errstate(invalid="ignore", over="ignore"):
        return terms.pg_rhos * (terms.rewards + terms.discounts * vs_t_plus_1 - terms.values)

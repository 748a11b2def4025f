"""Mistakes that implementations of V-trace make, each with the numbers that it gives.

A mistake that gives exactly somebody's wrong numbers is named with certainty; so it is written out here, in NumPy, as a
change to the terms of equation (1). Their right values are never used to judge: those come from the vectors.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from monobeast.vtrace_vectors import Array, Case


class Outputs(NamedTuple):
    """What a function gives for a case: float64 [T, B, ...] each."""

    vs: Array
    pg_advantages: Array


class Terms(NamedTuple):
    """What equations (1) and (4) are made of: [T, B, ...], but for V(x_0) .. V(x_T), [T+1, B, ...]."""

    rhos: Array
    pg_rhos: Array
    cs: Array  # lambda included
    discounts: Array
    rewards: Array
    states: Array


class Fault(NamedTuple):
    """A mistake, and what it gives."""

    name: str
    how: str  # one of the ways to make it
    compute: Callable[[Case], Outputs]

    def __str__(self) -> str:
        return f"{self.name} ({self.how})"


FAULTS: list[Fault] = []


def _fault(name: str, how: str) -> Callable[[Callable[[Case], Outputs]], Callable[[Case], Outputs]]:
    """Adds what is decorated to `FAULTS`."""

    def add(compute: Callable[[Case], Outputs]) -> Callable[[Case], Outputs]:
        FAULTS.append(Fault(name, how, compute))
        return compute

    return add


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
    last = np.broadcast_to(given["bootstrap_value"], shape[1:])[None]
    return Terms(
        rhos=np.broadcast_to(rhos, shape),
        pg_rhos=np.broadcast_to(pg_rhos, shape),
        cs=np.broadcast_to(given["lambda_"] * cs, shape),
        discounts=np.broadcast_to(given["discounts"], shape),
        rewards=np.broadcast_to(given["rewards"], shape),
        states=np.concatenate([np.broadcast_to(given["values"], shape), last]),
    )


def solve(terms: Terms, after_last: Array | float = 0.0, vs_t_plus_1: Array | None = None) -> Outputs:
    """Remark 1 and equation (4).

    Args:
        terms: Right or wrong.
        after_last: v_T - V(x_T), which is 0 by right.
        vs_t_plus_1: [T, B, ...]: what the advantages take for v_{s+1}; None for v_{s+1}.
    """
    rhos, pg_rhos, cs, discounts, rewards, states = terms
    vs_minus_values = np.zeros_like(states)
    vs_minus_values[-1] = after_last
    with np.errstate(invalid="ignore", over="ignore"):
        deltas = rhos * (rewards + discounts * states[1:] - states[:-1])
        for t in reversed(range(len(rewards))):
            vs_minus_values[t] = deltas[t] + discounts[t] * cs[t] * vs_minus_values[t + 1]
        vs = np.concatenate([(states + vs_minus_values)[:-1], states[-1:]])
        q = rewards + discounts * (vs[1:] if vs_t_plus_1 is None else vs_t_plus_1)
        return Outputs(vs[:-1], pg_rhos * (q - states[:-1]))


def _solve(case: Case, **changed: Any) -> Outputs:
    """What the case gives with these inputs or parameters."""
    return solve(make_terms(case, **changed))


@_fault("pi and mu swapped", "mu / pi for pi / mu")
def _swapped(case: Case) -> Outputs:
    return _solve(case, log_rhos=-case.inputs["log_rhos"])


@_fault("rho used for c", "c is pi / mu, not clipped")
def _rho_for_c(case: Case) -> Outputs:
    return _solve(case, clip_c_threshold=None)


@_fault("c-bar not separate", "c is clipped at rho-bar")
def _rho_bar_for_c_bar(case: Case) -> Outputs:
    return _solve(case, clip_c_threshold=case.params["clip_rho_threshold"])


@_fault("c-bar not separate", "c is clipped at 1, whatever c-bar is")
def _fixed_c_bar(case: Case) -> Outputs:
    return _solve(case, clip_c_threshold=1.0)


@_fault("lambda left out", "c is not multiplied by it")
def _no_lambda(case: Case) -> Outputs:
    return _solve(case, lambda_=1.0)


@_fault("bootstrap value counted twice", "added to the last reward as well")
def _bootstrap_in_the_last_reward(case: Case) -> Outputs:
    terms = make_terms(case)
    last = terms.rewards[-1:] + terms.discounts[-1:] * terms.states[-1:]
    return solve(terms._replace(rewards=np.concatenate([terms.rewards[:-1], last])))


@_fault("bootstrap value counted twice", "the recursion of v_s - V(x_s) starts at V(x_T) for 0")
def _bootstrap_after_the_last(case: Case) -> Outputs:
    terms = make_terms(case)
    return solve(terms, after_last=terms.states[-1])


@_fault("bootstrap value left out", "0 for V(x_T)")
def _no_bootstrap(case: Case) -> Outputs:
    return _solve(case, bootstrap_value=0 * case.inputs["bootstrap_value"])


def _shift(case: Case, by: int, edge: int) -> Outputs:
    """Discounts moved by one row; the row that is left without one has that of row `edge`."""
    discounts = np.roll(case.inputs["discounts"], by, axis=0)
    discounts[0 if by > 0 else -1] = case.inputs["discounts"][edge]
    return _solve(case, discounts=discounts)


@_fault("discount shifted by one", "that of the next step, the last row's own for the last")
def _next_discount(case: Case) -> Outputs:
    return _shift(case, by=-1, edge=-1)


@_fault("discount shifted by one", "that of the next step, the first row's for the last")
def _next_discount_rolled(case: Case) -> Outputs:
    return _shift(case, by=-1, edge=0)


@_fault("discount shifted by one", "that of the step before, the first row's own for the first")
def _previous_discount(case: Case) -> Outputs:
    return _shift(case, by=1, edge=0)


@_fault("discount shifted by one", "that of the step before, the last row's for the first")
def _previous_discount_rolled(case: Case) -> Outputs:
    return _shift(case, by=1, edge=-1)


def _is_cut(case: Case) -> Array:
    return np.isneginf(case.inputs["log_rhos"])


@_fault("next episode's value leaking past a cut", "a reset step counts as if its ratio were 1")
def _reset_steps_count(case: Case) -> Outputs:
    return _solve(case, log_rhos=np.where(_is_cut(case), 0.0, case.inputs["log_rhos"]))


@_fault("next episode's value leaking past a cut", "a reset step has rho 0, but c 1")
def _traces_cross(case: Case) -> Outputs:
    terms = make_terms(case)
    return solve(terms._replace(cs=np.where(_is_cut(case), case.params["lambda_"], terms.cs)))


@_fault("truncation taken for a termination", "discount 0 before a reset step")
def _truncation_terminates(case: Case) -> Outputs:
    is_end = np.concatenate([_is_cut(case)[1:], np.zeros_like(_is_cut(case)[:1])])
    return _solve(case, discounts=np.where(is_end, 0.0, case.inputs["discounts"]))


@_fault("V(x_{s+1}) in the advantage", "where v_{s+1} belongs")
def _one_step_advantage(case: Case) -> Outputs:
    terms = make_terms(case)
    return solve(terms, vs_t_plus_1=terms.states[1:])


@_fault("lambda in the advantage", "lambda v_{s+1} + (1 - lambda) V(x_{s+1}) where v_{s+1} belongs, as in rlax")
def _mixed_advantage(case: Case) -> Outputs:
    terms, lambda_ = make_terms(case), case.params["lambda_"]
    vs = np.concatenate([solve(terms).vs, terms.states[-1:]])
    mixed = lambda_ * vs[1:] + (1 - lambda_) * terms.states[1:]
    return solve(terms, vs_t_plus_1=np.concatenate([mixed[:-1], terms.states[-1:]]))


@_fault("advantage without a weight", "1 for its rho")
def _unweighted_advantage(case: Case) -> Outputs:
    terms = make_terms(case)
    return solve(terms._replace(pg_rhos=np.ones_like(terms.pg_rhos)))


@_fault("one clip for both rhos", "rho-bar in the advantage")
def _rho_bar_in_the_advantage(case: Case) -> Outputs:
    return _solve(case, clip_pg_rho_threshold=case.params["clip_rho_threshold"])

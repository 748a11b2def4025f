"""Mistakes that implementations of V-trace make, each with a name, and the numbers that it gives.

Who gives exactly the wrong numbers of a mistake has made it.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np

from monobeast.vtrace_check import mistakes, policies
from monobeast.vtrace_check.mistakes import with_advantages, with_inputs, with_log_probs, with_outputs, with_terms
from monobeast.vtrace_check.terms import Outputs, follow
from monobeast.vtrace_vectors import Case

Compute = Callable[[Case], Outputs]


class Fault(NamedTuple):
    """A mistake, and what it gives."""

    name: str
    how: str  # one of the ways to make it
    compute: Compute
    takes: str = ""  # what a function takes that can make it

    def __str__(self) -> str:
        return f"{self.name} ({self.how})"


def _shifted(by: int, edge: int | float) -> Compute:
    return partial(with_inputs, discounts=lambda case: mistakes.shift(case.inputs["discounts"], by, edge))


def _shifted_cs(by: int, edge: int | float) -> Compute:
    return partial(with_terms, cs=lambda terms, _: mistakes.shift(terms.cs, by, edge))


_WAYS: dict[str, dict[str, Compute]] = {
    "pi and mu swapped": {
        "mu / pi for pi / mu": partial(with_inputs, log_rhos=lambda case: -case.inputs["log_rhos"]),
        "mu / pi for pi / mu, but 0 in reset steps": partial(
            with_inputs, log_rhos=lambda case: np.where(mistakes.is_cut(case), -np.inf, -case.inputs["log_rhos"])
        ),
    },
    "no rho in delta": {"1 for it": partial(with_terms, rhos=lambda terms, _: 1.0)},
    "lambda in rho": {
        "in delta's": partial(with_terms, rhos=lambda terms, lambda_: lambda_ * terms.rhos),
        "in delta's and the advantage's": partial(
            with_terms,
            rhos=lambda terms, lambda_: lambda_ * terms.rhos,
            pg_rhos=lambda terms, lambda_: lambda_ * terms.pg_rhos,
        ),
    },
    "rho used for c": {"c is pi / mu, not clipped": partial(with_inputs, clip_c_threshold=lambda _: None)},
    "c-bar not separate": {
        "c is clipped at rho-bar": partial(
            with_inputs, clip_c_threshold=lambda case: case.params["clip_rho_threshold"]
        ),
        "c is clipped at 1, whatever c-bar is": partial(with_inputs, clip_c_threshold=lambda _: 1.0),
    },
    "every c is 1": {
        "1 for min(c-bar, pi / mu)": partial(with_terms, cs=lambda terms, lambda_: lambda_),
        "1 for lambda min(c-bar, pi / mu)": partial(with_terms, cs=lambda terms, _: 1.0),
    },
    "c without the discount": {"c for gamma c": partial(with_terms, trace_discounts=lambda terms, _: 1.0)},
    "c shifted by one": {
        "that of the next step": _shifted_cs(by=-1, edge=-1),
        "that of the step before, the first row's own for the first": _shifted_cs(by=1, edge=0),
        "that of the step before, the last row's for the first": _shifted_cs(by=1, edge=-1),
        "that of the step before, 1 for the first": _shifted_cs(by=1, edge=1.0),
    },
    "lambda left out": {"c is not multiplied by it": partial(with_inputs, lambda_=lambda _: 1.0)},
    "bootstrap value counted twice": {
        "added to the last reward as well": mistakes.bootstrap_in_the_last_reward,
        "the recursion of v_s - V(x_s) starts at V(x_T) for 0": mistakes.bootstrap_after_the_last,
    },
    "bootstrap value left out": {
        "0 for V(x_T)": partial(mistakes.bootstrap_from, last=lambda terms: 0 * terms.values[0]),
        "V(x_{T-1}) for V(x_T)": partial(mistakes.bootstrap_from, last=lambda terms: terms.values[-1]),
        "V(x_0) for V(x_T)": partial(mistakes.bootstrap_from, last=lambda terms: terms.values[0]),
    },
    "bootstrap value left out of delta": {"0 for V(x_T) there": mistakes.bootstrap_in_the_advantage_alone},
    "wrong v_T in the last advantage": {
        "0 for V(x_T)": partial(with_advantages, change=lambda vs, *_: follow(vs, 0 * vs[0])),
        "v_{T-1} for V(x_T)": partial(with_advantages, change=lambda vs, *_: follow(vs, vs[-1])),
        "v_0 for V(x_T)": partial(with_advantages, change=lambda vs, *_: follow(vs, vs[0])),
        "V(x_{T-1}) for V(x_T)": partial(with_advantages, change=lambda vs, terms, _: follow(vs, terms.values[-1])),
    },
    "discount shifted by one": {
        "that of the next step, the last row's own for the last": _shifted(by=-1, edge=-1),
        "that of the next step, the first row's for the last": _shifted(by=-1, edge=0),
        "that of the next step, 0 for the last": _shifted(by=-1, edge=0.0),
        "that of the next step, 1 for the last": _shifted(by=-1, edge=1.0),
        "that of the step before, the first row's own for the first": _shifted(by=1, edge=0),
        "that of the step before, the last row's for the first": _shifted(by=1, edge=-1),
        "that of the step before, 0 for the first": _shifted(by=1, edge=0.0),
        "that of the step before, 1 for the first": _shifted(by=1, edge=1.0),
    },
    "next episode's value leaking past a cut": {
        "a reset step counts as if its ratio were 1": partial(
            with_inputs, log_rhos=lambda case: np.where(mistakes.is_cut(case), 0.0, case.inputs["log_rhos"])
        ),
        "a reset step has rho 0, but c 1": mistakes.cross_cuts,
    },
    "truncation taken for a termination": {
        "discount 0 before a reset step": partial(
            with_inputs, discounts=lambda case: np.where(mistakes.is_before_cut(case), 0.0, case.inputs["discounts"])
        )
    },
    "truncation bootstraps from the next episode": {
        "V(x_{t+2}) for V(x_{t+1}) before a reset step, in delta and advantage": partial(
            mistakes.bootstrap_from_the_next_episode, in_delta=True, in_advantage=True
        ),
        "V(x_{t+2}) for V(x_{t+1}) before a reset step, in delta": partial(
            mistakes.bootstrap_from_the_next_episode, in_delta=True, in_advantage=False
        ),
        "V(x_{t+2}) for V(x_{t+1}) before a reset step, in the advantage": partial(
            mistakes.bootstrap_from_the_next_episode, in_delta=False, in_advantage=True
        ),
    },
    "V(x_{s+1}) in the advantage": {
        "where v_{s+1} belongs": partial(with_advantages, change=lambda vs, terms, _: terms.next_values)
    },
    "lambda in the advantage": {
        "lambda v_{s+1} + (1 - lambda) V(x_{s+1}) for v_{s+1}: a departure from the paper that rlax makes": partial(
            with_advantages,
            change=lambda vs, terms, lambda_: lambda_ * follow(vs, terms.next_values[-1])
            + (1 - lambda_) * terms.next_values,
        )
    },
    "vs - V as the advantage": {
        "without a weight": partial(with_outputs, change=lambda right, terms: (right.vs, right.vs - terms.values)),
        "times its rho": partial(
            with_outputs, change=lambda right, terms: (right.vs, terms.pg_rhos * (right.vs - terms.values))
        ),
    },
    "advantage without a weight": {"1 for its rho": partial(with_terms, pg_rhos=lambda terms, _: 1.0)},
    "rho not clipped in the advantage": {
        "pi / mu for it": partial(with_inputs, clip_pg_rho_threshold=lambda _: None)
    },
    "one clip for both rhos": {
        "rho-bar in the advantage": partial(
            with_inputs, clip_pg_rho_threshold=lambda case: case.params["clip_rho_threshold"]
        )
    },
    "vs - V returned for vs": {
        "V(x_s) not added": partial(
            with_outputs, change=lambda right, terms: (right.vs - terms.values, right.pg_advantages)
        )
    },
    "outputs swapped": {
        "advantages first": partial(with_outputs, change=lambda right, _: (right.pg_advantages, right.vs))
    },
    "time and batch swapped": {"time is axis 1 wherever there are two": mistakes.swap_axes},
}
_WAYS_WITH_LOGITS: dict[str, dict[str, Compute]] = {
    "logits not normalized": {
        "no log_softmax": partial(with_log_probs, read=policies.take),
        "log_softmax over time": partial(with_log_probs, read=mistakes.read_normalized_along(0)),
        "log_softmax over the batch": partial(with_log_probs, read=mistakes.read_normalized_along(1)),
    },
    "probability of another action": {
        "action 0, whatever was done": partial(with_log_probs, read=mistakes.read_first_action),
        "time and batch of the actions swapped": partial(with_log_probs, read=mistakes.read_turned_actions),
    },
}
FAULTS = [
    Fault(name, how, compute, takes)
    for takes, family in (("", _WAYS), ("target_policy_logits", _WAYS_WITH_LOGITS))
    for name, ways in family.items()
    for how, compute in ways.items()
]

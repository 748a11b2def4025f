"""Computes the numbers of mistakes: wrong terms, everywhere or in one place, or wrong outputs."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from monobeast.vtrace_check import policies
from monobeast.vtrace_check.terms import Outputs, Terms, complete, follow, make_terms, solve, solve_advantages, solve_vs
from monobeast.vtrace_vectors import Array, Case

FindRows = Callable[[Case], Array]
MakeTerms = Callable[[Case], Terms]
Compute = Callable[[Case], Outputs]


def with_inputs(**changed: Callable[[Case], Any]) -> MakeTerms:
    """Terms with changed inputs or parameters, computed from the case."""
    return lambda case: make_terms(case, **{name: change(case) for name, change in changed.items()})


def with_terms(**changed: Callable[[Terms, float], Array | float]) -> MakeTerms:
    """The right terms, except for some that are computed from them and lambda."""

    def make(case: Case) -> Terms:
        terms = make_terms(case)
        made = {name: change(terms, case.params["lambda_"]) for name, change in changed.items()}
        return terms._replace(**{name: np.broadcast_to(term, terms.values.shape) for name, term in made.items()})

    return make


def only(name: str, wrong: MakeTerms) -> MakeTerms:
    """The right terms, except for one, taken from wrong ones."""
    return lambda case: make_terms(case)._replace(**{name: getattr(wrong(case), name)})


def clipped(**at: list[str | float | None]) -> MakeTerms:
    """Terms with rho, pg_rho or c clipped at the smallest of these: thresholds by name or value; None: no clip."""

    def find(case: Case, names: list[str | float | None]) -> float | None:
        found = [case.params[f"clip_{name}_threshold"] if isinstance(name, str) else name for name in names]
        return min((threshold for threshold in found if threshold is not None), default=None)

    return with_inputs(**{f"clip_{name}_threshold": partial(find, names=names) for name, names in at.items()})


def everywhere(wrong: MakeTerms) -> Compute:
    """vs and advantages of wrong terms."""
    return lambda case: solve(wrong(case))


def in_vs(wrong: MakeTerms) -> Compute:
    """vs of wrong terms, and otherwise right advantages that follow from them."""
    return lambda case: complete(solve_vs(wrong(case)), make_terms(case))


def in_advantages(wrong: MakeTerms) -> Compute:
    """Right vs, and advantages of wrong terms."""
    return lambda case: complete(solve_vs(make_terms(case)), wrong(case))


def with_outputs(change: Callable[[Outputs, Terms], Outputs]) -> Compute:
    """Outputs computed from the right ones."""

    def compute(case: Case) -> Outputs:
        terms = make_terms(case)
        with np.errstate(invalid="ignore", over="ignore"):
            return change(solve(terms), terms)

    return compute


def with_targets(change: Callable[[Array, Terms, float], Array]) -> Compute:
    """Right vs, and advantages with other values for v_1 .. v_T, computed from vs, terms and lambda."""

    def compute(case: Case) -> Outputs:
        terms = make_terms(case)
        vs = solve_vs(terms)
        return Outputs(vs, solve_advantages(terms, change(vs, terms, case.params["lambda_"])))

    return compute


def shift(array: Array, by: int, edge: int | float) -> Array:
    """Rows shifted by one; the missing row is a copy of row `edge`, or that number if it is a float."""
    moved = np.roll(array, by, axis=0)
    moved[0 if by > 0 else -1] = array[edge] if isinstance(edge, int) else edge
    return moved


def with_lambda_in_ratios(case: Case) -> Terms:
    """Terms with lambda pi / mu as ratio, so that c is min(c-bar, lambda pi / mu)."""
    with np.errstate(divide="ignore"):
        return make_terms(case, log_rhos=case.inputs["log_rhos"] + np.log(case.params["lambda_"]), lambda_=1.0)


def with_input_where(find: FindRows, name: str, value: float) -> MakeTerms:
    """Terms with an input that has this value in some rows."""
    return with_inputs(**{name: lambda case: np.where(find(case), value, case.inputs[name])})


def with_traces_across(find: FindRows) -> MakeTerms:
    """The right terms, except for c, which is lambda in some rows."""

    def make(case: Case) -> Terms:
        terms = make_terms(case)
        return terms._replace(cs=np.where(find(case), case.params["lambda_"], terms.cs))

    return make


def is_reset(case: Case) -> Array:
    """Whether a row is a reset step."""
    return _find_ends(case, "is_reset")


def is_done(case: Case) -> Array:
    """Whether an episode ends in a row."""
    return _find_ends(case, "done")


def _find_ends(case: Case, name: str) -> Array:
    """Ends as [T, B, 1, ...], with as many axes as the case."""
    shape = case.expected["vs"].shape
    return case.ends.get(name, np.zeros(shape[:2], dtype=bool)).reshape(shape[:2] + (1,) * (len(shape) - 2))


def is_zero(case: Case) -> Array:
    """Whether the ratio of a row is 0, as it is in reset steps."""
    return np.isneginf(case.inputs["log_rhos"])


def is_before(find: FindRows) -> FindRows:
    """Whether the condition holds for the next row."""
    return lambda case: follow(find(case), np.zeros_like(find(case)[0]))


def add_to_last(rows: Array, more: Array) -> Array:
    """The rows, with something added to the last."""
    return np.concatenate([rows[:-1], (rows[-1] + more)[None]])


def bootstrap_from_the_next_episode(case: Case, find: FindRows, in_delta: bool, in_advantage: bool) -> Outputs:
    """Terms with V(x_{t+2}) for V(x_{t+1}) where row t + 1 is a reset step."""
    terms, is_last = make_terms(case), is_before(find)(case)
    next_values = np.where(is_last, follow(terms.next_values, terms.next_values[-1]), terms.next_values)
    vs = solve_vs(terms._replace(next_values=next_values) if in_delta else terms)
    vs_t_plus_1 = follow(vs, terms.next_values[-1])
    return Outputs(vs, solve_advantages(terms, np.where(is_last & in_advantage, next_values, vs_t_plus_1)))


def bootstrap_after_the_last(case: Case, in_advantage: bool) -> Outputs:
    """Outputs with V(x_T) for v_T - V(x_T), so that v_T is twice V(x_T)."""
    terms = make_terms(case)
    last = terms.next_values[-1]
    vs = solve_vs(terms, after_last=last)
    return Outputs(vs, solve_advantages(terms, follow(vs, 2 * last if in_advantage else last)))


def swap_axes(case: Case) -> Outputs:
    """Outputs with time as axis 1; V(x_T) only fits then if T = B."""
    terms = make_terms(case)
    if terms.values.shape[0] != terms.values.shape[1]:
        return solve(terms)
    turned = Terms(*(np.swapaxes(term, 0, 1) for term in terms))
    outputs = solve(turned._replace(next_values=follow(turned.values, terms.next_values[-1])))
    return Outputs(*(np.swapaxes(array, 0, 1) for array in outputs))


def with_log_probs(read: Callable[[Array, Array], Array]) -> Compute:
    """Outputs with log probabilities read differently from the logits and actions of each policy."""

    def compute(case: Case) -> Outputs:
        actions = policies.choose_actions(case)
        logits = policies.target_logits(case), policies.behavior_logits(case)
        with np.errstate(invalid="ignore"):
            target, behavior = (read(of_policy, actions) for of_policy in logits)
            return solve(make_terms(case, log_rhos=target - behavior))

    return compute


def read_first_action(logits: Array, actions: Array) -> Array:
    """Reads action 0, whatever was done."""
    return policies.log_softmax(logits)[..., 0]


def read_turned_actions(logits: Array, actions: Array) -> Array:
    """Reads the actions with time and batch swapped."""
    return policies.take(policies.log_softmax(logits), np.swapaxes(actions, 0, 1).reshape(actions.shape))


def read_normalized_along(axis: int) -> Callable[[Array, Array], Array]:
    """Reads a softmax over another axis than the actions."""
    return lambda logits, actions: policies.take(policies.log_softmax(logits, axis), actions)

"""The numbers that mistakes give: each is a change to inputs, terms or outputs of a case."""

from collections.abc import Callable
from typing import Any

import numpy as np

from monobeast.vtrace_check import policies
from monobeast.vtrace_check.terms import Outputs, Terms, follow, make_terms, solve, solve_advantages, solve_vs
from monobeast.vtrace_vectors import Array, Case

Change = Callable[[Terms, float], Array | float]  # of the right terms and lambda


def with_inputs(case: Case, **changed: Callable[[Case], Any]) -> Outputs:
    """With other inputs or parameters, made of the case."""
    return solve(make_terms(case, **{name: change(case) for name, change in changed.items()}))


def with_terms(case: Case, **changed: Change) -> Outputs:
    """With other terms."""
    terms = make_terms(case)
    made = {name: change(terms, case.params["lambda_"]) for name, change in changed.items()}
    return solve(terms._replace(**{name: np.broadcast_to(term, terms.values.shape) for name, term in made.items()}))


def with_outputs(case: Case, change: Callable[[Outputs, Terms], tuple[Array, Array]]) -> Outputs:
    """With what is made of the right outputs."""
    terms = make_terms(case)
    with np.errstate(invalid="ignore", over="ignore"):
        return Outputs(*change(solve(terms), terms))


def with_advantages(case: Case, change: Callable[[Array, Terms, float], Array]) -> Outputs:
    """With something else for v_1 .. v_T in the advantages, made of vs, terms and lambda."""
    terms = make_terms(case)
    vs = solve_vs(terms)
    return Outputs(vs, solve_advantages(terms, change(vs, terms, case.params["lambda_"])))


def shift(array: Array, by: int, edge: int | float) -> Array:
    """Moved by a row; the row that is left without one has that of row `edge`, or the number, where that is a float."""
    moved = np.roll(array, by, axis=0)
    moved[0 if by > 0 else -1] = array[edge] if isinstance(edge, int) else edge
    return moved


def is_cut(case: Case) -> Array:
    """Whether a row is a reset step."""
    return np.isneginf(case.inputs["log_rhos"])


def is_before_cut(case: Case) -> Array:
    """Whether the next row is one."""
    return follow(is_cut(case), np.zeros_like(is_cut(case)[0]))


def cross_cuts(case: Case) -> Outputs:
    """With traces that go on over reset steps."""
    return with_terms(case, cs=lambda terms, lambda_: np.where(is_cut(case), lambda_, terms.cs))


def bootstrap_from(case: Case, last: Callable[[Terms], Array]) -> Outputs:
    """With another V(x_T)."""
    return with_terms(case, next_values=lambda terms, _: follow(terms.values, last(terms)))


def bootstrap_from_the_next_episode(case: Case, in_delta: bool, in_advantage: bool) -> Outputs:
    """With V(x_{t+2}) for V(x_{t+1}) where row t + 1 is a reset step."""
    terms, is_before = make_terms(case), is_before_cut(case)
    next_values = np.where(is_before, follow(terms.next_values, terms.next_values[-1]), terms.next_values)
    vs = solve_vs(terms._replace(next_values=next_values) if in_delta else terms)
    vs_t_plus_1 = follow(vs, terms.next_values[-1])
    return Outputs(vs, solve_advantages(terms, np.where(is_before & in_advantage, next_values, vs_t_plus_1)))


def bootstrap_in_the_last_reward(case: Case) -> Outputs:
    """With gamma V(x_T) added to it."""
    terms = make_terms(case)
    last = terms.rewards[-1] + terms.discounts[-1] * terms.next_values[-1]
    return solve(terms._replace(rewards=np.concatenate([terms.rewards[:-1], last[None]])))


def bootstrap_after_the_last(case: Case) -> Outputs:
    """With V(x_T) for v_T - V(x_T)."""
    terms = make_terms(case)
    return solve(terms, after_last=terms.next_values[-1])


def bootstrap_in_the_advantage_alone(case: Case) -> Outputs:
    """With 0 for V(x_T) in delta."""
    terms = make_terms(case)
    vs = solve_vs(terms._replace(next_values=follow(terms.values, 0 * terms.values[0])))
    return Outputs(vs, solve_advantages(terms, follow(vs, terms.next_values[-1])))


def swap_axes(case: Case) -> Outputs:
    """With time along axis 1: only where T = B does V(x_T) fit nevertheless."""
    terms = make_terms(case)
    if terms.values.shape[0] != terms.values.shape[1]:
        return solve(terms)
    turned = Terms(*(np.swapaxes(term, 0, 1) for term in terms))
    outputs = solve(turned._replace(next_values=follow(turned.values, terms.next_values[-1])))
    return Outputs(*(np.swapaxes(array, 0, 1) for array in outputs))


def with_log_probs(case: Case, read: Callable[[Array, Array], Array]) -> Outputs:
    """With log probabilities that are read otherwise from the logits and actions of each policy."""
    actions = policies.choose_actions(case)
    with np.errstate(invalid="ignore"):
        target, behavior = (read(make(case), actions) for make in (policies.target_logits, policies.behavior_logits))
        return solve(make_terms(case, log_rhos=target - behavior))


def read_first_action(logits: Array, actions: Array) -> Array:
    """Whatever was done."""
    return policies.log_softmax(logits)[..., 0]


def read_turned_actions(logits: Array, actions: Array) -> Array:
    """The actions in the order of time along axis 1."""
    return policies.take(policies.log_softmax(logits), np.swapaxes(actions, 0, 1).reshape(actions.shape))


def read_normalized_along(axis: int) -> Callable[[Array, Array], Array]:
    """A softmax over something else than the actions."""
    return lambda logits, actions: policies.take(policies.log_softmax(logits, axis), actions)

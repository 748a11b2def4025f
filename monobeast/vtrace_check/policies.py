"""Two policies with the log ratios of a case, for functions that take log probabilities or logits.

There are three actions, which vary from step to step. The logits are not normalized: each row has its own offset, and
pi's differs from mu's. So a function that forgets log_softmax, or uses the wrong action, gets different ratios.
"""

import numpy as np

from monobeast.vtrace_vectors import Array, Case

NUM_ACTIONS = 3
_SHARES = np.log([0.25, 0.75])  # of what the action taken leaves to the other two


def choose_actions(case: Case) -> Array:
    """int64 [T, B, ...]: neither constant along an axis nor symmetric, and not 0 if there is only one step."""
    return (2 * _along(case, 0) + _along(case, 1) + 1) % NUM_ACTIONS


def behavior_log_probs(case: Case) -> Array:
    """log mu(a_t|x_t), low enough that log pi is not above 0 either."""
    return -1.0 - np.maximum(case.inputs["log_rhos"], 0.0)


def target_log_probs(case: Case) -> Array:
    """log pi(a_t|x_t)."""
    return case.inputs["log_rhos"] + behavior_log_probs(case)


def behavior_logits(case: Case) -> Array:
    """[T, B, ..., A], of mu."""
    return _logits(case, behavior_log_probs(case), offsets=-0.5 * ((2 * _along(case, 0) + _along(case, 1)) % 3))


def target_logits(case: Case) -> Array:
    """[T, B, ..., A], of pi."""
    return _logits(case, target_log_probs(case), offsets=1.0 + 0.5 * ((_along(case, 0) + 2 * _along(case, 1)) % 3))


def log_softmax(logits: Array, axis: int = -1) -> Array:
    """Log probabilities."""
    return logits - np.logaddexp.reduce(logits, axis=axis, keepdims=True)


def take(logits: Array, actions: Array) -> Array:
    """[T, B, ...]: the number of each row at its action."""
    return np.take_along_axis(logits, actions[..., None], axis=-1)[..., 0]


def _logits(case: Case, log_probs: Array, offsets: Array) -> Array:
    log_probs = np.broadcast_to(log_probs, case.expected["vs"].shape)
    rest = np.log1p(-np.exp(log_probs))
    of_taken_and_next_two = np.stack([log_probs, rest + _SHARES[0], rest + _SHARES[1]], axis=-1)
    places = (np.arange(NUM_ACTIONS) - choose_actions(case)[..., None]) % NUM_ACTIONS
    return np.take_along_axis(of_taken_and_next_two, places, axis=-1) + offsets[..., None]


def _along(case: Case, axis: int) -> Array:
    """The index along an axis, at every position."""
    return np.indices(case.expected["vs"].shape)[axis]

"""Two policies whose log ratios are those of a case, for functions that take log probabilities or logits.

Three actions, another one from step to step, and logits that are not normalized: each row has an offset of its own, and
pi another than mu. So a function that forgets log_softmax, or looks at the wrong action, gets other ratios.
"""

import numpy as np

from monobeast.vtrace_vectors import Array, Case

NUM_ACTIONS = 3
_SHARES = np.log([0.25, 0.75])  # of what the action taken leaves to the other two


def choose_actions(case: Case) -> Array:
    """int64 [T, B, ...]: neither constant along an axis nor symmetric, and not 0 where there is one step alone."""
    return (2 * _along(case, 0) + _along(case, 1) + 1) % NUM_ACTIONS


def behavior_log_probs(case: Case) -> Array:
    """log mu(a_t|x_t): neither above log pi nor above 0, so that those of pi are possible ones too."""
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
    """[T, B, ...]: of each row the number at its action."""
    return np.take_along_axis(logits, actions[..., None], axis=-1)[..., 0]


def _logits(case: Case, log_probs: Array, offsets: Array) -> Array:
    log_probs = np.broadcast_to(log_probs, case.expected["vs"].shape)
    rest = np.log1p(-np.exp(log_probs))
    of_taken_and_next_two = np.stack([log_probs, rest + _SHARES[0], rest + _SHARES[1]], axis=-1)
    places = (np.arange(NUM_ACTIONS) - choose_actions(case)[..., None]) % NUM_ACTIONS
    return np.take_along_axis(of_taken_and_next_two, places, axis=-1) + offsets[..., None]


def _along(case: Case, axis: int) -> Array:
    """The index along an axis, in every place."""
    return np.indices(case.expected["vs"].shape)[axis]

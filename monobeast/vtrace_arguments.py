"""What a case of the vectors offers to a V-trace function, under the names that such functions have for it."""

from collections.abc import Callable
from typing import Any

import numpy as np

from monobeast.vtrace_vectors import Array, Case

# What a function stands for that does not take these.
DEFAULTS = {"clip_rho_threshold": 1.0, "clip_pg_rho_threshold": 1.0, "clip_c_threshold": 1.0, "lambda_": 1.0}


def _next_values(case: Case) -> Array:
    """V(x_1) .. V(x_T)."""
    shape = case.expected["vs"].shape
    values, last = case.inputs["values"], case.inputs["bootstrap_value"]
    return np.concatenate([np.broadcast_to(values, shape)[1:], np.broadcast_to(last, shape[1:])[None]])


def _ratios(case: Case) -> Array:
    with np.errstate(over="ignore"):  # infinity is right for what is beyond the range
        return np.exp(case.inputs["log_rhos"])


def _behavior_log_probs(case: Case) -> Array:
    """Log probabilities, none above that of pi nor above 0, so that those of pi are possible ones too."""
    return -1.0 - np.maximum(case.inputs["log_rhos"], 0.0)


def _target_log_probs(case: Case) -> Array:
    return case.inputs["log_rhos"] + _behavior_log_probs(case)


def _logits(log_probs: Array) -> Array:
    """Two actions: the one taken, and another that has the rest."""
    return np.stack([log_probs, np.log1p(-np.exp(log_probs))], axis=-1)


def _steps(case: Case, name: str) -> Array:
    return case.ends.get(name, np.zeros(case.expected["vs"].shape[:2], dtype=bool))


def _threshold(name: str) -> Callable[[Case], Any]:
    # To clip at infinity is not to clip, and every function understands it; None not every one.
    return lambda case: np.inf if case.params[name] is None else case.params[name]


# What a function may ask for, and by which other names.
ARGUMENTS: dict[str, tuple[Callable[[Case], Any], str]] = {
    "log_rhos": (lambda case: case.inputs["log_rhos"], "log_rho log_ratios log_ratio log_importance_weights"),
    "rhos": (_ratios, "rho rho_tm1 ratios ratio importance_weights"),
    "behavior_action_log_probs": (_behavior_log_probs, "behavior_log_probs behavior_logprobs log_mu"),
    "target_action_log_probs": (_target_log_probs, "target_log_probs target_logprobs log_pi"),
    "behavior_policy_logits": (lambda case: _logits(_behavior_log_probs(case)), "behavior_logits"),
    "target_policy_logits": (lambda case: _logits(_target_log_probs(case)), "target_logits"),
    "actions": (lambda case: np.zeros(case.expected["vs"].shape, dtype=np.int64), "action"),
    "discounts": (lambda case: case.inputs["discounts"], "discount discount_t gammas"),
    "rewards": (lambda case: case.inputs["rewards"], "reward r_t"),
    "values": (lambda case: case.inputs["values"], "value v_tm1 baseline baselines state_values"),
    "bootstrap_value": (lambda case: case.inputs["bootstrap_value"], "bootstrap_values bootstrap last_value"),
    "next_values": (_next_values, "v_t values_t_plus_1 next_state_values"),
    "is_reset": (lambda case: _steps(case, "is_reset"), "resets"),
    "terminal": (lambda case: _steps(case, "terminal"), "terminals terminated"),
    "done": (lambda case: _steps(case, "done"), "dones"),
    "clip_rho_threshold": (_threshold("clip_rho_threshold"), "rho_bar clip_rho rho_clip rho_threshold"),
    "clip_pg_rho_threshold": (_threshold("clip_pg_rho_threshold"), "pg_rho_bar clip_pg_rho pg_rho_threshold"),
    "clip_c_threshold": (_threshold("clip_c_threshold"), "c_bar clip_c c_clip c_threshold"),
    "lambda_": (lambda case: case.params["lambda_"], "lam lmbda lambd vtrace_lambda"),
}
_NAMES = {other: name for name, (_, others) in ARGUMENTS.items() for other in (name, *others.split())}
# Of each, a function must take one.
RATIOS = ("log_rhos", "rhos", "target_action_log_probs", "target_policy_logits")
STATES = ("bootstrap_value", "next_values")


def find_argument(name: str) -> str | None:
    """Our name of what a function calls `name`; None if there is no such thing."""
    plain = name.lower().replace("behaviour", "behavior")
    return _NAMES.get(plain) or _NAMES.get(plain.rstrip("_")) or _NAMES.get(f"{plain}_")

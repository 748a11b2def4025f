"""The arguments that a case offers to a V-trace function, under their usual names."""

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

from monobeast.vtrace_check import policies
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


def _steps(name: str) -> Callable[[Case], Array]:
    return lambda case: case.ends.get(name, np.zeros(case.expected["vs"].shape[:2], dtype=bool))


def _threshold(name: str) -> Callable[[Case], Any]:
    # To clip at infinity is not to clip, and every function understands it; None not every one.
    return lambda case: np.inf if case.params[name] is None else case.params[name]


# What a function may ask for, and by which other names.
ARGUMENTS: dict[str, tuple[Callable[[Case], Any], str]] = {
    "log_rhos": (lambda case: case.inputs["log_rhos"], "log_rho log_ratios log_ratio log_importance_weights"),
    "rhos": (_ratios, "rho rho_tm1 ratios ratio importance_weights"),
    "behavior_action_log_probs": (policies.behavior_log_probs, "behavior_log_probs behavior_logprobs log_mu"),
    "target_action_log_probs": (policies.target_log_probs, "target_log_probs target_logprobs log_pi"),
    "behavior_policy_logits": (policies.behavior_logits, "behavior_logits"),
    "target_policy_logits": (policies.target_logits, "target_logits"),
    "actions": (policies.choose_actions, "action"),
    "discounts": (lambda case: case.inputs["discounts"], "discount discount_t gammas"),
    "rewards": (lambda case: case.inputs["rewards"], "reward r_t"),
    "values": (lambda case: case.inputs["values"], "value v_tm1 baseline baselines state_values state_value"),
    "bootstrap_value": (lambda case: case.inputs["bootstrap_value"], "bootstrap_values bootstrap last_value"),
    "next_values": (_next_values, "v_t next_value values_t_plus_1 next_state_values next_state_value"),
    "is_reset": (_steps("is_reset"), "resets"),
    "terminal": (_steps("terminal"), "terminals terminated"),
    "done": (_steps("done"), "dones"),
    "clip_rho_threshold": (
        _threshold("clip_rho_threshold"),
        "rho_bar rho_hat clip_rho rho_clip rho_threshold rho_thresh",
    ),
    "clip_pg_rho_threshold": (
        _threshold("clip_pg_rho_threshold"),
        "pg_rho_bar pg_rho_hat clip_pg_rho pg_rho_clip pg_rho_threshold pg_rho_thresh",
    ),
    "clip_c_threshold": (_threshold("clip_c_threshold"), "c_bar c_hat clip_c c_clip c_threshold c_thresh"),
    "lambda_": (lambda case: case.params["lambda_"], "lam lmbda lambd vtrace_lambda"),
}
_NAMES = {other: name for name, (_, others) in ARGUMENTS.items() for other in (name, *others.split())}

_OF_PI = (("target_action_log_probs",), ("target_policy_logits", "actions"))
_OF_MU = (("behavior_action_log_probs",), ("behavior_policy_logits", "actions"))
# A function must take all of one of the alternatives, of each.
NEEDED: tuple[tuple[tuple[str, ...], ...], ...] = (
    (("log_rhos",), ("rhos",), *(pi + mu for pi, mu in itertools.product(_OF_PI, _OF_MU))),
    (("discounts",),),
    (("rewards",),),
    (("values",),),
    (("bootstrap_value",), ("next_values",)),
)


def find_argument(name: str) -> str | None:
    """Our name for the argument that a function calls `name`; None if unknown."""
    plain = name.lower().replace("behaviour", "behavior")
    return _NAMES.get(plain) or _NAMES.get(plain.rstrip("_")) or _NAMES.get(f"{plain}_")

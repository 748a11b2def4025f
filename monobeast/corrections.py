"""The corrections that the paper compares with V-trace (arXiv 1802.01561, section 5.2.2, table 2): pure functions.

All three use the n-step returns of equation (2) as targets, as if mu were pi, and differ only in the policy gradient.
Names and shapes are those of `vtrace`.

Unlike in V-trace, reset steps, whose actions are ignored, are not marked by their ratio but by `is_reset`. Their target
is V(x_s), their advantage is 0, and no trace crosses them.
"""

import torch
from torch import Tensor

from monobeast.vtrace import Threshold, VTraceReturns, check_floats, clip_rhos, from_importance_weights, widen

EPSILON = 1e-6  # section 5.2.2


@torch.no_grad()
def uncorrected(
    discounts: Tensor,
    rewards: Tensor,
    values: Tensor,
    bootstrap_value: Tensor,
    is_reset: Tensor,
    lambda_: float | Tensor = 1.0,
) -> VTraceReturns:
    """No correction (table 2): v_s of equation (2), and the advantage r_s + gamma_s v_{s+1} - V(x_s).

    Args:
        discounts: float [T, B]: gamma_t, 0 if the episode terminates after a_t.
        rewards: float [T, B]: r_t, the reward for a_t.
        values: float [T, B]: V(x_t) under the policy being learned.
        bootstrap_value: float [B]: V(x_T).
        is_reset: bool [T, B]: the environment ignored a_t.
        lambda_: 0 to 1, as in V-trace (remark 2).

    Returns:
        `VTraceReturns`, without gradient.

    Raises:
        TypeError: an argument is not a tensor.
        ValueError: `is_reset` is not bool, an argument differs from the values' shape (nothing broadcasts), or as in
            `vtrace.from_importance_weights`.
    """
    _check_steps(values, is_reset, discounts=discounts, rewards=rewards)
    on_policy = torch.zeros_like(values).masked_fill(is_reset, -torch.inf)
    return from_importance_weights(on_policy, discounts, rewards, values, bootstrap_value, lambda_=lambda_)


@torch.no_grad()
def one_step(
    log_rhos: Tensor,
    discounts: Tensor,
    rewards: Tensor,
    values: Tensor,
    bootstrap_value: Tensor,
    is_reset: Tensor,
    clip_pg_rho_threshold: Threshold = 1.0,
    lambda_: float | Tensor = 1.0,
) -> VTraceReturns:
    """One-step importance sampling (table 2): the advantages of `uncorrected`, each times its own clipped ratio.

    Unlike V-trace, neither deltas nor traces are weighted, so a comparison shows what the traces are worth. Unlike the
    paper, the ratio is clipped as in V-trace, so that only the traces differ; a threshold of None gives the paper's
    form.

    Args:
        log_rhos: float [T, B]: log(pi(a_t|x_t) / mu(a_t|x_t)); not read at reset steps.
        clip_pg_rho_threshold: as in `vtrace.from_importance_weights`.

    Other arguments, return value and exceptions: as in `uncorrected`.
    """
    vs, advantages = uncorrected(discounts, rewards, values, bootstrap_value, is_reset, lambda_)
    _check_steps(values, is_reset, log_rhos=log_rhos)
    rhos = widen(log_rhos).masked_fill(is_reset, -torch.inf).exp()
    return VTraceReturns(vs, clip_rhos(rhos, "clip_pg_rho_threshold", clip_pg_rho_threshold) * advantages)


@torch.no_grad()
def epsilon_corrected(
    target_action_log_probs: Tensor,
    discounts: Tensor,
    rewards: Tensor,
    values: Tensor,
    bootstrap_value: Tensor,
    is_reset: Tensor,
    epsilon: float = EPSILON,
    lambda_: float | Tensor = 1.0,
) -> VTraceReturns:
    """Epsilon-correction (table 2), as in GA3C: the policy gradient of log(pi + epsilon) instead of log pi.

    Its gradient is that of log pi times pi / (pi + epsilon), so multiplying the advantages of `uncorrected` by that
    factor gives it with the same loss as the others. It bounds the gradient of actions that pi has given up.

    Args:
        target_action_log_probs: float [T, B]: log pi(a_t|x_t); not read at reset steps.
        epsilon: finite and above 0; otherwise ValueError.

    Other arguments, return value and exceptions: as in `uncorrected`.
    """
    if not 0 < epsilon < torch.inf:
        raise ValueError(f"epsilon: expected a finite number above 0, found {epsilon}")
    vs, advantages = uncorrected(discounts, rewards, values, bootstrap_value, is_reset, lambda_)
    _check_steps(values, is_reset, target_action_log_probs=target_action_log_probs)
    log_probs = widen(target_action_log_probs).masked_fill(is_reset, -torch.inf)
    # pi / (pi + epsilon), also of a density that is too large for the dtype.
    return VTraceReturns(vs, advantages / (1 + epsilon * (-log_probs).exp()))


def _check_steps(values: Tensor, is_reset: Tensor, **over_time: Tensor) -> None:
    """Raises TypeError or ValueError unless `is_reset` is bool, all others are floats, and shapes are equal."""
    check_floats(values=values, **over_time)
    if not isinstance(is_reset, Tensor):
        raise TypeError(f"is_reset: expected a tensor, found a {type(is_reset).__name__}")
    if is_reset.dtype != torch.bool or is_reset.shape != values.shape:
        expected, found = f"{list(values.shape)} of torch.bool", f"{list(is_reset.shape)} of {is_reset.dtype}"
        raise ValueError(f"is_reset: expected shape {expected}, found {found}")
    for name, tensor in over_time.items():
        if tensor.shape != values.shape:
            raise ValueError(f"{name}: expected shape {list(values.shape)}, found {list(tensor.shape)}")

"""What V-trace is compared with in the paper (arXiv 1802.01561, section 5.2.2, table 2), as pure functions of tensors.

All take V for what it is on the way they came: targets are n-step returns of equation (2), as if mu were pi. They
differ in the policy gradient alone. Names and shapes are those of `vtrace`.

A reset step's action was ignored, so no ratio tells that it is to be left out: `is_reset` does. Its target is V(x_s),
its advantage 0, and nothing of one episode reaches the other.
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
    """No correction (table 2): v_s of equation (2), and r_s + gamma_s v_{s+1} - V(x_s) for the advantage.

    Args:
        discounts: float [T, B]: gamma_t, 0 where nothing after a_t has value.
        rewards: float [T, B]: r_t, the answer to a_t.
        values: float [T, B]: V(x_t) under the policy being learned.
        bootstrap_value: float [B]: V(x_T).
        is_reset: bool [T, B]: the environment ignored a_t.
        lambda_: 0 to 1, as in V-trace (remark 2).

    Returns:
        `VTraceReturns`, without gradient.

    Raises:
        TypeError: an argument is no tensor.
        ValueError: `is_reset` is not bool, an argument is not of the values' shape (nothing broadcasts), or as in
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

    Unlike V-trace, neither delta nor trace is weighted: it shows what the traces are worth. Unlike the paper, which
    multiplies by the ratio as it is, that is clipped as V-trace's is, so that the traces alone make the difference;
    with a threshold of None it is the paper's.

    Args:
        log_rhos: float [T, B]: log(pi(a_t|x_t) / mu(a_t|x_t)); not read at reset steps.
        clip_pg_rho_threshold: as in `vtrace.from_importance_weights`.

    The others, and what is returned and raised: as in `uncorrected`.
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
    """Epsilon-correction (table 2), as in GA3C: the policy gradient of log(pi + epsilon) in place of log pi.

    Its gradient is that of log pi, times pi / (pi + epsilon); so the advantages of `uncorrected` times that factor give
    it, with the loss of all the others. It keeps an action that pi gave up from a gradient that grows without bound.

    Args:
        target_action_log_probs: float [T, B]: log pi(a_t|x_t); not read at reset steps.
        epsilon: above 0, else ValueError.

    The others, and what is returned and raised: as in `uncorrected`.
    """
    if not 0 < epsilon < torch.inf:
        raise ValueError(f"epsilon: expected a number above 0, found {epsilon}")
    vs, advantages = uncorrected(discounts, rewards, values, bootstrap_value, is_reset, lambda_)
    _check_steps(values, is_reset, target_action_log_probs=target_action_log_probs)
    log_probs = widen(target_action_log_probs).masked_fill(is_reset, -torch.inf)
    # pi / (pi + epsilon), also of a density that is too large for the dtype.
    return VTraceReturns(vs, advantages / (1 + epsilon * (-log_probs).exp()))


def _check_steps(values: Tensor, is_reset: Tensor, **over_time: Tensor) -> None:
    """Raises TypeError or ValueError unless `is_reset` is bool, the others floats, and all are of the values' shape."""
    check_floats(values=values, **over_time)
    if not isinstance(is_reset, Tensor):
        raise TypeError(f"is_reset: expected a tensor, found a {type(is_reset).__name__}")
    if is_reset.dtype != torch.bool or is_reset.shape != values.shape:
        expected, found = f"{list(values.shape)} of torch.bool", f"{list(is_reset.shape)} of {is_reset.dtype}"
        raise ValueError(f"is_reset: expected shape {expected}, found {found}")
    for name, tensor in over_time.items():
        if tensor.shape != values.shape:
            raise ValueError(f"{name}: expected shape {list(values.shape)}, found {list(tensor.shape)}")

"""The three losses of IMPALA's updates (arXiv 1802.01561, section 4.2), as pure functions of tensors.

Names and meanings are TorchBeast's. Each loss is the sum over time and batch (appendix D.1), not the mean; learning
rate and loss weights are chosen for sums. "..." stands for any leading shape, mostly [T, B].
"""

import torch
from torch import Tensor


def compute_policy_gradient_loss(logits: Tensor, actions: Tensor, advantages: Tensor) -> Tensor:
    """Sum of -log pi(a|x) * advantage, whose negative gradient is the policy gradient of section 4.2, equation (4).

    Args:
        logits: float [..., A]: logits of the policy being learned.
        actions: int64 [...]: actions taken, 0 to A - 1.
        advantages: float [...]: treated as constants; no gradient flows into them.

    Returns:
        float []: the loss.

    Raises:
        ValueError: shapes differ, or `actions` is not int64.
    """
    if actions.dtype != torch.int64:
        raise ValueError(f"actions: expected dtype torch.int64, found {actions.dtype}")
    _check_shape("actions", actions, logits.shape[:-1], "logits")
    _check_shape("advantages", advantages, logits.shape[:-1], "logits")
    log_probs = logits.log_softmax(dim=-1).gather(-1, actions.unsqueeze(-1)).squeeze(-1)
    return compute_policy_gradient_loss_from_log_probs(log_probs, advantages)


def compute_policy_gradient_loss_from_log_probs(action_log_probs: Tensor, advantages: Tensor) -> Tensor:
    """`compute_policy_gradient_loss` for actions of any kind with known log pi(a|x).

    Args:
        action_log_probs: float [...]: log pi(a|x) of the policy being learned, or its log density; gradients flow
            through it.
        advantages: float [...]: treated as constants; no gradient flows into them.

    Returns:
        float []: the loss.

    Raises:
        ValueError: shapes differ.
    """
    _check_shape("advantages", advantages, action_log_probs.shape, "action_log_probs")
    return -(action_log_probs * advantages.detach()).sum()


def compute_baseline_loss(advantages: Tensor) -> Tensor:
    """Half the sum of squares of v_s - V(x_s), for the first update of section 4.2.

    Args:
        advantages: float [...]: v_s - V(x_s); gradients flow through it to V.

    Returns:
        float []: the loss.
    """
    return 0.5 * advantages.square().sum()


def compute_entropy_loss(logits: Tensor, mask: Tensor | None = None) -> Tensor:
    """Sum of p log p, the negative entropy of section 4.2; a lower loss means more exploration.

    A logit of minus infinity marks an action that is not allowed; it adds nothing to the loss or its gradient.

    Args:
        logits: float [..., A]: logits of the policy being learned.
        mask: bool [...]: True where an element counts (reset steps do not); None: all count.

    Returns:
        float []: the loss, between -log A and 0 per element.

    Raises:
        ValueError: `mask` is not bool or does not have the logits' leading shape.
    """
    return _sum_where(mask, -compute_entropies(logits), "logits")


def compute_entropies(logits: Tensor) -> Tensor:
    """-sum of p log p over the actions, in nats: float [..., A] to float [...]; see `compute_entropy_loss`."""
    log_probs = logits.log_softmax(dim=-1)
    probs = log_probs.exp()
    # 0 log 0 = 0, also for autograd, which meets 0 * -inf = NaN otherwise.
    return -(probs * log_probs.masked_fill(probs == 0, 0.0)).sum(dim=-1)


def compute_entropy_loss_from_entropies(entropies: Tensor, mask: Tensor | None = None) -> Tensor:
    """`compute_entropy_loss` for policies of any kind with known entropies.

    Args:
        entropies: float [...]: of the policy being learned, in nats; gradients flow through it.
        mask: bool [...]: as in `compute_entropy_loss`.

    Returns:
        float []: the loss; for densities, whose entropy has no minimum, it has no maximum.

    Raises:
        ValueError: `mask` is not bool or does not have the entropies' shape.
    """
    return _sum_where(mask, -entropies, "entropies")


def _sum_where(mask: Tensor | None, values: Tensor, of: str) -> Tensor:
    if mask is None:
        return values.sum()
    if mask.dtype != torch.bool:
        raise ValueError(f"mask: expected dtype torch.bool, found {mask.dtype}")
    _check_shape("mask", mask, values.shape, of)
    return values.masked_fill(~mask, 0.0).sum()


def _check_shape(name: str, tensor: Tensor, expected: torch.Size, of: str) -> None:
    """Raises ValueError unless `tensor` has the expected shape for `of`."""
    if tensor.shape != expected:
        raise ValueError(f"{name}: expected shape {list(expected)} for these {of}, found {list(tensor.shape)}")

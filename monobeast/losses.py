"""The three losses of IMPALA's updates (arXiv 1802.01561, section 4.2), as pure functions of tensors.

Each loss is the sum over time and batch (appendix D.1), not the mean: the learning rate and the costs that weigh the
losses against each other are meant for sums. "..." stands for any shape, mostly [T, B].
"""

import torch
from torch import Tensor


def compute_policy_gradient_loss(action_log_probs: Tensor, advantages: Tensor) -> Tensor:
    """Sum of -log pi(a|x) * advantage, whose negative gradient is the policy gradient of section 4.2, equation (4).

    Args:
        action_log_probs: float [...]: log pi(a|x) of the policy being learned, or its density; gradients flow through
            it.
        advantages: float [...]: constants here; no gradient flows into them.

    Returns:
        float []: the loss.

    Raises:
        ValueError: shapes differ.
    """
    _check_shape("advantages", advantages, action_log_probs.shape, "action_log_probs")
    return -(action_log_probs * advantages.detach()).sum()


def compute_baseline_loss(errors: Tensor) -> Tensor:
    """Half the sum of squares of v_s - V(x_s), for the first update of section 4.2.

    Args:
        errors: float [...]: v_s - V(x_s); gradients flow through it to V.

    Returns:
        float []: the loss.
    """
    return 0.5 * errors.square().sum()


def compute_entropy_loss(entropies: Tensor, mask: Tensor | None = None) -> Tensor:
    """The negative sum of the entropies, section 4.2: less of it is more exploration.

    Args:
        entropies: float [...]: of the policy being learned, in nats; gradients flow through it.
        mask: bool [...]: True where an element counts (a reset step does not); None counts all.

    Returns:
        float []: the loss. Of A actions, -log A per element at the least and 0 at the most; of densities, unbounded.

    Raises:
        ValueError: `mask` is not bool or does not have the entropies' shape.
    """
    if mask is None:
        return -entropies.sum()
    if mask.dtype != torch.bool:
        raise ValueError(f"mask: expected dtype torch.bool, found {mask.dtype}")
    _check_shape("mask", mask, entropies.shape, "entropies")
    return -entropies.masked_fill(~mask, 0.0).sum()


def _check_shape(name: str, tensor: Tensor, expected: torch.Size, of: str) -> None:
    """Raises ValueError unless `tensor` has the expected shape for `of`."""
    if tensor.shape != expected:
        raise ValueError(f"{name}: expected shape {list(expected)} for these {of}, found {list(tensor.shape)}")

"""Rewards as the learner sees them: clipped, then normalized, then scaled. The log has the game's own."""

import torch
from torch import Tensor


_LIMIT = 10.0  # of a normalized reward, as in OpenAI's baselines


def shape_rewards(rewards: Tensor, clipping: str, scale: float = 1.0, deviation: Tensor | None = None) -> Tensor:
    """Rewards clipped as `clipping` says, by `deviation` and then clipped to [-10, 10], times `scale`.

    Args:
        rewards: float [...]: the game's own.
        clipping: Of `clip_rewards`.
        scale: The unit of values and advantages against which the entropy cost and the clip of gradients count.
        deviation: float []: what `--normalize_rewards` divides by; None leaves that and its clip out.

    Returns:
        float [...], of the rewards' dtype.
    """
    rewards = clip_rewards(rewards, clipping)
    if deviation is not None:
        rewards = (rewards / deviation).clamp(-_LIMIT, _LIMIT)
    return rewards if scale == 1.0 else rewards * scale


def clip_rewards(rewards: Tensor, clipping: str) -> Tensor:
    """Rewards clipped as `clipping` says.

    Args:
        rewards: float [...]: the game's own.
        clipping: `abs_one`: to [-1, 1], as for Atari (arXiv 1802.01561, appendix G, table G.1).
            `soft_asymmetric`: 0.3 min(tanh r, 0) + 5 max(tanh r, 0), as for DMLab-30 (the same, appendix D).
            IMPALA's published code has 1.5 and 5 times tanh(r / 5), which leaves small gains as they are; here it is
            as in the paper. `none`: as they are.

    Returns:
        float [...], of the rewards' dtype.
    """
    if clipping == "abs_one":
        rewards = rewards.clamp(-1.0, 1.0)
    elif clipping == "soft_asymmetric":
        squeezed = rewards.tanh()
        rewards = torch.where(squeezed < 0, 0.3 * squeezed, 5.0 * squeezed)
    return rewards

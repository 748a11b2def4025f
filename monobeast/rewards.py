"""Rewards as seen by the learner: clipped, then normalized, then scaled. The log has the game's rewards."""

import torch
from torch import Tensor


_LIMIT = 10.0  # of a normalized reward, as in OpenAI's baselines


def shape_rewards(rewards: Tensor, clipping: str, scale: float = 1.0, deviation: Tensor | None = None) -> Tensor:
    """Rewards clipped according to `clipping`, divided by `deviation` and clipped to [-10, 10], times `scale`.

    Args:
        rewards: float [...]: the game's rewards.
        clipping: As in `clip_rewards`.
        scale: Factor; it changes values and advantages relative to the entropy cost and the gradient clip.
        deviation: float []: the divisor of `--normalize_rewards`; None: neither division nor clip.

    Returns:
        float [...], with the rewards' dtype.
    """
    rewards = clip_rewards(rewards, clipping)
    if deviation is not None:
        rewards = (rewards / deviation).clamp(-_LIMIT, _LIMIT)
    return rewards if scale == 1.0 else rewards * scale


def clip_rewards(rewards: Tensor, clipping: str) -> Tensor:
    """Rewards clipped according to `clipping`.

    Args:
        rewards: float [...]: the game's rewards.
        clipping: `abs_one`: to [-1, 1], as for Atari (arXiv 1802.01561, appendix G, table G.1).
            `soft_asymmetric`: 0.3 min(tanh r, 0) + 5 max(tanh r, 0), as for DMLab-30 (the same, appendix D).
            IMPALA's published code uses 1.5 and 5 times tanh(r / 5), which keeps small gains; here it is as in the
            paper. `none`: unchanged.

    Returns:
        float [...], with the rewards' dtype.
    """
    if clipping == "abs_one":
        rewards = rewards.clamp(-1.0, 1.0)
    elif clipping == "soft_asymmetric":
        squeezed = rewards.tanh()
        rewards = torch.where(squeezed < 0, 0.3 * squeezed, 5.0 * squeezed)
    return rewards

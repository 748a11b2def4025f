"""What the learner sees of a game's rewards."""

import math

import pytest
import torch

from monobeast.rewards import shape_rewards

REWARDS = [-5.0, -1.0, 0.0, 0.5, 100.0]
# By hand, from the formula of each.
CLIPPED = {
    "none": REWARDS,
    "abs_one": [-1.0, -1.0, 0.0, 0.5, 1.0],
    "soft_asymmetric": [0.3 * math.tanh(-5.0), 0.3 * math.tanh(-1.0), 0.0, 5 * math.tanh(0.5), 5.0],
}


@pytest.mark.parametrize("scale", [1.0, 0.01])
@pytest.mark.parametrize("clipping", CLIPPED)
def test_rewards_are_clipped_then_scaled(clipping, scale):
    shaped = shape_rewards(torch.tensor(REWARDS, dtype=torch.float64), clipping, scale)

    torch.testing.assert_close(shaped.tolist(), [scale * reward for reward in CLIPPED[clipping]], rtol=1e-15, atol=0)

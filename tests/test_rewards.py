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


@pytest.mark.parametrize("clipping", CLIPPED)
def test_between_the_two_they_are_divided_and_clipped_to_ten(clipping):
    deviation = torch.tensor(0.25, dtype=torch.float64)

    shaped = shape_rewards(torch.tensor(REWARDS), clipping, 3.0, deviation)

    wanted = [3 * min(max(reward / 0.25, -10), 10) for reward in CLIPPED[clipping]]
    torch.testing.assert_close(shaped, torch.tensor(wanted), rtol=1e-6, atol=0)  # float32, as the rewards

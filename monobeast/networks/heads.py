"""The policy's head: from features to the parameters of a distribution."""

import torch
from torch import Tensor, nn

from monobeast.distributions import DiagonalGaussian, Distribution
from monobeast.networks.initialization import initialize

# Small, so that training starts from a nearly uniform policy, or from one whose mean is in the middle of its bounds.
_GAIN = 0.01


class GaussianHead(nn.Module):
    """Means from the features, and standard deviations that are separate parameters: [..., F] to [..., 2 D].

    As usual in PPO and A2C, the standard deviation is one number per action dimension, the same in every state. It
    starts at 1, half the range of a bounded action.

    Means of bounded dimensions are kept within -1 and 1 by tanh. Otherwise they drift out to where all actions are
    clipped to the same value and no gradient leads back, and soon move faster than ratios can correct. Seen on
    Pendulum: means of size 10, a KL of 1 and more between actors and learner, and returns alternating between -200 and
    -1300.
    """

    def __init__(self, num_features: int, distribution: DiagonalGaussian) -> None:
        super().__init__()
        self.mean = initialize(nn.Linear(num_features, *distribution.action_shape), gain=_GAIN)
        self.log_std = nn.Parameter(torch.zeros(distribution.action_shape))
        self.register_buffer("is_bounded", torch.tensor(distribution.is_bounded), persistent=False)

    def forward(self, features: Tensor) -> Tensor:
        mean = self.mean(features)
        mean = torch.where(self.is_bounded, mean.tanh(), mean)
        return torch.cat([mean, self.log_std.expand_as(mean)], dim=-1)


def make_policy_head(distribution: Distribution, num_features: int) -> nn.Module:
    """A module from float32 [..., F] to the distribution's parameters, float32 [..., P]."""
    if isinstance(distribution, DiagonalGaussian):
        return GaussianHead(num_features, distribution)
    return initialize(nn.Linear(num_features, distribution.num_params), gain=_GAIN)

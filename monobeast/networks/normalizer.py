"""Normalization of observations by running statistics."""

import textwrap
from collections.abc import Collection

import torch
from gymnasium.spaces import Box, Space
from torch import Tensor, nn

from monobeast import trees
from monobeast.moments import Moments
from monobeast.trees import Tree

_LIMIT = 10.0  # of a normalized number, as in OpenAI's baselines
_EPSILON = 1e-8  # added to the variance: what never changes becomes 0


class Normalizer(nn.Module):
    """Subtracts the mean, divides by the standard deviation and clips to [-10, 10], separately for each element.

    Mean and variance are buffers over all observations that the learner has learned from. Only the learner changes
    them, after an update, and they go to the actors with the weights of that update. So actor and learner of one
    version normalize the same way, and pi and mu differ only by the weights. They are float64, and are subtracted in
    float64.

    Args:
        space: Of the observations.
        places: Indices of the normalized parts, in the tree's order; None: all float parts.

    Raises:
        ValueError: there is no float part.
    """

    def __init__(self, space: Space, places: Collection[int] | None = None) -> None:
        super().__init__()
        parts = trees.leaves(trees.of_space(space))
        floats = [i for i, part in enumerate(parts) if isinstance(part, Box) and part.dtype.kind == "f"]
        self.places = [place for place in floats if places is None or place in places]
        if not self.places:
            shown = textwrap.shorten(str(space), 200)
            raise ValueError(f"observation space {shown} has no floats outside of images: nothing to normalize")
        self.shapes = [parts[place].shape for place in self.places]
        self.sizes = [int(torch.Size(shape).numel()) for shape in self.shapes]
        for name, tensor in Moments.of_nothing(sum(self.sizes))._asdict().items():
            self.register_buffer(name, tensor)

    @property
    def moments(self) -> Moments:
        """Moments of the normalized elements, [D], the parts concatenated."""
        return Moments(self.count, self.mean, self.squares)

    def forward(self, observation: Tree) -> Tree:
        """Returns the observation, parts [..., *shape], with normalized parts as float32."""
        parts = trees.leaves(observation)
        means, deviations = (each.split(self.sizes) for each in (self.mean, (self.moments.variance + _EPSILON).sqrt()))
        for place, shape, mean, deviation in zip(self.places, self.shapes, means, deviations, strict=True):
            normalized = (parts[place].double() - mean.view(shape)) / deviation.view(shape)
            parts[place] = normalized.clamp(-_LIMIT, _LIMIT).float()
        return trees.with_leaves(observation, parts)

    @torch.no_grad()
    def update(self, observation: Tree, is_taken: Tensor) -> None:
        """Adds observations to the statistics; does not wait for the device.

        Args:
            observation: Parts [T, B, *shape].
            is_taken: bool []: if False, nothing changes. Nothing changes either if a result would not be finite.
        """
        parts = trees.leaves(observation)
        rows = [
            parts[place].double().reshape(*parts[place].shape[:2], size)
            for place, size in zip(self.places, self.sizes, strict=True)
        ]
        merged = self.moments.merged(torch.cat(rows, dim=-1).flatten(0, 1)).or_else(self.moments, is_taken)
        for buffer, value in zip(self.moments, merged, strict=True):
            buffer.copy_(value)


def find_normalizers(network: nn.Module) -> list[Normalizer]:
    """All normalizers of a network, in the order of its modules."""
    return [module for module in network.modules() if isinstance(module, Normalizer)]

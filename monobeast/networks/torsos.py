"""Torsos: turn an observation into features."""

import math

import torch
from gymnasium.spaces import Discrete, MultiDiscrete, Space, Tuple
from torch import Tensor, nn
from torch.nn import functional as F

from monobeast import one_hot, trees
from monobeast.networks.initialization import initialize
from monobeast.trees import Tree

# The smallest height and width of which the three convolutions of the shallow network leave a pixel.
MIN_SHALLOW_SIZE = 36


class ImageTorso(nn.Module):
    """Convolutions and a fully connected layer, for images of any layout: [N, ...] to float32 [N, F].

    Args:
        shape: of an observation.
        axes: the observation's axes, channels before height and width; gray images have no channels, stacked color
            images have two axes for them, which become one.
        network: "shallow" or "deep".
        memory_format: of the convolutions, "channels_last" or "contiguous"; their results differ by rounding.
        less_mean: Whether the mean of each image is subtracted.
    """

    def __init__(
        self,
        shape: tuple[int, ...],
        axes: tuple[int, ...],
        network: str,
        memory_format: str = "channels_last",
        less_mean: bool = True,
    ) -> None:
        super().__init__()
        self.less_mean = less_mean
        formats = {"channels_last": torch.channels_last, "contiguous": torch.contiguous_format}
        self.memory_format = formats[memory_format]
        self.order = (0, *(1 + axis for axis in axes))
        height, width = (shape[axis] for axis in axes[-2:])
        self.image_shape = (math.prod(shape) // (height * width), height, width)
        make_layers, self.num_features = {"shallow": (_shallow, 512), "deep": (_deep, 256)}[network]
        self.convolutions = make_layers(self.image_shape[0])
        with torch.no_grad():
            size = self.convolutions(torch.zeros(1, *self.image_shape)).numel()
        self.fully_connected = initialize(nn.Linear(size, self.num_features))
        self.relu = nn.ReLU(inplace=True)

    def forward(self, observation: Tensor) -> Tensor:
        images = observation.permute(self.order).reshape(-1, *self.image_shape)
        # In channels-last an update on a CPU takes a third less time, whatever the format of the weights, which may be
        # views of one flat tensor. Bytes are reordered rather than floats; channel-last images need no reordering.
        images = _to_float(_reorder(images, self.memory_format))  # a copy, to be changed in place
        # Unlike the paper and TorchBeast: less their mean. On a screen of nearly one color all weights of a filter have
        # nearly one gradient; a few steps along it turn the whole screen's response negative, and the filter is dead:
        # on Pong 21 to 31 of 32 from 126,000 steps on, none without the mean (docs/results.md).
        if self.less_mean:
            images -= images.mean((1, 2, 3), keepdim=True)
        return self.relu(self.fully_connected(self.convolutions(images).flatten(1)))


class VectorTorso(nn.Module):
    """Two fully connected layers, for observations of any space: [N, ...] to float32 [N, F].

    Parts are flattened, Discrete and MultiDiscrete ones become one-hot, and all are concatenated in order.

    ReLU lets features grow with the values that the baseline must reach, 60 and more on CartPole. There, tanh and 64
    instead of 256 units each learned more slowly.
    """

    num_features = 256

    def __init__(self, space: Space) -> None:
        super().__init__()
        self.spaces = trees.leaves(trees.of_space(space))
        size = sum(map(_vector_size, self.spaces))
        width = self.num_features
        layers = [nn.Linear(size, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU()]
        self.layers = nn.Sequential(*layers).apply(initialize)

    def forward(self, observation: Tree) -> Tensor:
        parts = zip(self.spaces, trees.leaves(observation), strict=True)
        vectors = [_to_vector(space, part) for space, part in parts]
        return self.layers(vectors[0] if len(vectors) == 1 else torch.cat(vectors, dim=-1))


class PartsTorso(nn.Module):
    """One torso for each image among an observation's parts, one for the rest, and a layer on top of all.

    Without that layer no feature could depend on two parts together.

    Args:
        space: Dict or Tuple, of the observation.
        images: a torso for each part that is an image, by the part's index.
    """

    num_features = 256

    def __init__(self, space: Space, images: dict[int, ImageTorso]) -> None:
        super().__init__()
        self.places = list(images)
        self.images = nn.ModuleList(images.values())
        rest = tuple(part for i, part in enumerate(trees.leaves(trees.of_space(space))) if i not in images)
        self.rest = VectorTorso(Tuple(rest)) if rest else None
        torsos = [*self.images, *([self.rest] if self.rest is not None else [])]
        size = sum(torso.num_features for torso in torsos)
        self.joined = nn.Sequential(initialize(nn.Linear(size, self.num_features)), nn.ReLU())

    def forward(self, observation: Tree) -> Tensor:
        parts = trees.leaves(observation)
        features = [torso(parts[place]) for torso, place in zip(self.images, self.places, strict=True)]
        if self.rest is not None:
            features.append(self.rest(tuple(part for i, part in enumerate(parts) if i not in self.places)))
        return self.joined(torch.cat(features, dim=-1))


class ResidualBlock(nn.Module):
    """x + conv(relu(conv(relu(x)))): float32 [N, C, height, width] to the same."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = initialize(nn.Conv2d(channels, channels, 3, padding=1))
        # Six blocks add up: with the full gain, the features, and V with them, would start several times as large.
        self.second = initialize(nn.Conv2d(channels, channels, 3, padding=1), gain=math.sqrt(2) / 6)
        self.relus = nn.ModuleList([nn.ReLU(), nn.ReLU()])

    def forward(self, x: Tensor) -> Tensor:
        first_relu, second_relu = self.relus
        return x + self.second(second_relu(self.first(first_relu(x))))


def _shallow(channels: int) -> nn.Sequential:
    """The convolutions of DQN (Nature, 2015) and of TorchBeast's AtariNet."""
    sizes = [(channels, 32, 8, 4), (32, 64, 4, 2), (64, 64, 3, 1)]  # in, out, kernel, stride
    layers = [layer for size in sizes for layer in (initialize(nn.Conv2d(*size)), nn.ReLU(inplace=True))]
    return nn.Sequential(*layers)


def _deep(channels: int) -> nn.Sequential:
    """The convolutions of the paper's large network (figure 3, right)."""
    layers: list[nn.Module] = []
    for width in (16, 32, 32):
        layers += [initialize(nn.Conv2d(channels, width, 3, padding=1)), nn.MaxPool2d(3, stride=2, padding=1)]
        layers += [ResidualBlock(width), ResidualBlock(width)]
        channels = width
    return nn.Sequential(*layers, nn.ReLU())


def _reorder(images: Tensor, memory_format: torch.memory_format) -> Tensor:
    """Returns images [N, C, height, width] in a memory format."""
    if memory_format == torch.channels_last and images.is_contiguous():
        # Half the time of `contiguous`, which walks through both at once in steps of a whole image.
        return torch.stack(images.unbind(1), dim=-1).movedim(-1, 1)
    return images.contiguous(memory_format=memory_format)


def _vector_size(space: Space) -> int:
    if isinstance(space, MultiDiscrete):
        return int(space.nvec.sum())
    return int(space.n) if isinstance(space, Discrete) else math.prod(space.shape)


def _to_vector(space: Space, observation: Tensor) -> Tensor:
    """Returns values [N, ...] of a space as float32 [N, size]."""
    flat = observation.reshape(observation.shape[0], math.prod(space.shape))
    if isinstance(space, Discrete):
        flat = F.one_hot(flat.squeeze(1).long() - int(space.start), int(space.n))
    elif isinstance(space, MultiDiscrete):
        if space.start.any():  # as hardly ever; a GPU would be waited for
            flat = flat - torch.as_tensor(space.start.flatten(), device=flat.device)
        flat = one_hot.encode(flat.long(), space.nvec.flatten().tolist())
    return _to_float(flat)


def _to_float(observation: Tensor) -> Tensor:
    """Returns a float32 copy in the same memory format, with bytes scaled to [0, 1]."""
    floats = observation.to(torch.float32, copy=True)
    return floats.mul_(1 / 255) if observation.dtype == torch.uint8 else floats

"""Initial weights."""

import math

from torch import nn


def initialize(module: nn.Module, gain: float = math.sqrt(2)) -> nn.Module:
    """Makes the weight of a linear or convolutional layer orthogonal and its bias zero; leaves other modules alone.

    Unlike the paper and TorchBeast: with PyTorch's default, on Pong's nearly constant frames, the last hidden layer
    hardly depends on what is on the screen.

    Args:
        module: any module, so that `nn.Module.apply` can take this function.
        gain: length of the weight's rows or columns; sqrt 2 compensates for the half that a ReLU cuts off.

    Returns:
        The module.
    """
    if isinstance(module, nn.Linear | nn.Conv2d):
        nn.init.orthogonal_(module.weight, gain)
        nn.init.zeros_(module.bias)
    return module

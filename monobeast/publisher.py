"""Ways to publish the learner's weights: at once, by the GPU itself, or deliberately late."""

import weakref
from collections import deque
from collections.abc import Iterable

import torch
from torch import Tensor

from monobeast import transfer
from monobeast.config import Config
from monobeast.weights import SharedWeights, flatten


class StreamedWeights:
    """Publishes from a GPU without waiting for it: the device itself copies and announces each version.

    Args:
        shared: The destination, without readers yet; its memory is pinned as long as this object lives.
        device: A CUDA device.
    """

    def __init__(self, shared: SharedWeights, device: torch.device) -> None:
        self._shared, self._device = shared, device
        shared.is_checked = True
        self._version = shared.version  # the last that the device was told of, ahead of what is announced
        self._stream = torch.cuda.Stream(device)
        for tensor in shared.tensors:
            if transfer.pin(tensor, device):  # else copies from the device are waited for
                weakref.finalize(self, transfer.unpin, tensor, self._stream).atexit = False

    def publish(self, weights: Iterable[Tensor]) -> None:
        """Makes these the next version, when the device reaches this point."""
        vector = flatten(weights)  # now: the next update changes the weights themselves
        updates = torch.cuda.current_stream(self._device)
        self._version += 1
        self._stream.wait_stream(updates)
        with torch.cuda.stream(self._stream):
            self._shared.write(vector, self._version)
        vector.record_stream(self._stream)  # its memory is not given to another before it is copied


class LateWeights:
    """Publishes weights `delay` calls late, to study the effect of lag."""

    def __init__(self, shared: SharedWeights | StreamedWeights, delay: int) -> None:
        self._shared = shared
        self._delay = delay
        self._held: deque[list[Tensor]] = deque()

    def publish(self, weights: Iterable[Tensor]) -> None:
        """Stores a copy of the weights, and makes those of `delay` calls ago the next version."""
        self._held.append([weight.detach().clone() for weight in weights])
        if len(self._held) > self._delay:
            self._shared.publish(self._held.popleft())


def make_publisher(shared: SharedWeights, config: Config) -> SharedWeights | StreamedWeights | LateWeights:
    """The learner's publisher. Without actor processes it waits for its GPU, so that runs are repeatable."""
    publisher: SharedWeights | StreamedWeights = shared
    if config.device != "cpu" and config.num_actors:
        publisher = StreamedWeights(shared, torch.device(config.device))
    return LateWeights(publisher, config.force_lag) if config.force_lag else publisher

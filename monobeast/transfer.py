"""The way of a batch from the learner's memory to its device."""

import torch
from torch import Tensor

from monobeast.rollouts import Rollout

# Places for batches that take turns where the device is a GPU: one is filled while the other is on its way.
NUM_IN_FLIGHT = 2


class Transfer:
    """Copies batches to a device; to a GPU on a stream of their own, beside whatever it still computes.

    Nobody waits for a copy but the device itself, and the next copy: when that begins, this one has ended, and its
    place in pinned memory may be written again. A batch that is not contiguous in its place, where B is less than E,
    is copied into other memory first, for which this process waits.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        self._last_copy: torch.cuda.Event | None = None

    def __call__(self, batch: Rollout) -> Rollout:
        """Returns the batch on the device; work that is put on the device's current stream will find it there."""
        if self._stream is None:
            return batch.map(lambda tensor: tensor.to(self._device))
        if self._last_copy is not None:
            self._last_copy.synchronize()
        with torch.cuda.stream(self._stream):
            there = batch.map(lambda tensor: tensor.to(self._device, non_blocking=True))
            self._last_copy = self._stream.record_event()
        updates = torch.cuda.current_stream(self._device)
        updates.wait_event(self._last_copy)

        def keep(tensor: Tensor) -> Tensor:
            tensor.record_stream(updates)  # freed memory is not given to the next copy before the update has read it
            return tensor

        return there.map(keep)

"""Copies between the learner's memory and its device, concurrently with their other work."""

import contextlib

import torch
from torch import Tensor

from monobeast.rollouts import Rollout

# Places for batches that take turns where the device is a GPU: one is filled while the other is on its way.
NUM_IN_FLIGHT = 2


class Transfer:
    """Copies batches to a device; to a GPU on a separate stream, concurrently with its computations.

    Only the device itself and the next `wait` wait for a copy; after that, its pinned memory may be written again.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        self._last_copy: torch.cuda.Event | None = None
        self._last_update: torch.cuda.Event | None = None  # the end of what was under way at the last call

    def wait(self) -> None:
        """Waits for the last copy, and for the update before the last.

        Running further ahead of the device would only fill its memory, and actors would use older weights than
        necessary.
        """
        for event in (self._last_copy, self._last_update):
            if event is not None:
                event.synchronize()

    def __call__(self, batch: Rollout) -> Rollout:
        """Returns the batch on the device, ready for work on the device's current stream."""
        if self._stream is None:
            return batch.map(lambda tensor: tensor.to(self._device))
        updates = torch.cuda.current_stream(self._device)
        self._last_update = updates.record_event()
        with torch.cuda.stream(self._stream):
            there = batch.map(lambda tensor: tensor.to(self._device, non_blocking=True))
            self._last_copy = self._stream.record_event()
        updates.wait_event(self._last_copy)

        def keep(tensor: Tensor) -> Tensor:
            tensor.record_stream(updates)  # freed memory is not given to the next copy before the update has read it
            return tensor

        return there.map(keep)


def pin(tensor: Tensor, device: torch.device) -> bool:
    """Pins existing memory, such as shared memory, for the GPU; returns whether the driver agreed."""
    with torch.cuda.device(device):
        error = torch.cuda.cudart().cudaHostRegister(tensor.data_ptr(), tensor.nbytes, 0)
    if int(error) == 0:
        return True
    with contextlib.suppress(RuntimeError):  # the driver keeps its refusal for whoever asks next
        torch.zeros(1, device=device)
    return False


def unpin(tensor: Tensor, stream: torch.cuda.Stream) -> None:
    """Undoes `pin`, once a stream no longer uses the memory."""
    stream.synchronize()
    with torch.cuda.device(stream.device):
        torch.cuda.cudart().cudaHostUnregister(tensor.data_ptr())

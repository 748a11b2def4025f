"""Copies between the learner's memory and its device, beside whatever both of them do."""

import contextlib

import torch
from torch import Tensor

from monobeast.rollouts import Rollout

# Places for batches that take turns where the device is a GPU: one is filled while the other is on its way.
NUM_IN_FLIGHT = 2


class Transfer:
    """Copies batches to a device; to a GPU on a stream of their own, beside whatever it still computes.

    Nobody waits for a copy but the device itself, and the next `wait`: after that, its pinned memory may be written
    again.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        self._last_copy: torch.cuda.Event | None = None
        self._last_update: torch.cuda.Event | None = None  # the end of what was under way at the last call

    def wait(self) -> None:
        """Waits for the last copy, and for the last update but one.

        A process that ran further ahead of its device would only fill its memory, and let actors act by older weights
        than need be.
        """
        for event in (self._last_copy, self._last_update):
            if event is not None:
                event.synchronize()

    def __call__(self, batch: Rollout) -> Rollout:
        """Returns the batch on the device; work that is put on the device's current stream will find it there."""
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
    """Keeps memory that is there already, shared memory say, in its place for the GPU; whether the driver agreed."""
    with torch.cuda.device(device):
        error = torch.cuda.cudart().cudaHostRegister(tensor.data_ptr(), tensor.nbytes, 0)
    if int(error) == 0:
        return True
    with contextlib.suppress(RuntimeError):  # the driver keeps its refusal for whoever asks next
        torch.zeros(1, device=device)
    return False


def unpin(tensor: Tensor, stream: torch.cuda.Stream) -> None:
    """Takes `pin` back, once a stream has done with the memory."""
    stream.synchronize()
    with torch.cuda.device(stream.device):
        torch.cuda.cudart().cudaHostUnregister(tensor.data_ptr())

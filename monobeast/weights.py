"""Versioned weights that the learner publishes and every actor copies, whole and without a lock.

The statistics of a network's normalizers are published with its parameters, since they belong to the same version.

A dead process could hold a lock. Instead, flat weights lie in G buffers, version v in buffer v mod G. The learner
writes a buffer that should have no readers, then announces its version. An actor that was too slow notices by the
announced version and copies again.
"""

import platform
from collections.abc import Iterable

import torch
from torch import Tensor, nn

from monobeast.networks import find_normalizers

NUM_BUFFERS = 4  # a reader has the time of two updates for its copy
_MAX_ATTEMPTS = 10
# x86 keeps its stores in order: a version that is announced is there. Others may not, a GPU that writes among them, so
# there the content must agree too.
_KEEPS_ORDER = platform.machine().lower() in ("x86_64", "amd64")


def weights_of(network: nn.Module) -> list[Tensor]:
    """All tensors that updates change: parameters, then the statistics of normalizers. Not copies."""
    statistics = [buffer for normalizer in find_normalizers(network) for buffer in normalizer.buffers()]
    return [*network.parameters(), *statistics]


def flatten(tensors: Iterable[Tensor]) -> Tensor:
    """A copy of float32 and float64 tensors as one float32 vector; the bits of a float64 fill two of its elements."""
    return torch.cat([tensor.detach().reshape(-1).view(torch.float32) for tensor in tensors])


def unflatten(vector: Tensor, tensors: Iterable[Tensor]) -> list[Tensor]:
    """Undoes `flatten` for such tensors: views of the vector, but copies of float64 tensors."""
    tensors = list(tensors)
    parts = vector.split([tensor.nbytes // vector.element_size() for tensor in tensors])
    return [
        (part if tensor.dtype == vector.dtype else part.clone().view(tensor.dtype)).view_as(tensor)
        for part, tensor in zip(parts, tensors, strict=True)
    ]


def take(vector: Tensor, network: nn.Module) -> None:
    """Sets a network's weights from `flatten(weights_of(network))`: its parameters become views of the vector."""
    weights = weights_of(network)
    for weight, part in zip(weights, unflatten(vector, weights), strict=True):
        if isinstance(weight, nn.Parameter):
            weight.data = part
        else:
            weight.copy_(part)


class SharedWeights:
    """The newest weights, in shared memory: one writer (the learner), any number of readers (the actors)."""

    def __init__(self, weights: Iterable[Tensor], version: int = 0) -> None:
        vector = flatten(weights)
        self.is_checked = not _KEEPS_ORDER  # whether readers compare checksums; to be set before there are any
        self._buffers = torch.zeros(NUM_BUFFERS, vector.numel()).share_memory_()
        self._published = torch.full((1,), version, dtype=torch.int64).share_memory_()
        self._checksums = torch.full((NUM_BUFFERS,), int(_checksum(vector))).share_memory_()
        self._buffers[version % NUM_BUFFERS].copy_(vector)

    @property
    def version(self) -> int:
        """The newest complete version."""
        return int(self._published)

    @property
    def tensors(self) -> list[Tensor]:
        """The shared memory, all of it."""
        return [self._buffers, self._checksums, self._published]

    def publish(self, weights: Iterable[Tensor]) -> None:
        """Makes these the next version. Only the learner calls this."""
        self.write(flatten(weights), self.version + 1)

    def write(self, vector: Tensor, version: int) -> None:
        """Makes `vector`, from `flatten`, the next version; on a GPU, in the order of its current stream.

        With pinned memory this does not wait for the GPU, which announces the version after writing it.
        """
        buffer = version % NUM_BUFFERS
        self._buffers[buffer].copy_(vector, non_blocking=True)
        if self.is_checked:
            self._checksums[buffer].copy_(_checksum(vector), non_blocking=True)
        number = torch.full((1,), version, dtype=torch.int64, device=vector.device)
        self._published.copy_(number, non_blocking=True)  # announced last

    def copy_newest(self, target: Tensor) -> int | None:
        """Copies the newest version into the flat float32 `target`; returns it, or None if every copy was torn."""
        for _ in range(_MAX_ATTEMPTS):
            version = self.version
            target.copy_(self._buffers[version % NUM_BUFFERS])
            # While `published` is v + G - 1 the learner may already be writing v + G over v; up to v + G - 2 it isn't.
            if self.version > version + NUM_BUFFERS - 2:
                continue
            if not self.is_checked or _checksum(target) == self._checksums[version % NUM_BUFFERS]:
                return version
        return None


def _checksum(vector: Tensor) -> Tensor:
    return vector.view(torch.int32).sum(dtype=torch.int64)


def name_weights(vector: Tensor, network: nn.Module) -> dict[str, Tensor]:
    """Flat weights and the network's other buffers, by the names of its `state_dict`: copies on the CPU."""
    weights = weights_of(network)
    flat = {id(weight): part for weight, part in zip(weights, unflatten(vector, weights), strict=True)}
    state = network.state_dict(keep_vars=True)  # the parameters and buffers themselves
    return {name: flat.get(id(value), value).detach().cpu().clone() for name, value in state.items()}


class WeightsReader:
    """Keeps a reader's network at the newest version.

    From the first version on, the network's parameters are views into one of two flat vectors. A newer version is
    copied into the other, and the two are swapped only if the copy is whole. Statistics are copied from it.
    """

    def __init__(self, shared: SharedWeights, network: nn.Module) -> None:
        self._shared = shared
        self._network = network
        self._in_use = flatten(weights_of(network))
        self._spare = torch.empty_like(self._in_use)
        self.version = -1  # none taken yet

    def refresh(self) -> int:
        """Updates the network if there is a newer version; returns the version it now has.

        If every copy is torn, the network keeps its version, which is harmless since rollouts record it.

        Raises:
            RuntimeError: every copy was torn and the network has no version yet.
        """
        if self._shared.version == self.version:
            return self.version
        version = self._shared.copy_newest(self._spare)
        if version is not None:
            take(self._spare, self._network)
            self._in_use, self._spare = self._spare, self._in_use
            self.version = version
        if self.version < 0:
            raise RuntimeError("the learner publishes faster than this process can copy the weights once")
        return self.version

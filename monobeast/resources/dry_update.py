"""An update of zeros, to see how much of a GPU's memory an update takes."""

import copy

import torch
from torch import Tensor

from monobeast.config import Config
from monobeast.environments import Spaces
from monobeast.learner import Learner
from monobeast.networks import Network
from monobeast.rollouts import allocate
from monobeast.weights import flatten, weights_of


def measure_peak(config: Config, spaces: Spaces, network: Network) -> int | None:
    """Bytes of GPU memory that the learner takes at most; None where it does not get them.

    Args:
        config: Resolved; its device is a GPU.
        spaces: Of one environment.
        network: Of which a copy learns.
    """
    device = torch.device(config.device)
    before = torch.cuda.memory_allocated(device)
    torch.cuda.reset_peak_memory_stats(device)
    try:
        _update(config, spaces, network)
        torch.cuda.synchronize(device)
    except RuntimeError as error:
        if not _is_out_of_memory(error):
            raise
        return None
    finally:
        torch.cuda.empty_cache()
    return torch.cuda.max_memory_allocated(device) - before


def free_memory(device: str) -> int | None:
    """Bytes that nobody has taken of a GPU's memory; None where it does not say."""
    try:
        return torch.cuda.mem_get_info(device)[0]
    except RuntimeError:
        return None


def _update(config: Config, spaces: Spaces, network: Network) -> None:
    learner = Learner(copy.deepcopy(network).to(config.device), config)
    core_state = network.initial_state(1)
    batch = allocate(config.unroll_length, config.batch_size, spaces.observation, spaces.action, core_state)
    batch.map(Tensor.zero_)  # NaN or an action out of range would stop the GPU
    # What else a run has there: the next batch, and weights that are published, at once or late.
    next_batch = batch.map(lambda tensor: tensor.to(config.device))
    copies = [flatten(weights_of(learner.network)) for _ in range(1 + config.force_lag)]
    learner.update(batch)
    del next_batch, copies


def _is_out_of_memory(error: RuntimeError) -> bool:
    """Libraries that torch calls, cuBLAS for one, have errors of their own for it."""
    return isinstance(error, torch.OutOfMemoryError) or "out of memory" in str(error) or "ALLOC_FAILED" in str(error)

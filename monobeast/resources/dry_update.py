"""Runs an update on zeros, to measure how much GPU memory an update needs."""

import copy

import torch
from torch import Tensor

from monobeast.config import Config
from monobeast.environments import Spaces
from monobeast.errors import is_out_of_memory
from monobeast.learner import Learner
from monobeast.networks import Network
from monobeast.rollouts import allocate
from monobeast.weights import flatten, weights_of


def measure_peak(config: Config, spaces: Spaces, network: Network) -> int | None:
    """Peak GPU memory of the learner in bytes; None if there is not enough.

    Args:
        config: Resolved; its device is a GPU.
        spaces: Of one environment.
        network: A copy of it learns.
    """
    device = torch.device(config.device)
    before = torch.cuda.memory_allocated(device)
    torch.cuda.reset_peak_memory_stats(device)
    try:
        _update(config, spaces, network)
        torch.cuda.synchronize(device)
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        return None
    finally:
        torch.cuda.empty_cache()
    return torch.cuda.max_memory_allocated(device) - before


def free_memory(device: str) -> int | None:
    """Free bytes of a GPU's memory; None if unknown."""
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

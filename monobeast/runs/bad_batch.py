"""Saves a batch whose update was not finite, with the weights before it, for later inspection."""

import dataclasses
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from monobeast import environments
from monobeast.config import Config
from monobeast.faults import Fault, describe, locate, quantities
from monobeast.learner import Learner, compute_loss
from monobeast.makers import Makers
from monobeast.networks import Network, load_weights
from monobeast.rollouts import Rollout
from monobeast.runs import checkpoint, permission

FILE_NAME = "bad_batch.pt"


class Replay(NamedTuple):
    """The result of an update on the saved batch, on the CPU."""

    fault: Fault | None
    numbers: dict[str, float]  # statistics of the update
    counts: dict[str, tuple[int, int]]  # of each field of the batch and of each gradient: not finite, in all


def save(folder: Path, config: Config, learner: Learner, batch: Rollout) -> Path:
    """Writes the batch and the weights into the run's folder; returns the file's path."""
    cost = learner.last_entropy_cost  # the schedule has gone on since
    config = dataclasses.replace(config, entropy_cost=cost, entropy_cost_end=cost)
    content = {
        "config": dataclasses.asdict(config),
        "network": learner.network.state_dict(),
        "batch": batch._asdict(),
        "reward_deviation": learner.reward_deviation,
    }
    path = folder / FILE_NAME
    checkpoint.write(path, content)
    return path


class BadBatch(NamedTuple):
    """The content that `save` writes."""

    config: Config
    network: Network  # on the CPU, with the weights that met the batch
    batch: Rollout
    reward_deviation: float | None  # by which rewards were divided


def load(path: Path, env: str | None = None, network: str | None = None) -> BadBatch:
    """Reads a file that `save` wrote; runs no code from it.

    Args:
        path: Of the file.
        env: The run's environment, if it is the user's own code; see `permission.choose`.
        network: Likewise.

    Raises:
        ValueError: it is not such a file, or its environment or network cannot be made here.
    """
    content = checkpoint.read(path)
    if "batch" not in content:
        raise ValueError(f"{path} holds no batch; {FILE_NAME} in a run's folder does")
    if set(content["batch"]) != set(Rollout._fields):
        raise ValueError(f"{path}: its batch has other fields than rollouts have now; it is of another version")
    saved = dataclasses.replace(checkpoint.read_config(content, path.parent), device="cpu")
    config = permission.choose(saved, env, network, str(path))
    made = Makers().make_network(config, environments.check(config))
    try:
        load_weights(made, content["network"])
    except ValueError as error:
        raise ValueError(f"{path}: its weights are not of --network {config.network} as it is now: {error}") from error
    return BadBatch(config, made, Rollout(**content["batch"]), content.get("reward_deviation"))


def replay(kept: BadBatch) -> Replay:
    """Repeats the update's loss and gradients on the CPU, without changing the network."""
    config, network, batch, number = kept
    deviation = None if number is None else torch.tensor(number, dtype=torch.float64)
    result = compute_loss(network, batch, config, reward_deviation=deviation)
    learning = {name: parameter for name, parameter in network.named_parameters() if parameter.requires_grad}
    gradients = torch.autograd.grad(result.total_loss, list(learning.values()), allow_unused=True)
    named = {f"gradient of {name}": gradient for name, gradient in zip(learning, gradients)}
    grad_norm = torch.stack([gradient.norm() for gradient in gradients if gradient is not None]).norm()
    fault = locate(batch, result.output, result.total_loss.detach(), grad_norm)
    numbers = {name: value.item() for name, value in result.statistics.items()} | {"grad_norm": grad_norm.item()}
    outputs = {"policy_params": result.output.policy_params, "baseline": result.output.baseline}
    values = batch.named_tensors() | outputs | named
    counts = {name: _count(value) for name, value in values.items()}
    return Replay(describe(fault, quantities(batch.observation)), numbers, counts)


def _count(values: Tensor | None) -> tuple[int, int]:
    if values is None:
        return 0, 0
    return int((~values.isfinite()).sum()), values.numel()

"""Policies that choose an actor's actions. They compute in its process, but the actor's loop does not rely on that."""

import copy
from typing import NamedTuple

import torch
from torch import Tensor

from monobeast.networks import AgentInput, AgentNetwork, Network
from monobeast.weights import SharedWeights, WeightsReader, weights_of


class Decision(NamedTuple):
    """The actions for one observation of E environments."""

    action: Tensor  # [E, ...], as in `Rollout`
    params: Tensor  # float32 [E, P]: the very parameters of the distribution that the action was drawn from
    core_state: tuple[Tensor, ...]  # float32, each [L, E, H]: recurrent state after the observation


class LocalPolicy:
    """Samples actions from a network in this process.

    Args:
        network: Used by this policy only. It does not learn; `refresh` replaces its weights.
        weights: Source of new weights; None leaves the network unchanged.
        seed: Of the sampling.
        greedy: Take the most probable action instead of a sample.
    """

    def __init__(
        self, network: Network, weights: SharedWeights | None, seed: int, *, greedy: bool = False
    ) -> None:
        self._network = network.requires_grad_(False)
        self._acting = for_acting(network)
        self._reader = WeightsReader(weights, network) if weights is not None else None
        self._generator = torch.Generator().manual_seed(seed)
        self._greedy = greedy

    def refresh(self) -> int:
        """Takes the newest weights; returns their version."""
        if self._reader is None:
            return 0
        before, version = self._reader.version, self._reader.refresh()
        if version != before and self._acting is not self._network:
            for copied, weight in zip(weights_of(self._acting), weights_of(self._network), strict=True):
                copied.copy_(weight)
        return version

    def initial_state(self, num_envs: int) -> tuple[Tensor, ...]:
        """Recurrent state before the first observation."""
        return self._network.initial_state(num_envs)

    def get_state(self) -> Tensor:
        """The state of the sampling, for `set_state`."""
        return self._generator.get_state()

    def set_state(self, state: Tensor) -> None:
        """Restores the state of the sampling."""
        self._generator.set_state(state)

    @torch.inference_mode()
    def act(self, inputs: AgentInput, core_state: tuple[Tensor, ...]) -> Decision:
        """An action for each environment; the tensors of `inputs` are [1, E, ...]."""
        output = self._acting(inputs, core_state)
        params, distribution = output.policy_params[0], self._network.distribution  # [E, P]
        if not params.isfinite().all():
            raise FloatingPointError(f"{distribution.params_name} are not finite: {params.tolist()}")
        action = distribution.mode(params) if self._greedy else distribution.sample(params, self._generator)
        return Decision(action, params, output.core_state)


def for_acting(network: Network) -> Network:
    """The network itself, or for bfloat16 a copy with bfloat16 weights, so that no call has to cast them again.

    For the user's own network it is unknown which weights those are, so autocast casts them in every call.
    """
    if not isinstance(network, AgentNetwork) or network.precision == "float32":
        return network
    acting = copy.deepcopy(network)
    for part in (acting.torso, acting.lstm):
        if part is not None:
            part.to(torch.bfloat16)
    return acting

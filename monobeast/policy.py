"""What chooses an actor's actions. The actor's loop does not know where that is computed; today, in its own process."""

import copy
from typing import NamedTuple

import torch
from torch import Tensor

from monobeast.networks import AgentInput, AgentNetwork, Network
from monobeast.weights import SharedWeights, WeightsReader, weights_of


class Decision(NamedTuple):
    """The answer to one observation of E environments."""

    action: Tensor  # [E, ...], as in `Rollout`
    params: Tensor  # float32 [E, P]: the very parameters of the distribution that the action was drawn from
    core_state: tuple[Tensor, ...]  # float32, each [L, E, H]: recurrent state after the observation


class LocalPolicy:
    """Samples actions from a network in this process.

    Args:
        network: For this policy alone: it learns nothing here, and its weights are replaced at `refresh`.
        weights: Where new weights come from; None leaves the network as it is.
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
        """Takes the newest weights; returns the version that acts from now on."""
        if self._reader is None:
            return 0
        before, version = self._reader.version, self._reader.refresh()
        if version != before and self._acting is not self._network:
            for copied, weight in zip(weights_of(self._acting), weights_of(self._network), strict=True):
                copied.copy_(weight)
        return version

    def initial_state(self, num_envs: int) -> tuple[Tensor, ...]:
        """Recurrent state before a first observation."""
        return self._network.initial_state(num_envs)

    def get_state(self) -> Tensor:
        """Where the sampling is, for `set_state`."""
        return self._generator.get_state()

    def set_state(self, state: Tensor) -> None:
        """Samples on from there."""
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
    """The network itself, or for bfloat16 a copy that holds its weights as such: no call need cast them again.

    Of a network of the user's own nobody knows which weights those are: autocast casts them in every call.
    """
    if not isinstance(network, AgentNetwork) or network.precision == "float32":
        return network
    acting = copy.deepcopy(network)
    for part in (acting.torso, acting.lstm):
        if part is not None:
            part.to(torch.bfloat16)
    return acting

"""The user's own network: any torch module with the two methods of `Network`."""

from collections.abc import Callable
from typing import Any

import torch
from gymnasium.spaces import Space
from torch import Tensor, nn

from monobeast.distributions import Distribution
from monobeast.networks.agent import AgentInput, AgentOutput, Network

NetworkMaker = Callable[[Space, int], nn.Module]  # a class, mostly: observation space and P in, a module out


class OwnNetwork(Network):
    """Wraps the user's module; its weights keep their names.

    Args:
        module: Has `initial_state(batch_size)` and `forward(inputs, core_state)` as in `Network`, but may return a
            plain tuple instead of `AgentOutput`.
        distribution: Its first output has this distribution's parameters.
        precision: With "bfloat16", `forward` is called within autocast and its outputs become float32. Its heads also
            multiply in bfloat16, unless the module turns autocast off around them.
    """

    def __init__(self, module: nn.Module, distribution: Distribution, precision: str = "float32") -> None:
        super().__init__()
        self.module = module
        self.distribution = distribution
        self.precision = precision

    def initial_state(self, batch_size: int) -> tuple[Tensor, ...]:
        """Returns the module's initial state, on the device of its weights."""
        device = next(self.parameters()).device
        return tuple(part.to(device) for part in self.module.initial_state(batch_size))

    def forward(self, inputs: AgentInput, core_state: tuple[Tensor, ...]) -> AgentOutput:
        """Unrolls the module over T steps from `core_state`."""
        policy_params, baseline, core_state = self.unroll(inputs, core_state)
        return AgentOutput(policy_params.float(), baseline.float(), tuple(part.float() for part in core_state))

    def unroll(self, inputs: AgentInput, core_state: tuple[Tensor, ...]) -> Any:
        """Returns the output of the module's `forward` unchanged."""
        device_type = inputs.is_first.device.type
        with torch.autocast(device_type, torch.bfloat16, enabled=self.precision == "bfloat16"):
            return self.module(inputs, core_state)

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """Returns the module's state dict, which loads into the module without this class."""
        return self.module.state_dict(*args, **kwargs)

    def load_state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """Loads the result of `state_dict`."""
        return self.module.load_state_dict(*args, **kwargs)

"""TorchBeast's AtariNet: a network that can hold its weights exactly."""

from typing import Any

import torch
from torch import Tensor, nn

from monobeast.networks.agent import LSTM, AgentInput, AgentNetwork

_NUM_LAYERS = 2


class TorchBeastNetwork(AgentNetwork):
    """Like the shallow `AgentNetwork`, except for three differences of AtariNet.

    * Images keep their mean. The first layer's response to the mean is the mean times the sum of a filter's weights; it
      differs in every image, so no bias could replace it.
    * The LSTM has two layers, each as wide as the first one's input, and two biases per layer.
    * The first step of an episode has action 0 as its last action, as in TorchBeast's environments.

    Initial weights are drawn as in every other network.
    """

    def _make_lstm(self, input_size: int) -> Any:
        return StackedLSTM(input_size)

    def _encode_last_action(self, inputs: AgentInput) -> Tensor:
        """Returns the last action, one-hot; where is_first, that of action 0: [T, B, A]."""
        return self._encode(inputs)


class StackedLSTM(nn.Module):
    """LSTM layers of one width, each with the previous one's hidden states as input; all reset together."""

    num_layers = _NUM_LAYERS

    def __init__(self, size: int) -> None:
        super().__init__()
        self.hidden_size = size
        self.layers = nn.ModuleList([LSTM(size, size, has_two_biases=True) for _ in range(_NUM_LAYERS)])

    def forward(
        self, inputs: Tensor, is_first: Tensor, state: tuple[Tensor, ...]
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """Returns the last layer's hidden states, float32 [T, B, H], and (hidden, cell) after it, each [L, B, H]."""
        states = []
        for layer, *own_state in zip(self.layers, *(part.split(1) for part in state), strict=True):
            inputs, own_state = layer(inputs, is_first, tuple(own_state))
            states.append(own_state)
        hidden, cell = zip(*states, strict=True)
        return inputs, (torch.cat(hidden), torch.cat(cell))

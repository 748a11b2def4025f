"""The layers of TorchBeast's AtariNet: a function that its weights fit into exactly."""

from typing import Any

import torch
from torch import Tensor, nn

from monobeast.networks.agent import LSTM, AgentInput, AgentNetwork

_NUM_LAYERS = 2


class TorchBeastNetwork(AgentNetwork):
    """As the shallow `AgentNetwork`, but for three things in which AtariNet differs.

    * Images keep their mean; its torso is made so. The first layer's answer to the mean is the mean times the sum of a
      filter's weights: of another size in every image, so that no bias could stand for it.
    * The LSTM has two layers, each as wide as the first one's input, and two biases a layer.
    * The first step of an episode has action 0 as its last, which is what TorchBeast's environments begin with.

    What it starts from is drawn as for every other network.
    """

    def _make_lstm(self, input_size: int) -> Any:
        return StackedLSTM(input_size)

    def _encode_last_action(self, inputs: AgentInput) -> Tensor:
        """Returns the last action, one-hot, that of action 0 where is_first: [T, B, A]."""
        return self._encode(inputs)


class StackedLSTM(nn.Module):
    """LSTM layers of one width, the hidden states of each being the input of the next; all forget at once."""

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

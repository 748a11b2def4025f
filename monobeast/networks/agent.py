"""The agent: a torso of any kind, an LSTM if asked for, and the two heads."""

import itertools
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from monobeast import trees
from monobeast.distributions import Distribution
from monobeast.networks.heads import make_policy_head
from monobeast.networks.initialization import initialize
from monobeast.networks.normalizer import Normalizer
from monobeast.trees import Tree

# One layer of this size for every torso, as for both networks of the paper (its figure 3). Unlike TorchBeast: its two
# layers as wide as their input (519 on Pong) take most of a step's time on a CPU.
LSTM_SIZE = 256
_LONG_STRETCH = 16  # steps from which one call is faster than as many (B = 8 on a CPU)


class AgentInput(NamedTuple):
    """What the agent knows at each step, before it acts.

    Attributes:
        observation: the space's dtype [T, B, ...]; for a Dict or Tuple space, a dict or tuple of such tensors, nested
            like the space.
        is_first: bool [T, B]: the observation opens an episode.
        last_action: as in `Rollout`, [T, B, ...]: the action that led to the observation; not used where is_first.
        last_reward: float32 [T, B]: the reward that came with the observation, unclipped; not used where is_first.
    """

    observation: Tree
    is_first: Tensor
    last_action: Tensor
    last_reward: Tensor


class AgentOutput(NamedTuple):
    """The agent's output.

    Attributes:
        policy_params: float32 [T, B, P]: parameters of the network's `distribution`, mostly the unnormalized
            log-probabilities of A actions.
        baseline: float32 [T, B]: estimates V(x_t).
        core_state: float32, each [L, B, H]: the state after the last step, (hidden, cell) for an LSTM; empty without
            state.
    """

    policy_params: Tensor
    baseline: Tensor
    core_state: tuple[Tensor, ...]


class Network(nn.Module):
    """Interface of all networks: a function of the agent's input and a recurrent state, in two methods.

    Attributes:
        distribution: the distribution that `policy_params` parameterize.
    """

    distribution: Distribution

    def initial_state(self, batch_size: int) -> tuple[Tensor, ...]:
        """Returns the recurrent state before the first step: float32, each [L, B, H]; an empty tuple without state."""
        raise NotImplementedError

    def forward(self, inputs: AgentInput, core_state: tuple[Tensor, ...]) -> AgentOutput:
        """Unrolls over T steps from `core_state`, which is reset before each step that opens an episode."""
        raise NotImplementedError


class AgentNetwork(Network):
    """Policy and baseline from features of the observation, the last action and the clipped last reward.

    Args:
        torso: turns observations, [N, ...] or trees of these, into features, float32 [N, F]; its attribute
            `num_features` is F.
        distribution: of the actions.
        use_lstm: whether an LSTM stands between the features and the heads.
        precision: "float32" or "bfloat16": number type in which torso and LSTM multiply, by autocast. Weights and heads
            are always float32: near 2.0, bfloat16 has steps as large as the differences of V between neighboring
            states.
        normalizer: applied to observations before the torso; it computes in float64 whatever the precision.
    """

    def __init__(
        self,
        torso: nn.Module,
        distribution: Distribution,
        use_lstm: bool,
        precision: str = "float32",
        normalizer: Normalizer | None = None,
    ) -> None:
        super().__init__()
        self.normalizer = normalizer
        self.precision = precision
        self.distribution = distribution
        self.torso = torso
        core_size = torso.num_features + distribution.num_features + 1
        self.lstm = self._make_lstm(core_size) if use_lstm else None
        head_size = core_size if self.lstm is None else self.lstm.hidden_size
        self.policy = make_policy_head(distribution, head_size)
        self.baseline = initialize(nn.Linear(head_size, 1), gain=1.0)

    def initial_state(self, batch_size: int) -> tuple[Tensor, ...]:
        """Returns the zero state: float32 (hidden, cell), each [L, B, H]; an empty tuple without LSTM."""
        if self.lstm is None:
            return ()
        shape = (self.lstm.num_layers, batch_size, self.lstm.hidden_size)
        return self.baseline.weight.new_zeros(shape), self.baseline.weight.new_zeros(shape)

    def forward(self, inputs: AgentInput, core_state: tuple[Tensor, ...]) -> AgentOutput:
        """Unrolls over T steps from `core_state`, which is zeroed before each step that opens an episode."""
        device_type = inputs.is_first.device.type
        with torch.autocast(device_type, torch.bfloat16, enabled=self.precision == "bfloat16"):
            observation = inputs.observation if self.normalizer is None else self.normalizer(inputs.observation)
            observation = trees.map_leaves(lambda part: part.flatten(0, 1), observation)
            features = self.torso(observation).unflatten(0, inputs.is_first.shape)
            core = torch.cat([features, self._what_led_here(inputs)], dim=-1)
            if self.lstm is not None:
                core, core_state = self.lstm(core, inputs.is_first, core_state)
        with torch.autocast(device_type, enabled=False):
            return AgentOutput(self.policy(core), self.baseline(core).squeeze(-1), core_state)

    def _make_lstm(self, input_size: int) -> Any:
        """A module with the interface of `LSTM`."""
        return LSTM(input_size, LSTM_SIZE)

    def _what_led_here(self, inputs: AgentInput) -> Tensor:
        """Returns encoded last action and last reward, clipped to [-1, 1], both zero where is_first: [T, B, ...]."""
        last_reward = inputs.last_reward.clamp(-1, 1).masked_fill(inputs.is_first, 0)
        return torch.cat([self._encode_last_action(inputs), last_reward.unsqueeze(-1)], dim=-1)

    def _encode_last_action(self, inputs: AgentInput) -> Tensor:
        """Returns the last action, one-hot if discrete, all zero where is_first."""
        return self._encode(inputs).masked_fill(inputs.is_first.unsqueeze(-1), 0)

    def _encode(self, inputs: AgentInput) -> Tensor:
        """Returns the encoded last action; where is_first, which may hold no action, that of action 0."""
        is_first = inputs.is_first.unsqueeze(-1) if self.distribution.action_shape else inputs.is_first
        return self.distribution.encode(inputs.last_action.masked_fill(is_first, 0))


class LSTM(nn.Module):
    """One LSTM layer that resets its state at the beginning of each episode.

    On a CPU in float32, each long stretch between episode starts is one call. Short stretches go step by step, as do
    all on a GPU, where finding the starts would mean waiting for the device. In that case the input's part of the gates
    is one matrix product for all steps, and only the hidden state's part depends on the previous step.

    Args:
        input_size: Of the input of a step.
        hidden_size: H.
        has_two_biases: Whether the hidden state's part also has a bias, as in `nn.LSTM`. It only doubles the bias's
            steps.
    """

    num_layers = 1

    def __init__(self, input_size: int, hidden_size: int, has_two_biases: bool = False) -> None:
        super().__init__()
        self.hidden_size = hidden_size
        self.from_input = nn.Linear(input_size, 4 * hidden_size)
        self.from_hidden = nn.Linear(hidden_size, 4 * hidden_size, bias=has_two_biases)
        for gate in (*self.from_input.weight.chunk(4), *self.from_hidden.weight.chunk(4)):
            nn.init.orthogonal_(gate)
        for part in (self.from_input, self.from_hidden):
            if part.bias is not None:
                nn.init.zeros_(part.bias)
        # As TensorFlow's cell, and so the paper's, adds it: with 0, an untrained cell loses half its content each step.
        nn.init.ones_(self.from_input.bias.chunk(4)[1])

    def forward(
        self, inputs: Tensor, is_first: Tensor, state: tuple[Tensor, ...]
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """Returns the hidden states, float32 [T, B, H], and (hidden, cell) after the last step, each [1, B, H]."""
        # At once, bfloat16 would hold the cells too, whose many small changes it would round away.
        if len(inputs) < _LONG_STRETCH or inputs.device.type != "cpu" or torch.is_autocast_enabled("cpu"):
            return self._unroll_by_steps(inputs, is_first, state)
        outputs = []
        for start, stop in itertools.pairwise([*_find_starts(is_first), len(inputs)]):
            unroll = self._unroll_at_once if stop - start >= _LONG_STRETCH else self._unroll_by_steps
            output, state = unroll(inputs[start:stop], is_first[start:stop], state)
            outputs.append(output)
        return torch.cat(outputs), state

    def _unroll_at_once(
        self, inputs: Tensor, is_first: Tensor, state: tuple[Tensor, ...]
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """Unrolls where no episode begins after the first step."""
        state = tuple(part.masked_fill(is_first[0].unsqueeze(-1), 0) for part in state)
        biases = [self.from_input.bias, self.from_hidden.bias]
        if biases[1] is None:
            biases[1] = torch.zeros_like(biases[0])
        weights = [self.from_input.weight, self.from_hidden.weight, *biases]
        is_training = torch.is_grad_enabled()
        output, *state = torch.lstm(inputs, state, weights, True, 1, 0.0, is_training, False, False)
        return output, tuple(state)

    def _unroll_by_steps(
        self, inputs: Tensor, is_first: Tensor, state: tuple[Tensor, ...]
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        hidden, cell = (part.squeeze(0) for part in state)
        outputs = []
        for share, reset in zip(self.from_input(inputs), is_first.unsqueeze(-1), strict=True):
            hidden, cell = hidden.masked_fill(reset, 0), cell.masked_fill(reset, 0)
            input_gate, forget_gate, candidate, output_gate = (share + self.from_hidden(hidden)).chunk(4, dim=-1)
            cell = forget_gate.sigmoid() * cell + input_gate.sigmoid() * candidate.tanh()
            hidden = output_gate.sigmoid() * cell.tanh()
            outputs.append(hidden)
        return torch.stack(outputs), (hidden.unsqueeze(0), cell.unsqueeze(0))


def _find_starts(is_first: Tensor) -> list[int]:
    """The starts of the stretches of [T, B] in which no column's episode begins after the first step."""
    return [0, *(is_first[1:].any(dim=1).nonzero().flatten() + 1).tolist()]

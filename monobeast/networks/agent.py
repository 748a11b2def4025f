"""The agent: a torso of any kind, an LSTM if asked for, and the two heads."""

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from monobeast import trees
from monobeast.networks.initialization import initialize
from monobeast.networks.normalizer import Normalizer
from monobeast.trees import Tree

# One layer of this size for every torso, as for both networks of the paper (its figure 3). Unlike TorchBeast: its two
# layers as wide as their input (519 on Pong) take most of a step's time on a CPU.
LSTM_SIZE = 256


class AgentInput(NamedTuple):
    """What the agent knows at each step, before it acts.

    Attributes:
        observation: the space's dtype [T, B, ...]; of a Dict or Tuple space, a dict or tuple of such tensors, nested as
            it is.
        is_first: bool [T, B]: the observation opens an episode.
        last_action: int64 [T, B]: the action that led to the observation, from 0; not looked at where is_first.
        last_reward: float32 [T, B]: the reward that came with the observation, unclipped; not looked at where is_first.
    """

    observation: Tree
    is_first: Tensor
    last_action: Tensor
    last_reward: Tensor


class AgentOutput(NamedTuple):
    """What the agent makes of it.

    Attributes:
        policy_logits: float32 [T, B, A]: unnormalized log-probabilities of the actions.
        baseline: float32 [T, B]: estimates V(x_t).
        core_state: float32, each [L, B, H]: the state after the last step, (hidden, cell) of an LSTM; empty without.
    """

    policy_logits: Tensor
    baseline: Tensor
    core_state: tuple[Tensor, ...]


class Network(nn.Module):
    """What learns and acts: a function of what is known at each step and of a recurrent state, in two methods."""

    def initial_state(self, batch_size: int) -> tuple[Tensor, ...]:
        """Returns the recurrent state before a first step: float32, each [L, B, H]; the empty tuple without one."""
        raise NotImplementedError

    def forward(self, inputs: AgentInput, core_state: tuple[Tensor, ...]) -> AgentOutput:
        """Unrolls over T steps from `core_state`, which is forgotten before each step that opens an episode."""
        raise NotImplementedError


class AgentNetwork(Network):
    """Policy and baseline from features of the observation, the last action and the clipped last reward.

    Args:
        torso: turns observations, [N, ...] or trees of such, into features, float32 [N, F]; its attribute
            `num_features` is F.
        num_actions: A.
        use_lstm: whether an LSTM stands between the features and the heads.
        precision: "float32", or "bfloat16": in what torso and LSTM multiply, by autocast. The weights and the heads are
            float32 in either case: near 2.0, bfloat16 has steps as large as the differences of V between neighboring
            states.
        normalizer: what observations pass before the torso; it computes in float64 whatever the precision.
    """

    def __init__(
        self,
        torso: nn.Module,
        num_actions: int,
        use_lstm: bool,
        precision: str = "float32",
        normalizer: Normalizer | None = None,
    ) -> None:
        super().__init__()
        self.normalizer = normalizer
        self.precision = precision
        self.num_actions = num_actions
        self.torso = torso
        core_size = torso.num_features + num_actions + 1
        self.lstm = self._make_lstm(core_size) if use_lstm else None
        head_size = core_size if self.lstm is None else self.lstm.hidden_size
        # Small, so that training starts from a nearly uniform policy.
        self.policy = initialize(nn.Linear(head_size, num_actions), gain=0.01)
        self.baseline = initialize(nn.Linear(head_size, 1), gain=1.0)

    def initial_state(self, batch_size: int) -> tuple[Tensor, ...]:
        """Returns the zero state: float32 (hidden, cell), each [L, B, H]; the empty tuple without LSTM."""
        if self.lstm is None:
            return ()
        shape = (self.lstm.num_layers, batch_size, self.lstm.hidden_size)
        return self.policy.weight.new_zeros(shape), self.policy.weight.new_zeros(shape)

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
        """A module as `LSTM` is."""
        return LSTM(input_size, LSTM_SIZE)

    def _what_led_here(self, inputs: AgentInput) -> Tensor:
        """Returns last action, one-hot, and last reward, clipped to [-1, 1], all zero where is_first: [T, B, A + 1]."""
        no_action = self.num_actions  # one category more, which is then cut off
        last_action = inputs.last_action.masked_fill(inputs.is_first, no_action)
        one_hot = F.one_hot(last_action, self.num_actions + 1)[..., :-1]
        last_reward = inputs.last_reward.clamp(-1, 1).masked_fill(inputs.is_first, 0)
        return torch.cat([one_hot, last_reward.unsqueeze(-1)], dim=-1)


class LSTM(nn.Module):
    """One LSTM layer that forgets at the beginning of each episode.

    The input's share of the gates is one matrix product for all steps; only the hidden state's share waits for the step
    before. On a CPU that is faster than `nn.LSTM` step by step, and about as fast as `nn.LSTM` on the stretches between
    the beginnings of episodes, which a GPU would have to be asked for and waited for.

    Args:
        input_size: Of a step's input.
        hidden_size: H.
        has_two_biases: Whether the hidden state's share has a bias too, as in `nn.LSTM`. It adds nothing but doubles
            the bias's steps.
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
        hidden, cell = (part.squeeze(0) for part in state)
        outputs = []
        for share, reset in zip(self.from_input(inputs), is_first.unsqueeze(-1), strict=True):
            hidden, cell = hidden.masked_fill(reset, 0), cell.masked_fill(reset, 0)
            write, keep, content, read = (share + self.from_hidden(hidden)).chunk(4, dim=-1)
            cell = keep.sigmoid() * cell + write.sigmoid() * content.tanh()
            hidden = read.sigmoid() * cell.tanh()
            outputs.append(hidden)
        return torch.stack(outputs), (hidden.unsqueeze(0), cell.unsqueeze(0))

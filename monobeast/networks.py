"""Networks of an agent: observations, last action and last reward in, policy logits and baseline out.

All of them read a whole unroll at once, time first and batch second; a single step is an unroll with T = 1. Sizes come
from the spaces. N stands for T * B, F for the number of features, H for the size of the LSTM, L for its layers (one).
"""

import math
from typing import NamedTuple

import torch
from gymnasium import spaces
from torch import Tensor, nn
from torch.nn import functional as F

NETWORKS = ("auto", "shallow", "deep", "mlp")

# The smallest height and width that the three convolutions of the shallow network leave a pixel of.
MIN_SHALLOW_SIZE = 36

# No stack of color frames in use has more (ten RGB frames have 30), no camera has fewer rows.
MAX_CHANNELS = 32

# Both networks of the paper (its figure 3) have one LSTM of this size. Unlike TorchBeast, whose LSTM has two layers as
# wide as its input (519 on Pong) and takes most of the time of a step on a CPU.
LSTM_SIZE = 256


class AgentInput(NamedTuple):
    """What the agent knows at each step, all of it from before it acts.

    Attributes:
        observation: the space's dtype [T, B, ...].
        is_first: bool [T, B]: the observation opens an episode.
        last_action: int64 [T, B]: the action that led to the observation, from 0; not looked at where is_first.
        last_reward: float32 [T, B]: the reward that came with the observation, unclipped; not looked at where is_first.
    """

    observation: Tensor
    is_first: Tensor
    last_action: Tensor
    last_reward: Tensor


class AgentOutput(NamedTuple):
    """What the agent makes of it.

    Attributes:
        policy_logits: float32 [T, B, A]: unnormalized log-probabilities of the actions.
        baseline: float32 [T, B]: estimate V(x_t).
        core_state: float32 tuple (hidden, cell), each [L, B, H]: state after the last step; empty without LSTM.
    """

    policy_logits: Tensor
    baseline: Tensor
    core_state: tuple[Tensor, ...]


class AgentNetwork(nn.Module):
    """Features of the observation, last action and last reward, an LSTM if asked for, and two linear heads.

    Args:
        torso: turns an observation [N, ...] into features, float32 [N, F]; its attribute `num_features` is F.
        num_actions: A.
        use_lstm: whether an LSTM stands between the features and the heads.
    """

    def __init__(self, torso: nn.Module, num_actions: int, use_lstm: bool) -> None:
        super().__init__()
        core_size = torso.num_features + num_actions + 1  # the last action, one-hot, and the last reward
        self.num_actions = num_actions
        self.torso = torso
        self.lstm = LSTM(core_size, LSTM_SIZE) if use_lstm else None
        core_size = LSTM_SIZE if use_lstm else core_size
        # Small, so that training starts from a nearly uniform policy that explores.
        self.policy = _initialize(nn.Linear(core_size, num_actions), gain=0.01)
        self.baseline = _initialize(nn.Linear(core_size, 1), gain=1.0)

    def initial_state(self, batch_size: int) -> tuple[Tensor, ...]:
        """Returns the zero state: float32 (hidden, cell), each [L, B, H]; the empty tuple without LSTM."""
        if self.lstm is None:
            return ()
        zeros = self.policy.weight.new_zeros(1, batch_size, LSTM_SIZE)
        return zeros, zeros.clone()

    def forward(self, inputs: AgentInput, core_state: tuple[Tensor, ...]) -> AgentOutput:
        """Unrolls over T steps from `core_state`, which is zeroed before every step that opens an episode."""
        is_first = inputs.is_first
        features = self.torso(inputs.observation.flatten(0, 1)).unflatten(0, is_first.shape)
        last_action = F.one_hot(inputs.last_action, self.num_actions).to(features.dtype)
        last_reward = inputs.last_reward.clamp(-1, 1)
        # What came before an episode is no business of its first step.
        last_action = last_action.masked_fill(is_first.unsqueeze(-1), 0)
        last_reward = last_reward.masked_fill(is_first, 0)
        core = torch.cat([features, last_action, last_reward.unsqueeze(-1)], dim=-1)
        if self.lstm is not None:
            core, core_state = self.lstm(core, is_first, core_state)
        # Also under autocast: in bfloat16, values near 2 are 0.016 apart, as far as V of neighboring states.
        with torch.autocast(core.device.type, enabled=False):
            core = core.float()
            return AgentOutput(self.policy(core), self.baseline(core).squeeze(-1), core_state)


class LSTM(nn.Module):
    """One LSTM layer over an unroll that forgets at the beginning of every episode.

    The input's share of the gates is one matrix product over all steps; only the recurrent share waits for the step
    before. On a CPU that is faster than `nn.LSTM` called step by step, and about as fast as `nn.LSTM` called on the
    stretches between episodes, for which a GPU would have to report first where they begin.
    """

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__()
        self.from_input = nn.Linear(input_size, 4 * hidden_size)
        self.from_hidden = nn.Linear(hidden_size, 4 * hidden_size, bias=False)
        for gates in (self.from_input, self.from_hidden):
            for gate in gates.weight.chunk(4):
                nn.init.orthogonal_(gate)
        nn.init.zeros_(self.from_input.bias)
        # As in the TensorFlow cell of the paper: with 0 an untrained cell would lose half of its content each step.
        nn.init.ones_(self.from_input.bias.chunk(4)[1])

    def forward(
        self, inputs: Tensor, is_first: Tensor, state: tuple[Tensor, ...]
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """Returns the hidden states, float32 [T, B, H], and the state after the last step, each [1, B, H]."""
        hidden, cell = (part.squeeze(0) for part in state)
        outputs = []
        for share, reset in zip(self.from_input(inputs), is_first.unsqueeze(-1)):
            hidden, cell = hidden.masked_fill(reset, 0), cell.masked_fill(reset, 0)
            write, keep, content, read = (share + self.from_hidden(hidden)).chunk(4, dim=-1)
            cell = keep.sigmoid() * cell + write.sigmoid() * content.tanh()
            hidden = read.sigmoid() * cell.tanh()
            outputs.append(hidden)
        return torch.stack(outputs), (hidden.unsqueeze(0), cell.unsqueeze(0))


class ImageTorso(nn.Module):
    """Convolutions and a fully connected layer on images of any layout: [N, ...] to float32 [N, F].

    Args:
        shape: an observation's.
        axes: its axes as (channels, height, width); a stack of color images has two for the channels, gray has none.
        network: "shallow" or "deep".
    """

    def __init__(self, shape: tuple[int, ...], axes: tuple[int, ...], network: str) -> None:
        super().__init__()
        height, width = shape[axes[-2]], shape[axes[-1]]
        self.image_shape = (math.prod(shape) // (height * width), height, width)
        self.order = (0, *(1 + axis for axis in axes))
        make_layers, self.num_features = {"shallow": (_shallow, 512), "deep": (_deep, 256)}[network]
        self.convolutions = make_layers(self.image_shape[0])
        with torch.no_grad():
            size = self.convolutions(torch.zeros(1, *self.image_shape)).numel()
        self.fully_connected = _initialize(nn.Linear(size, self.num_features))

    def forward(self, observation: Tensor) -> Tensor:
        images = observation.permute(self.order).reshape(-1, *self.image_shape)
        # Convolutions run in the format of their input, and train faster in this one. Bytes are reordered, not floats,
        # which are four times as many; those of a channel-last image are in this order already.
        images = _to_float(images.contiguous(memory_format=torch.channels_last))
        return self.fully_connected(self.convolutions(images).flatten(1)).relu()


class VectorTorso(nn.Module):
    """Two fully connected layers on the flattened observation, one-hot where it is Discrete: [N, ...] to float32 [N, F]."""

    num_features = 64

    def __init__(self, space: spaces.Box | spaces.Discrete) -> None:
        super().__init__()
        self.space = space
        size = int(space.n) if isinstance(space, spaces.Discrete) else math.prod(space.shape)
        layers = [nn.Linear(size, self.num_features), nn.Tanh(), nn.Linear(self.num_features, self.num_features), nn.Tanh()]
        self.layers = nn.Sequential(*layers).apply(_initialize)

    def forward(self, observation: Tensor) -> Tensor:
        if isinstance(self.space, spaces.Discrete):
            observation = F.one_hot(observation.long() - int(self.space.start), int(self.space.n))
        return self.layers(_to_float(observation.reshape(observation.shape[0], -1)))


class ResidualBlock(nn.Module):
    """x + conv(relu(conv(relu(x)))): float32 [N, C, height, width] to the same."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, padding=1)
        self.second = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.second(self.first(x.relu()).relu())


def make_network(
    observation_space: spaces.Space, num_actions: int, network: str = "auto", use_lstm: bool = False
) -> AgentNetwork:
    """Returns a new network for the spaces, its weights drawn from torch's global generator.

    Of the observations, uint8 is divided by 255 and everything else is taken as it is, in float32. That goes by the
    dtype alone: an Atari game's 128 bytes of memory are divided as well.

    Args:
        observation_space: a Box, or a Discrete, which becomes one-hot.
        num_actions: A.
        network: "shallow", the network of DQN; "deep", the ResNet of the paper; "mlp"; or "auto": shallow for
            everything that can be an image of at least 36x36, mlp for the rest.
        use_lstm: whether an LSTM stands between the features and the heads.

    Raises:
        ValueError: the network is unknown or doesn't fit the space; names both and what does.
    """
    return AgentNetwork(_make_torso(observation_space, network), num_actions, use_lstm)


def _make_torso(space: spaces.Space, network: str) -> ImageTorso | VectorTorso:
    if network not in NETWORKS:
        raise ValueError(f"--network {network}: must be one of {', '.join(NETWORKS)}")
    if not isinstance(space, (spaces.Box, spaces.Discrete)):
        raise ValueError(
            f"observation space {space}: must be Box or Discrete; gymnasium.wrappers.FlattenObservation makes a Box of "
            "others, or give AgentNetwork a torso of your own"
        )
    if network == "auto":
        can_be_image = len(space.shape) in (2, 3, 4) and sorted(space.shape)[-2] >= MIN_SHALLOW_SIZE
        network = "shallow" if can_be_image else "mlp"
    if network == "mlp":
        return VectorTorso(space)
    axes = _image_axes(space, network)
    height, width = space.shape[axes[-2]], space.shape[axes[-1]]
    if network == "shallow" and min(height, width) < MIN_SHALLOW_SIZE:
        raise ValueError(
            f"--network shallow: images of {height}x{width} (observation shape {space.shape}) are smaller than its "
            f"convolutions need, {MIN_SHALLOW_SIZE}x{MIN_SHALLOW_SIZE}; use --network mlp"
        )
    return ImageTorso(space.shape, axes, network)


def _image_axes(space: spaces.Box | spaces.Discrete, network: str) -> tuple[int, ...]:
    """Returns the axes of an observation as (channels, height, width), none or two of them for the channels.

    The channels are the first or the last axis, whichever is smaller than both others; of four axes, the first is the
    stack of frames.
    """
    shape = space.shape
    if len(shape) == 2:
        return 0, 1
    if len(shape) == 3 or (len(shape) == 4 and shape[0] <= MAX_CHANNELS):
        *stack, first, middle, last = range(len(shape))
        for channels, height, width in ((first, middle, last), (last, first, middle)):
            if shape[channels] <= MAX_CHANNELS and shape[channels] < min(shape[height], shape[width]):
                return *stack, channels, height, width
    raise ValueError(
        f"--network {network}: can't tell channels, height and width of observation space {space} apart: channels must "
        f"come first or last, be fewer than rows and columns, and at most {MAX_CHANNELS}; reorder them with "
        "gymnasium.wrappers.TransformObservation, or use --network mlp"
    )


def _shallow(channels: int) -> nn.Sequential:
    """The convolutions of DQN (Nature, 2015) and of TorchBeast's AtariNet."""
    layers = [nn.Conv2d(channels, 32, 8, 4), nn.ReLU(), nn.Conv2d(32, 64, 4, 2), nn.ReLU(), nn.Conv2d(64, 64, 3, 1)]
    return nn.Sequential(*layers, nn.ReLU()).apply(_initialize)


def _deep(channels: int) -> nn.Sequential:
    """The convolutions of the paper's large network (figure 3, right)."""
    layers = []
    for width in (16, 32, 32):
        layers += [nn.Conv2d(channels, width, 3, padding=1), nn.MaxPool2d(3, stride=2, padding=1)]
        layers += [ResidualBlock(width), ResidualBlock(width)]
        channels = width
    return nn.Sequential(*layers, nn.ReLU()).apply(_initialize)


def _initialize(module: nn.Module, gain: float = math.sqrt(2)) -> nn.Module:
    """Makes weights orthogonal and biases zero, where the module has them.

    Unlike the paper and TorchBeast: with the default of PyTorch, on Pong's nearly constant frames, the last hidden
    layer hardly depends on what is on the screen.
    """
    if isinstance(module, (nn.Linear, nn.Conv2d)):
        nn.init.orthogonal_(module.weight, gain)
        nn.init.zeros_(module.bias)
    return module


def _to_float(observation: Tensor) -> Tensor:
    """Returns float32, bytes as [0, 1], in the memory format of the observation."""
    if observation.dtype == torch.uint8:
        return observation.to(torch.float32).div_(255)
    return observation.to(torch.float32)

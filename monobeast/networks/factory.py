"""From spaces to a network."""

from gymnasium.spaces import Box, Discrete, Space

from monobeast import user_code
from monobeast.distributions import Categorical, Distribution, for_space
from monobeast.networks import contract
from monobeast.networks.agent import AgentNetwork, Network
from monobeast.networks.own import NetworkMaker, OwnNetwork
from monobeast.networks.torchbeast import TorchBeastNetwork
from monobeast.networks.torsos import MIN_SHALLOW_SIZE, ImageTorso, VectorTorso

# Enough for a stack of ten color frames, and fewer than the rows of any screen.
MAX_CHANNELS = 32

KINDS = ("auto", "shallow", "deep", "mlp", "torchbeast")


def make_network(
    observation_space: Space,
    action_space: Space,
    network: str | NetworkMaker = "auto",
    use_lstm: bool = False,
    precision: str = "float32",
    memory_format: str = "channels_last",
) -> Network:
    """Makes a network for the spaces, its weights drawn from torch's global generator.

    Observations of dtype uint8, images or not (an Atari game's memory, say), are divided by 255; all others are taken
    as they are, in float32.

    Args:
        observation_space: Box, or Discrete, which becomes one-hot.
        action_space: as agents see it; see `monobeast.environments.Spaces`.
        network: "shallow" (DQN's convolutions), "deep" (the ResNet of the paper), "mlp", "torchbeast" (see
            `TorchBeastNetwork`), or "auto": shallow for what can be an image of at least 36x36, mlp for everything
            else. Or one of the user's own, as module:Class or as a callable; see `OwnNetwork`.
        use_lstm: whether an LSTM stands between the features and the heads; a network of one's own has its own state.
        precision: "float32" or "bfloat16"; see `AgentNetwork` and `OwnNetwork`.
        memory_format: "channels_last" or "contiguous"; see `ImageTorso`, where alone it is looked at.

    Returns:
        The network, on the CPU.

    Raises:
        ValueError: the network is unknown or doesn't fit the space; the message names both and what would fit.
    """
    is_own = callable(network) or user_code.is_own(network)
    if not is_own and network not in KINDS:
        raise ValueError(f"--network {network}: must be one of {', '.join(KINDS)}, or module:Class")
    if not isinstance(observation_space, Box | Discrete):
        raise ValueError(
            f"observation space {observation_space} is not supported; only Box and Discrete are: wrap the environment "
            "in gymnasium.wrappers.FlattenObservation, or give AgentNetwork a torso of your own"
        )
    distribution = for_space(action_space)
    if is_own:
        return _make_own(network, observation_space, distribution, precision)
    if network == "torchbeast" and not isinstance(action_space, Discrete):
        raise ValueError(f"--network torchbeast: action space {action_space}: TorchBeast's has Discrete actions alone")
    kind = TorchBeastNetwork if network == "torchbeast" else AgentNetwork
    return kind(_make_torso(observation_space, network, memory_format), distribution, use_lstm, precision)


def _make_own(
    network: str | NetworkMaker, observation_space: Box | Discrete, distribution: Distribution, precision: str
) -> OwnNetwork:
    """Makes a network of the user's own by calling what is named, or given, with observation space and P."""
    is_named = isinstance(network, str)
    flag = f"--network {network}" if is_named else f"network={user_code.name_of(network)}"
    maker = user_code.look_up("--network", network) if is_named else network
    number = "num_actions" if isinstance(distribution, Categorical) else "num_params"
    call = f"{flag}: its call with (observation_space, {number})"
    module = user_code.attempt(call, lambda: maker(observation_space, distribution.num_params))
    own = OwnNetwork(module, distribution, precision)
    try:
        contract.check(own, observation_space)
    except ValueError as error:
        raise ValueError(f"{flag}: {error}") from error
    return own


def choose_network(observation_space: Space, network: str) -> str:
    """The kind that `network` stands for: "auto" is shallow for what can be an image of at least 36x36, mlp else."""
    if network != "auto":
        return network
    shape = observation_space.shape
    return "shallow" if len(shape) in (2, 3, 4) and sorted(shape)[-2] >= MIN_SHALLOW_SIZE else "mlp"


def _make_torso(space: Box | Discrete, network: str, memory_format: str) -> ImageTorso | VectorTorso:
    shape = space.shape
    network = choose_network(space, network)
    if network == "mlp":
        return VectorTorso(space)
    axes = _image_axes(space, network)
    height, width = (shape[axis] for axis in axes[-2:])
    if network != "deep" and min(height, width) < MIN_SHALLOW_SIZE:
        raise ValueError(
            f"--network {network}: observations of shape {shape} are images of {height}x{width}, and its convolutions "
            f"need {MIN_SHALLOW_SIZE}x{MIN_SHALLOW_SIZE}; use --network mlp"
        )
    if network == "torchbeast":
        return ImageTorso(shape, axes, "shallow", memory_format, less_mean=False)
    return ImageTorso(shape, axes, network, memory_format)


def _image_axes(space: Box | Discrete, network: str) -> tuple[int, ...]:
    """Returns the axes of an observation, channels before height and width; see `ImageTorso`.

    Channels are the first or the last axis, whichever is smaller than both others. Of four axes, the first is a stack
    of images.
    """
    shape = space.shape
    if len(shape) == 2:
        return 0, 1
    if len(shape) == 3 or (len(shape) == 4 and shape[0] <= MAX_CHANNELS):
        *stack, first, middle, last = range(len(shape))
        for channels, height, width in [(first, middle, last), (last, first, middle)]:
            if shape[channels] <= MAX_CHANNELS and shape[channels] < min(shape[height], shape[width]):
                return *stack, channels, height, width
    raise ValueError(
        f"--network {network}: can't tell channels, height and width apart in observation space {space}: channels must "
        f"come first or last, be fewer than rows and columns, and at most {MAX_CHANNELS}; reorder the axes with "
        "gymnasium.wrappers.TransformObservation, or use --network mlp"
    )

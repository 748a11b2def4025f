"""Makes networks for spaces."""

from gymnasium.spaces import Box, Discrete, Space
from torch import nn

from monobeast import trees, user_code
from monobeast.config import NETWORKS
from monobeast.distributions import Categorical, Distribution, for_space
from monobeast.networks import contract
from monobeast.networks.agent import AgentNetwork, Network
from monobeast.networks.normalizer import Normalizer
from monobeast.networks.own import NetworkMaker, OwnNetwork
from monobeast.networks.torchbeast import TorchBeastNetwork
from monobeast.networks.torsos import MIN_SHALLOW_SIZE, ImageTorso, PartsTorso, VectorTorso

# Enough for a stack of ten color frames, and fewer than the rows of any screen.
MAX_CHANNELS = 32


def make_network(
    observation_space: Space,
    action_space: Space,
    network: str | NetworkMaker = "auto",
    use_lstm: bool = False,
    precision: str = "float32",
    memory_format: str = "channels_last",
    normalize_observations: bool = False,
) -> Network:
    """Makes a network for the spaces, with weights drawn from torch's global generator.

    Observations of dtype uint8, images or not (such as an Atari game's memory), are divided by 255; all others are only
    converted to float32.

    Args:
        observation_space: Box, MultiBinary, Discrete or MultiDiscrete (the latter two become one-hot), or a Dict or
            Tuple of those, nested to any depth.
        action_space: as seen by agents; see `monobeast.environments.Spaces`.
        network: "shallow" (DQN's convolutions), "deep" (the ResNet of the paper), "mlp", "torchbeast" (see
            `TorchBeastNetwork`), or "auto": shallow for what can be an image of at least 36x36, else mlp. In a Dict or
            Tuple, shallow and deep apply to the parts that can be such an image, and the others get the layers of mlp.
            Or the user's own network, as module:Class or as a callable; see `OwnNetwork`.
        use_lstm: whether an LSTM stands between the features and the heads; the user's own network has its own state.
        precision: "float32" or "bfloat16"; see `AgentNetwork` and `OwnNetwork`.
        memory_format: "channels_last" or "contiguous"; only for `ImageTorso`.
        normalize_observations: whether float parts other than images are normalized by a `Normalizer`; not for the
            user's own network, which may contain one.

    Returns:
        The network, on the CPU.

    Raises:
        ValueError: the network is unknown or does not fit the space; the message names both and what would fit.
    """
    is_own = callable(network) or user_code.is_own(network)
    if not is_own and network not in NETWORKS:
        raise ValueError(f"--network {network}: must be one of {', '.join(NETWORKS)}, or module:Class")
    distribution = for_space(action_space)
    if is_own:
        return _make_own(network, observation_space, distribution, precision)
    if network == "torchbeast" and not isinstance(action_space, Discrete):
        raise ValueError(f"--network torchbeast: action space {action_space}: TorchBeast's has Discrete actions alone")
    kind = TorchBeastNetwork if network == "torchbeast" else AgentNetwork
    torso = _make_torso(observation_space, network, memory_format)
    normalizer = _make_normalizer(observation_space, torso) if normalize_observations else None
    return kind(torso, distribution, use_lstm, precision, normalizer)


def _make_normalizer(observation_space: Space, torso: nn.Module) -> Normalizer:
    """A normalizer for the parts that reach the vector layers."""
    places = set(range(len(trees.leaves(trees.of_space(observation_space)))))
    if isinstance(torso, PartsTorso):
        places -= set(torso.places)
    try:
        return Normalizer(observation_space, () if isinstance(torso, ImageTorso) else places)
    except ValueError as error:
        raise ValueError(f"--normalize_observations: {error}") from None


def _make_own(
    network: str | NetworkMaker, observation_space: Space, distribution: Distribution, precision: str
) -> OwnNetwork:
    """Makes the user's own network by calling the named or given callable with observation space and P."""
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
    """The kind that `network` stands for: "auto" is shallow for what can be an image of at least 36x36, else mlp."""
    if network != "auto":
        return network
    return "shallow" if any(map(_may_be_image, trees.leaves(trees.of_space(observation_space)))) else "mlp"


def _may_be_image(space: Space) -> bool:
    shape = space.shape
    return isinstance(space, Box) and len(shape) in (2, 3, 4) and sorted(shape)[-2] >= MIN_SHALLOW_SIZE


def _make_torso(space: Space, network: str, memory_format: str) -> ImageTorso | VectorTorso | PartsTorso:
    network = choose_network(space, network)
    if network == "mlp":
        return VectorTorso(space)
    if isinstance(trees.of_space(space), (dict, tuple)):
        return _make_parts_torso(space, network, memory_format)
    return _make_image_torso(space, network, memory_format)


def _make_parts_torso(space: Space, network: str, memory_format: str) -> PartsTorso:
    if network == "torchbeast":
        raise ValueError(f"--network torchbeast: observation space {space} has parts; AtariNet sees a single image")
    parts = trees.leaves(trees.of_space(space))
    images = {i: _make_image_torso(part, network, memory_format) for i, part in enumerate(parts) if _may_be_image(part)}
    if not images:
        wanted = f"an image of at least {MIN_SHALLOW_SIZE}x{MIN_SHALLOW_SIZE}"
        raise ValueError(f"--network {network}: no part of observation space {space} is {wanted}; use --network mlp")
    return PartsTorso(space, images)


def _make_image_torso(space: Space, network: str, memory_format: str) -> ImageTorso:
    shape = space.shape
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


def _image_axes(space: Space, network: str) -> tuple[int, ...]:
    """Returns the axes of an observation, channels before height and width; see `ImageTorso`.

    Channels are the first or the last axis, whichever is smaller than both others. With four axes, the first is a stack
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

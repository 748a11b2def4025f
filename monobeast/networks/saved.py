"""Weights that were saved, and whether they are a network's."""

from torch import Tensor

from monobeast.networks.agent import Network


def load_weights(network: Network, weights: dict[str, Tensor]) -> None:
    """Gives a network the weights that its `state_dict` gave.

    Raises:
        ValueError: they are of another network; the message names the first that differs.
    """
    try:
        require_fit(network, weights)
        network.load_state_dict(weights)
    except (RuntimeError, TypeError, AttributeError) as error:
        raise ValueError(str(error)) from error


def require_fit(network: Network, weights: dict[str, Tensor]) -> None:
    """Raises ValueError, naming the first that differs, unless the weights have names and shapes of the network's."""
    own = network.state_dict()
    for name in (*own, *weights):
        here, there = (_describe_shape(state, name) for state in (own, weights))
        if here != there:
            raise ValueError(f"{name} is {there} there and {here} here")


def _describe_shape(state: dict[str, Tensor], name: str) -> str:
    value = state.get(name)
    return str(list(value.shape)) if isinstance(value, Tensor) else "missing"

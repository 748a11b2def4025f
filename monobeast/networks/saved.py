"""Loads saved weights into a network, with checks."""

from torch import Tensor

from monobeast.networks.agent import Network


def load_weights(network: Network, weights: dict[str, Tensor]) -> None:
    """Loads weights of `state_dict` into a network.

    Raises:
        ValueError: they belong to another network; the message names the first weight that differs.
    """
    try:
        require_fit(network, weights)
        network.load_state_dict(weights)
    except (RuntimeError, TypeError, AttributeError) as error:
        raise ValueError(str(error)) from error


def require_fit(network: Network, weights: dict[str, Tensor]) -> None:
    """Raises ValueError, naming the first difference, unless the weights have the network's names and shapes."""
    own = network.state_dict()
    for name in (*own, *weights):
        here, there = (_describe_shape(state, name) for state in (own, weights))
        if here != there:
            raise ValueError(f"{name} is {there} there and {here} here")


def _describe_shape(state: dict[str, Tensor], name: str) -> str:
    value = state.get(name)
    return str(list(value.shape)) if isinstance(value, Tensor) else "missing"

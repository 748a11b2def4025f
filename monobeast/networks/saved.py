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
    needed = network.state_dict()
    for name in (*needed, *weights):
        wanted, found = (_describe_shape(state, name) for state in (needed, weights))
        if wanted != found:
            raise ValueError(f"{name} is {found} in the saved weights, {wanted} in this network")


def _describe_shape(state: dict[str, Tensor], name: str) -> str:
    value = state.get(name)
    return str(list(value.shape)) if isinstance(value, Tensor) else "missing"

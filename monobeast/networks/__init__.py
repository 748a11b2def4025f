"""Networks: observations, last action and last reward in, policy logits and baseline out, sized from the spaces.

All of them read a whole unroll at once, time first and batch second; one step is an unroll with T = 1. N stands for
T * B, F for the number of features.
"""

from monobeast.networks.agent import AgentInput, AgentNetwork, AgentOutput, Network
from monobeast.networks.factory import choose_network, make_network
from monobeast.networks.normalizer import Normalizer, find_normalizers
from monobeast.networks.own import NetworkMaker, OwnNetwork
from monobeast.networks.saved import load_weights, require_fit

__all__ = [
    "AgentInput",
    "AgentNetwork",
    "AgentOutput",
    "Network",
    "NetworkMaker",
    "Normalizer",
    "OwnNetwork",
    "choose_network",
    "find_normalizers",
    "load_weights",
    "make_network",
    "require_fit",
]

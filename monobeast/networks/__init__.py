"""Networks: observations, last action and last reward in, policy logits and baseline out, sized from the spaces.

All of them read a whole unroll at once, time first and batch second; one step is an unroll with T = 1. N stands for
T * B, F for the number of features.
"""

from monobeast.networks.agent import AgentInput, AgentNetwork, AgentOutput
from monobeast.networks.factory import choose_network, make_network

__all__ = ["AgentInput", "AgentNetwork", "AgentOutput", "choose_network", "make_network"]

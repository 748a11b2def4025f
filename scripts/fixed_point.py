"""The fixed point of V-trace in the smallest task, one state and two actions, and a plot of it."""

import io
import itertools
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch

from monobeast import vtrace

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# What the actions earn, and how often pi and mu take them.
REWARDS, PI, MU = np.array([1.0, 0.0]), np.array([0.9, 0.1]), np.array([0.3, 0.7])
GAMMA, N = 0.9, 6
RHO_BARS = [0.1, 0.25, 0.5, 1.0, 2.0, 3.0]
C_BARS = [0.0, 0.25, 0.5, 1.0]


class FixedPoint(NamedTuple):
    """The limit of repeated updates, and their convergence."""

    value: float
    contraction: float  # factor of an update's error
    deviation: float  # standard deviation of v_0, V being the fixed point


def find_fixed_point(rho_bar: float, c_bar: float) -> FixedPoint:
    """The fixed point of exact updates: means over all trajectories of N steps, weighted by their probability under
    mu."""
    actions = np.array(list(itertools.product((0, 1), repeat=N))).T  # [N, 2^N]
    probabilities = MU[actions].prod(axis=0)

    def targets(value: float) -> np.ndarray:
        full = np.full(actions.shape, value)
        inputs = {"log_rhos": np.log((PI / MU)[actions]), "discounts": np.full(actions.shape, GAMMA)}
        inputs |= {"rewards": REWARDS[actions], "values": full, "bootstrap_value": full[0]}
        tensors = {name: torch.from_numpy(array) for name, array in inputs.items()}
        clips = {"clip_rho_threshold": rho_bar, "clip_c_threshold": c_bar}
        return vtrace.from_importance_weights(**tensors, **clips).vs[0].numpy()

    offset, slope = probabilities @ targets(0.0), probabilities @ (targets(1.0) - targets(0.0))
    value = offset / (1 - slope)  # an update is value -> offset + slope value
    deviation = np.sqrt(probabilities @ (targets(value) - value) ** 2)
    return FixedPoint(value, slope, deviation)


def chosen_policy(rho_bar: float) -> np.ndarray:
    """Equation (3)."""
    clipped = np.minimum(rho_bar * MU, PI)
    return clipped / clipped.sum()


def value_of(policy: np.ndarray) -> float:
    return float(policy @ REWARDS / (1 - GAMMA))


def draw() -> "Figure":
    """Plots the fixed point over rho-bar: the line of equation (3), and the points of V-trace."""
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context({"font.size": 9}):
        figure = Figure(figsize=(6.4, 2.8), layout="constrained")
        left, right = figure.subplots(1, 2)
        line = np.geomspace(0.08, 4.0, 100)
        found = [find_fixed_point(rho_bar, min(1.0, rho_bar)) for rho_bar in RHO_BARS]
        left.plot(line, [value_of(chosen_policy(rho_bar)) for rho_bar in line], label="V of equation (3)")
        left.plot(RHO_BARS, [point.value for point in found], "o", label="fixed point of V-trace")
        left.axhline(value_of(PI), color="0.6", linewidth=0.8, linestyle="--", label="V of pi, V of mu")
        left.axhline(value_of(MU), color="0.6", linewidth=0.8, linestyle="--")
        left.set(xscale="log", xlabel="rho-bar", ylabel="value")
        left.legend(frameon=False, loc="upper left", bbox_to_anchor=(0.0, 0.94), fontsize="small", handlelength=1.2)
        right.plot(RHO_BARS, [point.deviation for point in found], "o-", color="C3")
        right.set(xscale="log", xlabel="rho-bar", ylabel="standard deviation of v_0", ylim=(0, None))
        for axes in (left, right):
            axes.spines[["top", "right"]].set_visible(False)
    return figure


def render_svg() -> str:
    """The text of the plot's file."""
    import matplotlib

    text = io.StringIO()
    with matplotlib.rc_context({"svg.hashsalt": "monobeast", "svg.fonttype": "none"}):
        draw().savefig(text, format="svg", metadata={"Date": None})
    return text.getvalue()

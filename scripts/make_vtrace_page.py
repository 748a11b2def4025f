"""Writes the numbers of docs/vtrace.md and draws its plot: `python scripts/make_vtrace_page.py`; needs matplotlib."""

import inspect
import itertools
import re
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch

from monobeast import vtrace
from monobeast.vtrace_check.faults import FAULTS
from monobeast.vtrace_check.terms import Outputs
from monobeast.vtrace_vectors import Case

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "vtrace.md"
PLOT = ROOT / "docs" / "vtrace_fixed_point.svg"
_BLOCK = re.compile(r"(<!-- from scripts/make_vtrace_page.py: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)

PARAMETERS = {"clip_rho_threshold": 1.0, "clip_pg_rho_threshold": 1.0, "clip_c_threshold": 1.0, "lambda_": 1.0}
CUT = 0.0  # the ratio of a reset step, whose logarithm is minus infinity

# One state, two actions: what they earn, and how often pi and mu take them.
REWARDS, PI, MU = np.array([1.0, 0.0]), np.array([0.9, 0.1]), np.array([0.3, 0.7])
GAMMA, N = 0.9, 6
RHO_BARS = [0.1, 0.25, 0.5, 1.0, 2.0, 3.0]
C_BARS = [0.0, 0.25, 0.5, 1.0]


class Column(NamedTuple):
    """One trajectory."""

    ratios: list[float]
    discounts: list[float]
    rewards: list[float]
    states: list[float]  # V(x_0) .. V(x_T)

    def inputs(self) -> dict[str, np.ndarray]:
        """Arguments of `from_importance_weights`, [T, 1]."""
        with np.errstate(divide="ignore"):
            log_rhos = np.log(self.ratios)
        rows = {"log_rhos": log_rhos, "discounts": self.discounts, "rewards": self.rewards, "values": self.states[:-1]}
        rows = {name: np.array(row)[:, None] for name, row in rows.items()}
        return rows | {"bootstrap_value": np.array(self.states[-1:])}

    def solve(self, **parameters: float | None) -> Outputs:
        return Outputs(*(array[:, 0] for array in _vtrace(self.inputs(), **parameters)))


WORKED = Column([2.0, 0.5, 1.0], [0.5, 0.5, 0.5], [1.0, 1.0, 2.0], [1.0, 2.0, 1.0, 4.0])
# Two steps, the reset step, and the first of the next episode, whose first state is worth 8.
TRUNCATED = Column([1.0, 1.0, CUT, 1.0], [0.5, 0.5, 0.5, 0.5], [1.0, 1.0, 0.0, 1.0], [2.0, 2.0, 3.0, 8.0, 8.0])
TERMINATED = TRUNCATED._replace(discounts=[0.5, 0.0, 0.5, 0.5])
# Everything at once, so that every mistake shows: four ratios, an end, and parameters that all differ.
EVERYTHING = Column(
    ratios=[0.5, 4.0, CUT, 3.0, 4.0],
    discounts=[0.5, 0.4, 0.5, 0.2, 0.6],
    rewards=[1.0, 1.0, 0.0, 2.0, 1.0],
    states=[1.0, 2.0, 3.0, 4.0, 2.0, 4.0],
)
APART = {"clip_rho_threshold": 2.0, "clip_pg_rho_threshold": 3.0, "clip_c_threshold": 1.5, "lambda_": 0.5}


def _vtrace(inputs: dict[str, np.ndarray], **parameters: float | None) -> Outputs:
    found = vtrace.from_importance_weights(**{k: torch.from_numpy(v) for k, v in inputs.items()}, **parameters)
    return Outputs(found.vs.numpy(), found.pg_advantages.numpy())


def render(page: str) -> str:
    """The page with its blocks made anew."""
    makers = {
        "code": render_code,
        "example": render_example,
        "rho_bar": render_rho_bars,
        "c_bar": render_c_bars,
        "ends": render_ends,
        "faults": render_faults,
    }
    return _BLOCK.sub(lambda block: f"{block[1]}\n{makers[block[2]]()}\n\n{block[3]}", page)


def render_code() -> str:
    """The two functions that compute it, without their docstrings."""
    functions = (vtrace.from_clipped_weights, vtrace.accumulate_backward)
    return "```python\n" + "\n\n\n".join(_without_docstring(function) for function in functions) + "\n```"


def _without_docstring(function: object) -> str:
    source = inspect.getsource(inspect.unwrap(function))
    return re.sub(r'    """.*?"""\n', "", source.removeprefix("@torch.no_grad()\n"), count=1, flags=re.DOTALL).rstrip()


def render_example() -> str:
    """The worked example, row by row."""
    vs, advantages = WORKED.solve()
    V, rho = np.array(WORKED.states), np.minimum(1.0, WORKED.ratios)
    delta = rho * (WORKED.rewards + np.array(WORKED.discounts) * V[1:] - V[:-1])
    head = ["t", "pi / mu", "rho = c", "r", "gamma", "V(x_t)", "V(x_{t+1})", "delta", "v - V", "v", "advantage"]
    columns = [WORKED.ratios, rho, WORKED.rewards, WORKED.discounts, V[:-1], V[1:], delta, vs - V[:-1], vs, advantages]
    return _table(head, [[t, *map(_number, row)] for t, row in enumerate(zip(*columns, strict=True))])


class FixedPoint(NamedTuple):
    """What repeated updates come to, and how."""

    value: float
    contraction: float  # factor of an update's error
    deviation: float  # standard deviation of a target, at the fixed point


def find_fixed_point(rho_bar: float, c_bar: float) -> FixedPoint:
    """Of exact updates: means over all trajectories of N steps, each with its probability under mu."""
    actions = np.array(list(itertools.product((0, 1), repeat=N))).T  # [N, 2^N]
    probabilities = MU[actions].prod(axis=0)

    def targets(value: float) -> np.ndarray:
        full = np.full(actions.shape, value)
        inputs = {"log_rhos": np.log((PI / MU)[actions]), "discounts": np.full(actions.shape, GAMMA)}
        inputs |= {"rewards": REWARDS[actions], "values": full, "bootstrap_value": full[0]}
        return _vtrace(inputs, clip_rho_threshold=rho_bar, clip_c_threshold=c_bar).vs[0]

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


def render_rho_bars() -> str:
    """Where rho-bar leads, c-bar being as large, but 1 at most."""
    head = ["rho-bar", "policy of equation (3)", "its V", "fixed point of V-trace", "contraction", "deviation of v"]
    rows = []
    for rho_bar in RHO_BARS:
        policy, found = chosen_policy(rho_bar), find_fixed_point(rho_bar, min(1.0, rho_bar))
        numbers = [f"{number:.3f}" for number in (value_of(policy), *found)]
        rows.append([f"{rho_bar:g}", f"{policy[0]:.3f}, {policy[1]:.3f}", *numbers])
    return _table(head, rows)


def render_c_bars() -> str:
    """What c-bar changes, at rho-bar 1."""
    rows = [[f"{c_bar:g}", *(f"{number:.3f}" for number in find_fixed_point(1.0, c_bar))] for c_bar in C_BARS]
    return _table(["c-bar", "fixed point", "contraction", "deviation of v"], rows)


def draw() -> "Figure":
    """The fixed point over rho-bar: the line of equation (3), and what V-trace comes to."""
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
        right.set(xscale="log", xlabel="rho-bar", ylabel="standard deviation of a target", ylim=(0, None))
        for axes in (left, right):
            axes.spines[["top", "right"]].set_visible(False)
    return figure


def render_ends() -> str:
    """Targets around an episode's end, right and wrong."""
    rows = {
        "truncation": TRUNCATED.solve(),
        "termination, or a truncation that is taken for one": TERMINATED.solve(),
        "truncation, and a reset step that counts (ratio 1)": TRUNCATED._replace(ratios=[1.0] * 4).solve(),
    }
    head = ["what ends in row 1", *(f"v_{t}" for t in range(4)), *(f"A_{t}" for t in range(4))]
    return _table(head, [[name, *map(_number, np.concatenate(outputs))] for name, outputs in rows.items()])


def make_case() -> Case:
    """`EVERYTHING` as a case of the vectors."""
    expected = {name: array[:, None] for name, array in EVERYTHING.solve(**APART)._asdict().items()}
    return Case("everything", "", PARAMETERS | APART, EVERYTHING.inputs(), {}, expected)


def render_faults() -> str:
    """A column in which every mistake shows, and what each makes of it; what differs is bold."""
    case = make_case()
    T = len(EVERYTHING.rewards)
    given = zip(("pi / mu", "gamma", "r", "V"), EVERYTHING, strict=True)
    inputs = _table(["t", *map(str, range(T + 1))], [[name, *map(_number, row)] for name, row in given])
    right = np.concatenate([array[:, 0] for array in case.expected.values()])
    rows = [["none", *map(_number, right)]]
    for fault in FAULTS:
        wrong = np.concatenate([array[:, 0] for array in fault.compute(case)])
        same = np.isclose(wrong, right)
        cells = [_number(value) if is_same else f"**{_number(value)}**" for value, is_same in zip(wrong, same)]
        rows.append([str(fault), *cells])
    outputs = _table(["mistake", *(f"v_{t}" for t in range(T)), *(f"A_{t}" for t in range(T))], rows)
    return f"{inputs}\n\n{outputs}"


def _number(value: float) -> str:
    """Up to four digits behind the point."""
    return f"{value + 0.0:.4f}".rstrip("0").rstrip(".") if abs(value) > 5e-5 else "0"


def _table(head: list[str], rows: list[list[object]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    filled = [[*line, *[""] * (len(head) - len(line))] for line in lines]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in filled)


if __name__ == "__main__":
    import matplotlib

    PAGE.write_text(render(PAGE.read_text()))
    with matplotlib.rc_context({"svg.hashsalt": "monobeast", "svg.fonttype": "none"}):
        draw().savefig(PLOT, metadata={"Date": None})

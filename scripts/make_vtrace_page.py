"""Generates the numbers and the plot of docs/vtrace.md: `python scripts/make_vtrace_page.py`; needs matplotlib."""

import argparse
import inspect
import re
import textwrap
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

import fixed_point
from fixed_point import C_BARS, GAMMA, MU, PI, REWARDS, RHO_BARS, N, chosen_policy, find_fixed_point, value_of
from monobeast import vtrace
from monobeast.vtrace_check.arguments import ARGUMENTS, DEFAULTS
from monobeast.vtrace_check.comparison import FLOAT32_TOLERANCE, TOLERANCE
from monobeast.vtrace_check.mistakes import MISTAKES
from monobeast.vtrace_check.messages import write_power
from monobeast.vtrace_check.outputs import ADVANTAGES, ERRORS, VS
from monobeast.vtrace_check.terms import Outputs
from monobeast.vtrace_vectors import Case
from pages import fill, table

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "vtrace.md"
PLOT = ROOT / "docs" / "vtrace_fixed_point.svg"

CUT = 0.0  # the ratio of a reset step, whose logarithm is minus infinity


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
# Everything at once, so that every mistake shows: four ratios, an episode end, and parameters that all differ.
EVERYTHING = Column(
    ratios=[0.5, 4.0, CUT, 5.0, 4.0],
    discounts=[0.5, 0.4, 0.5, 0.2, 0.6],
    rewards=[1.0, 1.0, 0.0, 2.0, 1.0],
    states=[1.0, 2.0, 3.0, 4.0, 2.0, 4.0],
)
APART = {"clip_rho_threshold": 2.0, "clip_pg_rho_threshold": 3.0, "clip_c_threshold": 1.5, "lambda_": 0.5}


def _vtrace(inputs: dict[str, np.ndarray], **parameters: float | None) -> Outputs:
    found = vtrace.from_importance_weights(**{k: torch.from_numpy(v) for k, v in inputs.items()}, **parameters)
    return Outputs(found.vs.numpy(), found.pg_advantages.numpy())


def render(page: str) -> str:
    """The page with its blocks regenerated."""
    makers = {
        "code": render_code,
        "example_inputs": render_example_inputs,
        "example": render_example,
        "example_steps": render_example_steps,
        "two_actions": render_two_actions,
        "rho_bar": render_rho_bars,
        "deviation": render_deviation,
        "c_bar": render_c_bars,
        "end_inputs": render_end_inputs,
        "ends": render_ends,
        "end_steps": render_end_steps,
        "arguments": render_arguments,
        "tolerances": render_tolerances,
        "mistake_inputs": render_mistake_inputs,
        "mistakes": render_mistakes,
    }
    return fill(page, __file__, makers)


def render_code() -> str:
    """The two functions that compute V-trace, without their docstrings."""
    functions = (vtrace.from_clipped_weights, vtrace.accumulate_backward)
    return "```python\n" + "\n\n\n".join(_without_docstring(function) for function in functions) + "\n```"


def _without_docstring(function: object) -> str:
    source = inspect.getsource(inspect.unwrap(function))
    return re.sub(r'    """.*?"""\n', "", source.removeprefix("@torch.no_grad()\n"), count=1, flags=re.DOTALL).rstrip()


def render_example_inputs() -> str:
    gamma, last = WORKED.discounts[0], WORKED.states[-1]
    return _wrap(
        f"""Three steps, γ = {gamma:g}, ρ̄ = c̄ = λ = 1; V(x_3) = {last:g} is the bootstrap value. Start with the last
        row."""
    )


def render_example() -> str:
    """The worked example, row by row."""
    vs, advantages = WORKED.solve()
    V, rho = np.array(WORKED.states), np.minimum(1.0, WORKED.ratios)
    delta = rho * (WORKED.rewards + np.array(WORKED.discounts) * V[1:] - V[:-1])
    head = ["t", "pi / mu", "rho = c", "r", "gamma", "V(x_t)", "V(x_{t+1})", "delta", "v - V", "v", "advantage"]
    columns = [WORKED.ratios, rho, WORKED.rewards, WORKED.discounts, V[:-1], V[1:], delta, vs - V[:-1], vs, advantages]
    return table(head, [[t, *map(_number, row)] for t, row in enumerate(zip(*columns, strict=True))])


def render_example_steps() -> str:
    """The worked example, by hand."""
    (vs, advantages), V, gamma = WORKED.solve(), WORKED.states, WORKED.discounts
    weights = [min(1.0, ratio) for ratio in WORKED.ratios]
    errors = [*(vs - V[:-1]), 0.0]
    deltas, lines = [0.0] * len(vs), []
    for t in reversed(range(len(vs))):
        deltas[t] = weights[t] * (WORKED.rewards[t] + gamma[t] * V[t + 1] - V[t])
        clip = f"the ratio {WORKED.ratios[t]:g} is clipped to 1. " if WORKED.ratios[t] > 1 else ""
        delta = f"{weights[t]:g} ({WORKED.rewards[t]:g} + {gamma[t]:g} · {V[t + 1]:g} - {V[t]:g}) = {deltas[t]:g}"
        error = f"v - V = {deltas[t]:g} + {gamma[t]:g} · {weights[t]:g} · {errors[t + 1]:g} = {errors[t]:g}"
        rest = f", {error}," if t + 1 < len(vs) else "; nothing comes after it:"
        lines.append(f"* Row {t}: {clip}δ = {delta}{rest} v = {V[t]:g} + {errors[t]:g} = {vs[t]:g}.")
    first, second = weights[:2]
    factors = ["", f"{gamma[0]:g} · {first:g} · ", f"{gamma[0] * gamma[1]:g} · {first:g} · {second:g} · "]
    signed = [f"{delta:g}" if delta >= 0 else f"({delta:g})" for delta in deltas]
    terms = " + ".join(factor + delta for factor, delta in zip(factors, signed, strict=True))
    lines.append(f"* The sum of equation (1) gives the same: {V[0]:g} + {terms} = {vs[0]:g}.")
    q = f"{WORKED.rewards[0]:g} + {gamma[0]:g} · {vs[1]:g}"
    advantage = f"{weights[0]:g} ({q} - {V[0]:g}) = {advantages[0]:g}"
    lines.append(f"* Advantage of row 0: {advantage}, with v_1 = {vs[1]:g}, not with V(x_1) = {V[1]:g}.")
    return "\n".join(lines)


def render_two_actions() -> str:
    minimum, policy = np.minimum(MU, PI), chosen_policy(1.0)
    earned, low, high = _join(REWARDS, " and "), 1 / (MU / PI).max(), (PI / MU).max()
    return _wrap(
        f"""One state, two actions with rewards {earned}, γ = {GAMMA:g}, π = ({_join(PI)}), μ = ({_join(MU)}):
        the value of π is {value_of(PI):g}, that of μ is {value_of(MU):g}. At ρ̄ = 1 the minimum is ({_join(minimum)}),
        normalized ({_join(policy)}), so V is {value_of(policy):g}. From the largest ratio on, ρ̄ = {high:g}, V is that
        of π; below the smallest, {low:.3f}, that of μ. In the table c̄ = min(1, ρ̄)."""
    )


def render_deviation() -> str:
    return _wrap(
        f"""*Deviation* is the standard deviation of v_0 over all trajectories of {N} steps under μ, with V at the fixed
        point. *Contraction* is the factor by which an update of {N} steps multiplies the error of V."""
    )


def _join(numbers: np.ndarray, between: str = ", ") -> str:
    return between.join(f"{number:g}" for number in numbers)


def render_rho_bars() -> str:
    """The fixed point for each rho-bar; c-bar is as large, but at most 1."""
    head = ["rho-bar", "policy of equation (3)", "its V", "fixed point of V-trace", "contraction", "deviation of v_0"]
    rows = []
    for rho_bar in RHO_BARS:
        policy, found = chosen_policy(rho_bar), find_fixed_point(rho_bar, min(1.0, rho_bar))
        numbers = [f"{number:.3f}" for number in (value_of(policy), *found)]
        rows.append([f"{rho_bar:g}", f"{policy[0]:.3f}, {policy[1]:.3f}", *numbers])
    return table(head, rows)


def render_c_bars() -> str:
    """What c-bar changes, at rho-bar 1."""
    rows = [[f"{c_bar:g}", *(f"{number:.3f}" for number in find_fixed_point(1.0, c_bar))] for c_bar in C_BARS]
    return table(["c-bar", "fixed point", "contraction", "deviation of v_0"], rows)


def render_end_inputs() -> str:
    V, gamma = TRUNCATED.states, TRUNCATED.discounts[0]
    return _wrap(
        f"""Two steps with reward {TRUNCATED.rewards[0]:g}, an episode end, the reset step (row 2), one step of the next
        episode; on-policy, γ = {gamma:g}. V is {V[0]:g}, {V[1]:g}, then {V[2]:g} at the final observation, {V[3]:g} at
        the next episode's first observation, and {V[4]:g} after it. A is the advantage:"""
    )


def render_ends() -> str:
    """Targets around an episode's end, right and wrong."""
    rows = {
        "truncation": TRUNCATED.solve(),
        "termination, or a truncation treated as one": TERMINATED.solve(),
        "truncation, and a reset step that counts (ratio 1)": TRUNCATED._replace(ratios=[1.0] * 4).solve(),
    }
    head = ["what ends in row 1", *(f"v_{t}" for t in range(4)), *(f"A_{t}" for t in range(4))]
    return table(head, [[name, *map(_number, np.concatenate(outputs))] for name, outputs in rows.items()])


def render_end_steps() -> str:
    """The rows of the table, by hand."""
    V, r, gamma = TRUNCATED.states, TRUNCATED.rewards, TRUNCATED.discounts[0]
    cut, counted = TRUNCATED.solve().vs, TRUNCATED._replace(ratios=[1.0] * 4).solve().vs
    terminated = TERMINATED.solve().vs[1]

    def sum_of(t: int, after: float, result: float) -> str:
        return f"{r[t]:g} + {gamma:g} · {after:g} = {result:g}"

    return _wrap(
        f"""By hand: v_1 is {sum_of(1, V[2], cut[1])} after truncation and {terminated:g} after termination. If the
        reset step counts, the next episode leaks into v_1: row 3 has the target {sum_of(3, V[4], counted[3])}, row 2
        has {sum_of(2, counted[3], counted[2])}, and v_1 is {sum_of(1, counted[2], counted[1])}."""
    )


def render_arguments() -> str:
    """Arguments that a function may take and return, and their names."""
    names = {f"`{name}`": others.split() for name, (_, others) in ARGUMENTS.items()}
    names |= {f"`{name}`, returned": list(others) for name, *others in (VS, ERRORS, ADVANTAGES)}
    return table(["name", "other names"], [[name, f"`{'`, `'.join(others)}`"] for name, others in names.items()])


def render_tolerances() -> str:
    """When a case agrees."""
    exact, rounded = write_power(TOLERANCE), write_power(FLOAT32_TOLERANCE)
    return _wrap(
        f"""A case *agrees* if no error exceeds {exact} of the largest magnitude in its column ({rounded} if inputs or
        outputs have float32 or less; `--tolerance` sets another limit). Otherwise it *differs*; it *failed* if there
        was nothing to compare."""
    )


def render_mistake_inputs() -> str:
    rho_bar, pg_rho_bar, c_bar, lambda_ = APART.values()
    return _wrap(
        f"""The table shows their effect on one column, with ρ̄ = {rho_bar:g} ({pg_rho_bar:g} for the advantages),
        c̄ = {c_bar:g}, λ = {lambda_:g}; row {EVERYTHING.ratios.index(CUT)} is a reset step. Wrong numbers are bold.
        Some mistakes can be made in several ways, {len(MISTAKES)} in all; the table shows the first."""
    )


def make_case() -> Case:
    """`EVERYTHING` as a case of the vectors."""
    expected = {name: array[:, None] for name, array in EVERYTHING.solve(**APART)._asdict().items()}
    is_reset = np.array(EVERYTHING.ratios)[:, None] == CUT
    ends = {"is_reset": is_reset, "done": np.roll(is_reset, -1, axis=0)}
    return Case("everything", "", DEFAULTS | APART, EVERYTHING.inputs(), ends, expected)


def render_mistakes() -> str:
    """A column in which every mistake shows, and its outputs for the first way to make each; wrong numbers are bold."""
    case = make_case()
    T = len(EVERYTHING.rewards)
    given = zip(("pi / mu", "gamma", "r", "V"), EVERYTHING, strict=True)
    inputs = table(["t", *map(str, range(T + 1))], [[name, *map(_number, row)] for name, row in given])
    right = np.concatenate([array[:, 0] for array in case.expected.values()])
    rows, hidden = [["none", *map(_number, right)]], []
    for name, count in Counter(mistake.name for mistake in MISTAKES).items():
        mistake = next(mistake for mistake in MISTAKES if mistake.name == name)
        title = str(mistake) + (f"; {count} ways" if count > 1 else "")
        wrong = np.concatenate([array[:, 0] for array in mistake.compute(case)])
        same = np.isclose(wrong, right)
        cells = [_number(value) if is_same else f"**{_number(value)}**" for value, is_same in zip(wrong, same)]
        if mistake.takes or same.all():
            hidden.append(title)
        else:
            rows.append([title, *cells])
    outputs = table(["mistake", *(f"v_{t}" for t in range(T)), *(f"A_{t}" for t in range(T))], rows)
    others = "\n".join(f"* {text}" for text in hidden)
    return f"{inputs}\n\n{outputs}\n\nThese only show with logits, or with several columns:\n\n{others}"


def _number(value: float) -> str:
    """Up to four decimals."""
    return f"{value + 0.0:.4f}".rstrip("0").rstrip(".") if abs(value) > 5e-5 else "0"


def _wrap(text: str) -> str:
    """One paragraph, wrapped to the page's width."""
    return textwrap.fill(" ".join(text.split()), 120, break_on_hyphens=False)


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()
    PAGE.write_text(render(PAGE.read_text()))
    PLOT.write_text(fixed_point.render_svg())

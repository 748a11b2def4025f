"""Writes monobeast/vtrace_vectors.json: `python scripts/make_vtrace_vectors.py`.

The cases that were published first have inputs of 17 digits, which are data: they are read from
scripts/vtrace_published_inputs.json, and known by a digest. All others are drawn here, from sums of `Random.random`,
which is the same everywhere, and rounded to four places, so that a reader can follow them by hand.
"""

import argparse
import hashlib
import json
import math
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from exact_vtrace import exact_vtrace

PUBLISHED = Path(__file__).parent / "vtrace_published_inputs.json"
FILE = Path(__file__).parent.parent / "monobeast" / "vtrace_vectors.json"
PAPER = {"clip_rho_threshold": 1.0, "clip_pg_rho_threshold": 1.0, "clip_c_threshold": 1.0, "lambda_": 1.0}
TERMINATION, TRUNCATION = True, False
CUT = -math.inf  # log ratio of a reset step

SCHEMA = {
    "kinds": "name of a kind: what its cases show",
    "cases": "list of objects with the members that follow",
    "name": "string, of this case alone",
    "kind": "string, one of kinds",
    "params": "rho-bar, its twin for the policy gradient, c-bar: a number of at least 0, or null for no clip; lambda",
    "inputs": "log_rhos, discounts, rewards, values: [T, B, ...], bootstrap_value: [B, ...], as nested lists; "
    "axes after B broadcast where one has size 1",
    "ends": "done, terminal, is_reset: booleans [T, B], only where episodes end with a reset step. After a row where "
    "done is true the environment is reset: in the next row the action is ignored, is_reset is true and log_rhos is "
    "minus infinity; values holds V of the final observation there. Where terminal is true the discount is 0; a "
    "truncated episode keeps its discount. All of this is in inputs already",
    "expected": "vs and pg_advantages: [T, B, ...], the float64 next to the exact value",
    "numbers": "float64 in the shortest form that reads back to it; the strings Infinity and -Infinity for infinities",
    "axes": "time, trajectory, then any further",
    "equations": "arXiv 1802.01561: vs are v_s of equation (1) with n = T - s, a discount a step and lambda in every c "
    "(remark 2); pg_advantages are rho_s (r_s + gamma_s v_{s+1} - V(x_s)) of equation (4), with v_T = V(x_T)",
}

# What the cases of a kind show.
KINDS = {
    "one step": "T = 1, an end or a reset step among them",
    "on policy": "all ratios 1: n-step returns, equation (2)",
    "off policy": "ratios on both sides of 1, all clips 1",
    "rho-bar": "rho-bar apart from c-bar",
    "c-bar": "c-bar apart from rho-bar and from 1",
    "lambda": "lambda below 1",
    "terminal steps": "discounts of 0 without a reset step",
    "termination": "discount 0, then a reset step",
    "truncation": "the discount kept, then a reset step",
    "border": "an end or a reset step in the first or last row",
    "two ends": "two episode ends in one trajectory",
    "extreme ratios": "log ratios of -inf, and far beyond exp's range",
    "magnitudes": "values that are large beside the rewards, or unlike from column to column",
    "long": "a large T",
    "square": "T = B",
    "further axes": "axes after B",
    "all at once": "every clip and lambda apart, with episode ends",
}

# Of the names, parameters and inputs of the published cases.
PUBLISHED_DIGEST = "a07fbe9b58cab7d3774def3c2d94b4adc6e46b2f50a2e0c84e399939ebb82b24"


class Recipe(NamedTuple):
    """What a case is drawn from."""

    name: str
    kind: str
    T: int
    columns: Any  # B; or each trajectory's ends: (row of the last action, is it a termination); -1 is the row before
    params: dict[str, float | None] = {}
    ratio: Callable[[int], float] | None = None  # log ratio of a row, if it is not drawn
    terminal: Any = ()  # (row, trajectory) of discounts of 0 that no reset step follows
    further: tuple[int, ...] = ()  # sizes of the axes after B
    shared: tuple[str, ...] = ()  # inputs that have size 1 there
    gamma: float = 0.9
    about: float = 0.0  # mean of V
    growth: float = 1.0  # by what rewards and values are larger than in the column before

    def sizes(self, name: str) -> tuple[int, ...]:
        return tuple(1 for _ in self.further) if name in self.shared else self.further


def published_cases() -> list[dict[str, Any]]:
    """The first cases, without what they should give.

    Raises:
        ValueError: their inputs are not those that were published.
    """
    cases = json.loads(PUBLISHED.read_text())["cases"]
    given = [{name: case[name] for name in ("name", "params", "inputs")} for case in cases]
    if hashlib.sha256(json.dumps(given, sort_keys=True).encode()).hexdigest() != PUBLISHED_DIGEST:
        raise ValueError(f"{PUBLISHED}: the inputs of the published cases were changed")
    return cases


def new_cases() -> list[dict[str, Any]]:
    """Cases of every other kind, without what they should give."""
    apart = {"clip_rho_threshold": 0.6, "clip_pg_rho_threshold": 1.5, "clip_c_threshold": 0.8, "lambda_": 0.9}
    no_clips = {"clip_rho_threshold": None, "clip_pg_rho_threshold": None, "clip_c_threshold": None}
    ends_of_all = [[(3, TERMINATION)], [(0, TERMINATION)], [(5, TERMINATION)]]
    cuts = [[(3, TRUNCATION)], [(0, TRUNCATION)], [(5, TRUNCATION)]]
    every_one_step = [[(0, TERMINATION)], [(0, TRUNCATION)], [(-1, TRUNCATION)], []]
    first_row = [[(-1, TERMINATION)], [(-1, TRUNCATION)], [(-1, TRUNCATION), (5, TRUNCATION)]]
    two_terminations = [[(2, TERMINATION), (6, TERMINATION)], [(1, TERMINATION), (3, TERMINATION)]]
    two_truncations = [[(2, TRUNCATION), (6, TRUNCATION)], [(1, TRUNCATION), (3, TRUNCATION)]]
    one_of_each = [[(2, TERMINATION), (6, TRUNCATION)], [(1, TRUNCATION), (5, TERMINATION)]]
    recipes = [
        Recipe("one step of every kind", "one step", 1, every_one_step),
        Recipe("on policy, with ends", "truncation", 9, cuts, ratio=lambda _: 0.0),
        Recipe("as many steps as trajectories", "square", 4, 4),
        Recipe("a clip for the advantages alone", "rho-bar", 8, 3, {"clip_pg_rho_threshold": 2.5}),
        Recipe("rho-bar 0", "rho-bar", 5, 2, {"clip_rho_threshold": 0.0, "clip_pg_rho_threshold": 0.0}),
        Recipe("c clipped above rho", "c-bar", 8, 3, {"clip_rho_threshold": 0.5, "clip_c_threshold": 2.0}),
        Recipe("c clipped below a small rho", "c-bar", 8, 3, {"clip_rho_threshold": 0.7, "clip_c_threshold": 0.4}),
        Recipe("c-bar 0", "c-bar", 6, 2, {"clip_c_threshold": 0.0}),
        Recipe("no clips", "c-bar", 8, 3, no_clips),
        Recipe("lambda 0.8, rho-bar 0.6", "lambda", 10, 3, {"lambda_": 0.8, "clip_rho_threshold": 0.6}),
        Recipe("lambda and every clip, with ends", "all at once", 8, one_of_each, apart),
        Recipe("lost lives", "terminal steps", 9, 3, terminal={(2, 0), (3, 0), (6, 1), (8, 2)}),
        Recipe("termination inside", "termination", 8, ends_of_all),
        Recipe("termination inside, every clip apart", "all at once", 8, ends_of_all, apart),
        Recipe("truncation inside", "truncation", 8, cuts),
        Recipe("truncation inside, every clip apart", "all at once", 8, cuts, apart),
        Recipe("an end in the last row", "border", 8, [[(7, TERMINATION)], [(7, TRUNCATION)], []]),
        Recipe("reset step in the last row", "border", 6, [[(4, TERMINATION)], [(4, TRUNCATION)]]),
        Recipe("reset step in the first row", "border", 6, first_row),
        Recipe("two terminations", "two ends", 9, two_terminations),
        Recipe("two truncations", "two ends", 9, two_truncations),
        Recipe("one end of each kind", "two ends", 9, one_of_each),
        Recipe("minus infinity", "extreme ratios", 8, 3, ratio=lambda row: CUT if row % 3 == 1 else 0.25),
        Recipe("minus infinity in every row", "extreme ratios", 4, 2, ratio=lambda _: CUT),
        Recipe("800 and -800", "extreme ratios", 6, 2, ratio=lambda row: (800.0, -800.0, -0.5)[row % 3]),
        Recipe("e^30, not clipped", "extreme ratios", 6, 2, no_clips, lambda row: (0.5, 30.0, -2.0)[row % 3]),
        Recipe("e^80, not clipped", "extreme ratios", 5, 2, no_clips, lambda row: 80.0 if row == 2 else -0.5),
        Recipe("differences of large values", "magnitudes", 8, 2, about=1000.0, gamma=1.0),
        Recipe("columns of unlike size", "magnitudes", 8, 3, growth=1e4),
        Recipe("512 steps", "long", 512, 1, gamma=0.999),
        Recipe("an axis after B", "further axes", 5, 2, further=(3,)),
        Recipe("two axes after B", "further axes", 3, 2, further=(2, 2)),
        Recipe("ends, and an axis after B", "further axes", 7, one_of_each, further=(3,)),
        Recipe("ratios that an axis shares", "further axes", 4, 2, further=(3,), shared=("log_rhos", "discounts")),
    ]
    return [_draw(recipe) for recipe in recipes]


def _draw(recipe: Recipe) -> dict[str, Any]:
    """A case without what it should give; the same recipe gives the same numbers everywhere."""
    random = Random(recipe.name)
    B = recipe.columns if isinstance(recipe.columns, int) else len(recipe.columns)
    ends = [{}] * B if isinstance(recipe.columns, int) else [dict(column) for column in recipe.columns]
    is_reset = _rows(recipe, lambda t, b: t - 1 in ends[b])
    terminal = _rows(recipe, lambda t, b: ends[b].get(t, False) or (t, b) in recipe.terminal)
    log_rho = recipe.ratio or (lambda _: _normal(random, 0.7))
    makers = {
        "log_rhos": lambda t, b: CUT if is_reset[t][b] else log_rho(t),
        "discounts": lambda t, b: 0.0 if terminal[t][b] else recipe.gamma,
        "rewards": lambda t, b: 0.0 if is_reset[t][b] else _normal(random, recipe.growth**b),
        "values": lambda t, b: _normal(random, recipe.growth**b, recipe.about),
    }
    inputs = {name: _rows(recipe, make, recipe.sizes(name)) for name, make in makers.items()}
    inputs["bootstrap_value"] = [_fill(recipe.further, lambda: makers["values"](recipe.T, b)) for b in range(B)]
    case = {"name": recipe.name, "kind": recipe.kind, "params": PAPER | recipe.params, "inputs": inputs}
    if any(ends):
        case["ends"] = {"done": _rows(recipe, lambda t, b: t in ends[b]), "terminal": terminal, "is_reset": is_reset}
    return case


def _normal(random: Random, times: float = 1.0, about: float = 0.0) -> float:
    """Nearly normal: a sum, which rounds alike on every machine, where a logarithm or cosine need not."""
    return round(about + times * (sum(random.random() for _ in range(12)) - 6.0), 4)


def _rows(recipe: Recipe, make: Callable[[int, int], Any], further: tuple[int, ...] = ()) -> list[list[Any]]:
    """[T, B, *further], filled by calls `make(t, b)`."""
    B = recipe.columns if isinstance(recipe.columns, int) else len(recipe.columns)
    return [[_fill(further, lambda: make(t, b)) for b in range(B)] for t in range(recipe.T)]


def _fill(sizes: tuple[int, ...], make: Callable[[], Any]) -> Any:
    """Nested lists of these sizes, filled by calls of `make`."""
    return [_fill(sizes[1:], make) for _ in range(sizes[0])] if sizes else make()


def render() -> str:
    """The text of the file."""
    cases = [*published_cases(), *new_cases()]
    for case in cases:
        case["expected"] = exact_vtrace(case["inputs"], case["params"])
    return _to_text({"schema": SCHEMA, "kinds": KINDS, "cases": cases}) + "\n"


def _to_text(value: Any, depth: int = 0) -> str:
    """JSON with a line for each member and element, but for rows of numbers and for what is deep inside."""
    if isinstance(value, float) and math.isinf(value):
        return '"Infinity"' if value > 0 else '"-Infinity"'
    if not isinstance(value, dict | list):
        return json.dumps(value)
    if isinstance(value, dict):
        inside, (left, right) = list(value.values()), "{}"
        parts = [f"{json.dumps(name)}: {_to_text(member, depth + 1)}" for name, member in value.items()]
    else:
        inside, (left, right) = value, "[]"
        parts = [_to_text(element, depth + 1) for element in value]
    is_nested = any(isinstance(part, dict | list) for part in inside)
    if depth > 5 or (depth > 1 and not is_nested):
        return left + ", ".join(parts) + right
    indent = "\n" + " " * (depth + 1)
    return f"{left}{indent}{f',{indent}'.join(parts)}{indent[:-1]}{right}"


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()
    FILE.write_text(render())

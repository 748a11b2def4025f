"""V-trace by equation (1) of arXiv 1802.01561, summed term by term in 60-digit decimal arithmetic.

Nothing here comes from `monobeast.vtrace`: no recursion of remark 1, no tensors, no float arithmetic. Every float64
that is given is taken for the number that it is, its exponential is made in decimal, and only the results are rounded.
"""

import itertools
from decimal import Decimal, localcontext
from typing import Any

DIGITS = 60
OVER_TIME = ("log_rhos", "discounts", "rewards", "values")
Column = dict[str, list[Decimal]]
Threshold = float | None


def exact_vtrace(inputs: dict[str, Any], params: dict[str, Any]) -> dict[str, Any]:
    """Targets and advantages of nested lists, rounded to float64 at the end.

    Args:
        inputs: nested lists of floats: `log_rhos`, `discounts`, `rewards` and `values` [T, B, ...], `bootstrap_value`
            [B, ...]; axes after B broadcast.
        params: `clip_rho_threshold`, `clip_pg_rho_threshold` and `clip_c_threshold`, None for no clip; `lambda_`.

    Returns:
        `vs` and `pg_advantages`, nested lists [T, B, ...] of floats.
    """
    shapes = [_shape(inputs[name])[1:] for name in OVER_TIME] + [_shape(inputs["bootstrap_value"])]
    shape = tuple(map(max, zip(*shapes, strict=True)))  # [B, ...]
    with localcontext(prec=DIGITS):
        columns = {
            index: _sum_column(_take_column(inputs, index), **params)
            for index in itertools.product(*(range(size) for size in shape))
        }
    times = range(len(inputs["log_rhos"]))
    return {
        name: [_nest(lambda index, t=t: float(columns[index][name][t]), shape) for t in times]
        for name in ("vs", "pg_advantages")
    }


def _sum_column(
    column: Column,
    clip_rho_threshold: Threshold,
    clip_pg_rho_threshold: Threshold,
    clip_c_threshold: Threshold,
    lambda_: float,
) -> Column:
    """One trajectory: the double sum over s and t of equation (1), then the factor of grad log pi in equation (4)."""
    ratios = [log_rho.exp() for log_rho in column["log_rhos"]]
    rho, pg_rho, c = (
        [ratio if bar is None else min(Decimal(bar), ratio) for ratio in ratios]
        for bar in (clip_rho_threshold, clip_pg_rho_threshold, clip_c_threshold)
    )
    gamma, r, V = column["discounts"], column["rewards"], column["states"]
    T = len(r)
    delta = [rho[t] * (r[t] + gamma[t] * V[t + 1] - V[t]) for t in range(T)]
    v = list(V)  # v_T = V(x_T)
    for s in range(T):
        product = Decimal(1)  # of gamma_i c_i over s <= i < t, lambda in every c (remark 2)
        for t in range(s, T):
            v[s] += product * delta[t]
            product *= gamma[t] * Decimal(lambda_) * c[t]
    return {"vs": v[:T], "pg_advantages": [pg_rho[s] * (r[s] + gamma[s] * v[s + 1] - V[s]) for s in range(T)]}


def _take_column(inputs: dict[str, Any], index: tuple[int, ...]) -> Column:
    """The trajectory at `index` of [B, ...], in decimal; `states` are V(x_0) .. V(x_T)."""
    column = {name: [Decimal(_element(row, index)) for row in inputs[name]] for name in OVER_TIME}
    return column | {"states": [*column["values"], Decimal(_element(inputs["bootstrap_value"], index))]}


def _element(nested: Any, index: tuple[int, ...]) -> float:
    for i in index:
        nested = nested[i if len(nested) > 1 else 0]
    return nested


def _shape(nested: Any) -> tuple[int, ...]:
    return (len(nested), *_shape(nested[0])) if isinstance(nested, list) else ()


def _nest(function: Any, shape: tuple[int, ...], index: tuple[int, ...] = ()) -> Any:
    """Nested lists of `shape`, filled with `function(index)`."""
    if len(index) == len(shape):
        return function(index)
    return [_nest(function, shape, (*index, i)) for i in range(shape[len(index)])]

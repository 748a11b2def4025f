"""Explains a function's differences: the mistake whose numbers it returns, or else those that would show there."""

from collections.abc import Iterable
from functools import cache
from typing import NamedTuple

import numpy as np

from monobeast.vtrace_check.comparison import FAILED, FLOAT16_TOLERANCE, Comparison, is_same, measure_errors
from monobeast.vtrace_check.mistakes import MISTAKES, Mistake
from monobeast.vtrace_check.terms import Outputs
from monobeast.vtrace_vectors import load_cases, load_kinds

Errors = tuple[float | None, float | None]  # of vs and of the advantages; None: not finite


class _Effect(NamedTuple):
    """A mistake's outputs for a case, and their errors."""

    outputs: Outputs
    errors: Errors


def explain(comparisons: list[Comparison], taken: Iterable[str]) -> dict[str, str]:
    """An explanation for each kind of cases that failed or differs by more than rounding.

    A mistake is possible if it would not show in any vs or advantages that agree. It is certain if it also reproduces
    the numbers of every case that differs. If it reproduces only those of some kinds, the text says so: there may be
    two mistakes. If none reproduces them, the text lists the mistakes that would show.
    """
    measured = [one for one in comparisons if one.outputs is not None]
    differing = [one for one in measured if _find_wrong(one)]
    failing = [one for one in comparisons if one.verdict == FAILED or _find_wrong(one)]
    if not failing:
        return {}
    kinds = {one.case.kind: [other for other in failing if other.case.kind == one.case.kind] for one in failing}
    if not measured:
        return dict.fromkeys(kinds, "no numbers in any case")
    possible = _find_possible(measured, {*taken})
    certain = _find_same(possible, differing)
    texts = {}
    for kind, of_kind in kinds.items():
        if certain and any(map(_find_wrong, of_kind)):
            texts[kind] = f"{_what_differs(differing)}: these are the numbers of: {_name(certain)}"
        elif same := _find_same(possible, of_kind):
            texts[kind] = f"{_what_differs(of_kind)}: in these kinds alone, the numbers of: {_name(same)}"
        else:
            texts[kind] = f"{_what_differs(of_kind)}: {_suggest(of_kind, differing, possible)}"
    return texts


def _find_wrong(comparison: Comparison) -> set[int]:
    """The outputs that differ by more than rounding; none without outputs."""
    errors = (comparison.vs_error, comparison.advantages_error)
    return _exceed(errors, comparison.rounding) if comparison.outputs is not None else set()


def _find_shown(mistake: Mistake, comparison: Comparison) -> set[int]:
    """The outputs of the case that the mistake changes by more than rounding."""
    return _exceed(_effects(comparison.case.name)[mistake].errors, comparison.rounding)


def _unite(outputs: Iterable[set[int]]) -> set[int]:
    return set().union(*outputs)


def _exceed(errors: Errors, limit: float) -> set[int]:
    return {i for i, error in enumerate(errors) if error is None or error > limit}


@cache
def _effects(name: str) -> dict[Mistake, _Effect]:
    """The effect of each mistake on the case of this name."""
    case = next(case for case in load_cases() if case.name == name)
    outputs = {mistake: mistake.compute(case) for mistake in MISTAKES}
    return {mistake: _Effect(wrong, measure_errors(case, wrong)) for mistake, wrong in outputs.items()}


def _find_possible(measured: list[Comparison], taken: set[str]) -> list[Mistake]:
    """Mistakes that a function with these arguments can have, and that would not show in outputs that agree."""
    makeable = [mistake for mistake in MISTAKES if not mistake.takes or mistake.takes in taken]
    return [mistake for mistake in makeable if all(_find_shown(mistake, one) <= _find_wrong(one) for one in measured)]


def _find_same(possible: list[Mistake], differing: list[Comparison]) -> list[Mistake]:
    """Mistakes that reproduce the numbers of all these cases up to rounding, which may be that of float32."""
    return [mistake for mistake in possible if differing and all(_gives(mistake, one) for one in differing)]


def _gives(mistake: Mistake, comparison: Comparison) -> bool:
    wrong, found = _effects(comparison.case.name)[mistake].outputs, comparison.outputs
    return found is not None and is_same(comparison.case, wrong, found, comparison.rounding)


def _name(mistakes: list[Mistake]) -> str:
    """The names of mistakes, each with its variants."""
    ways: dict[str, list[str]] = {}
    for mistake in mistakes:
        ways.setdefault(mistake.name, []).append(mistake.how)
    return ", or ".join(f"{name} ({'; or '.join(hows)})" for name, hows in ways.items())


def _what_differs(comparisons: list[Comparison]) -> str:
    wrong = _unite(map(_find_wrong, comparisons))
    if len(wrong) == len(Outputs._fields):
        return "vs and advantages differ"
    if not wrong:
        return "no numbers to compare"
    return "vs differ, the advantages agree" if 0 in wrong else "vs agree, the advantages differ"


def _suggest(of_kind: list[Comparison], differing: list[Comparison], possible: list[Mistake]) -> str:
    """For a kind that no mistake reproduces: the possible mistakes that show in all of it, and in most other cases."""
    errors = [np.inf if error is None else error for one in differing for error in (one.vs_error, one.advantages_error)]
    if errors and max(errors) <= FLOAT16_TOLERANCE:
        return f"errors of at most {max(errors):.1e}, as of a sum in float16"
    wrong = _unite(map(_find_wrong, of_kind))
    shown = {mistake: _unite(_find_shown(mistake, one) for one in of_kind) for mistake in possible}
    extent = {
        mistake: sum(len(_find_shown(mistake, one)) for one in differing)
        for mistake in possible
        if shown[mistake] and wrong <= shown[mistake]
    }
    most = max(extent.values(), default=0)
    if names := dict.fromkeys(mistake.name for mistake in extent if extent[mistake] == most):
        return f"no known mistake gives these numbers; what shows here, and in nothing that agrees: {', '.join(names)}"
    of_cases = load_kinds()[of_kind[0].case.kind]
    return f"no single known mistake shows here, and in nothing that agrees; what its cases have: {of_cases}"

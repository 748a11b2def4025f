"""What is the matter with a function: the mistake whose numbers it gives, or else what can be said."""

from collections.abc import Iterable
from functools import cache

from monobeast.vtrace_check.comparison import (
    AGREES,
    DIFFERS,
    FLOAT16_TOLERANCE,
    LEFT_OUT,
    Comparison,
    is_same,
    measure_scale,
)
from monobeast.vtrace_check.faults import FAULTS
from monobeast.vtrace_check.terms import Outputs
from monobeast.vtrace_vectors import load_cases, load_kinds

_GENERIC = ("one step", "on policy", "off policy")  # kinds: who fails these has no fault of another kind alone


def explain(comparisons: list[Comparison], taken: Iterable[str]) -> dict[str, str]:
    """Of each kind that differs by more than rounding: what is the matter.

    A mistake is certain if it gives all wrong numbers of all kinds. One that gives those of some kinds alone is named
    as such: there may be two.
    """
    differing = [one for one in comparisons if one.verdict == DIFFERS and not one.is_small]
    kinds = {one.case.kind: [other for other in differing if other.case.kind == one.case.kind] for one in differing}
    faults = {one.case.name: _find_faults(one, {*taken}) for one in differing}
    if common := _find_common(faults, differing):
        return dict.fromkeys(kinds, f"{_what_differs(differing)}: these are the numbers of: {_name(common)}")
    named = {kind: _find_common(faults, of_kind) for kind, of_kind in kinds.items()}
    unknown = [one for one in differing if not named[one.case.kind]]
    is_special = {one.verdict for one in comparisons if one.case.kind in _GENERIC} <= {AGREES, LEFT_OUT}
    texts = {}
    for kind, of_kind in kinds.items():
        if named[kind]:
            texts[kind] = f"{_what_differs(of_kind)}: in these kinds alone, the numbers of: {_name(named[kind])}"
        else:
            texts[kind] = _hint(kind, of_kind) if is_special else _measure(unknown)
    return texts


def _find_common(faults: dict[str, set[int]], comparisons: list[Comparison]) -> set[int]:
    """Those that give the numbers of all these cases."""
    return set.intersection(*(faults[one.case.name] for one in comparisons)) if comparisons else set()


def _find_faults(comparison: Comparison, taken: set[str]) -> set[int]:
    """Places in `FAULTS` of those that give these very outputs, but for rounding: a mistake may be made in float32."""
    if comparison.outputs is None:
        return set()
    wrong, scale = _wrong_outputs(comparison.case.name), measure_scale(comparison.case)
    return {
        i
        for i, fault in enumerate(FAULTS)
        if (not fault.takes or fault.takes in taken)
        and is_same(wrong[i], comparison.outputs, scale, comparison.rounding)
    }


@cache
def _wrong_outputs(name: str) -> list[Outputs]:
    """What each mistake gives for a case."""
    case = next(case for case in load_cases() if case.name == name)
    return [fault.compute(case) for fault in FAULTS]


def _name(places: set[int]) -> str:
    """Mistakes, those of one name together."""
    ways: dict[str, list[str]] = {}
    for i in sorted(places):
        ways.setdefault(FAULTS[i].name, []).append(FAULTS[i].how)
    return ", or ".join(f"{name} ({'; or '.join(hows)})" for name, hows in ways.items())


def _what_differs(comparisons: list[Comparison]) -> str:
    vs, advantages = (any(_is_wrong(one, i) for one in comparisons) for i in range(2))
    if vs and advantages:
        return "vs and advantages differ"
    return "vs differ, the advantages agree" if vs else "vs agree, the advantages differ"


def _is_wrong(comparison: Comparison, output: int) -> bool:
    error = (comparison.vs_error, comparison.advantages_error)[output]
    return error is None or error > comparison.rounding


def _hint(kind: str, of_kind: list[Comparison]) -> str:
    """What usually is wrong where this kind differs and the generic ones agree."""
    usual = load_kinds()[kind].usual_fault
    hint = usual.vs if any(_is_wrong(one, 0) for one in of_kind) else usual.pg_advantages
    return f"{_measure(of_kind)}; here it usually is {hint}"


def _measure(comparisons: list[Comparison]) -> str:
    errors = [error for one in comparisons for error in (one.vs_error, one.advantages_error)]
    largest = max((error for error in errors if error is not None), default=0.0)
    text = f"{_what_differs(comparisons)}: no known mistake gives these numbers"
    if None in errors:
        return f"{text}, some of which are not finite"
    size = f"errors of at most {largest:.1e}"
    return f"{text}; {size}" + (", as of a sum in float16" if largest <= FLOAT16_TOLERANCE else "")

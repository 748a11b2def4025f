"""Results of a benchmark: tables for people, plain values for machines."""

import dataclasses
import platform
import statistics
from typing import Any, NamedTuple

import torch

from monobeast.benchmarks.whole import Whole
from monobeast.config import Config
from monobeast.costs.limit import Bound, Costs, find_bounds, find_limit, foretell
from monobeast.costs.parts import Parts
from monobeast.phrases import count
from monobeast.resources import requirements

_LARGER_MACHINES = (16, 64, 128)  # cores


class Case(NamedTuple):
    """One measured setting."""

    name: str
    config: Config  # resolved
    parts: Parts
    cores: int

    @property
    def costs(self) -> Costs:
        return Costs.of(self.parts.summed)

    @property
    def bounds(self) -> list[Bound]:
        return find_bounds(self.costs, self.config.num_actors, self.config.num_learner_threads, self.cores)

    @property
    def limit(self) -> Bound:
        return find_limit(self.bounds)


def format_parts(case: Case) -> list[str]:
    """One line per part; then the resulting speed limit, here and on larger machines."""
    lines = [f"{'part':32} {'one agent step':>14}  where"]
    update = case.parts.update
    for part in [*case.parts.summed, update._replace(name=f"({update.name})")]:
        lines.append(f"{part.name:32} {_ms(part.seconds_per_step):>14}  {_where(case, part.place)}")
    lines += [
        f"{f'at most, by the {bound.what}':32} {bound.steps_per_second:>8,.0f} /s  = {bound.formula}"
        for bound in case.bounds
    ]
    lines.append(f"{'limit':32} {case.limit.steps_per_second:>8,.0f} /s  set by the {case.limit.what}")
    if case.config.num_actors:
        lines.append(_foretell(case))
    return lines


def format_whole(case: Case, whole: Whole) -> str:
    """The share of the limit that was reached, in one line."""
    memory = "unknown" if whole.peak_memory is None else requirements.format_bytes(whole.peak_memory)
    efficiency = whole.steps_per_second / case.limit.steps_per_second
    return (
        f"{case.name}: {whole.steps_per_second:,.0f} steps/s ({whole.steps:,} steps, {whole.updates:,} updates in "
        f"{whole.seconds:.1f} s), efficiency {efficiency:.2f}, peak memory {memory}"
    )


def find_ratios(first: list[Whole], second: list[Whole]) -> list[float]:
    """Ratios of steps per second, pair by pair in the order of measurement."""
    return [one.steps_per_second / other.steps_per_second for one, other in zip(first, second, strict=True)]


def format_ratios(names: list[str], ratios: list[float]) -> str:
    """All ratios, and their median."""
    single = " ".join(f"{ratio:.2f}" for ratio in ratios)
    return f"{names[0]} / {names[1]}: {single} (median {statistics.median(ratios):.2f})"


def to_plain(cases: list[Case], wholes: list[list[Whole]]) -> dict[str, Any]:
    """Everything as JSON values; times in seconds, memory in bytes."""
    plain: dict[str, Any] = {
        "cores": cases[0].cores,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "cases": [_case_to_plain(case, runs) for case, runs in zip(cases, wholes, strict=True)],
    }
    if len(cases) == 2:
        plain["ratios"] = find_ratios(*wholes)
    return plain


def _case_to_plain(case: Case, wholes: list[Whole]) -> dict[str, Any]:
    return {
        "name": case.name,
        "config": dataclasses.asdict(case.config),
        "parts": [part._asdict() for part in case.parts.summed],
        "update": case.parts.update._asdict(),
        "bounds": [bound._asdict() for bound in case.bounds],
        "limit": case.limit.steps_per_second,
        "runs": [
            whole._asdict()
            | {
                "steps_per_second": whole.steps_per_second,
                "efficiency": whole.steps_per_second / case.limit.steps_per_second,
            }
            for whole in wholes
        ],
    }


def _where(case: Case, place: str) -> str:
    config = case.config
    if place in ("GPU", "copies"):
        return {"GPU": "GPU", "copies": "copies to the GPU"}[place]
    if config.num_actors == 0:
        return f"{count(config.num_learner_threads, 'core')}, by turns"
    if place == "actors":
        return f"{count(config.num_actors, 'core')}, one an actor"
    return f"{count(config.num_learner_threads if config.device == 'cpu' else 1, 'core')} of the learner"


def _foretell(case: Case) -> str:
    bounds = [(cores, foretell(case.costs, case.config.num_learner_threads, cores)) for cores in _LARGER_MACHINES]
    of_cores = [f"{cores}: {bound.steps_per_second:,.0f} /s ({bound.what})" for cores, bound in bounds]
    return f"with as many actors as cores are left, the limit on more such cores: {', '.join(of_cores)}"


def _ms(seconds: float) -> str:
    return f"{1000 * seconds:.4f} ms"

"""`monobeast benchmark`: the cost of each part, the speed limit that follows, and the speed reached."""

import argparse
import json
import math
import shlex
from typing import TYPE_CHECKING, Any

from monobeast.config import Config
from monobeast.files import require_place, user_path
from monobeast.phrases import describe

if TYPE_CHECKING:
    from monobeast.benchmarks.report import Case
    from monobeast.benchmarks.whole import Whole

TAKES_TRAIN_FLAGS = True
_FAILED = 1
_OWN: dict[str, Any] = {  # flags and their defaults
    "seconds": 20.0,
    "warm_up": 5.0,
    "part_seconds": 1.0,
    "rounds": 2,
    "compare": None,
    "baseline": None,
    "json": None,
}
# What speaks of a run that lasts.
_NOT_KEPT = ("timeline", "tensorboard", "wandb", "xpid", "savedir", "resume", "exact_resume", "max_seconds")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the benchmark's own flags, in addition to those of train."""
    own = parser.add_argument_group("benchmark")

    def read_flags(text: str) -> dict[str, Any]:
        return vars(parser.parse_args(shlex.split(text)))

    def add(name: str, type: Any, metavar: str, help: str) -> None:
        default = "" if _OWN[name] is None else f" (default: {_OWN[name]})"
        own.add_argument(f"--{name}", type=type, metavar=metavar, help=help + default)

    read_flags.__name__ = "flags"  # argparse names it: "invalid flags value"
    add("seconds", float, "FLOAT", "seconds over which a whole run is measured, at least")
    add("warm_up", float, "FLOAT", "seconds after the first update that do not count")
    add("part_seconds", float, "FLOAT", "seconds for which each part is measured alone")
    add("rounds", int, "INT", "with --compare or --baseline: runs of each setting, alternating")
    about = "also run with these flags added to the others or replacing them, alternating; a single one as "
    about += "--compare=--use_lstm"
    add("compare", read_flags, '"FLAGS"', about)
    add("baseline", str, "monobeast", "also run with TorchBeast MonoBeast's defaults, alternating")
    add("json", user_path, "FILE", "write everything that was found to this file")
    parser.epilog = "exit codes: 0 measured, 1 a run failed, 2 bad flag or value, 130 stopped by Ctrl-C"


def run(arguments: argparse.Namespace, settings: dict[str, Any]) -> int:
    """Measures and prints.

    Args:
        arguments: Including those of the benchmark.
        settings: The given settings of `Config`.

    Raises:
        ValueError: a bad value; the message names the flag.
    """
    own = _OWN | {name: value for name, value in vars(arguments).items() if name in _OWN}
    _check(own, settings)
    Config(**settings)  # refused before the seconds that torch takes to import
    if own["compare"] is not None:
        Config(**(settings | own["compare"]))
    from monobeast.signals import Stopped, StopSignals

    with StopSignals() as stop:
        try:
            with stop.raised():
                return _measure(own, settings)
        except Stopped:
            return 128 + (stop.received or 0)


def _check(own: dict[str, Any], settings: dict[str, Any]) -> None:
    for name in ("seconds", "warm_up", "part_seconds"):
        if not (math.isfinite(own[name]) and own[name] >= 0) or (name == "seconds" and own[name] == 0):
            raise ValueError(f"--{name} {own[name]}: must be {'above' if name == 'seconds' else 'at least'} 0")
    if own["rounds"] < 1:
        raise ValueError(f"--rounds {own['rounds']}: must be at least 1")
    if own["baseline"] not in (None, "monobeast"):
        raise ValueError(f"--baseline {own['baseline']}: must be monobeast")
    if own["baseline"] and own["compare"] is not None:
        raise ValueError("--baseline monobeast --compare: exclude each other")
    if own["json"] is not None:
        require_place(f"--json {own['json']}", own["json"])
    for name in _NOT_KEPT:
        if settings.get(name):
            raise ValueError(f"--{name} {settings[name]}: not for benchmark, which keeps none of its runs")
    for name in own["compare"] or {}:
        if name in _OWN or name in _NOT_KEPT:
            raise ValueError(f"--compare: takes flags of train that a benchmark can vary, not --{name}")


def _measure(own: dict[str, Any], settings: dict[str, Any]) -> int:
    from monobeast.benchmarks import report, whole

    named = _name_settings(own, settings)
    cases = []
    for name, given in named.items():
        case = _measure_parts(name, given, own["part_seconds"])
        print(f"{name}: {describe(case.config)}", *report.format_parts(case), "", sep="\n", flush=True)
        cases.append(case)
    wholes: list[list[Whole]] = [[] for _ in cases]
    for _ in range(own["rounds"] if len(cases) > 1 else 1):
        for case, runs in zip(cases, wholes, strict=True):
            try:
                runs.append(whole.run(named[case.name], own["seconds"], own["warm_up"]))
            except whole.RunFailed as failure:
                print(f"{case.name}: {failure}")
                return _FAILED
            print(report.format_whole(case, runs[-1]), flush=True)
    if len(cases) > 1:
        print(report.format_ratios([case.name for case in cases], report.find_ratios(*wholes)))
    if own["json"] is not None:
        own["json"].write_text(json.dumps(report.to_plain(cases, wholes), indent=2) + "\n")
    return 0


def _name_settings(own: dict[str, Any], settings: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """One or two settings, by their names in the tables."""
    if own["baseline"]:
        from monobeast.benchmarks import baseline

        return {"as given": settings, "as MonoBeast": baseline.like_monobeast(settings)}
    if own["compare"] is not None:
        return {"A": settings, "B": settings | own["compare"]}
    return {"as given": settings}


def _measure_parts(name: str, settings: dict[str, Any], seconds: float) -> "Case":
    from monobeast import preparation
    from monobeast.benchmarks import report
    from monobeast.costs import parts
    from monobeast.resources import machine

    prepared = preparation.prepare(Config(**settings), given=set(settings))
    subject = parts.Subject(prepared.config, prepared.spaces, prepared.network, prepared.makers)
    return report.Case(name, prepared.config, parts.measure(subject, seconds), machine.count_cores())

"""`monobeast plan`: prints what a run with these flags would need, and whether this machine has it."""

import argparse
from typing import TYPE_CHECKING, Any

from monobeast.config import Config
from monobeast.phrases import describe

if TYPE_CHECKING:
    from monobeast.resources.requirements import Plan, Row

TAKES_TRAIN_FLAGS = True
_DOES_NOT_FIT = 1  # as `train` would end with 2, which here is left to flags that are wrong


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares no flags besides those of train."""
    parser.epilog = "exit codes: 0 all fits, 1 something does not, 2 bad flag or value"


def run(arguments: argparse.Namespace, settings: dict[str, Any]) -> int:
    """Prints the table; starts no run. Sizes left open may be measured first, as for a run.

    Args:
        arguments: None of its own.
        settings: The given settings of `Config`.
    """
    config = Config(**settings)  # refused before the seconds that torch takes to import
    from monobeast import preparation
    from monobeast.resources import requirements

    try:
        prepared = preparation.prepare(config, given=set(settings))
        if prepared.is_complete:
            print(f"already complete at step {prepared.saved['learner']['step']:,}: nothing is needed")
            return 0
        plan = requirements.make_plan(prepared.config, prepared.spaces, prepared.network)
    except requirements.DoesNotFit as refusal:
        plan = refusal.plan
    print(*format_table(plan), sep="\n")
    if plan.estimate is not None:
        print(f"all processes together will take about {requirements.format_bytes(plan.estimate)} of memory (PSS)")
    print(plan.refusal or _sum_up(plan))
    return _DOES_NOT_FIT if plan.refusal else 0


def _sum_up(plan: "Plan") -> str:
    """What to say of a run that is not refused."""
    if plan.is_tight:
        return "more memory will be taken than is available, though the least that is needed is there"
    return "all fits, and would be faster with fewer threads" if plan.warning else "all fits"


def format_table(plan: "Plan") -> list[str]:
    """The run in one line; then one line for each resource and each of its parts."""
    lines = [describe(plan.config), f"{'what':34} {'needed':>12} {'available':>12}  verdict"]
    for row in plan.rows:
        lines.append(f"{row.what:34} {row.format(row.needed):>12} {row.format(row.available):>12}  {_judge(row, plan)}")
        lines += [f"  {name:32} {row.format(needed):>12}" for name, needed in (row.parts or {}).items()]
    return lines


def _judge(row: "Row", plan: "Plan") -> str:
    if row.available is None:
        return "unknown"
    if row.fits:
        return "fits"
    return "slow" if row is plan.rows[-1] else "does not fit"

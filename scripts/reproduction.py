"""Trains a rung of the ladder, checks its bounds, keeps its records: `scripts/reproduce NAME`."""

import argparse
import datetime
import json
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import command_line
import ladder
import recorder

from monobeast.files import user_path


def train(variant: ladder.Variant, seed: int, savedir: Path, xpid: str) -> int:
    """Trains in a separate process; returns its exit code. Signals to this process are passed on to the run."""
    flags = [*ladder.flags_of(variant, seed), "--savedir", str(savedir), "--xpid", xpid]
    print(f"\n{shlex.join(['python', '-m', 'monobeast', 'train', *flags])}", flush=True)
    command = command_line.monobeast("train", *flags)
    process = subprocess.Popen(command, env=command_line.environment(ladder.TESTS))
    # A terminal sends Ctrl-C to the run as well, which then saves what it has.
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda number, _: process.send_signal(number))
    try:
        exit_code = process.wait()
        return exit_code if exit_code >= 0 else 128 - exit_code  # killed by a signal: as a shell says it
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def check(variant: ladder.Variant, folder: Path) -> list[dict[str, Any]]:
    """Checks a run, records the outcome in its folder and prints it."""
    outcomes = []
    for bound in variant.checks:
        value = bound.measure(folder)
        holds = bound.holds(value)
        outcomes.append({"check": bound.describe(), "value": value, "holds": holds})
        print(f"{folder.name}: {bound.describe()}: {value:.4g}: {'reached' if holds else 'NOT REACHED'}", flush=True)
    (folder / recorder.CHECKS_FILE).write_text(json.dumps(outcomes, indent=2) + "\n")
    return outcomes


def reproduce(name: str, seeds: tuple[int, ...] | None, savedir: Path, keep: bool) -> int:
    """Trains and checks every run of a rung; returns 0, 1 if a bound was missed, or a failed run's exit code."""
    all_hold = True
    for xpid, variant, seed in ladder.runs_of(name, seeds):
        exit_code = train(variant, seed, savedir, xpid)
        if exit_code:
            return exit_code
        all_hold &= all(outcome["holds"] for outcome in check(variant, savedir / xpid))
        if keep:
            print(f"recorded in {recorder.record(savedir / xpid)}")
    return 0 if all_hold else 1


def main() -> int:
    sys.path.append(str(ladder.TESTS))
    rungs = "; ".join(f"{name}: {rung.title}" for name, rung in ladder.RUNGS.items())
    parser = argparse.ArgumentParser(
        prog="scripts/reproduce", description=f"Trains a rung of the ladder and checks its bound. {rungs}.",
        epilog="exit codes: 0 reached, 1 not reached or a run failed, 2 a bad flag, 130 and 143 stopped",
    )  # fmt: skip
    parser.add_argument("rungs", nargs="+", choices=ladder.RUNGS, metavar="NAME", help=", ".join(ladder.RUNGS))
    parser.add_argument("--seeds", type=int, nargs="+", help="instead of the rung's own")
    parser.add_argument("--savedir", default="~/logs/monobeast", help="a folder is made in it (default: %(default)s)")
    parser.add_argument("--record", action="store_true", help="keep the runs' small files in results/")
    chosen = parser.parse_args()
    seeds = tuple(dict.fromkeys(chosen.seeds)) if chosen.seeds else None
    now = datetime.datetime.now()
    worst = 0
    for name in dict.fromkeys(chosen.rungs):
        savedir = user_path(chosen.savedir).absolute() / f"{name}-{now:%Y%m%d-%H%M%S}"
        worst = max(worst, reproduce(name, seeds, savedir, chosen.record))
        if worst > 1:
            break  # stopped
    return worst


if __name__ == "__main__":
    sys.exit(main())

"""The effect of lag on V-trace and the paper's other corrections: `python scripts/lag.py`, half an hour on two cores.

Trains on Catch and CartPole with weights that come 0, 4 and 64 updates late, with every correction and three seeds
each. Records one row per run in `results/lag/runs.csv`, draws docs/lag.png and writes the table of docs/results.md.
Recorded runs of the same commit and settings are not repeated.
"""

import argparse
import concurrent.futures
import csv
import importlib
import itertools
import json
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import command_line
import ladder
import numpy as np
import recorder

from monobeast.config import to_flags
from monobeast.runs.progress import RECENT_EPISODES
from monobeast.runs.recorded_run import RecordedRun

FOLDER = recorder.RESULTS / "lag"
PICTURE = recorder.ROOT / "docs" / "lag.png"
LAGS = (0, 4, 64)  # updates
CORRECTIONS = ("vtrace", "one_step", "epsilon", "none")
SEEDS = (1, 2, 3)
# Without actor processes, so that the lag is exact and a run repeats. With a row for every update, means over the rows
# do so, too: over longer intervals, which the clock ends, the effective sample size is smaller.
_ALONE = {"num_actors": 0, "num_learner_threads": 1, "log_interval_s": 1e-6}
SETTINGS = {
    "Catch": ladder.CATCH | {"total_steps": 200_000, "entropy_cost_end": 0.0} | _ALONE,
    "CartPole": ladder.CARTPOLE | {"total_steps": 300_000} | _ALONE,
}
_KEPT = ("python", "packages", "git_commit", "platform", "cpu", "cpu_count", "gpu")
_COLORS = dict(zip(CORRECTIONS, ("#0072B2", "#E69F00", "#009E73", "#D55E00"), strict=True))


class Outcome(NamedTuple):
    """One run, as it stands in `runs.csv`."""

    task: str
    correction: str
    lag: int
    seed: int
    last_return: float  # mean of the last 100 episodes
    mean_return: float  # over the steps of the whole run: how soon it learned
    effective_sample_size: float  # of a batch, mean over the updates
    kl: float


def train(task: str, correction: str, lag: int, seed: int, savedir: Path) -> Path:
    """Trains in a separate process; returns the run's folder."""
    name = f"{task}-{correction}-{lag}-{seed}"
    own = {"correction": correction, "force_lag": lag, "seed": seed, "savedir": savedir, "xpid": name}
    command = command_line.monobeast("train", *to_flags(SETTINGS[task] | own))
    # One thread each: runs side by side would wait for each other's.
    environment = command_line.environment() | {"OMP_NUM_THREADS": "1"}
    subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, check=True)
    return savedir / name


def measure(task: str, correction: str, lag: int, seed: int, folder: Path) -> Outcome:
    """The outcome of a run."""
    run = RecordedRun(folder)
    episodes = run.episodes
    # An episode counts as long as it lasted.
    mean_return = float(np.average(episodes.returns, weights=episodes.lengths))
    health = [float(np.nanmean(run.logs[column])) for column in ("effective_sample_size", "kl")]
    return Outcome(task, correction, lag, seed, float(episodes.returns[-RECENT_EPISODES:].mean()), mean_return, *health)


def run_all() -> None:
    """Makes all runs, as many at once as there are cores, and records each outcome as it arrives."""
    wanted = list(itertools.product(SETTINGS, CORRECTIONS, LAGS, SEEDS))
    with tempfile.TemporaryDirectory() as savedir, concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        first = train(*wanted[0], Path(savedir))  # whose commit and machine are those of all
        meta = {name: RecordedRun(first).meta[name] for name in _KEPT} | {"settings": SETTINGS}
        outcomes = read() if _is_of(meta) else []
        done = {one[:4] for one in outcomes}
        under_way = {pool.submit(train, *one, Path(savedir)): one for one in wanted[1:] if one not in done}
        if wanted[0] not in done:
            outcomes.append(measure(*wanted[0], first))
            keep(sorted(outcomes), meta)
        try:
            for future in concurrent.futures.as_completed(under_way):
                outcomes.append(measure(*under_way[future], future.result()))
                keep(sorted(outcomes), meta)
                print(f"{len(outcomes)} of {len(wanted)}: {outcomes[-1]}", flush=True)
        finally:
            pool.shutdown(cancel_futures=True)  # after Ctrl-C or a run that failed, none is begun any more


def _is_of(meta: dict[str, Any]) -> bool:
    """Whether the record is from this commit, machine and settings."""
    file = FOLDER / "meta.json"
    return file.exists() and json.loads(file.read_text()) == json.loads(json.dumps(meta))


def keep(outcomes: list[Outcome], meta: dict[str, Any]) -> None:
    """Writes `results/lag/`: the runs, and the machine, the commit and the settings that made them."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    with open(FOLDER / "runs.csv", "w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(Outcome._fields)
        writer.writerows([f"{value:.5g}" if isinstance(value, float) else value for value in one] for one in outcomes)
    (FOLDER / "meta.json").write_text(json.dumps(meta, indent=2) + "\n")


def read() -> list[Outcome]:
    """The recorded runs."""
    with open(FOLDER / "runs.csv", newline="") as file:
        _, *rows = csv.reader(file)
    return [Outcome(*row[:2], *map(int, row[2:4]), *map(float, row[4:])) for row in rows]


def select(outcomes: list[Outcome], task: str, correction: str, lag: int) -> list[Outcome]:
    """The seeds of one setting."""
    return [one for one in outcomes if (one.task, one.correction, one.lag) == (task, correction, lag)]


def tabulate(outcomes: list[Outcome]) -> list[dict[str, str]]:
    """One row per task, correction and lag: means over the seeds, returns with their standard deviation."""
    rows = []
    for task, correction, lag in itertools.product(SETTINGS, CORRECTIONS, LAGS):
        seeds = select(outcomes, task, correction, lag)
        returns = {
            title: np.array([getattr(one, field) for one in seeds])
            for title, field in (("last 100 episodes", "last_return"), ("whole run", "mean_return"))
        }
        rows.append(
            {"task": task, "correction": correction, "lag": str(lag), "seeds": str(len(seeds))}
            | {title: f"{values.mean():.2f} ± {values.std(ddof=1):.2f}" for title, values in returns.items()}
            | {"effective sample size": f"{np.mean([one.effective_sample_size for one in seeds]):.2f}"}
            | {"KL": f"{np.mean([one.kl for one in seeds]):.2g}"}
        )
    return rows


def draw(outcomes: list[Outcome]) -> None:
    """Plots return against lag: one line per correction, one point per seed."""
    from matplotlib.figure import Figure  # an extra, which reading the records does not need

    figure = Figure(figsize=(8, 6), layout="constrained")
    panels = figure.subplots(2, len(SETTINGS), sharex=True)
    for (row, field), (column, task) in itertools.product(
        enumerate(("last_return", "mean_return")), enumerate(SETTINGS)
    ):
        axes = panels[row, column]
        for place, correction in enumerate(CORRECTIONS):
            values = [[getattr(one, field) for one in select(outcomes, task, correction, lag)] for lag in LAGS]
            at = np.arange(len(LAGS)) + 0.05 * (place - 1.5)  # beside each other, so that none hides another
            axes.plot(at, [np.mean(seeds) for seeds in values], color=_COLORS[correction], label=correction)
            for x, seeds in zip(at, values, strict=True):
                axes.plot([x] * len(seeds), seeds, "o", color=_COLORS[correction], markersize=3)
        axes.set_xticks(range(len(LAGS)), map(str, LAGS))
        axes.set_title(f"{task}: {'the last 100 episodes' if field == 'last_return' else 'the whole run'}")
    for axes in panels[-1]:
        axes.set_xlabel("lag, updates")
    for axes in panels[:, 0]:
        axes.set_ylabel("mean return")
    panels[0, 0].legend()
    figure.savefig(PICTURE, dpi=110)


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()
    importlib.import_module("matplotlib")  # rather now than after half an hour
    run_all()
    draw(read())
    import results  # which reads what this file keeps

    results.write_pages()

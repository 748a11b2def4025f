"""The figures in docs/results.md follow from the files of the run."""

import csv
import json
import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
RUN = ROOT / "results" / "pong-2M"
TEXT = (ROOT / "docs" / "results.md").read_text()


def mean_of_last_100(step):
    with open(RUN / "episodes.csv", newline="") as file:
        returns = [float(row["episode_return"]) for row in csv.DictReader(file) if int(row["step"]) <= step]
    return f"{sum(returns[-100:]) / 100:.2f}"


def test_pongs_figures_are_those_of_its_run():
    meta = json.loads((RUN / "meta.json").read_text())
    steps = [500_000, 1_000_000, 1_500_000]

    assert meta["state"] == "complete" and meta["git_commit"] in TEXT
    assert f"last 100 training episodes | {mean_of_last_100(meta['step'])} |" in TEXT
    assert f"steps | {', '.join(mean_of_last_100(step) for step in steps)} |" in TEXT
    summary = re.search(r"mean .*", (RUN / "test.txt").read_text().splitlines()[-1]).group()
    assert f"sampled | {summary} |" in TEXT

"""Runs made by hand: folders with the files that a run leaves."""

import csv
import dataclasses
import json
from pathlib import Path

from monobeast.config import Config

EPISODES = [(100, 1.0), (200, 3.0), (300, 5.0)]
LOGS = [{"step": 200, "seconds": 3600, "entropy": 1.5}, {"step": 400, "seconds": 10_800, "entropy": 0.5}]


def write_run(folder: Path, episodes=EPISODES, logs=LOGS, meta=None, **settings) -> Path:
    """Writes the folder of a run.

    Args:
        folder: to be made.
        episodes: step and return of each.
        logs: rows of `logs.csv`; a column that a row lacks is an empty cell.
        meta: what `meta.json` holds besides.
        settings: what the configuration has of its own.
    """
    folder.mkdir(parents=True)
    config = dataclasses.asdict(Config()) | {"env": "monobeast/Catch-v0", "xpid": folder.name} | settings
    (folder / "meta.json").write_text(json.dumps({"config": config, "state": "complete"} | (meta or {})))
    rows = [("step", "actor", "env", "episode_return", "episode_length")]
    rows += [(step, 0, 0, episode_return, 9) for step, episode_return in episodes]
    columns = list(dict.fromkeys(name for row in logs for name in row)) or ["step", "seconds"]
    write_csv(folder / "episodes.csv", rows)
    write_csv(folder / "logs.csv", [columns, *([row.get(name) for name in columns] for row in logs)])
    return folder


def write_csv(path: Path, rows) -> None:
    with open(path, "w", newline="") as file:
        csv.writer(file).writerows(rows)

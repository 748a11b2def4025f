"""Runs with a checkpoint, saved without a step of training."""

import dataclasses
from pathlib import Path

from monobeast import preparation
from monobeast.config import Config
from monobeast.learner import Learner
from monobeast.runs import checkpoint
from monobeast.runs.metadata import Metadata


def save_run(savedir: Path, xpid="example", **settings) -> Path:
    """Makes the folder of a run whose network is as it was drawn."""
    # An actor process has no say here: its main script would have to be importable.
    config = Config(savedir=str(savedir), xpid=xpid, num_actors=0, seed=1, device="cpu", **settings)
    prepared = preparation.prepare(config)
    folder = savedir / xpid
    folder.mkdir(parents=True)
    log = {"step": 0, "seconds": 0.0, "environment_steps": 0, "num_episodes": 0, "recent_returns": []}
    content = {
        "config": dataclasses.asdict(prepared.config),
        "learner": Learner(prepared.network, prepared.config).state_dict(),
        "log": log,
        "actor_restarts": 0,
        "num_resumes": 0,
    }
    checkpoint.save(folder, content)
    Metadata(folder, prepared.config).finish("complete", step=0)
    return folder

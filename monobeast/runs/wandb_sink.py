"""Sends a run's numbers to Weights & Biases, `--wandb`; without a login only to the run's folder."""

import logging
import os
import secrets
from pathlib import Path
from typing import Any

from monobeast.errors import missing_package

FOLDER_NAME = "wandb"  # in the run's folder; the package gives it that name
_ID_FILE_NAME = "run_id"
_PROJECT = "monobeast"

logger = logging.getLogger(__name__)


def require_wandb() -> None:
    """Raises ValueError, with the command that installs it, unless wandb is there."""
    try:
        from wandb import init  # noqa: F401  # a folder of that name, which the package leaves, imports as well
    except ImportError as error:
        raise missing_package("--wandb", "wandb", error) from None


class WandbSink:
    """Writes rows over `step`; later starts of a run continue the same wandb run.

    wandb's environment variables apply: WANDB_MODE, WANDB_PROJECT, WANDB_ENTITY and others. Without WANDB_MODE and
    without a login, nothing is sent.

    Args:
        folder: Of the run.
        config: The run's settings, as plain values.
    """

    def __init__(self, folder: Path, config: dict[str, Any]) -> None:
        import wandb

        is_offline = "WANDB_MODE" not in os.environ and not wandb.login(prompt=False, verify=False)
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", _PROJECT),
            id=_keep_id(folder / FOLDER_NAME),
            name=folder.name,
            dir=str(folder),
            resume="allow",
            mode="offline" if is_offline else None,
            config=config,
            settings=wandb.Settings(
                silent=True,  # it would break the progress line
                console="off",
                # What it would find out about machine, code and command line by itself; meta.json has what matters.
                x_disable_meta=True,
                x_disable_stats=True,
                disable_git=True,
                disable_code=True,
                disable_job_creation=True,
            ),
        )
        self._run.define_metric("step")
        self._run.define_metric("*", step_metric="step")
        where = f"offline, `wandb sync` in {folder} sends it" if self._run.offline else self._run.url
        logger.info("--wandb: %s", where)

    def write(self, numbers: dict[str, float], step: int) -> None:
        """Adds a row."""
        self._run.log(numbers | {"step": step})

    def close(self) -> None:
        """Waits until everything is sent."""
        self._run.finish()


def _keep_id(folder: Path) -> str:
    """The run's id at wandb: from the file in `folder`, or a new one that is saved there."""
    path = folder / _ID_FILE_NAME
    try:
        return path.read_text().strip()
    except FileNotFoundError:
        folder.mkdir(exist_ok=True)
        made = secrets.token_hex(4)
        path.write_text(made + "\n")
        return made

"""The files of evaluations beside training: `evaluations.csv`, and `best.pt` with the best weights."""

import logging
from pathlib import Path
from typing import Any, NamedTuple

from monobeast.runs import checkpoint
from monobeast.runs.csv_file import CsvFile
from monobeast.runs.sinks import Sinks

FILE_NAME = "evaluations.csv"
_PREFIX = "evaluations/"  # of the columns' names in sinks, where logs.csv has some of the same names

logger = logging.getLogger(__name__)


class Evaluation(NamedTuple):
    """A row of `evaluations.csv`."""

    step: int  # agent steps that the weights were trained for
    updates: int
    episodes: int
    mean_episode_return: float
    std_episode_return: float | None  # of the sample; None of one episode
    min_episode_return: float
    max_episode_return: float
    mean_episode_length: float  # agent steps
    capped_episodes: int  # cut off at `--max_episode_steps`
    evaluation_seconds: float  # that it took


class EvaluationLog:
    """Writes both files.

    The best return so far is read from `best.pt`, so it remains the best over any number of starts.

    Args:
        folder: Of the run.
        up_to_step: Of the checkpoint that a run resumes from; rows beyond it are dropped. None starts a new table.
        sinks: Also get the rows.
    """

    def __init__(self, folder: Path, up_to_step: int | None = None, sinks: Sinks = Sinks()) -> None:
        self._sinks = sinks
        self._best_path = folder / checkpoint.BEST_FILE_NAME
        self._best_return = self._read_best_return()
        self._rows = CsvFile(folder / FILE_NAME, Evaluation._fields, up_to_step)

    def close(self) -> None:
        self._rows.close()

    def write(self, evaluation: Evaluation) -> None:
        """Adds a row."""
        self._rows.write(evaluation)
        self._rows.flush()
        self._sinks.write(evaluation._asdict(), _PREFIX)

    def is_best(self, evaluation: Evaluation) -> bool:
        """Whether no earlier evaluation had as high a mean return."""
        return self._best_return is None or evaluation.mean_episode_return > self._best_return

    def save_best(self, evaluation: Evaluation, config: dict[str, Any], weights: dict[str, Any]) -> bool:
        """Writes weights to `best.pt`, atomically; if that fails, the previous ones stay the best.

        Args:
            evaluation: Of these weights.
            config: Of the run, plain values.
            weights: By the names of the network's `state_dict`.

        Returns:
            Whether they were written.
        """
        learner = {"network": weights, "step": evaluation.step, "num_updates": evaluation.updates}
        content = {"config": config, "learner": learner, "evaluation": evaluation._asdict()}
        try:
            checkpoint.write(self._best_path, content)
        except OSError as error:
            logger.error("%s could not be saved: %s", self._best_path, error)
            return False
        self._best_return = evaluation.mean_episode_return
        return True

    def _read_best_return(self) -> float | None:
        if not self._best_path.exists():
            return None
        try:
            return checkpoint.read(self._best_path)["evaluation"]["mean_episode_return"]
        except (ValueError, KeyError, TypeError) as error:
            logger.warning("%s will be replaced: %s", self._best_path, error)
            return None

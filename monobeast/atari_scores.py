"""Published scores for the 57 Atari games, and human-normalized scores.

The table's columns: random play and a human tester, as in the DQN papers; IMPALA's shallow and deep experts at 200M
frames, without sticky actions (arXiv 1802.01561, table C.1); TorchBeast's MonoBeast at 200M frames with sticky
actions, mean and standard deviation, as run by the authors of Cleanba (arXiv 2310.00036).
"""

import csv
from functools import cache
from importlib import resources
from typing import NamedTuple


class ReferenceScores(NamedTuple):
    """Reference scores of one game."""

    random: float
    human: float
    impala_shallow_200M_frames: float
    impala_deep_200M_frames: float
    monobeast_200M_frames_sticky_mean: float
    monobeast_200M_frames_sticky_std: float


@cache
def reference_scores() -> dict[str, ReferenceScores]:
    """The table, by ALE's name for the game, such as `space_invaders`."""
    text = resources.files("monobeast").joinpath("atari_reference_scores.csv").read_text()
    rows = csv.DictReader(text.splitlines())
    return {row.pop("game"): ReferenceScores(**{name: float(cell) for name, cell in row.items()}) for row in rows}


def human_normalized(game: str, score: float) -> float:
    """(score - random) / (human - random), in percent: 0 is random play, 100 a human.

    Raises:
        ValueError: the table has no such game.
    """
    if game not in reference_scores():
        raise ValueError(f"no reference scores of the game {game!r}")
    references = reference_scores()[game]
    return 100 * (score - references.random) / (references.human - references.random)

"""The score of a test: statistics of its episodes, and the conditions that affect it."""

from typing import Self

import numpy as np
from gymnasium.spaces import Space

from monobeast.atari_scores import human_normalized, reference_scores
from monobeast.config import Config
from monobeast.environments.atari import is_atari
from monobeast.environments.registry import find_spec
from monobeast.episode import Episode
from monobeast.files import require_place, user_path
from monobeast.phrases import count
from monobeast.runs.csv_file import CsvFile

EPISODE_COLUMNS = ("episode", "episode_return", "episode_length", "is_capped")


class EpisodeTable:
    """A CSV file with one row per episode, written when the episode ends. A context manager.

    Args:
        path: Of the file, which is overwritten; None for no file.

    Raises:
        ValueError: it cannot be written.
    """

    def __init__(self, path: str | None) -> None:
        self._num_rows = 0
        self._file = None
        if path is not None:
            require_place(f"--save_episodes {path}", user_path(path))
            try:
                self._file = CsvFile(user_path(path), EPISODE_COLUMNS)
            except OSError as error:
                raise ValueError(f"--save_episodes {path}: cannot be written: {error.strerror}") from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()

    def add(self, episode: Episode) -> None:
        self._num_rows += 1
        if self._file is not None:
            self._file.write((self._num_rows, episode.episode_return, episode.length, int(episode.is_capped)))
            self._file.flush()


def summarize(episodes: list[Episode], env: str = "") -> str:
    """Mean, standard deviation, minimum and maximum of the returns, and how many episodes were cut off.

    Args:
        episodes: At least one.
        env: Id of the environment; for an Atari game, the mean over whole games is also human-normalized.
    """
    returns = [episode.episode_return for episode in episodes]
    deviation = f"{np.std(returns, ddof=1):.2f}" if len(returns) > 1 else "unknown"
    text = (
        f"return over {count(len(returns), 'episode')}: mean {np.mean(returns):.2f}, "
        f"standard deviation {deviation}, minimum {min(returns):g}, maximum {max(returns):g}"
    )
    num_capped = sum(episode.is_capped for episode in episodes)
    if num_capped:  # a part of a game is nothing that a human's score could be set beside
        return f"{text}; {num_capped} of them cut off by --max_episode_steps"
    return text + (f"; {_compare(env, float(np.mean(returns)))}" if _game(env) else "")


def describe_conditions(config: Config, action_space: Space, seed: int) -> str:
    """The conditions of the score besides the agent: how actions are chosen and, for Atari, the game's settings.

    Args:
        config: Resolved.
        action_space: Of the environment.
        seed: Of the games and of the sampling.
    """
    how = "the most probable action" if config.greedy else "actions sampled from the policy"
    parts = [f"{how}, seed {seed}"]
    if _game(config.env):
        parts += [
            f"sticky actions {config.sticky_actions:g}",
            f"{'full' if config.full_action_space else 'minimal'} set of {action_space.n} actions",
            f"0 to {config.noop_max} no-ops",
            f"frame skip {config.frame_skip}",
            f"at most {config.max_episode_frames:,} frames",
            "a lost life does not end the episode",
        ]
    parts += [f"env_kwargs {config.env_kwargs}"] if config.env_kwargs != "{}" else []
    return ", ".join(parts)


def _game(env: str) -> str | None:
    """ALE's name of an Atari game; None for other environments."""
    if not env:
        return None
    spec = find_spec(env)
    return spec.kwargs["game"] if is_atari(spec) else None


def _compare(env: str, score: float) -> str:
    game = _game(env) or ""
    if game not in reference_scores():
        return f"no human score is known for {game}"
    references = reference_scores()[game]
    scale = f"0 is random play ({references.random:g}), 100 a human ({references.human:g})"
    return f"human-normalized {human_normalized(game, score):.1f} %: {scale}"

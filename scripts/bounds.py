"""The bounds that a run must reach, and measures of its folder."""

import subprocess
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import command_line
import numpy as np
import recorder
import torch

from monobeast import environments, player
from monobeast.config import to_flags
from monobeast.environments import Spaces
from monobeast.episode import to_input
from monobeast.runs import checkpoint
from monobeast.runs.progress import RECENT_EPISODES
from monobeast.runs.recorded_run import RecordedRun


class Check(NamedTuple):
    """One bound: low <= measure(folder of the run) <= high."""

    what: str
    measure: Callable[[Path], float]
    low: float = -np.inf
    high: float = np.inf

    def holds(self, value: float) -> bool:
        return self.low <= value <= self.high  # never for NaN

    def describe(self) -> str:
        bounds = [(self.low, "at least"), (self.high, "at most")]
        return f"{self.what} " + " and ".join(f"{word} {bound:g}" for bound, word in bounds if np.isfinite(bound))


def mean_return(folder: Path) -> float:
    """Mean return of the last 100 training episodes; NaN if there were fewer."""
    returns = RecordedRun(folder).episodes.returns
    return float(np.mean(returns[-RECENT_EPISODES:])) if len(returns) >= RECENT_EPISODES else np.nan


def test_return(folder: Path) -> float:
    """Mean return of 20 games that `test` plays; what it says goes to test.txt."""
    settings = {"savedir": folder.parent, "xpid": folder.name, "num_episodes": 20, "seed": 1}
    command = command_line.monobeast("test", *to_flags(settings))
    result = subprocess.run(command, env=command_line.environment(), stdout=subprocess.PIPE, text=True, check=True)
    print(result.stdout, end="")
    (folder / recorder.TEST_FILE).write_text(result.stdout)
    return recorder.read_test(folder).mean


def relative_value(folder: Path) -> float:
    """The learned V in the middle of an episode, relative to the infinite-horizon value 1 / (1 - gamma)."""
    content = checkpoint.load(folder)
    config = checkpoint.read_config(content, folder)
    action = np.zeros(1, np.int64)
    with closing(environments.make(config, 1, [0])) as environment:
        spaces = Spaces(environment.observation_space, environment.action_space)
        environment.reset()
        step = environment.step(action)
    network = player.load_network(content, folder, config, spaces)
    with torch.no_grad():
        output = network(to_input(step, action), ())
    return output.baseline.item() * (1 - config.discounting)


def mean_at_least(bound: float) -> Check:
    return Check("mean return of the last 100 episodes", mean_return, low=bound)


def atari_checks(training: float, playing: float) -> tuple[Check, ...]:
    """Bounds of the mean return of the last 100 training episodes, and of 20 games of `test`."""
    return mean_at_least(training), Check("mean return of 20 games of `test`", test_return, low=playing)

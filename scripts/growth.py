"""Measures how costs grow: steps per second and memory by slots, actors, sizes and episode lengths."""

import argparse
import os
import statistics
import sys
from pathlib import Path
from typing import Any

import command_line
import gymnasium
import numpy as np
import pages
from gymnasium.spaces import Box, Discrete
from torch import nn

from monobeast.benchmarks import whole
from monobeast.resources.requirements import format_bytes

SIZES = {"num_actors": 2, "envs_per_actor": 8, "num_learner_threads": 1}
PONG = SIZES | {"env": "ALE/Pong-v5"}
FRAMES = SIZES | {"env": "growth:Frames-v0"}  # in one place, so that nothing but what is named differs
GROUPS: dict[str, dict[str, dict[str, Any]]] = {
    "slots, Pong": {str(n): PONG | {"num_buffers": n} for n in (8, 32, 128)},
    "actors of 8 environments, Pong": {str(n): PONG | {"num_actors": n} for n in (1, 2, 4, 8)},
    "weights, frames of 84x84x4": {
        "1.6M": FRAMES | {"network": "growth:Wide"},
        "16M": FRAMES | {"network": "growth:Wider"},
    },
    "frames": {
        "84x84x4": FRAMES | {"env_kwargs": '{"height": 84, "width": 84, "channels": 4}'},
        "210x160x3": FRAMES | {"env_kwargs": '{"height": 210, "width": 160, "channels": 3}'},
    },
    "steps of an episode, frames of 84x84x4": {
        "5": FRAMES | {"env_kwargs": '{"length": 5}'},
        "20,000": FRAMES | {"env_kwargs": '{"length": 20000}'},
    },
}


class Frames(gymnasium.Env):
    """Frames of noise at no cost; an episode ends after `length` steps."""

    action_space = Discrete(6)

    def __init__(self, height: int = 84, width: int = 84, channels: int = 4, length: int = 1000) -> None:
        self.observation_space = Box(0, 255, (height, width, channels), np.uint8)
        self._frame = np.random.default_rng(0).integers(256, size=self.observation_space.shape, dtype=np.uint8)
        self._length, self._t = length, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self._t = 0
        return self._frame, {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self._t += 1
        return self._frame, 0.0, self._t == self._length, False, {}


class Wide(nn.Module):
    """One hidden layer, wide enough for 1.6M weights on frames that are averaged to 20x20x4."""

    width = 1024

    def __init__(self, observation_space: Box, num_actions: int) -> None:
        super().__init__()
        self.small = nn.AdaptiveAvgPool2d(20)
        self.hidden = nn.Linear(1600, self.width)
        self.policy, self.baseline = nn.Linear(self.width, num_actions), nn.Linear(self.width, 1)

    def initial_state(self, batch_size: int) -> tuple:
        return ()

    def forward(self, inputs: Any, core_state: tuple) -> tuple:
        images = inputs.observation.flatten(0, 1).movedim(-1, 1).float() / 255
        hidden = self.hidden(self.small(images).flatten(1)).relu().unflatten(0, inputs.is_first.shape)
        return self.policy(hidden), self.baseline(hidden).squeeze(-1), core_state


class Wider(Wide):
    """The same with 16M weights."""

    width = 10_000


gymnasium.register("Frames-v0", Frames)


def main() -> None:
    """Prints one table per group: the median of several alternating runs, and the ratio to the first row."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=8.0, help="of each run (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each setting (default: %(default)s)")
    chosen = parser.parse_args()
    for title, settings in GROUPS.items():
        found: dict[str, list[whole.Whole]] = {name: [] for name in settings}
        for _ in range(chosen.rounds):
            for name, of_one in settings.items():
                found[name].append(whole.run(of_one, chosen.seconds, warm_up_s=2.0))
        speeds = {name: statistics.median(one.steps_per_second for one in runs) for name, runs in found.items()}
        first, rows = next(iter(speeds.values())), []
        for name, speed in speeds.items():
            memory = max(one.peak_memory or 0 for one in found[name])
            rows.append([name, f"{speed:,.0f}", f"{speed / first:.2f}", format_bytes(memory)])
        print("", pages.table([title, "steps/s", "of the first", "peak memory (PSS)"], rows), sep="\n", flush=True)


if __name__ == "__main__":
    # Training processes import this file by its name.
    os.environ.update(command_line.environment(Path(__file__).resolve().parent))
    sys.exit(main())

"""Plays a checkpoint: whole games, unclipped rewards, the recurrent state carried."""

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from monobeast import checkpoint, environments, run_folder, seeding
from monobeast.config import Config
from monobeast.environments import EnvStep, VectorEnvironment
from monobeast.networks import AgentInput, make_network
from monobeast.policy import LocalPolicy


class Episode(NamedTuple):
    """One game played."""

    episode_return: float
    length: int  # agent steps
    is_capped: bool  # cut off at `--max_episode_steps`, so the return is that of a part


class Player(NamedTuple):
    """A checkpoint ready to play."""

    folder: Path  # of the run
    config: Config  # the trained run's, with what the caller chose in its place
    environment: VectorEnvironment  # of one environment
    policy: LocalPolicy
    step: int  # agent steps it was trained for
    seed: int  # of the games and of the sampling


def load_player(chosen: dict[str, Any]) -> Player:
    """Loads the run `chosen["xpid"]` in `chosen["savedir"]`, or the newest.

    Args:
        chosen: Settings the caller gave; the run's own stand for all others.

    Raises:
        ValueError: no such run, no checkpoint, or one for another environment.
    """
    asked = Config(**chosen)
    folder = run_folder.find(asked.savedir, asked.xpid)
    content = checkpoint.load(folder)
    trained = checkpoint.read_config(content, folder)
    step, weights = content["learner"]["step"], content["learner"]["network"]
    if "env" in chosen and asked.env != trained.env:
        raise ValueError(f"--env {asked.env}: the checkpoint in {folder} is for {trained.env}")
    config = _merge(trained, asked, chosen)
    spaces = environments.check(config)
    shapes = spaces.observation, spaces.num_actions
    network = make_network(*shapes, trained.network, trained.use_lstm, trained.precision, trained.memory_format)
    try:
        network.load_state_dict(weights)
    except (RuntimeError, TypeError, AttributeError) as error:
        raise ValueError(
            f"the checkpoint in {folder} is for another environment than {config.env} with "
            f"{spaces.num_actions} actions and observations {spaces.observation}: {error}"
        ) from error
    seed = seeding.draw_seed() if asked.seed is None else asked.seed
    environment = environments.make(config, 1, seeding.evaluation_seeds(seed, 1))
    policy = LocalPolicy(network.eval(), None, seeding.evaluation_sampling_seed(seed), greedy=config.greedy)
    return Player(folder, config, environment, policy, step, seed)


def _merge(trained: Config, asked: Config, chosen: dict[str, Any]) -> Config:
    """The run's settings, but those of the test as asked, and those of the environment where they were chosen."""
    groups = {setting.name: setting.metadata["group"] for setting in dataclasses.fields(Config)}
    changes = {name: value for name, value in chosen.items() if groups[name] == "environment"}
    changes |= {name: getattr(asked, name) for name, group in groups.items() if group == "test"}
    changes["life_loss_terminal"] = False  # unlike in training, a game goes on to its end
    if asked.render:
        env_kwargs = json.loads(changes.get("env_kwargs", trained.env_kwargs))
        changes["env_kwargs"] = json.dumps(env_kwargs | {"render_mode": "human"})
    return dataclasses.replace(trained, **changes)


def play(player: Player) -> Iterator[Episode]:
    """Plays `num_episodes` games, each given as it ends."""
    for _ in range(player.config.num_episodes):
        yield _play_episode(player.environment, player.policy, player.config.max_episode_steps)


def summarize(episodes: list[Episode]) -> str:
    """Mean, standard deviation, minimum and maximum of the returns, and how many episodes were cut off."""
    returns = [episode.episode_return for episode in episodes]
    deviation = f"{np.std(returns, ddof=1):.2f}" if len(returns) > 1 else "unknown"
    text = (
        f"return over {len(returns)} episode{'s' if len(returns) > 1 else ''}: mean {np.mean(returns):.2f}, "
        f"standard deviation {deviation}, minimum {min(returns):g}, maximum {max(returns):g}"
    )
    num_capped = sum(episode.is_capped for episode in episodes)
    return text + (f"; {num_capped} of them cut off by --max_episode_steps" if num_capped else "")


def _play_episode(environment: VectorEnvironment, policy: LocalPolicy, max_steps: int) -> Episode:
    step = environment.reset()
    action = np.zeros(1, dtype=np.int64)
    core_state = policy.initial_state(1)
    for _ in range(max_steps):
        decision = policy.act(_to_input(step, action), core_state)
        core_state = decision.core_state
        action = decision.action.numpy()
        step = environment.step(action)
        if step.done[0]:
            return Episode(float(step.episode_return[0]), int(step.episode_length[0]), is_capped=False)
    return Episode(float(step.episode_return[0]), int(step.episode_length[0]), is_capped=True)


def _to_input(step: EnvStep, last_action: np.ndarray) -> AgentInput:
    """[1, 1, ...] tensors of one observation and what led to it."""
    arrays = (step.observation, step.is_first, last_action, step.reward)
    return AgentInput(*(torch.from_numpy(array[np.newaxis]) for array in arrays))

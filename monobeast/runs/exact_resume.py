"""Makes a resumed run bit-identical to an uninterrupted one: `--exact_resume`."""

import io
from contextlib import closing
from typing import Any

import numpy as np
import torch
from gymnasium.vector.utils import batch_space

from monobeast import environments, plain_values, trees
from monobeast.config import Config
from monobeast.environments import EnvStep, VectorEnvironment
from monobeast.inline_actor import InlineActor
from monobeast.learner import Learner
from monobeast.trees import Tree
from monobeast.user_code import attempt, is_call

KEY = "continuation"  # in a checkpoint
_TRIAL_STEPS = 17  # a prime, since at the end of an episode there is little to be forgotten


def check(config: Config, saved: dict[str, Any] | None) -> None:
    """Checks that a run can be resumed exactly, and that a given checkpoint allows it.

    Args:
        config: Of the run, resolved; with `exact_resume`.
        saved: The checkpoint to resume from, if any.

    Raises:
        ValueError: it is not possible; the message names the flag and the reason.
    """
    if is_call(config.env):
        raise ValueError(f"--exact_resume: not with make_environments=, of which {config.env} was")
    with closing(environments.make(config, 1, [0])) as environment:
        environment.require_savable(config.env)
    if config.num_actors != 0:
        reason = "only with --num_actors 0, since nothing repeats the order in which processes deliver their rollouts"
        num_actors = "auto" if config.num_actors is None else config.num_actors
        raise ValueError(f"--exact_resume --num_actors {num_actors}: {reason}{_way_out(saved)}")
    if saved is not None and KEY not in saved:
        reason = f"the checkpoint of {config.xpid} was made without it and holds no state of the environments"
        raise ValueError(f"--exact_resume: {reason}; --resume alone goes on with fresh seeds")
    _check_environment(config)


def get_state(actors: InlineActor, learner: Learner) -> dict[str, Any]:
    """What a checkpoint holds under `KEY`, beside what every checkpoint holds."""
    return {"actors": actors.get_state(), "num_bad_in_a_row": learner.faults.num_in_a_row}


def set_state(saved: dict[str, Any], actors: InlineActor, learner: Learner) -> None:
    """Restores both from a checkpoint; call it before the actor is entered."""
    actors.set_state(saved[KEY]["actors"])
    learner.faults.restore(num_in_a_row=saved[KEY]["num_bad_in_a_row"])


def _way_out(saved: dict[str, Any] | None) -> str:
    return "" if saved is None else "; --no_exact_resume goes on with fresh seeds"


def _check_environment(config: Config) -> None:
    """Raises ValueError unless an environment with another's restored state behaves the same."""

    def play_both_ways() -> tuple[list[EnvStep], list[EnvStep]]:
        actions, state, expected = _leave_off(config)
        return expected, _go_on(config, actions, state)

    expected, found = attempt(f"--exact_resume: get_state or set_state of --env {config.env}", play_both_ways)
    for before, after in zip(expected, found, strict=True):
        differing = [name for name, *pair in zip(EnvStep._fields, before, after, strict=True) if not _are_equal(*pair)]
        if differing:
            what = f"--env {config.env} does not go on from a state that its get_state gave as it did from there"
            raise ValueError(f"--exact_resume: {what}; another {differing[0]} came")


def _leave_off(config: Config) -> tuple[list[np.ndarray], Any, list[EnvStep]]:
    """A few actions, a state as read back from a file, and the results of the actions from there."""
    with closing(environments.make(config, 1, [0])) as environment:
        environment.reset()
        space = batch_space(environment.action_space, 1)
        space.seed(0)
        actions = [space.sample() for _ in range(_TRIAL_STEPS)]
        _play(environment, actions)
        state = _filed(plain_values.pack(environment.get_state()))
        return actions, state, _play(environment, actions)


def _go_on(config: Config, actions: list[np.ndarray], state: Any) -> list[EnvStep]:
    with closing(environments.make(config, 1, [1])) as environment:
        environment.reset()
        environment.set_state(plain_values.unpack(state))
        return _play(environment, actions)


def _play(environment: VectorEnvironment, actions: list[np.ndarray]) -> list[EnvStep]:
    return [EnvStep(*trees.map_leaves(np.copy, tuple(environment.step(action)))) for action in actions]


def _are_equal(one: Tree, other: Tree) -> bool:
    """Whether two arrays, or trees of the same form, are equal."""
    pairs = zip(trees.leaves(one), trees.leaves(other), strict=True)
    return all(here.dtype == there.dtype and np.array_equal(here, there) for here, there in pairs)


def _filed(state: Any) -> Any:
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)

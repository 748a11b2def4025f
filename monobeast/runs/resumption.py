"""Resuming an earlier run: which settings may change, and which did."""

import dataclasses
from typing import Any

from monobeast.config import AUTO, Config
from monobeast.presets import PRESETS
from monobeast.runs import permission

# What the weights, the optimizer's state or the meaning of the curve depend on.
_FIXED = (
    *("env", "full_action_space", "network", "use_lstm", "normalize_observations"),  # shapes of the network
    *("optimizer", "momentum", "rmsprop_start", "normalize_rewards"),  # what the learner's state holds
    *("seed", "preset"),  # what the run is
)
# What the saved state of environments and staging depends on.
_FIXED_IF_EXACT = ("env_kwargs", "envs_per_actor", "batch_size", "unroll_length")
# Chosen for a number of actors: chosen anew when that changes.
_BY_NUM_ACTORS = ("num_buffers", "num_learner_threads")
_OF_A_START = ("resume", "xpid", "savedir", "timeline")  # which run is meant, and what this start is to leave

Changes = dict[str, tuple[Any, Any]]


def merge(saved: Config, asked: Config, given: set[str] | None = None) -> tuple[Config, Changes]:
    """The settings of a resumed run: the saved ones, overridden by those given.

    Args:
        saved: Of the checkpoint, resolved.
        asked: What is asked for now.
        given: Names of the settings that were given; where it is None, those that are neither at their default nor at
            their preset's.

    Returns:
        The settings, and the old and new value of each that changed. None as new value is still to be chosen.

    Raises:
        ValueError: a setting cannot change (the message has both values), two do not fit each other, or the user's own
            code was not named again.
    """
    if given is None:
        named = {field.name for field in dataclasses.fields(Config) if getattr(asked, field.name) != field.default}
        # What the preset filled in is taken for the run's own, not for given.
        given = {name for name in named if getattr(asked, name) != PRESETS.get(asked.preset or "", {}).get(name)}
    values = {name: getattr(asked, name) for name in given}
    if values.get("disable_cuda") and "device" not in given:
        values["device"] = "cpu"  # in place of the GPU that was found
    changes = {
        name: (getattr(saved, name), value)
        for name, value in values.items()
        if name not in _OF_A_START and value != getattr(saved, name)
    }
    for name in _FIXED:
        if name in changes:
            before, now = changes[name]
            raise ValueError(f"--{name} {now}: cannot change on --resume; the run began with {before}")
    permission.require_named(saved, given)
    if values.get("exact_resume", saved.exact_resume):
        _refuse_inexact(changes)
    if "num_actors" in changes:
        values |= {name: None for name in _BY_NUM_ACTORS if name not in given}
    values |= {name: getattr(asked, name) for name in _OF_A_START} | {"resume": True}
    merged = dataclasses.replace(saved, **values)
    merged.check_slots()
    return merged, changes


def settle(saved: Config, config: Config, changes: Changes) -> Changes:
    """The final changes, once open settings, and those that depend on changed ones, have been chosen.

    Args:
        saved: The checkpoint's settings.
        config: Resolved.
        changes: The result of `merge`.
    """
    chosen = {name: (getattr(saved, name), getattr(config, name)) for name in (*AUTO, *_BY_NUM_ACTORS)}
    return {name: (before, now) for name, (before, now) in (changes | chosen).items() if before != now}


def _refuse_inexact(changes: Changes) -> None:
    for name in _FIXED_IF_EXACT:
        if name in changes:
            before, now = changes[name]
            now = "auto" if now is None else now
            reason = f"cannot change with --exact_resume; the run began with {before}"
            raise ValueError(f"--{name} {now}: {reason}; --no_exact_resume goes on with fresh seeds")

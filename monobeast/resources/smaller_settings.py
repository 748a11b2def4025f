"""Finds smaller settings with which a run fits."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any, NamedTuple

from monobeast.config import Config
from monobeast.presets import PRESETS

# Flags that make a run larger, in the order in which they are turned down.
SIZES = ("num_buffers", "num_actors", "envs_per_actor", "unroll_length", "batch_size", "num_learner_threads")

_FEW_ACTORS = 2  # more are turned down to as many at first


class _Values(NamedTuple):
    """A flag's possible values below its present one: step * low, step * (low + 1) and so on to step * high."""

    step: int
    low: int
    high: int


def find(config: Config, fits: Callable[[Config], bool]) -> dict[str, int]:
    """As few flags as possible, with values with which a run fits; empty if smaller values are not enough.

    The first choice is the flag furthest above its default. If no single flag is enough, such flags are reset to their
    defaults one after the other, until one more is enough.

    Args:
        config: Resolved; does not fit.
        fits: Whether settings fit; if they do, so must smaller ones.
    """
    defaults = {"num_actors": _FEW_ACTORS, "num_buffers": 2 * config.num_actors, "num_learner_threads": 1}
    defaults |= {"envs_per_actor": config.batch_size} | PRESETS[config.preset or "classic"]
    # In this direction no quotient is too large for a float, however large the value.
    names = sorted(SIZES, key=lambda name: defaults[name] / max(1, getattr(config, name)))
    changes: dict[str, int] = {}
    for reset in (None, *names):
        if reset is not None and getattr(config, reset) > defaults[reset]:
            changes[reset] = _at_most(config, reset, defaults[reset])
            config = _with(config, reset, changes[reset])
        for name in names:
            value = _find_largest(config, name, fits)
            if value is not None:
                return changes | {name: value}
    return {}


def halve_batch(config: Config) -> Config | None:
    """The same settings with the largest possible batch of at most half the size; None if it cannot be smaller."""
    E, half = config.envs_per_actor, config.batch_size // 2
    B = next((B for B in range(half, 0, -1) if B % E == 0 or E % B == 0), None)
    return None if B is None else dataclasses.replace(config, batch_size=B)


def _find_largest(config: Config, name: str, fits: Callable[[Config], bool]) -> int | None:
    """The largest smaller value of a flag that fits, by bisection, rounded to two digits."""
    step, lowest, high = _smaller_values(config, name)
    if lowest > high or not fits(_with(config, name, step * lowest)):
        return None
    low = lowest
    while low < high:
        middle = (low + high + 1) // 2
        if fits(_with(config, name, step * middle)):
            low = middle
        else:
            high = middle - 1
    return step * max(lowest, _round_down(low))


def _smaller_values(config: Config, name: str) -> _Values:
    """Smaller values that `Config` accepts; not all of them, if one of two sizes must divide the other."""
    value = getattr(config, name)
    partner = {"envs_per_actor": config.batch_size, "batch_size": config.envs_per_actor}.get(name)
    if partner is None:
        return _Values(1, max(1, config.num_actors) if name == "num_buffers" else 1, value - 1)
    if value > partner:
        return _Values(partner, 1, value // partner - 1)
    return _Values(1, 1, min(1, value - 1))


def _at_most(config: Config, name: str, wanted: int) -> int:
    """An allowed value near `wanted`, below the present one."""
    step, low, high = _smaller_values(config, name)
    return step * max(low, min(high, wanted // step)) if low <= high else getattr(config, name)


def _with(config: Config, name: str, value: int) -> Config:
    changes: dict[str, Any] = {name: value}
    if name == "num_actors" and config.num_buffers == 2 * config.num_actors:  # the default, which follows
        changes["num_buffers"] = 2 * value
    return dataclasses.replace(config, **changes)


def _round_down(number: int) -> int:
    scale = 10 ** max(0, int(math.log10(number)) - 1)
    return number // scale * scale

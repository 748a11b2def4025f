"""Decides what may be imported for a checkpoint: only code that the user names as well.

Importing a module runs its code, and a checkpoint may come from a stranger. So the names in it are not enough.
"""

import dataclasses
from collections.abc import Collection
from typing import Any

from monobeast.config import Config
from monobeast.user_code import is_call, is_own

_ARGUMENTS = {"env": "make_environments=", "network": "network="}  # of monobeast.train, by the settings they stand for
_SUBSTITUTES = {"env": "--env ID", "network": "--network module:Class"}  # on a command line, for those


def require_named(saved: Config, given: Collection[str]) -> None:
    """Raises ValueError unless the user named all of their own code that a resumed run needs.

    Args:
        saved: The run's settings.
        given: Names of the given settings.
    """
    _refuse(
        [
            f"{_ARGUMENTS[name]} of monobeast.train, for {value}" if is_call(value) else f"--{name} {value}"
            for name, value in _find_own(saved).items()
            if name not in given
        ],
        f"the checkpoint of {saved.xpid}",
    )


def choose(saved: Config, env: str | None, network: str | None, where: str) -> Config:
    """The settings of a checkpoint's run, with the user's code as named in this call.

    The user's own network may have another name by now, or replace one without a name; its weights must fit. The same
    holds for an environment, if the run's were made by a Python callable.

    Args:
        saved: The run's settings.
        env: The given value, if any.
        network: The given value, if any.
        where: The checkpoint, for messages.

    Raises:
        ValueError: the user's own code was not named, or what was given does not match the run.
    """
    named = {"env": env, "network": None if network == "auto" else network}
    given: dict[str, Any] = {name: value for name, value in named.items() if value is not None}
    if given.get("env", saved.env) != saved.env and not is_call(saved.env):
        raise ValueError(f"--env {env}: {where} is for {saved.env}")
    if given.get("network", saved.network) != saved.network and not (is_own(network or "") and is_own(saved.network)):
        raise ValueError(f"--network {network}: {where} is of the {saved.network} network")
    _refuse(
        [
            f"{_SUBSTITUTES[name]} in place of {value}" if is_call(value) else f"--{name} {value}"
            for name, value in _find_own(saved).items()
            if name not in given
        ],
        where,
    )
    return dataclasses.replace(saved, **given)


def flags(config: Config) -> str:
    """The flags that a command line needs besides the run's name to import its code; "" if it has none."""
    return "".join(f" --{name} {value}" for name, value in _find_own(config).items() if not is_call(value))


def _find_own(config: Config) -> dict[str, str]:
    """The settings that name the user's own code."""
    return {name: getattr(config, name) for name in _ARGUMENTS if is_own(getattr(config, name))}


def _refuse(missing: list[str], where: str) -> None:
    if missing:
        reason = f"code that {where} names is imported only if you name it too"
        raise ValueError(f"{' '.join(missing)}: must be given, since {reason}")

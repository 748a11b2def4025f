"""What may be imported for a checkpoint: of the code that it names, what the user names as well.

A module's code runs when it is imported, and a checkpoint may be a stranger's. So the names in it are not enough.
"""

import dataclasses
from collections.abc import Collection
from typing import Any

from monobeast.config import Config
from monobeast.user_code import is_call, is_own

_ARGUMENTS = {"env": "make_environments=", "network": "network="}  # of monobeast.train, by the settings they stand for
_SUBSTITUTES = {"env": "--env ID", "network": "--network module:Class"}  # on a command line, for those


def require_named(saved: Config, given: Collection[str]) -> None:
    """Raises ValueError unless all code of the user's own with which a run is to go on was named.

    Args:
        saved: The run's settings.
        given: Names of the settings that were given.
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
    """The settings of a run whose checkpoint is looked at, with what of its code the user named.

    A network of one's own may have another name by now, and takes the place of one that has none: its weights must fit.
    So does an environment, where the run's were made by a callable from Python.

    Args:
        saved: The run's settings.
        env: What was given; None for nothing.
        network: What was given; None for nothing.
        where: The checkpoint, for messages.

    Raises:
        ValueError: code of the user's own was not named, or what was given is not the run's.
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
    """What a command line needs beside the name of a run for its code to be imported: "" where it has none."""
    return "".join(f" --{name} {value}" for name, value in _find_own(config).items() if not is_call(value))


def _find_own(config: Config) -> dict[str, str]:
    """The settings that name code of the user's own."""
    return {name: getattr(config, name) for name in _ARGUMENTS if is_own(getattr(config, name))}


def _refuse(missing: list[str], where: str) -> None:
    if missing:
        reason = f"code that {where} names is imported only if you name it too"
        raise ValueError(f"{' '.join(missing)}: must be given, since {reason}")

"""Finds what an environment's id stands for, or says which id may have been meant."""

import difflib

import gymnasium
from gymnasium.envs.registration import EnvSpec

from monobeast import user_code


def find_spec(env_id: str) -> EnvSpec:
    """The registered specification of `env_id`.

    Args:
        env_id: a Gymnasium id, or module:Id, where importing the module registers the id.

    Raises:
        ValueError: the module can't be imported, or there is no such id; the message holds the closest ids.
    """
    ale_fault = _register_ale()
    name = _import_module(env_id)
    try:
        return gymnasium.spec(name)
    except gymnasium.error.Error as error:
        hints = [f"--env {env_id}: no such environment", _suggestion(env_id)]
        if ale_fault is not None:
            hints.append(f"Atari games are missing, since ale-py can't be imported ({ale_fault})")
        raise ValueError("; ".join(hints)) from error


def _register_ale() -> ImportError | None:
    """Makes the Atari ids known in this process; returns why that is impossible, for a machine without ale-py."""
    try:
        import ale_py
    except ImportError as error:
        return error
    gymnasium.register_envs(ale_py)
    return None


def _import_module(env_id: str) -> str:
    """Imports the module of module:Id, and returns Id; other ids as they are."""
    return user_code.import_module("--env", env_id)[1] if user_code.is_own(env_id) else env_id


def _suggestion(env_id: str) -> str:
    """Up to three ids like `name`; a missing namespace and capital letters don't count."""
    module, _, name = env_id.rpartition(":")
    known: dict[str, str] = {}
    for registered in gymnasium.registry:
        known.setdefault(registered.lower(), registered)
    for registered in gymnasium.registry:
        known.setdefault(registered.rpartition("/")[2].lower(), registered)
    matches = difflib.get_close_matches(name.lower(), known, n=3)
    if not matches:
        return "gymnasium.pprint_registry() lists the known ones; for one of another package give module:Id"
    meant = dict.fromkeys(_as_given(known[match], module) for match in matches)
    return f"did you mean {' or '.join(meant)}?"


def _as_given(env_id: str, module: str) -> str:
    """As `--env` takes it: with the module in front where the environment is that module's own."""
    entry_point = gymnasium.spec(env_id).entry_point
    home = entry_point.partition(":")[0] if isinstance(entry_point, str) else getattr(entry_point, "__module__", "")
    return f"{module}:{env_id}" if module and module == home else env_id

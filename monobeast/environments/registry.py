"""Looks up an environment's id, with suggestions if it is unknown."""

import difflib

import gymnasium
from gymnasium.envs.registration import EnvSpec

from monobeast import user_code


def find_spec(env_id: str) -> EnvSpec:
    """The registered specification of `env_id`.

    Args:
        env_id: a Gymnasium id, or module:Id if importing the module registers the id.

    Raises:
        ValueError: the module cannot be imported, or there is no such id; the message lists the closest ids.
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
    """Registers the Atari ids in this process; returns the reason if that is impossible, as without ale-py."""
    try:
        import ale_py
    except ImportError as error:
        return error
    gymnasium.register_envs(ale_py)
    return None


def _import_module(env_id: str) -> str:
    """Imports the module of module:Id and returns Id; returns other ids unchanged."""
    return user_code.import_module("--env", env_id)[1] if user_code.is_own(env_id) else env_id


def _suggestion(env_id: str) -> str:
    """Up to three ids similar to that, ignoring case and a missing namespace."""
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

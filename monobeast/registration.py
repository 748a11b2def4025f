"""Registers this package's environments with Gymnasium."""

_ENTRY_POINTS = {
    "monobeast/Catch-v0": "monobeast.environments.catch:Catch",
    "monobeast/ColorCatch-v0": "monobeast.environments.color_catch:ColorCatch",
    "monobeast/Memory-v0": "monobeast.environments.memory:Memory",
}


def register_environments() -> None:
    """Registers this package's environments with Gymnasium, unless they are registered already."""
    from gymnasium.envs.registration import register, registry

    for env_id, entry_point in _ENTRY_POINTS.items():
        if env_id not in registry:
            register(id=env_id, entry_point=entry_point)

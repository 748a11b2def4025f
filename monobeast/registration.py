"""Makes this package's environments known to Gymnasium."""


def register_environments() -> None:
    """Registers `monobeast/Catch-v0` with Gymnasium, unless it is registered already."""
    from gymnasium.envs.registration import register, registry

    if "monobeast/Catch-v0" not in registry:
        register(id="monobeast/Catch-v0", entry_point="monobeast.environments.catch:Catch")

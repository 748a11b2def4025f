"""Numbers and settings in words."""

from monobeast.config import Config


def count(number: int, noun: str) -> str:
    """`number` with its noun, "1 actor" or "2 actors"; the plural ends in "s"."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def describe(config: Config) -> str:
    """Environment, network, device, actors and batches in one line; `config` is resolved."""
    slots = f", {count(config.num_buffers, 'slot')}" if config.num_actors else ""
    batch = f"batches of {count(config.batch_size, 'rollout')} of {count(config.unroll_length, 'step')}"
    return f"{config.env} with the {describe_network(config)}: {describe_actors(config)}{slots}, {batch}"


def describe_network(config: Config) -> str:
    """The network and where it runs."""
    return f"{config.network} network{' with LSTM' if config.use_lstm else ''} on {config.device}"


def describe_actors(config: Config) -> str:
    """How many actors there are, and how many environments each has."""
    environments = count(config.envs_per_actor, "environment")
    if config.num_actors == 0:
        return f"no actors, {environments}"
    return f"{count(config.num_actors, 'actor')} of {environments}"

"""`auto`: chooses actors, environments per actor and learner threads from measured costs on this machine."""

import dataclasses
import hashlib
import itertools
import json
import logging
import os
import pickle
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import torch

from monobeast import __version__, trial
from monobeast.config import AUTO, IMAGE_NETWORKS, Config
from monobeast.costs import parts
from monobeast.costs.limit import Costs, find_bounds
from monobeast.costs.parts import Subject
from monobeast.environments import Spaces
from monobeast.files import replaced
from monobeast.makers import Makers
from monobeast.networks import Network
from monobeast.resources import machine
from monobeast.trial import TrialFailed

_SECONDS_A_PART = 0.3
_LONGEST_S = 60.0  # for all of them, imports included
# Bounds that lie near each other are not reached, since each side then waits for the other by turns. At this power,
# settings of Pong on two cores come in the order in which whole runs put them (docs/performance.md).
_SHARPNESS = 8
_LONGEST_UNROLL = 100  # that is measured
_MOST_COLUMNS = 64  # of a slot: a wider forward pass hardly costs less a step
_ALIKE = 0.98  # of the best: of settings that come as near, those with fewer processes
# Beside the settings that are chosen and those of the loss, all that changes what a step costs.
COSTLY = (
    *("env", "env_kwargs", "frame_skip", "noop_max", "full_action_space", "max_episode_frames"),
    *("unroll_length", "batch_size", "num_buffers", "optimizer", "momentum", "compile"),
    *("network", "use_lstm", "precision", "memory_format", "normalize_observations", "normalize_rewards"),
)

logger = logging.getLogger(__name__)


class Sizes(NamedTuple):
    """What is chosen."""

    num_actors: int
    envs_per_actor: int
    num_learner_threads: int


def choose(config: Config, spaces: Spaces, network: Network, makers: Makers) -> tuple[Config, str | None]:
    """Fills open sizes with the fastest ones; returns the settings and a line with the choice and its reason.

    Measurements are cached, so each machine and set of settings is measured once. With `--num_actors 0`, whose runs are
    repeatable, nothing is measured: E = B, and the learner gets all cores.

    Args:
        config: Resolved except for the sizes, of which at least one is None.
        spaces: Of one environment.
        network: Of the run; its number of weights shows whether the user's own network has changed since a measurement.
        makers: Of environments and networks.
    """
    if config.num_actors == 0:
        return dataclasses.replace(config, **_without_actors(config)._asdict()), None
    candidates = find_candidates(config, machine.count_cores())
    if len(candidates) == 1:
        return dataclasses.replace(config, **candidates[0]._asdict()), None
    sizes, source = _look_up_or_measure(config, spaces, network, makers)
    chosen = ", ".join(f"{name} {getattr(sizes, name)}" for name in AUTO if getattr(config, name) is None)
    return dataclasses.replace(config, **sizes._asdict()), f"auto: {chosen} ({source})"


def choose_smallest(config: Config) -> Config:
    """The settings with the smallest possible sizes."""
    sizes = _without_actors(config) if config.num_actors == 0 else min(find_candidates(config, machine.count_cores()))
    return dataclasses.replace(config, **sizes._asdict())


def estimate(costs: Costs, sizes: Sizes, cores: int) -> float:
    """Expected steps per second: below every bound, and further below if bounds are close to each other."""
    bounds = find_bounds(costs, sizes.num_actors, sizes.num_learner_threads, cores)
    return sum(bound.steps_per_second**-_SHARPNESS for bound in bounds) ** (-1 / _SHARPNESS)


def find_fastest(costs: dict[Sizes, Costs], cores: int) -> Sizes:
    """Among sizes about as fast as the fastest: the fewest processes, then threads, then environments.

    Args:
        costs: Of every candidate.
        cores: Of the machine.
    """
    speeds = {sizes: estimate(cost, sizes, cores) for sizes, cost in costs.items()}
    good_enough = _ALIKE * max(speeds.values())
    return min(
        (sizes for sizes, speed in speeds.items() if speed >= good_enough),
        key=lambda sizes: (sizes.num_actors, sizes.num_learner_threads, sizes.envs_per_actor),
    )


def find_candidates(config: Config, cores: int) -> list[Sizes]:
    """Candidate sizes; values that were given are kept.

    A slot has at most 2 B environments, of images 4 B: more of it would be stale before it is learned from. If
    possible, all actors together have at least 2 B, so that consecutive batches come from different ones. Several
    threads wait for each other after every operation and need a core each; a single thread may share one.
    """
    all_E = [config.envs_per_actor] if config.envs_per_actor else _find_columns(config)
    most_actors = max(1, min(cores, config.num_buffers or cores))
    all_actors = [config.num_actors] if config.num_actors else range(1, most_actors + 1)
    most_threads = cores if config.device == "cpu" else 1
    all_threads = [config.num_learner_threads] if config.num_learner_threads else _powers_of_two(most_threads)
    candidates = [
        sizes
        for sizes in map(Sizes._make, itertools.product(all_actors, all_E, all_threads))
        if config.num_learner_threads
        or sizes.num_learner_threads == 1
        or sizes.num_learner_threads + sizes.num_actors <= cores
    ]
    are_many = [sizes for sizes in candidates if sizes.num_actors * sizes.envs_per_actor >= 2 * config.batch_size]
    return are_many or candidates


def _find_columns(config: Config) -> list[int]:
    """B, 2 B and, of images, 4 B; as many of the largest numbers of environments that divide a larger B.

    With the staler weights of 4 B Pong is learned as well as ever; CartPole is not (docs/performance.md).
    """
    B = config.batch_size
    wider = (2 * B, 4 * B) if config.network in IMAGE_NETWORKS else (2 * B,)
    return [E for E in range(1, _MOST_COLUMNS + 1) if B % E == 0 or E in wider][-1 - len(wider) :]


def _without_actors(config: Config) -> Sizes:
    return Sizes(0, config.envs_per_actor or config.batch_size, config.num_learner_threads or machine.count_cores())


def _look_up_or_measure(config: Config, spaces: Spaces, network: Network, makers: Makers) -> tuple[Sizes, str]:
    """Sizes, and their origin."""
    measured_for = _describe(config, spaces, network)
    digest = hashlib.sha256(json.dumps(measured_for, sort_keys=True).encode()).hexdigest()[:16]
    path = _cache_folder() / f"{digest}.json"
    kept = _read(path, measured_for)
    if kept in find_candidates(config, machine.count_cores()):
        return kept, f"as measured before: {path}"
    # A warning, since there is no run yet whose log would show less than that.
    logger.warning(
        "auto: measuring for some seconds, once for this machine and these settings, how many actors, environments and "
        "threads are the fastest; what is given (%s) is not measured",
        ", ".join(f"--{name}" for name in AUTO),
    )
    limit_s = min(_LONGEST_S, config.actor_timeout_s, config.stall_timeout_s)
    try:
        sizes = trial.run(config.start_method, limit_s, _measure, config, spaces, makers.pickle())
    except TrialFailed as failure:  # of an environment, most likely: the run will say more
        return _guess(config), f"a guess, since the measurement failed: {failure}"
    is_kept = _write(path, sizes, measured_for)
    return sizes, f"measured now, {'kept in' if is_kept else 'but it could not be kept in'} {path}"


def _guess(config: Config) -> Sizes:
    """Without a measurement: two actors if possible, with as few environments and threads as possible."""
    candidates = find_candidates(config, machine.count_cores())
    return min(candidates, key=lambda sizes: (abs(sizes.num_actors - 2), sizes.num_learner_threads, sizes))


def _powers_of_two(most: int) -> list[int]:
    return [2**power for power in range(most.bit_length())]


def _measure(config: Config, spaces: Spaces, pickled_makers: bytes) -> Sizes:
    """Measures an actor's cost for each number of environments, and the learner's for each number of threads.

    This runs in a separate process, so that environments and networks cannot affect the learner's.
    """
    makers, cores = pickle.loads(pickled_makers), machine.count_cores()
    subject = Subject(config, spaces, makers.make_network(config, spaces).to(config.device), makers)
    candidates = find_candidates(config, cores)
    of_actors, of_learner = {}, {}
    for E in _distinct(sizes.envs_per_actor for sizes in candidates):
        of_actors[E], batch = parts.measure_actor(_at(subject, E, threads=1), _SECONDS_A_PART)
    widest = max(of_actors)  # of whose rollouts the batch is
    for threads in _distinct(sizes.num_learner_threads for sizes in candidates):
        of_learner[threads] = parts.measure_update(_at(subject, widest, threads), _SECONDS_A_PART, batch)
    costs = {}
    for sizes in candidates:
        update, publishing = of_learner[sizes.num_learner_threads]
        shares = (update + publishing, 0.0) if config.device == "cpu" else (publishing, update)
        costs[sizes] = Costs(of_actors[sizes.envs_per_actor], *shares)
    return find_fastest(costs, cores)


def _distinct(numbers: Iterable[int]) -> list[int]:
    return sorted(set(numbers))


def _at(subject: Subject, E: int, threads: int) -> Subject:
    """The settings with these environments and threads, and just enough steps per update to measure its cost."""
    config = subject.config
    sizes: dict[str, int | None] = {"num_actors": 1, "envs_per_actor": E, "num_learner_threads": threads}
    batch_size = config.batch_size if config.batch_size <= _MOST_COLUMNS else E  # which divides a larger one
    sizes |= {"unroll_length": min(config.unroll_length, _LONGEST_UNROLL), "batch_size": batch_size}
    return subject._replace(config=dataclasses.replace(config, **sizes, num_buffers=None))


def _cache_folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")) / "monobeast"


def _describe(config: Config, spaces: Spaces, network: Network) -> dict[str, Any]:
    """Machine and settings; a measurement is valid if all of these are equal."""
    of_network = {"weights": sum(parameter.numel() for parameter in network.parameters())}
    of_machine = {
        "cpu": machine.name_cpu(),
        "cores": machine.count_cores(),
        "device": config.device if config.device == "cpu" else torch.cuda.get_device_name(config.device),
        "torch": torch.__version__,
        "monobeast": __version__,
    }
    settings = {name: getattr(config, name) for name in (*COSTLY, *AUTO)}
    return settings | {"spaces": [str(space) for space in spaces]} | of_network | of_machine


def _read(path: Path, measured_for: dict[str, Any]) -> Sizes | None:
    """The cached measurement for exactly this; None if there is none or the file is invalid."""
    try:
        kept = json.loads(path.read_text())
        return Sizes(**kept["sizes"]) if kept["measured_for"] == measured_for else None
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _write(path: Path, sizes: Sizes, measured_for: dict[str, Any]) -> bool:
    """Caches the sizes; returns whether that worked."""
    content = {"sizes": sizes._asdict(), "measured_for": measured_for}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replaced(path, is_shared=True) as partial:  # two runs may measure at a time
            partial.write_text(json.dumps(content, indent=2) + "\n")
    except OSError:
        return False
    return True

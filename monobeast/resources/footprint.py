"""Computes the resources that a run needs, from its settings: bytes, open files and processes.

If something is unknown, such as the memory of a user's environment, the minimum is counted, so that only runs that
would surely fail are refused.
"""

from fractions import Fraction
from typing import NamedTuple

import torch
from torch import Tensor

from monobeast.config import Config
from monobeast.environments import Spaces
from monobeast.environments.atari import is_atari
from monobeast.environments.registry import find_spec
from monobeast.networks import Network
from monobeast.rollouts import Rollout, allocate
from monobeast.transfer import NUM_IN_FLIGHT
from monobeast.user_code import is_call
from monobeast.weights import NUM_BUFFERS, weights_of

_PAGE = 4096  # of shared memory: each tensor is a file of its own

# Private memory, measured with torch 2.13 for CPUs and Python 3.11 on x86-64 (smaps_rollup, Private_Dirty). torch for
# CUDA takes more.
_IMPORTS = 146_000_000  # a process that has imported monobeast.actor
_FORKED_ACTOR = 16_700_000  # what a child of the fork server, which has imported it, does not share with it
_ATARI_ENVIRONMENT = 1_600_000  # an emulator that has played a little; Pong
_LEAST_ENVIRONMENT = 4_000  # Catch and CartPole
_COPIES_OF_AN_ACTOR = 2  # of the weights: those in use, and those that are coming
# The peak of an update over what its forward pass keeps for the backward pass: from 1.25 (deep) to 3 (mlp).
_BACKWARD = Fraction(5, 4)  # no float can hold every number that a flag can

# Of `estimate`: what a run of that machine had beside what can be computed (smaps_rollup, Pss).
_LEARNER_IMPORTS = 235_000_000  # its program
_COMPILER = 165_000_000  # PyTorch's
_HELPERS = 25_000_000  # resource tracker and fork server
_WHOLE_BACKWARD = 2  # as `_BACKWARD`, with what the allocator keeps between updates

# Descriptors, counted in /proc/<pid>/fd.
_OF_WEIGHTS = 3  # its tensors
_A_CHILD_IN_THE_LEARNER = 5  # an end of each queue, two to the process's life and its pidfd
_A_CHILD_IN_THE_FORK_SERVER = 1
_OF_A_FORK_SERVER = 9
_OF_AN_ACTOR = 10
_SPARE = 64  # a start under way, log files, a checkpoint, what CUDA and environments open


class Footprint(NamedTuple):
    """Sizes in bytes, to be multiplied by settings."""

    first_step: dict[str, int]  # of a column (a trajectory) of one step, by the tensors of a `Rollout`
    further_step: dict[str, int]  # of each further step
    parameters: int
    activations: int  # what a row of a batch leaves for the backward pass
    environment: int


def measure(config: Config, spaces: Spaces, network: Network) -> Footprint:
    """Measures spaces and network; `config` gives the kind of environment."""
    core_state = network.initial_state(1)
    one, two = (_tensor_bytes(_imagine_column(steps, spaces, core_state)) for steps in (1, 2))
    return Footprint(
        first_step=one,
        further_step={name: two[name] - one[name] for name in one},
        parameters=sum(weight.nbytes for weight in weights_of(network)),
        activations=_measure_activations(network, spaces),
        environment=_environment_bytes(config.env),
    )


def _environment_bytes(env: str) -> int:
    is_known = not is_call(env) and is_atari(find_spec(env))
    return _ATARI_ENVIRONMENT if is_known else _LEAST_ENVIRONMENT


def _imagine_column(unroll_length: int, spaces: Spaces, core_state: tuple[Tensor, ...]) -> Rollout:
    with torch.device("meta"):  # tensors without memory
        return allocate(unroll_length, 1, spaces.observation, spaces.action, core_state)


def _tensor_bytes(rollout: Rollout) -> dict[str, int]:
    return {name: tensor.nbytes for name, tensor in rollout.named_tensors().items()}


def _measure_activations(network: Network, spaces: Spaces) -> int:
    """Bytes per row that the forward pass keeps: the difference of two small batches, which both keep the weights."""
    one, two = (_count_kept_bytes(network, spaces, num_columns) for num_columns in (1, 2))
    return (two - one) // 2  # T = 1 has two rows a column


def _count_kept_bytes(network: Network, spaces: Spaces, num_columns: int) -> int:
    device = next(network.parameters()).device
    core_state = network.initial_state(num_columns)
    rollout = allocate(1, num_columns, spaces.observation, spaces.action, core_state)
    rollout = rollout.map(lambda tensor: tensor.zero_().to(device))
    kept: dict[int, Tensor] = {}  # by address: views of one memory count once

    def keep(tensor: Tensor) -> Tensor:
        kept[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    with torch.enable_grad(), torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        output = network(rollout.inputs, core_state)  # kept alive: an address that is freed may be given out again
    del output
    return sum(tensor.untyped_storage().nbytes() for tensor in kept.values())


def rollout_bytes(footprint: Footprint, unroll_length: int, num_columns: int) -> dict[str, int]:
    """Bytes of each tensor of a `Rollout` of `num_columns` trajectories; exact."""
    return {
        name: num_columns * (first + (unroll_length - 1) * footprint.further_step[name])
        for name, first in footprint.first_step.items()
    }


def shared_memory(config: Config, footprint: Footprint) -> dict[str, int]:
    """Bytes of shared memory by use: the store of all slots, the weights, and the copy for evaluation."""
    columns = config.num_buffers * config.envs_per_actor if config.num_actors else 0
    sizes = {name: _pages(size) for name, size in rollout_bytes(footprint, config.unroll_length, columns).items()}
    to_evaluate = {"weights to evaluate": _pages(footprint.parameters)} if _num_evaluators(config) else {}
    return {
        "observations": sum(size for name, size in sizes.items() if _is_observation(name)),
        "other fields of rollouts": sum(size for name, size in sizes.items() if not _is_observation(name)),
        f"weights, {NUM_BUFFERS} buffers": _pages(NUM_BUFFERS * footprint.parameters) + 2 * _PAGE,
        **to_evaluate,
    }


def _is_observation(tensor: str) -> bool:
    return tensor.partition("[")[0] == "observation"


def _num_evaluators(config: Config) -> int:
    return 0 if config.evaluate_every is None else 1


def _pages(size: int) -> int:
    return -(-size // _PAGE) * _PAGE


def memory(config: Config, footprint: Footprint) -> dict[str, int]:
    """Minimum bytes of memory that the run adds to what this process already has, by use."""
    needed = {
        "shared memory": sum(shared_memory(config, footprint).values()),
        "learner": _learner_memory(config, footprint),
        "actors": _actor_memory(config, footprint),
    }
    return needed | ({"evaluator": _evaluator_memory(config, footprint)} if _num_evaluators(config) else {})


def estimate(config: Config, footprint: Footprint) -> int | None:
    """Approximate peak bytes of all processes of a run (PSS); None with a GPU, whose driver also takes memory.

    Within 10 % of measured runs of Pong and CartPole (docs/performance.md). The user's own environments come on top.
    """
    if config.device != "cpu":
        return None
    further_activations = int((_WHOLE_BACKWARD - _BACKWARD) * _activations(config, footprint))
    helpers = (_HELPERS if _num_helpers(config) else 0) + (_COMPILER if config.compile else 0)
    return _LEARNER_IMPORTS + helpers + further_activations + sum(memory(config, footprint).values())


def _activations(config: Config, footprint: Footprint) -> int:
    """Bytes that an update's forward pass keeps for the backward pass."""
    return (config.unroll_length + 1) * config.batch_size * footprint.activations


def _learner_memory(config: Config, footprint: Footprint) -> int:
    """A batch and delayed weights; on the CPU also gradients, averages, a copy to publish, and activations."""
    columns = max(config.batch_size, config.envs_per_actor)
    staging = sum(rollout_bytes(footprint, config.unroll_length, columns).values())
    if config.device != "cpu":
        return NUM_IN_FLIGHT * staging
    averages = 2 if config.optimizer == "adam" or config.momentum else 1
    activations = int(_BACKWARD * _activations(config, footprint))
    return staging + activations + (2 + averages + config.force_lag) * footprint.parameters


def _actor_memory(config: Config, footprint: Footprint) -> int:
    environments = config.envs_per_actor * footprint.environment
    weights = _COPIES_OF_AN_ACTOR * footprint.parameters
    if config.num_actors == 0:
        slot = sum(rollout_bytes(footprint, config.unroll_length, config.envs_per_actor).values())
        return environments + weights + slot
    if config.start_method == "forkserver":
        return _IMPORTS + config.num_actors * (_FORKED_ACTOR + weights + environments)
    return config.num_actors * (_IMPORTS + weights + environments)


def _evaluator_memory(config: Config, footprint: Footprint) -> int:
    """One environment, with the shared weights."""
    if config.start_method != "forkserver":
        return _IMPORTS + footprint.environment
    imports = 0 if config.num_actors else _IMPORTS  # else counted with the actors
    return imports + _FORKED_ACTOR + footprint.environment


def open_files(config: Config, footprint: Footprint, used: int) -> dict[str, int]:
    """Descriptors of each kind of process, if this one has `used` before it begins.

    An actor gets those of its tensors and queues in one message, about 20. At most 252 are possible
    (multiprocessing.forkserver.MAXFDS_TO_SEND); no setting increases their number.
    """
    num_children, tensors = _num_children(config), _OF_WEIGHTS + _num_evaluators(config)
    if config.num_actors:
        tensors += len(footprint.first_step)
    own = tensors + _num_helpers(config) + _A_CHILD_IN_THE_LEARNER * num_children
    needed = {"learner": used + own + _SPARE}
    if num_children and config.start_method == "forkserver":
        own = _OF_A_FORK_SERVER + _A_CHILD_IN_THE_FORK_SERVER * num_children
        needed["fork server"] = own + tensors + _SPARE
    if config.num_actors:
        needed["an actor"] = _OF_AN_ACTOR + tensors + _SPARE
    elif num_children:
        needed["evaluator"] = _OF_AN_ACTOR + _num_evaluators(config) + _SPARE  # it has the weights alone
    return needed


def processes(config: Config) -> int:
    """Additional processes and threads; environments may have more."""
    return _num_children(config) + _num_helpers(config) + config.num_learner_threads


def _num_children(config: Config) -> int:
    return config.num_actors + _num_evaluators(config)


def _num_helpers(config: Config) -> int:
    """Number of helper processes of `multiprocessing`: the resource tracker and the fork server."""
    if _num_children(config) == 0:
        return 0
    return 2 if config.start_method == "forkserver" else 1

"""Seeds: derives a different seed for each random generator from the user's seed.

A seed has 31 bits, since ALE takes an int32:

    bits 28-30  the run's seed modulo 8
    bits 0-27   (offset + stride * index) modulo 2^28, where index packs process, generation and place

The stride is odd, so the second line gives every index a different number: within a run no two seeds are equal. The
first line separates runs whose seeds differ modulo 8, such as neighboring seeds. Offset and stride come from
`numpy.random.SeedSequence`. Otherwise two runs share a seed only by chance, with probability 2^-28. The same holds for
indices too large for their bits, whose upper bits go into the spawn key.
"""

import secrets

import numpy as np

_RUN_BITS, _PROCESS_BITS, _GENERATION_BITS, _PLACE_BITS = 3, 9, 9, 10
_INDEX_BITS = _PROCESS_BITS + _GENERATION_BITS + _PLACE_BITS

_LEARNER = 0  # process number; actor i is i + 1
_TRAINING, _EVALUATION = 0, 1  # the learner's generations; those after are of evaluations beside training
_SAMPLING, _NETWORK = 0, 2**40  # places in a process; environment e is e + 1


def draw_seed() -> int:
    """A random seed for a run without one, short enough to retype."""
    return secrets.randbits(31)


def network_seed(seed: int) -> int:
    """The seed of the initial weights."""
    return _spread(seed, _LEARNER, _TRAINING, _SAMPLING)


def learner_seed(seed: int, num_resumes: int) -> int:
    """The seed of what networks draw in the learner, for dropout, say; new at each resume."""
    return _spread(seed, _LEARNER, first_generation(num_resumes), _NETWORK)


def actor_seed(seed: int, actor: int, generation: int) -> int:
    """The seed of what networks draw in an actor's process; arguments as in `environment_seeds`."""
    return _spread(seed, actor + 1, generation, _NETWORK)


def first_generation(num_resumes: int) -> int:
    """The first generation of a start, beyond all generations of previous starts."""
    return num_resumes << _GENERATION_BITS


def environment_seeds(seed: int, actor: int, generation: int, num_envs: int) -> list[int]:
    """The seeds of one actor's environments.

    Args:
        seed: the run's, not negative.
        actor: the actor's number, from 0.
        generation: how many earlier processes had this number; 0 for the first.
        num_envs: E.

    Returns:
        E ints in 0..2^31-1.
    """
    return [_spread(seed, actor + 1, generation, env + 1) for env in range(num_envs)]


def sampling_seed(seed: int, actor: int, generation: int) -> int:
    """The seed of one actor's action sampling; arguments as in `environment_seeds`."""
    return _spread(seed, actor + 1, generation, _SAMPLING)


def evaluation_seeds(seed: int, num_envs: int, version: int = 0) -> list[int]:
    """The seeds of the environments for playing an agent; training uses none of them.

    Args:
        seed: the run's, or that of a test; not negative.
        num_envs: E.
        version: of the weights evaluated beside training, from 1; 0 in a test.
    """
    return [_spread(seed, _LEARNER, _EVALUATION + version, env + 1) for env in range(num_envs)]


def evaluation_sampling_seed(seed: int, version: int = 0) -> int:
    """The seed of action sampling when an agent is played; arguments as in `evaluation_seeds`."""
    return _spread(seed, _LEARNER, _EVALUATION + version, _SAMPLING)


def _spread(seed: int, process: int, generation: int, place: int) -> int:
    """One 31-bit seed, with the layout of the module's docstring."""
    index, spawn_key = 0, []
    for number, bits in ((process, _PROCESS_BITS), (generation, _GENERATION_BITS), (place, _PLACE_BITS)):
        index = index << bits | number % 2**bits
        spawn_key.append(number >> bits)
    offset, stride = np.random.SeedSequence(seed, spawn_key=spawn_key).generate_state(2).tolist()
    scattered = (offset + (stride | 1) * index) % 2**_INDEX_BITS
    return seed % 2**_RUN_BITS << _INDEX_BITS | scattered

"""Seeds: the user's one number becomes a different one for everything that draws at random.

A seed has 31 bits, since ALE takes an int32:

    bits 28-30  the run's seed modulo 8
    bits 0-27   (offset + stride * index) modulo 2^28, where index packs process, generation and place

The stride is odd, so the second line gives every index a number of its own: within a run no two seeds are equal. The
first line keeps runs apart whose seeds differ modulo 8, as those of neighbors do. Offset and stride come from
`numpy.random.SeedSequence` and keep all other runs apart, though by chance and not by construction: of 2^28 pairs of
seeds, one is equal. So it is, too, for a process, generation or place too large for its bits: what is above them goes
into the spawn key instead.
"""

import secrets

import numpy as np

_RUN_BITS, _PROCESS_BITS, _GENERATION_BITS, _PLACE_BITS = 3, 9, 9, 10
_INDEX_BITS = _PROCESS_BITS + _GENERATION_BITS + _PLACE_BITS

_LEARNER = 0  # process number; actor i is i + 1
_TRAINING, _EVALUATION = 0, 1  # the learner's generations; those after are of evaluations beside training
_SAMPLING = 0  # place in a process; environment e is e + 1


def draw_seed() -> int:
    """A seed for a run that was given none, short enough to be typed again."""
    return secrets.randbits(31)


def network_seed(seed: int) -> int:
    """The seed of the initial weights and of whatever else the learner draws."""
    return _spread(seed, _LEARNER, _TRAINING, _SAMPLING)


def first_generation(num_resumes: int) -> int:
    """The generation with which a start counts on: no generation of the starts before it comes again."""
    return num_resumes << _GENERATION_BITS


def environment_seeds(seed: int, actor: int, generation: int, num_envs: int) -> list[int]:
    """The seeds of one actor's environments.

    Args:
        seed: the run's, not negative.
        actor: the actor's number, from 0.
        generation: how many processes had this number before; 0 for the first.
        num_envs: E.

    Returns:
        E ints in 0..2^31-1.
    """
    return [_spread(seed, actor + 1, generation, env + 1) for env in range(num_envs)]


def sampling_seed(seed: int, actor: int, generation: int) -> int:
    """The seed from which one actor draws its actions; arguments as for `environment_seeds`."""
    return _spread(seed, actor + 1, generation, _SAMPLING)


def evaluation_seeds(seed: int, num_envs: int, version: int = 0) -> list[int]:
    """The seeds of the environments in which an agent is played; training uses none of them.

    Args:
        seed: the run's, or that of a test; not negative.
        num_envs: E.
        version: of the weights that are played beside training, from 1; 0 in a test.
    """
    return [_spread(seed, _LEARNER, _EVALUATION + version, env + 1) for env in range(num_envs)]


def evaluation_sampling_seed(seed: int, version: int = 0) -> int:
    """The seed from which an agent that is played draws its actions; arguments as for `evaluation_seeds`."""
    return _spread(seed, _LEARNER, _EVALUATION + version, _SAMPLING)


def _spread(seed: int, process: int, generation: int, place: int) -> int:
    """One 31-bit seed, laid out as the module's docstring says."""
    index, spawn_key = 0, []
    for number, bits in ((process, _PROCESS_BITS), (generation, _GENERATION_BITS), (place, _PLACE_BITS)):
        index = index << bits | number % 2**bits
        spawn_key.append(number >> bits)
    offset, stride = np.random.SeedSequence(seed, spawn_key=spawn_key).generate_state(2).tolist()
    scattered = (offset + (stride | 1) * index) % 2**_INDEX_BITS
    return seed % 2**_RUN_BITS << _INDEX_BITS | scattered

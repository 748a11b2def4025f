"""What the training loop takes its batches from: actor processes, or one actor in the learner's own."""

from typing import Protocol, Self

from torch import Tensor

from monobeast.bottleneck import Times
from monobeast.config import Config
from monobeast.environments import Spaces
from monobeast.rollouts import BatchStaging, Rollout, allocate
from monobeast.timeline import Timeline
from monobeast.transfer import NUM_IN_FLIGHT


class ActorsFailed(RuntimeError):
    """The run cannot go on: an actor could not begin, or too many were replaced.

    Args:
        message: The whole story, an actor's traceback included.
        error: What that actor's exception says, in one line; empty where it ended otherwise.
    """

    def __init__(self, message: str, error: str = "") -> None:
        super().__init__(message)
        self.summary = f"{message.splitlines()[0]} {error}".rstrip()


class RolloutSource(Protocol):
    """`ActorPool` and `InlineActor`; a context manager that leaves no process and no environment behind."""

    times: Times  # all but the clock
    num_restarts: int  # of actors that were replaced
    timeline: Timeline | None

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...

    def get_batch(self, timeout_s: float) -> Rollout | None:
        """The next batch of B columns, valid until the next call; None where none was whole within `timeout_s`.

        Raises:
            ActorsFailed: the run cannot go on.
        """

    def describe(self) -> str:
        """What every actor is doing, for a run that stands still."""


def make_staging(config: Config, spaces: Spaces, core_state: tuple[Tensor, ...]) -> BatchStaging:
    """Memory in which slots of E columns become batches of B: pinned, and as often as batches may be under way."""
    is_on_gpu = (config.device or "cpu") != "cpu"
    num_batches = max(1, config.envs_per_actor // config.batch_size) * (NUM_IN_FLIGHT if is_on_gpu else 1)
    sizes = (config.unroll_length, config.batch_size, spaces.observation, spaces.action, core_state)
    return BatchStaging([allocate(*sizes, is_pinned=is_on_gpu) for _ in range(num_batches)])

"""Collects without actor processes, for `--num_actors 0`: repeatable, and a debugger can step through it."""

import traceback
from pathlib import Path
from typing import Self

from torch import Tensor

from monobeast.actor import Actor, ActorTask, make_actor
from monobeast.actor_pool import ActorsFailed, make_staging
from monobeast.config import Config
from monobeast.environments import Spaces
from monobeast.rollouts import Rollout
from monobeast.weights import SharedWeights


class InlineActor:
    """One actor in the learner's own process, for `--num_actors 0`: the same batches, repeatable bit by bit."""

    num_restarts = 0

    def __init__(
        self,
        config: Config,
        spaces: Spaces,
        core_state: tuple[Tensor, ...],
        weights: SharedWeights,
        first_generation: int = 0,
        out_log: Path | None = None,
    ) -> None:
        """Takes what `ActorPool` takes."""
        self._task = ActorTask(config, spaces, index=0, generation=first_generation, weights=weights)
        self._staging = make_staging(config, spaces, core_state)
        self._actor: Actor | None = None

    def __enter__(self) -> Self:
        self._actor = make_actor(self._task)
        return self

    def __exit__(self, *_: object) -> None:
        if self._actor is not None:
            self._actor.close()

    def describe(self) -> str:
        """What `ActorPool.describe` says of its actors."""
        return "no actor processes: rollouts are made in the learner's own"

    def get_batch(self, timeout_s: float) -> Rollout | None:
        """The next batch of B columns, a view valid until the next call; always whole, whatever `timeout_s`.

        Raises:
            ActorsFailed: the environment or the policy did.
        """
        while (batch := self._staging.pop()) is None:
            try:
                self._actor.unroll(self._staging.next_place())
            except (Exception, SystemExit) as error:
                text = f"the actor ({self._task.config.env}) ended by an exception:\n{traceback.format_exc().rstrip()}"
                raise ActorsFailed(text) from error
            self._staging.commit()
        return batch

"""Collects without actor processes, for `--num_actors 0`: repeatable, and a debugger can step through it."""

import os
import time
import traceback
from pathlib import Path
from typing import Any, Self

from torch import Tensor

from monobeast import plain_values
from monobeast.actor import Actor, ActorTask, make_actor
from monobeast.actor_pool import ActorsFailed, make_staging
from monobeast.bottleneck import Times
from monobeast.config import Config
from monobeast.environments import Spaces
from monobeast.makers import Makers
from monobeast.rollouts import Rollout, allocate
from monobeast.timeline import Timeline
from monobeast.weights import SharedWeights


class InlineActor:
    """One actor in the learner's own process, for `--num_actors 0`: the same batches, repeatable bit by bit.

    With `--exact_resume` its state can be had at any time. It is that before the first batch from which nothing has
    been learned: a stop may come amid a step, and leave environments and staging between two states.
    """

    num_restarts = 0

    def __init__(
        self,
        config: Config,
        spaces: Spaces,
        core_state: tuple[Tensor, ...],
        weights: SharedWeights,
        first_generation: int = 0,
        out_log: Path | None = None,
        makers: Makers = Makers(),
    ) -> None:
        """Takes what `ActorPool` takes."""
        self._task = ActorTask(config, spaces, index=0, generation=first_generation, weights=weights, makers=makers)
        sizes = (config.unroll_length, config.envs_per_actor, spaces.observation, spaces.action, core_state)
        self._slot, self._staging = allocate(*sizes), make_staging(config, spaces, core_state)
        self._actor: Actor | None = None
        self._state: dict[str, Any] | None = None  # the last that was looked at or given
        self._last_end = time.perf_counter()  # of the last batch's making
        self.times = Times()  # all but the clock; one side waits while the other works
        self.timeline: Timeline | None = None
        self._state_version = -1  # of the weights at that time; newer ones: its batch has been learned from

    def __enter__(self) -> Self:
        self._actor = make_actor(self._task)
        try:
            self._restore()
        except BaseException:
            self._actor.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if self._actor is None:
            return
        try:
            self._keep_state()  # there may be none after the close
        finally:
            self._actor.close()

    def describe(self) -> str:
        """What `ActorPool.describe` says of its actors."""
        return "no actor processes: rollouts are made in the learner's own"

    def get_batch(self, timeout_s: float) -> Rollout | None:
        """The next batch of B columns, valid until the next call; always whole, whatever `timeout_s`.

        Raises:
            ActorsFailed: the environment or the policy did.
        """
        self._keep_state()
        start = time.perf_counter()
        while (batch := self._staging.pop()) is None:
            try:
                self._actor.unroll(self._slot)
            except (Exception, SystemExit) as error:
                cause = f"ended with an exception:\n{traceback.format_exc().rstrip()}"
                raise ActorsFailed(f"the actor ({self._task.config.env}) {cause}") from error
            self._staging.put(self._slot)
        self._count(start)
        return batch

    def get_state(self) -> dict[str, Any]:
        """Plain values and tensors from which `set_state` goes on exactly; with `--exact_resume` alone."""
        self._keep_state()
        return self._state

    def set_state(self, state: dict[str, Any]) -> None:
        """Will go on from what `get_state` gave; before the actor is entered."""
        self._state = state

    def _count(self, start: float) -> None:
        """Takes the time since `start` for that of the environments, and what was before for the learner's."""
        end = time.perf_counter()
        self.times = Times(
            actors_working=self.times.actors_working + end - start,
            actors_waiting=self.times.actors_waiting + start - self._last_end,
            learner_waiting=self.times.learner_waiting + end - start,
        )
        self._last_end = end
        if self.timeline is not None:
            self.timeline.add(os.getpid(), "learner", "rollouts", start, end)

    def _keep_state(self) -> None:
        """Looks at the state, unless the weights are those of the last look: then what came since is not learned."""
        version = self._task.weights.version
        if self._task.config.exact_resume and self._state_version != version:
            parts = {"actor": self._actor.get_state(), "staging": self._staging.get_state()}
            self._state, self._state_version = plain_values.pack(parts), version

    def _restore(self) -> None:
        if self._state is None:
            return
        parts = plain_values.unpack(self._state)
        self._actor.set_state(parts["actor"])
        self._staging.set_state(parts["staging"])

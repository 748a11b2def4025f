"""Collects rollouts without actor processes, for `--num_actors 0`: repeatable, and a debugger can step through it."""

import logging
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Self

import torch
from torch import Tensor

from monobeast import plain_values
from monobeast.actor import Actor, ActorTask, make_actor
from monobeast.bottleneck import Times
from monobeast.config import Config
from monobeast.environments import Spaces
from monobeast.makers import Makers
from monobeast.queues import last_words
from monobeast.rollout_source import ActorsFailed, make_staging
from monobeast.rollouts import Rollout, allocate
from monobeast.signals import Stopped, StopSignals
from monobeast.timeline import Timeline
from monobeast.weights import SharedWeights

logger = logging.getLogger(__name__)


class InlineActor:
    """One actor in the learner's process, for `--num_actors 0`; its batches repeat bit for bit.

    With `--exact_resume` its state is available at any time. It is the state before the first batch that has not been
    learned from, since a stop in the middle of a step leaves environments and staging inconsistent.
    """

    num_restarts = 0

    def __init__(
        self,
        config: Config,
        spaces: Spaces,
        core_state: tuple[Tensor, ...],
        weights: SharedWeights,
        first_generation: int = 0,
        makers: Makers = Makers(),
        stop: StopSignals | None = None,
    ) -> None:
        """Takes arguments of `ActorPool`, and signals that interrupt the environments."""
        self._stop = stop or StopSignals()
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
        with self._own_code():
            self._actor = make_actor(self._task)
            try:
                self._restore()
            except BaseException:
                self._close()
                raise
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def describe(self) -> str:
        """There is nothing to tell: a learner that can be asked is not in its environments."""
        return "no actor processes: rollouts are made in the learner's own"

    def get_batch(self, timeout_s: float) -> Rollout | None:
        """The next batch of B columns, valid until the next call; always complete, whatever `timeout_s`.

        Raises:
            ActorsFailed: the environment or the policy failed.
        """
        with self._own_code():
            self._keep_state()
            start = time.perf_counter()
            while (batch := self._staging.pop()) is None:
                self._actor.unroll(self._slot)
                self._staging.put(self._slot)
            self._count(start)
        return batch

    def get_state(self) -> dict[str, Any]:
        """The exact state as plain values and tensors, for `set_state`; only with `--exact_resume`.

        Raises:
            ActorsFailed: the environment has none to give.
        """
        with self._own_code(even_after_a_signal=True):
            self._keep_state()
        return self._state

    def set_state(self, state: dict[str, Any]) -> None:
        """Restores the state of `get_state`; call it before the actor is entered."""
        self._state = state

    @contextmanager
    def _own_code(self, even_after_a_signal: bool = False) -> Iterator[None]:
        """For the user's code in this process: a signal interrupts it, and the run fails by what it raises.

        Args:
            even_after_a_signal: Whether it begins although a signal came before; the next one interrupts it.
        """
        try:
            with self._stop.raised(even_before=not even_after_a_signal):
                yield
        except Stopped:
            raise
        except BaseException as error:  # sys.exit and KeyboardInterrupt too: signals have another way in
            failure = last_words()
            complaint = f"the actor ({self._task.config.env}) {failure.describe()}"
            raise ActorsFailed(complaint, failure.error) from error

    def _close(self) -> None:
        """Closes the environments; whether that works is of no consequence for the run."""
        if self._actor is None:
            return
        try:
            with self._own_code(even_after_a_signal=True):
                self._actor.close()
        except Stopped:
            logger.warning("the environments were still being closed when a signal came")
        except ActorsFailed as failure:
            logger.warning("the environments could not be closed: %s", failure)

    def _count(self, start: float) -> None:
        """Counts the time since `start` as the environments', and the time before as the learner's."""
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
        """Saves the state, unless the weights have not changed since: then what came since is not learned."""
        version = self._task.weights.version
        if self._task.config.exact_resume and self._state_version != version:
            parts = {"actor": self._actor.get_state(), "staging": self._staging.get_state()}
            parts["random"] = torch.get_rng_state()  # from which a network may draw
            self._state, self._state_version = plain_values.pack(parts), version

    def _restore(self) -> None:
        if self._state is None:
            return
        parts = plain_values.unpack(self._state)
        self._actor.set_state(parts["actor"])
        self._staging.set_state(parts["staging"])
        torch.set_rng_state(parts["random"])

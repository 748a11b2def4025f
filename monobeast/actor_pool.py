"""Starts, watches, replaces and stops the actor processes, and gathers their rollouts into batches."""

import itertools
import logging
import multiprocessing.connection
import os
import time
from collections import deque
from pathlib import Path
from typing import Self

from torch import Tensor

from monobeast.actor import ActorTask, run_actor
from monobeast.bottleneck import Times
from monobeast.child import Child, NotStarted
from monobeast.config import Config
from monobeast.environments import Spaces
from monobeast.main_script import NO_GUARD, NO_GUARD_EXIT_CODE
from monobeast.makers import Makers
from monobeast.queues import Failure, FilledSlot
from monobeast.restarts import RestartLimit
from monobeast.rollout_source import ActorsFailed, make_staging
from monobeast.rollouts import Rollout, allocate
from monobeast.timeline import Timeline
from monobeast.weights import SharedWeights

_MAX_UNDER_WAY = 16  # slot numbers in one free pipe: far below its capacity, so `put` never blocks
_STOP_GRACE_S = 3.0  # for an actor to finish its unroll and close its environments; then it is killed
_POLL_S = 1.0  # how often silent actors are looked at
_COULD_NOT_BEGIN = "It could not begin: its environment or its network could not be made, or the first reset failed."

logger = logging.getLogger(__name__)


class _Seat:
    """The place of one actor: the slots that belong to it, and the process that fills them now.

    Every slot is either waiting here, under way to the actor and back, or, for the moment of a copy, with the learner.
    """

    def __init__(self, index: int, slots: list[int], first_generation: int) -> None:
        self.index = index
        self.slots = slots
        self.next_generation = first_generation
        self.was_ready = False
        self.child: Child | None = None
        self.waiting: deque[int] = deque()
        self.under_way: set[int] = set()
        self.last_turn = 0  # when it was last answered, counted in answers

    def start(self, start_method: str, task: ActorTask, store: Rollout) -> None:
        """Starts the next generation with fresh pipes and all slots.

        Raises:
            NotStarted: there is no process now.
        """
        self.next_generation = task.generation + 1
        # The child's requests are the free queue, its replies the full queue.
        self.child = Child(start_method, f"actor-{self.index}", run_actor, task, store)
        self.waiting, self.under_way = deque(self.slots), set()
        self.send_slots()

    def send_slots(self) -> None:
        """Passes waiting slots on to the actor."""
        while self.waiting and len(self.under_way) < _MAX_UNDER_WAY:
            self.child.send(self.waiting[0])
            self.under_way.add(self.waiting.popleft())

    def release(self, slot: int) -> None:
        """The learner has copied `slot`: it goes round."""
        self.under_way.remove(slot)
        self.waiting.append(slot)
        self.send_slots()

    def describe(self) -> str:
        """One line: the process, and where its slots are."""
        if self.child is None:
            return f"actor {self.index}: no process"
        queue = "a message" if self.child.has_reply() else "nothing"
        return (
            f"actor {self.index}: pid {self.child.pid}, silent for {self.child.silent_s:.0f} s, "
            f"{queue} in its full queue; "
            f"slots {list(self.waiting)} wait for it, {sorted(self.under_way)} are with it or in its queues"
        )

    def end(self) -> None:
        """Kills what is left of the process and gives its descriptors back."""
        if self.child is not None:
            self.child.end()
            self.child = None


class ActorPool:
    """Actor processes as a source of batches; a context manager that leaves no process behind.

    The slots of one store are dealt out to the actors for good. A rollout is copied into its batch the moment its slot
    number arrives and the slot goes back at once, so no number of slots can stall the learner.
    """

    def __init__(
        self,
        config: Config,
        spaces: Spaces,
        core_state: tuple[Tensor, ...],
        weights: SharedWeights,
        first_generation: int = 0,
        makers: Makers = Makers(),
        out_log: Path | None = None,
    ) -> None:
        """Allocates the shared memory; no process starts before the pool is entered.

        Args:
            config: Resolved: `seed` and `num_buffers` are numbers.
            spaces: Of one environment.
            core_state: Of the actors' networks; gives the shape of the recurrent state.
            weights: Where the actors take their weights.
            first_generation: Of the actors, which gives them their seeds.
            makers: Of environments and networks.
            out_log: Where actors write their stacks when asked by `describe`.

        Raises:
            ValueError: what makes them cannot be pickled.
        """
        self._makers = makers.pickle()
        self._config, self._spaces, self._weights, self._out_log = config, spaces, weights, out_log
        columns = config.num_buffers * config.envs_per_actor
        sizes = (config.unroll_length, columns, spaces.observation, spaces.action, core_state)
        self._store = allocate(*sizes, is_shared=True)
        self._staging = make_staging(config, spaces, core_state)
        slots = range(config.num_buffers)
        self._seats = [
            _Seat(i, list(slots[i :: config.num_actors]), first_generation) for i in range(config.num_actors)
        ]
        self._turns = itertools.count(1)
        self._restart_limit = RestartLimit(config.max_actor_restarts)
        self.num_restarts = 0
        self.times = Times()  # all but the clock
        self.timeline: Timeline | None = None

    def __enter__(self) -> Self:
        try:
            for seat in self._seats:
                self._start(seat)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for seat in self._seats:
            if seat.child is not None:
                seat.child.dismiss()
        deadline = time.monotonic() + _STOP_GRACE_S
        for seat in self._seats:
            if seat.child is not None:
                seat.child.join(max(0.0, deadline - time.monotonic()))
            seat.end()

    @property
    def pids(self) -> list[int]:
        """Numbers of the actors' processes, in the order of the actors."""
        return [seat.child.pid for seat in self._seats if seat.child is not None]

    @property
    def slots(self) -> list[list[int]]:
        """Numbers of each actor's slots, wherever they are; always the same, since each is in exactly one place."""
        return [sorted([*seat.waiting, *seat.under_way]) for seat in self._seats]

    def get_batch(self, timeout_s: float) -> Rollout | None:
        """The next batch of B columns, the actors in turn; None where none was whole within `timeout_s`.

        It is valid until the next call.

        Raises:
            ActorsFailed: an actor could not make its environment, or died after too many others had.
        """
        deadline = time.monotonic() + timeout_s
        while (batch := self._staging.pop()) is None:
            remaining = deadline - time.monotonic()
            if remaining < 0:
                return None
            self._wait(min(remaining, _POLL_S))
        return batch

    def describe(self) -> str:
        """Where every slot is, and how long each actor has been silent; each actor writes its stacks to `out.log`."""
        for seat in self._seats:
            if seat.child is not None:
                seat.child.ask_for_stacks()
        return "\n".join(seat.describe() for seat in self._seats)

    def _wait(self, timeout_s: float) -> None:
        """Waits for any sign of any actor, and answers it."""
        by_sign = {sign: seat for seat in self._seats for sign in (seat.child, seat.child.sentinel)}
        start = time.perf_counter()
        ready = multiprocessing.connection.wait(list(by_sign), timeout=timeout_s)
        end = time.perf_counter()
        self.times = self.times._replace(learner_waiting=self.times.learner_waiting + end - start)
        if self.timeline is not None:
            self.timeline.add(os.getpid(), "learner", "wait for rollouts", start, end)
        # Whoever was answered longest ago comes first: in a fixed order, a learner that is the slower side would take
        # from the same actors for ever, while the rollouts of the others grow stale.
        for seat in sorted({by_sign[sign] for sign in ready}, key=lambda seat: seat.last_turn):
            if self._staging.is_whole:
                break  # the rest stays ready for the next call
            seat.last_turn = next(self._turns)
            self._answer(seat)
        self._look_for_silent_actors()

    def _look_for_silent_actors(self) -> None:
        limit_s = self._config.actor_timeout_s
        for seat in self._seats:
            if seat.child.is_silent(limit_s) and seat.under_way:
                self._replace(seat, seat.child.describe_silence(limit_s, self._out_log))

    def _answer(self, seat: _Seat) -> None:
        """Takes one reply of an actor, or finds it dead: only once its full queue is empty, so nothing is lost."""
        reply = seat.child.receive()
        if isinstance(reply, FilledSlot):
            self._take(seat, reply)
        elif isinstance(reply, Failure):
            seat.child.join(_STOP_GRACE_S)  # while it closes its environments
            was_ready = reply.was_ready or seat.was_ready
            self._replace(seat, reply.describe(), None if was_ready else _COULD_NOT_BEGIN, reply.error)
        else:
            cause = seat.child.describe_end()
            # An environment may end its process by that code as well.
            lacks_guard = seat.child.wait_for_exit_code() == NO_GUARD_EXIT_CODE and not seat.was_ready
            self._replace(seat, cause, hopeless=NO_GUARD if lacks_guard else None)

    def _take(self, seat: _Seat, filled: FilledSlot) -> None:
        columns, slot = self._config.envs_per_actor, filled.slot
        start = time.perf_counter()
        self._staging.put(self._store.columns(slot * columns, (slot + 1) * columns))
        end = time.perf_counter()
        self.times = self.times._replace(
            actors_working=self.times.actors_working + filled.ended_at - filled.began_at,
            actors_waiting=self.times.actors_waiting + filled.began_at - filled.asked_at,
            copying=self.times.copying + end - start,
        )
        if self.timeline is not None:
            who = seat.child.pid, f"actor {seat.index}"
            self.timeline.add(*who, "wait for a slot", filled.asked_at, filled.began_at)
            self.timeline.add(*who, "rollout", filled.began_at, filled.ended_at)
            self.timeline.add(os.getpid(), "learner", "copy", start, end)
        seat.was_ready = True
        seat.release(slot)

    def _replace(self, seat: _Seat, cause: str, hopeless: str | None = None, error: str = "") -> None:
        """Ends a seat's process for certain, then gives its slots to a new one, unless the run must end.

        Args:
            seat: Of an actor that has failed.
            cause: How it did.
            hopeless: Why the next one would fail as well; None where it may not.
            error: What its exception says, in one line.
        """
        seat.end()
        complaint = f"actor {seat.index} ({self._config.env}) {cause}"
        if hopeless is not None:
            raise ActorsFailed(f"{complaint}\n{hopeless}", error)
        if not self._restart_limit.take():
            raise ActorsFailed(f"{complaint}\nThe run gives up: {self._restart_limit}.", error)
        self.num_restarts += 1
        logger.warning("%s\nIt is replaced (restart %d).", complaint, self.num_restarts)
        self._start(seat)

    def _start(self, seat: _Seat) -> None:
        shared = self._weights, self._out_log, self._makers
        task = ActorTask(self._config, self._spaces, seat.index, seat.next_generation, *shared)
        try:
            seat.start(self._config.start_method, task, self._store)
        except NotStarted as failure:
            self._replace(seat, str(failure))

"""The process that plays the newest weights while training goes on, and the learner's hold on it."""

import logging
import multiprocessing.connection
import pickle
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from monobeast import child_setup, seeding
from monobeast.child import Child, NotStarted
from monobeast.config import Config
from monobeast.environments import Spaces
from monobeast.episode import Episode, play_episode
from monobeast.main_script import NO_GUARD, NO_GUARD_EXIT_CODE
from monobeast.makers import Makers
from monobeast.networks import Network
from monobeast.policy import LocalPolicy
from monobeast.queues import Failure, MessageQueue, last_words
from monobeast.restarts import RestartLimit
from monobeast.weights import take

_ALIVE = "alive"  # a message
_ALIVE_INTERVAL_S = 1.0  # between two of them: an episode may last longer than an evaluator may be silent
_STOP_GRACE_S = 3.0  # to end the step and close the environment, where there is one; then it is killed

logger = logging.getLogger(__name__)


class EvaluatorTask(NamedTuple):
    """What the evaluator needs to begin; pickled on the way to its process, the tensor as shared memory."""

    config: Config  # resolved
    spaces: Spaces
    weights: Tensor  # float32 [N], all: the learner writes them between two evaluations, the evaluator reads in one
    out_log: Path | None = None  # where the evaluator's stacks go when asked for
    makers: bytes = pickle.dumps(Makers())


class PlayedEpisode(NamedTuple):
    """What the evaluator says of an episode as it ends."""

    episode: Episode
    seconds: float  # since the evaluation began


class _Dismissed(Exception):
    """The learner has closed its end of the queue."""


def run_evaluator(task: EvaluatorTask, requests: MessageQueue, replies: MessageQueue) -> None:
    """What the evaluator's process does: plays each version it is asked for, until the learner closes the queue."""
    if task.out_log is not None:
        child_setup.write_stacks_when_asked(task.out_log)
    torch.set_num_threads(1)  # it shares the cores with actors and learner
    try:
        makers = pickle.loads(task.makers)
        network = makers.make_network(task.config, task.spaces).eval()
        while isinstance(version := requests.get(), int):
            take(task.weights, network)
            start, watch = time.perf_counter(), _make_watch(requests, replies)
            for episode in play_version(task.config, network, version, watch, makers):
                replies.put(PlayedEpisode(episode, time.perf_counter() - start))
    except _Dismissed:
        pass
    except BaseException:  # an environment may also call sys.exit
        replies.put(last_words())
        raise SystemExit(1) from None


def _make_watch(requests: MessageQueue, replies: MessageQueue) -> Callable[[], None]:
    """What is to be called at each step: gives signs of life, and leaves the game once the learner does not wait."""
    last_sign = time.monotonic()

    def watch() -> None:
        nonlocal last_sign
        if requests.has_message():  # none comes before the answer to the last one: this is the queue's end
            raise _Dismissed
        if time.monotonic() - last_sign > _ALIVE_INTERVAL_S:
            replies.put(_ALIVE)
            last_sign = time.monotonic()

    return watch


def play_version(
    config: Config,
    network: Network,
    version: int,
    watch: Callable[[], None] | None = None,
    makers: Makers = Makers(),
) -> Iterator[Episode]:
    """Plays `evaluate_episodes` games as `test` does, each given as it ends.

    The environment and all seeds are new in every evaluation and depend on run and version alone, so that what weights
    reach does not depend on the evaluations before.

    Args:
        config: Of the run, resolved.
        network: With the weights to be played.
        version: Of these weights, from 1.
        watch: Called at each step.
        makers: Of the environment.
    """
    sampling_seed = seeding.evaluation_sampling_seed(config.seed, version)
    policy = LocalPolicy(network, None, sampling_seed, greedy=config.greedy)
    seeds = seeding.evaluation_seeds(config.seed, 1, version)
    with closing(makers.make_environments(config, 1, seeds)) as environment:
        for _ in range(config.evaluate_episodes):
            yield play_episode(environment, policy, config.max_episode_steps, watch)


class Evaluator:
    """The learner's hold on the evaluator: one evaluation at a time; failures of the process are logged, not raised.

    A failure costs the evaluation that is under way; with the next one the process is started anew, within the limit of
    `--max_actor_restarts`. Beside `wait` and `close`, only a start or a failure takes a moment.

    Args:
        task: For the process. Its weights may be written while the evaluator is not busy.
    """

    def __init__(self, task: EvaluatorTask) -> None:
        self._task, self._config = task, task.config
        self._child: Child | None = None
        self._was_started = self._has_given_up = False
        self._limit = RestartLimit(self._config.max_actor_restarts)
        self._played: list[Episode] = []
        self.is_busy = False

    @property
    def pid(self) -> int | None:
        """Number of the process; None where there is none."""
        return None if self._child is None else self._child.pid

    def start(self) -> bool:
        """Starts the process where there is none; whether there is one now."""
        if self._child is not None:
            return True
        if self._was_started and not self._may_start_again():
            return False
        self._was_started = True
        try:
            self._child = Child(self._config.start_method, "evaluator", run_evaluator, self._task)
        except NotStarted as failure:
            self._fail(str(failure))
        return self._child is not None

    def begin(self, version: int) -> None:
        """Lets the evaluator, which is not busy, play the weights as they are now, where it can be started."""
        if self.start():
            self._child.send(version)  # where it has died, the next look finds out
            self._played, self.is_busy = [], True

    def look(self) -> tuple[list[Episode], float] | None:
        """The episodes of the evaluation and the seconds that it took, once, as soon as it is complete."""
        while self._child is not None and self._child.has_reply():
            reply = self._child.receive()
            if isinstance(reply, PlayedEpisode):
                self._played.append(reply.episode)
                if len(self._played) == self._config.evaluate_episodes:
                    self.is_busy = False
                    return self._played, reply.seconds
            elif reply != _ALIVE:
                self._take_failure(reply)
        self._look_for_silence()
        return None

    def wait(self, timeout_s: float) -> None:
        """Waits until there is something to look at."""
        if self._child is not None:
            multiprocessing.connection.wait([self._child], timeout=timeout_s)

    def close(self) -> None:
        """Ends the process, whatever it is at."""
        if self.is_busy:
            self._child.dismiss()
            self._child.join(_STOP_GRACE_S)
        self._end()

    def _may_start_again(self) -> bool:
        if self._limit.take():
            self._has_given_up = False
            return True
        if not self._has_given_up:
            logger.warning("no evaluation: the evaluator has failed too often (%s)", self._limit)
        self._has_given_up = True
        return False

    def _take_failure(self, failure: Failure | None) -> None:
        if failure is not None:
            self._fail(failure.describe())
        elif self._child.wait_for_exit_code() == NO_GUARD_EXIT_CODE:
            self._limit, self._has_given_up = RestartLimit(0), True  # every other would end so, too
            self._fail(f"{self._child.describe_end()}\n{NO_GUARD}")
        else:
            self._fail(self._child.describe_end())

    def _look_for_silence(self) -> None:
        limit_s = self._config.actor_timeout_s
        if self._child is not None and self._child.is_silent(limit_s) and self.is_busy:
            self._fail(self._child.describe_silence(limit_s, self._task.out_log))

    def _fail(self, cause: str) -> None:
        """Ends what is left of the process, and says why."""
        self._end()
        logger.warning("the evaluator (%s) %s\nTraining goes on without it.", self._config.env, cause)

    def _end(self) -> None:
        if self._child is not None:
            self._child.end()
            self._child = None
        self.is_busy = False

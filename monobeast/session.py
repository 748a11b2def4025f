"""A run in progress: the loop, its checkpoints and its end."""

import dataclasses
import math
import os
import shlex
import signal
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import torch

from monobeast import allocator, bottleneck, seeding
from monobeast.actor_pool import ActorPool
from monobeast.bottleneck import ShareMeter, Times
from monobeast.errors import describe, is_out_of_memory
from monobeast.evaluation_schedule import EvaluationSchedule
from monobeast.files import user_path
from monobeast.inline_actor import InlineActor
from monobeast.learner import Learner
from monobeast.preparation import PreparedRun
from monobeast.publisher import make_publisher
from monobeast.resources import machine
from monobeast.rollout_source import ActorsFailed, RolloutSource
from monobeast.rollouts import Rollout
from monobeast.runs import bad_batch, checkpoint, exact_resume, permission, run_folder
from monobeast.runs.console import logger
from monobeast.runs.logs import RunLog
from monobeast.runs.sinks import Sinks
from monobeast.signals import Stopped, StopSignals
from monobeast.stall_watch import Stalled, StallWatch
from monobeast.timeline import Timeline
from monobeast.weights import SharedWeights, weights_of

_LEAST_MEASURED_S = 5.0  # before it is said what bound a run
_POLL_S = 1.0  # how often a loop without batches looks at signals and clocks


class BadUpdates(RuntimeError):
    """Too many updates in a row contained a number that is not finite."""


class Session:
    """A run in progress: the state shared by the loop, the checkpoints and the end."""

    def __init__(
        self, prepared: PreparedRun, folder: Path, log: RunLog, stop: StopSignals, sinks: Sinks = Sinks()
    ) -> None:
        self.config, self.folder, self.log, self.stop = prepared.config, folder, log, stop
        torch.set_num_threads(self.config.num_learner_threads)
        allocator.keep_freed_memory()
        self.learner = Learner(prepared.network, self.config)
        self.meter = ShareMeter()
        self.timeline = Timeline(user_path(self.config.timeline)) if self.config.timeline else None
        self.save_failed = False
        self.failure: str | None = None  # why the run failed, in a line
        self._is_time_up = False
        self.num_resumes = self.restarts_before = 0
        if prepared.saved:
            self.learner.load_state_dict(prepared.saved["learner"])
            self.num_resumes = prepared.saved["num_resumes"] + 1
            self.restarts_before = prepared.saved["actor_restarts"]
        self.saved_step = self.learner.step  # of the last checkpoint; 0 without one
        torch.manual_seed(seeding.learner_seed(self.config.seed, self.num_resumes))
        weights = SharedWeights(weights_of(prepared.network), version=self.learner.num_updates)
        self.publisher = make_publisher(weights, self.config)
        self.actors = self._make_actors(prepared, weights)
        self.actors.timeline = self.timeline
        if prepared.saved and self.config.exact_resume:
            exact_resume.set_state(prepared.saved, self.actors, self.learner)
        self.evaluations: EvaluationSchedule | None = None
        if self.config.evaluate_every is not None:
            self.evaluations = EvaluationSchedule(
                self.config,
                prepared.spaces,
                self.learner,
                folder,
                is_resumed=prepared.saved is not None,
                makers=prepared.makers,
                sinks=sinks,
            )

    def _make_actors(self, prepared: PreparedRun, weights: SharedWeights) -> RolloutSource:
        core_state, generation = prepared.network.initial_state(1), seeding.first_generation(self.num_resumes)
        arguments = (self.config, prepared.spaces, core_state, weights, generation, prepared.makers)
        if self.config.num_actors == 0:
            return InlineActor(*arguments, stop=self.stop)
        return ActorPool(*arguments, out_log=self.folder / "out.log")

    @property
    def num_restarts(self) -> int:
        """Number of actors replaced since the run began."""
        return self.restarts_before + self.actors.num_restarts

    def train(self) -> str:
        """Runs the loop to its end; returns complete, stopped or failed."""
        with self.evaluations or nullcontext():
            state = self._train()
            if self.evaluations is not None and state == "complete" and not self._is_time_up:
                self.evaluations.finish(has_to_stop=lambda: self.stop.received is not None)
        return state

    def _train(self) -> str:
        """Runs the loop between the start and the end of the actors."""
        try:
            with StallWatch(self.config.stall_timeout_s, self.folder / "out.log") as watch, self.actors:
                state = self._loop_to_its_end(watch)
                return self._finish(state)  # before environments are closed, which may fail or hang
        except (Stopped, ActorsFailed) as reason:  # before the loop: there is nothing new to save
            return self._name_state(reason)
        except Exception as error:
            self._note(error)
            logger.error("the run failed; an earlier checkpoint stays as it is\n%s", traceback.format_exc().rstrip())
            if is_out_of_memory(error):
                logger.error("Memory is full: reduce --batch_size or --unroll_length, or use a smaller --network.")
            return "failed"

    def _loop_to_its_end(self, watch: StallWatch) -> str:
        """Runs the loop; returns how it ended, unless by a fault of the learner itself."""
        try:
            with self._stop_announced():
                self._loop(watch)
            return "complete" if self._has_all_steps or self.stop.received is None else "stopped"
        except (Stopped, ActorsFailed, BadUpdates, Stalled) as reason:  # the learner is sound: what it learned is kept
            return self._name_state(reason)

    def _name_state(self, reason: BaseException) -> str:
        """How a run ended for this reason; reports a failure."""
        if self._has_all_steps and isinstance(reason, Stopped):
            return "complete"
        if self.stop.received is not None:
            return "stopped"
        self._note(reason)
        logger.error("%s", reason)
        return "failed"

    @property
    def _has_all_steps(self) -> bool:
        return self.learner.step >= self.config.total_steps

    def _note(self, failure: BaseException) -> None:
        """Stores the reason why the run failed in one line; the log has all of it."""
        if isinstance(failure, ActorsFailed):
            self.failure = failure.summary
        elif isinstance(failure, (BadUpdates, Stalled)):
            self.failure = str(failure).splitlines()[0]
        else:
            self.failure = describe(failure, is_short=True)

    def _loop(self, watch: StallWatch) -> None:
        """actors -> batch -> update -> weights -> actors."""
        start = time.monotonic()
        last_save = start if self.num_resumes else -math.inf  # a new run soon has something to go on from
        while not self._has_all_steps and self.stop.received is None:
            batch = self.actors.get_batch(_POLL_S)
            if batch is None:
                watch.check(self.actors.describe)
            else:
                watch.feed()
                with self._span("update"):
                    statistics = self.learner.update(batch)
                with self._span("publish weights"):
                    self.publisher.publish(weights_of(self.learner.network))
                with self._span("statistics"):
                    self.log.record(batch, statistics, self.learner.step)
                self._start_clocks()
                if self.config.device == "cpu" or self.log.is_due:  # elsewhere a look would wait for the device
                    self._look_for_fault(batch)
                if self.learner.num_updates == 1:
                    run_folder.link_latest(self.folder)
            if self.evaluations is not None:
                self.evaluations.attend()
            now = time.monotonic()
            if self.log.is_due or self._has_all_steps:
                self._write_row(batch)
            if self.learner.step > self.saved_step and now - last_save >= self.config.checkpoint_interval_s:
                self._save_or_say_why_not()
                last_save = now
            if self.config.max_seconds is not None and now - start >= self.config.max_seconds:
                self._is_time_up = True
                break

    @contextmanager
    def _stop_announced(self) -> Iterator[None]:
        """Reports a signal before actors are ended and files are written, which may take seconds."""
        try:
            yield
        finally:
            if self.stop.received is not None and not self._has_all_steps:
                has_to_save = self.learner.num_updates > 0 and not self.config.disable_checkpoint
                what = "saving a checkpoint" if has_to_save else "nothing to save"
                logger.info("stopping on %s: %s", signal.Signals(self.stop.received).name, what)

    def advise(self) -> str | None:
        """The run's bottleneck and what to change, in one line; None if it was too short to tell."""
        shares, measured_s = self.meter.total()
        if measured_s < _LEAST_MEASURED_S:
            return None
        return bottleneck.advise(shares, self.config, machine.count_cores())

    def _start_clocks(self) -> None:
        """Starts the clocks at the first update, so that the actors' startup does not count."""
        self.meter.start(self._times())
        if self.timeline is not None:
            self.timeline.start(time.perf_counter())

    @contextmanager
    def _span(self, name: str) -> Iterator[None]:
        """Records the learner's work inside the context in the timeline, if any."""
        start = time.perf_counter()
        yield
        if self.timeline is not None:
            self.timeline.add(os.getpid(), "learner", name, start, time.perf_counter())

    def _times(self) -> Times:
        times = self.actors.times
        return times._replace(copying=times.copying + self.learner.copying_s, clock=time.perf_counter())

    def _write_row(self, batch: Rollout | None = None) -> None:
        with self._span("log"):
            self.log.write_row(self.learner, self.num_restarts, batch, self.meter.read(self._times()))

    def _look_for_fault(self, batch: Rollout) -> None:
        """Reports a number that is not finite; if that persists, saves the batch and ends the run."""
        num_in_a_row = self._warn_of_fault()
        if num_in_a_row >= self.config.max_bad_updates:
            path = bad_batch.save(self.folder, self.config, self.learner, batch)
            command = f"python -m monobeast replay-update {shlex.quote(str(path))}{permission.flags(self.config)}"
            limit = f"--max_bad_updates {self.config.max_bad_updates}"
            raise BadUpdates(
                f"{num_in_a_row} updates in a row had numbers that are not finite ({limit}).\n"
                f"The newest batch is kept; to find the cause: {command}"
            )

    def _warn_of_fault(self) -> int:
        """Says which number was not finite, if any; returns how many updates in a row had one since the last call."""
        fault, num_in_a_row = self.learner.faults.pop()
        if fault is not None:
            logger.warning("update %d is left out: %s", self.learner.faults.last_bad_update, fault)
        return num_in_a_row

    def _finish(self, state: str) -> str:
        """Writes a last row and a checkpoint of its step; returns how the run finally ended."""
        if self.timeline is not None:
            self.timeline.write()
        if self.learner.num_updates == 0:
            return state
        self._warn_of_fault()  # of a GPU since the last row
        try:
            if self.log.last_step < self.learner.step:
                self._write_row()
            self._save()
        except Exception as error:
            self._note(error)
            # The disk is the user's to mend; anything else may be ours.
            reason = f": {error}" if isinstance(error, OSError) else f"\n{traceback.format_exc()}"
            kept = f"that of step {self.saved_step:,} is kept" if self.saved_step else "there is none before it"
            logger.error("the last checkpoint could not be saved, %s%s", kept, reason)
            return "failed"
        return state

    def _save_or_say_why_not(self) -> None:
        """Saves a checkpoint; if the disk is full, reports it, and the next interval tries again."""
        try:
            self._save()
            self.save_failed = False
        except OSError as error:
            if not self.save_failed:
                consequence = "the previous one is kept, the next interval tries again"
                logger.error("no checkpoint could be saved, %s: %s", consequence, error)
            self.save_failed = True

    def _save(self) -> None:
        if self.config.disable_checkpoint:
            return
        self.log.flush()  # so that no episode is counted in a checkpoint and missing in its file
        if not all(parameter.isfinite().all() for parameter in self.learner.network.parameters()):
            raise FloatingPointError("the weights are not finite any more; no checkpoint is made of them")
        content = {
            "config": dataclasses.asdict(self.config),
            "learner": self.learner.state_dict(),
            "log": self.log.state_dict(self.learner.step),
            "actor_restarts": self.num_restarts,
            "num_resumes": self.num_resumes,
        }
        if self.config.exact_resume:
            content[exact_resume.KEY] = exact_resume.get_state(self.actors, self.learner)
        checkpoint.save(self.folder, content)
        self.saved_step = self.learner.step

"""Wires the parts of a run together; the training loop fits on a screen."""

import dataclasses
import os
import time
import traceback
from pathlib import Path
from typing import Any, NamedTuple

import torch

from monobeast import bad_batch, checkpoint, continuation, environments, resources, resumption, run_folder, seeding
from monobeast.actor_pool import ActorPool, ActorsFailed
from monobeast.config import Config
from monobeast.environments import Spaces
from monobeast.inline_actor import InlineActor
from monobeast.learner import Learner
from monobeast.logs import RunLog, console, logger
from monobeast.metadata import Metadata
from monobeast.networks import AgentNetwork, choose_network, make_network
from monobeast.presets import PRESETS
from monobeast.processes import Stopped, StopSignals, check_main_script
from monobeast.rollouts import Rollout
from monobeast.stall_watch import Stalled, StallWatch
from monobeast.weights import SharedWeights

_POLL_S = 1.0  # how often a loop without batches looks at signals and clocks


class BadUpdates(RuntimeError):
    """Too many updates in a row had a number in them that is not finite."""


class Result(NamedTuple):
    """How a run ended."""

    folder: Path
    state: str  # complete: total_steps or max_seconds reached; stopped: by a signal; failed
    step: int
    mean_episode_return: float | None  # of the last 100 episodes
    signal: int | None  # the signal that stopped it


class Run(NamedTuple):
    """A run that can begin: all has been checked but its name and folder."""

    config: Config  # resolved: nothing is left to be chosen
    spaces: Spaces
    network: AgentNetwork  # initialized, on the learner's device
    saved: dict[str, Any] | None = None  # the checkpoint to go on with
    changes: resumption.Changes | None = None  # of settings, since that checkpoint


def train(config: Config) -> Result:
    """Trains an agent as `monobeast train` does.

    A script that calls this needs the guard `if __name__ == "__main__":`, since actor processes import the script.
    SIGINT and SIGTERM end the run, not the script: look at the result's `state`.

    Raises:
        ValueError: a setting that cannot be; the message names flag, value and what would do.
        RuntimeError: the script came by standard input.
    """
    return run(prepare(config))


def prepare(config: Config, given: set[str] | None = None) -> Run:
    """Checks what `Config` alone cannot, before any process starts or file is made; resolves what was left open.

    Args:
        config: With `resume`, what is not given in it is as the run had it.
        given: Names of the settings that count as given then; None for those that are not at their default.

    Raises:
        ValueError: the environment or network cannot be made, or there is no such device; no run to resume, or one
            that cannot go on with these settings.
    """
    saved = changes = None
    if config.resume:
        folder = run_folder.find(config.savedir, config.xpid)
        saved = checkpoint.load(folder)
        config, changes = resumption.merge(checkpoint.read_config(saved, folder), config, given)
    if config.num_actors > 0:
        check_main_script()
    config = environments.resolve(config)
    spaces = environments.check(config)
    if config.exact_resume:
        continuation.check(config, saved)
    config = dataclasses.replace(
        config,
        xpid=config.xpid or run_folder.new_xpid(),
        seed=seeding.draw_seed() if config.seed is None else config.seed,
        num_buffers=config.num_buffers or 2 * max(1, config.num_actors),
        num_learner_threads=config.num_learner_threads or _count_free_cores(config),
        network=choose_network(spaces.observation, config.network),
        device=str(_find_device(config)),
    )
    with torch.random.fork_rng(devices=[]):  # a caller's random numbers stay its own
        torch.manual_seed(seeding.network_seed(config.seed))
        network = make_network(spaces.observation, spaces.num_actions, config.network, config.use_lstm)
    if saved:
        _check_weights(network, saved, config)
    resources.check(config, spaces, network)
    return Run(config, spaces, network.to(config.device), saved, changes)


def _check_weights(network: AgentNetwork, saved: dict[str, Any], config: Config) -> None:
    """Raises ValueError unless the saved weights are of a network for these spaces."""
    saved_shapes, own_shapes = (
        {name: tensor.shape for name, tensor in state.items()}
        for state in (saved["learner"]["network"], network.state_dict())
    )
    if saved_shapes != own_shapes:
        raise ValueError(f"--resume: the weights of {config.xpid} do not fit the spaces of {config.env} as it is now")


def run(prepared: Run) -> Result:
    """Trains until the steps or the time are up, or a signal or a failure ends it; leaves no process behind.

    Raises:
        ValueError: the run's name is in use, or its folder cannot be made.
    """
    config = prepared.config
    if prepared.saved and prepared.saved["learner"]["step"] >= config.total_steps:
        return _already_complete(prepared)
    threads_before = torch.get_num_threads()
    with StopSignals() as stop:  # first: from here on there are files and processes to clear up
        make_folder = run_folder.find if config.resume else run_folder.create
        folder = make_folder(config.savedir, config.xpid)
        with run_folder.held(folder), console(folder / "out.log"), _open_log(prepared, folder) as log:
            metadata = _open_metadata(prepared, folder)
            logger.info("%s", _describe(config, folder))
            logger.info("%s", _describe_preset(config))
            session = _Session(prepared, folder, log, stop)
            state = session.train()
            step, mean_return = session.learner.step, log.mean_return
            if state == "stopped" and step == 0:
                logger.info("stopped before the first update; nothing is kept")
                run_folder.remove(folder)
            else:
                metadata.finish(state, step=step, mean_return_of_last_100_episodes=mean_return)
                logger.info("%s at step %s; the run is in %s", state, f"{step:,}", folder)
    torch.set_num_threads(threads_before)
    return Result(folder, state, step, mean_return, stop.received)


def _already_complete(prepared: Run) -> Result:
    folder = run_folder.find(prepared.config.savedir, prepared.config.xpid)
    step, returns = prepared.saved["learner"]["step"], prepared.saved["log"]["recent_returns"]
    with console(folder / "out.log"):
        hint = "a larger --total_steps goes on"
        logger.info("complete at step %s already; %s; the run is in %s", f"{step:,}", hint, folder)
    return Result(folder, "complete", step, sum(returns) / len(returns) if returns else None, None)


def _open_log(prepared: Run, folder: Path) -> RunLog:
    config = prepared.config
    state = prepared.saved["log"] if prepared.saved else None
    return RunLog(folder, prepared.network, config.total_steps, config.log_interval_s, state)


def _open_metadata(prepared: Run, folder: Path) -> Metadata:
    if prepared.saved is None:
        return Metadata(folder, prepared.config)
    for name, (before, now) in prepared.changes.items():
        logger.info("--%s: %s, was %s", name, now, before)
    step = prepared.saved["learner"]["step"]
    logger.info("resumed at step %s", f"{step:,}")
    return Metadata(folder, prepared.config, step, prepared.changes)


def _describe(config: Config, folder: Path) -> str:
    who = f"{config.num_actors} actors of {config.envs_per_actor} environments" if config.num_actors else "no actors"
    network = f"{config.network} network{' with LSTM' if config.use_lstm else ''}"
    return f"training on {config.env} in {folder}: {network} on {config.device}, {who}, seed {config.seed}"


def _describe_preset(config: Config) -> str:
    preset = PRESETS[config.preset]
    given = [name for name, value in preset.items() if getattr(config, name) != value]
    settings = ", ".join(f"{name} {getattr(config, name)}" for name in preset)
    return f"preset {config.preset}: {settings}" + (f"; given in its place: {', '.join(given)}" if given else "")


class _Session:
    """A run under way: what the loop, the checkpoints and the end have in common."""

    def __init__(self, prepared: Run, folder: Path, log: RunLog, stop: StopSignals) -> None:
        self.config, self.folder, self.log, self.stop = prepared.config, folder, log, stop
        torch.set_num_threads(self.config.num_learner_threads)
        self.learner = Learner(prepared.network, self.config)
        self.save_failed = False
        self.num_resumes = self.restarts_before = 0
        if prepared.saved:
            self.learner.load_state_dict(prepared.saved["learner"])
            self.num_resumes = prepared.saved["num_resumes"] + 1
            self.restarts_before = prepared.saved["actor_restarts"]
        self.weights = SharedWeights(prepared.network.parameters(), version=self.learner.num_updates)
        source = InlineActor if self.config.num_actors == 0 else ActorPool
        core_state, generation = prepared.network.initial_state(1), seeding.first_generation(self.num_resumes)
        out_log = folder / "out.log"
        self.actors = source(self.config, prepared.spaces, core_state, self.weights, generation, out_log)
        if prepared.saved and self.config.exact_resume:
            continuation.set_state(prepared.saved, self.actors, self.learner)

    @property
    def num_restarts(self) -> int:
        """Of actors, since the run began."""
        return self.restarts_before + self.actors.num_restarts

    def train(self) -> str:
        """Runs the loop to its end; says whether that is complete, stopped or failed."""
        try:
            with self.actors, StallWatch(self.config.stall_timeout_s, self.folder / "out.log") as watch:
                self._loop(watch)
            has_all_steps = self.learner.step >= self.config.total_steps
            state = "complete" if has_all_steps or self.stop.received is None else "stopped"
        except Stopped:
            state = "stopped"
        except (ActorsFailed, BadUpdates, Stalled) as failure:  # the learner is sound: what it learned is kept
            if self.stop.received is None:
                logger.error("%s", failure)
            state = "failed" if self.stop.received is None else "stopped"
        except torch.cuda.OutOfMemoryError as error:
            logger.error("%s\nThe GPU's memory is full: turn down --batch_size, --unroll_length or the network.", error)
            return "failed"
        except Exception:
            logger.error("the run failed; an earlier checkpoint stays as it is\n%s", traceback.format_exc())
            return "failed"
        return self._finish(state)

    def _loop(self, watch: StallWatch) -> None:
        """actors -> batch -> update -> weights -> actors."""
        start = last_save = time.monotonic()
        while self.learner.step < self.config.total_steps and self.stop.received is None:
            batch = self._get_batch()
            if batch is None:
                watch.check(self.actors.describe)
            else:
                watch.feed()
                statistics = self.learner.update(batch)
                self.weights.publish(self.learner.network.parameters())
                self.log.record(batch, statistics, self.learner.step)
                if self.config.device == "cpu" or self.log.is_due:  # elsewhere a look would wait for the device
                    self._look_for_fault(batch)
                if self.learner.num_updates == 1:
                    run_folder.link_latest(self.folder)
            now = time.monotonic()
            if self.log.is_due or self.learner.step >= self.config.total_steps:
                self.log.write_row(self.learner, self.num_restarts, batch)
            if self.learner.num_updates and now - last_save >= self.config.checkpoint_interval_s:
                self._save_or_say_why_not()
                last_save = now
            if self.config.max_seconds is not None and now - start >= self.config.max_seconds:
                break

    def _look_for_fault(self, batch: Rollout) -> None:
        """Says which number was not finite; ends the run, keeping the batch, where that does not stop."""
        fault, num_in_a_row = self.learner.pop_fault()
        if fault is not None:
            logger.warning("update %d is left out: %s", self.learner.num_updates, fault)
        if num_in_a_row >= self.config.max_bad_updates:
            path = bad_batch.save(self.folder, self.config, self.learner.network, batch)
            raise BadUpdates(
                f"{num_in_a_row} updates in a row are not finite (--max_bad_updates {self.config.max_bad_updates}).\n"
                f"The last one is kept: python -m monobeast replay-update {path}"
            )

    def _get_batch(self) -> Rollout | None:
        if isinstance(self.actors, ActorPool):
            return self.actors.get_batch(_POLL_S)
        with self.stop.raised():  # an environment that hangs in this process must not outlast a Ctrl-C
            return self.actors.get_batch(_POLL_S)

    def _finish(self, state: str) -> str:
        """Writes a last row and a checkpoint of its step; says how the run ended after all."""
        if self.learner.num_updates == 0:
            return state
        try:
            if self.log.last_step < self.learner.step:
                self.log.write_row(self.learner, self.num_restarts)
            self._save()
        except Exception:
            logger.error("the last checkpoint could not be saved\n%s", traceback.format_exc())
            return "failed"
        return state

    def _save_or_say_why_not(self) -> None:
        """A disk that is full is no reason to stop: the next interval tries again."""
        try:
            self._save()
            self.save_failed = False
        except OSError as error:
            if not self.save_failed:
                logger.error("no checkpoint could be saved, the one before stays as it is: %s", error)
            self.save_failed = True

    def _save(self) -> None:
        if self.config.disable_checkpoint:
            return
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
            content[continuation.KEY] = continuation.get_state(self.actors, self.learner)
        checkpoint.save(self.folder, content)


def _count_free_cores(config: Config) -> int:
    """Cores that the actors leave to the learner, at least one.

    On two cores with two actors, a second thread made Pong a fifth slower.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, cores - config.num_actors)


def _find_device(config: Config) -> torch.device:
    if config.disable_cuda or config.device == "cpu":
        return torch.device("cpu")
    if config.device is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    device = torch.device(config.device)
    if (device.index or 0) >= torch.cuda.device_count():
        raise ValueError(f"--device {config.device}: this machine has {torch.cuda.device_count()} CUDA devices")
    return device

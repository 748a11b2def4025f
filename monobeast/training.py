"""Wires the parts of a run together; the training loop fits on a screen."""

import dataclasses
import os
import time
import traceback
from pathlib import Path
from typing import NamedTuple

import torch

from monobeast import checkpoint, environments, run_folder, seeding
from monobeast.actor_pool import ActorPool, ActorsFailed, InlineActor
from monobeast.config import Config
from monobeast.environments import Spaces
from monobeast.learner import Learner
from monobeast.logs import RunLog, console, logger
from monobeast.metadata import Metadata
from monobeast.networks import AgentNetwork, make_network
from monobeast.processes import StopSignals
from monobeast.weights import SharedWeights

_POLL_S = 1.0  # how often a loop without batches looks at signals and clocks


class Result(NamedTuple):
    """How a run ended."""

    folder: Path
    state: str  # complete: total_steps or max_seconds reached; stopped: by a signal; failed
    step: int
    mean_episode_return: float | None  # of the last 100 episodes
    signal: int | None  # the signal that stopped it


class Run(NamedTuple):
    """Everything that can be refused has been checked."""

    config: Config  # resolved: nothing is left to be chosen
    spaces: Spaces
    network: AgentNetwork  # initialized, on the learner's device


def train(config: Config) -> Result:
    """Trains an agent as `monobeast train` does.

    A script that calls this needs the guard `if __name__ == "__main__":`, since actor processes import the script.

    Raises:
        ValueError: a setting that cannot be; the message names flag, value and what would do.
    """
    return run(prepare(config))


def prepare(config: Config) -> Run:
    """Checks what `Config` alone cannot, before any process starts or file is made; resolves what was left open.

    Raises:
        ValueError: the environment or network cannot be made, or there is no such device.
    """
    config = environments.resolve(config)
    spaces = environments.check(config)
    config = dataclasses.replace(
        config,
        xpid=config.xpid or run_folder.new_xpid(),
        seed=seeding.draw_seed() if config.seed is None else config.seed,
        num_buffers=config.num_buffers or 3 * max(1, config.num_actors),
        num_learner_threads=config.num_learner_threads or _count_free_cores(config),
        device=str(_find_device(config)),
    )
    with torch.random.fork_rng(devices=[]):  # a caller's random numbers stay its own
        torch.manual_seed(seeding.network_seed(config.seed))
        network = make_network(spaces.observation, spaces.num_actions, config.network, config.use_lstm)
    return Run(config, spaces, network.to(config.device))


def run(prepared: Run) -> Result:
    """Trains until the steps or the time are up, or a signal or a failure ends it; leaves no process behind."""
    with StopSignals() as stop:  # first: from here on there are files and processes to clear up
        return _run(prepared, stop)


def _run(prepared: Run, stop: StopSignals) -> Result:
    config = prepared.config
    folder = run_folder.create(config.savedir, config.xpid)
    learner = Learner(prepared.network, config)
    with console(folder / "out.log"), RunLog(folder, config.total_steps, config.log_interval_s) as log:
        metadata = Metadata(folder, config)
        state = _train_guarded(prepared, learner, log, folder, stop)
        if state == "stopped" and learner.num_updates == 0:
            logger.info("stopped before the first update; nothing is kept")
            run_folder.remove(folder)
        else:
            metadata.finish(state, step=learner.step, mean_episode_return=log.mean_return)
            logger.info("%s at step %s; the run is in %s", state, f"{learner.step:,}", folder)
        return Result(folder, state, learner.step, log.mean_return, stop.received)


def _train_guarded(prepared: Run, learner: Learner, log: RunLog, folder: Path, stop: StopSignals) -> str:
    """Runs the loop; says whether the run is complete, stopped or failed, and saves what may be saved."""
    config = prepared.config
    try:
        _loop(prepared, learner, log, folder, stop)
    except ActorsFailed as failure:  # the learner is sound: what it learned is kept
        logger.error("%s", failure)
        if learner.num_updates:
            _save(config, learner, log, folder)
        return "failed"
    except Exception:
        logger.error("the run failed; its last checkpoint is kept\n%s", traceback.format_exc())
        return "failed"
    return "stopped" if stop.received is not None else "complete"


def _loop(prepared: Run, learner: Learner, log: RunLog, folder: Path, stop: StopSignals) -> None:
    """actors -> batch -> update -> weights -> actors, until the end; then a last row and a checkpoint of its step."""
    config = prepared.config
    torch.set_num_threads(config.num_learner_threads)
    weights = SharedWeights(learner.network.parameters(), version=learner.num_updates)
    source = InlineActor if config.num_actors == 0 else ActorPool
    start = last_save = time.monotonic()
    with source(config, prepared.spaces, learner.network, weights) as actors:
        run_folder.link_latest(folder)
        while learner.step < config.total_steps and stop.received is None:
            if config.max_seconds is not None and time.monotonic() - start >= config.max_seconds:
                break
            batch = actors.get_batch(_POLL_S)
            while actors.messages:
                logger.warning(actors.messages.popleft())
            if batch is not None:
                statistics = learner.update(batch)
                weights.publish(learner.network.parameters())
                log.record(batch, statistics, learner.step)
            if log.is_due:
                log.write_row(learner, actors.num_restarts)
            if time.monotonic() - last_save >= config.checkpoint_interval_s and learner.num_updates:
                _save(config, learner, log, folder)
                last_save = time.monotonic()
    if learner.num_updates:
        if log.last_step < learner.step:
            log.write_row(learner, actors.num_restarts)
        _save(config, learner, log, folder)


def _save(config: Config, learner: Learner, log: RunLog, folder: Path) -> None:
    if config.disable_checkpoint:
        return
    content = {
        "config": dataclasses.asdict(config),
        "learner": learner.state_dict(),
        "environment_steps": log.environment_steps,
        "episodes": log.num_episodes,
    }
    checkpoint.save(folder, content)


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

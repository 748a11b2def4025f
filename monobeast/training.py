"""Trains an agent from beginning to end: prepares, opens the run's files, lets a session run, records how it ended."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import torch

from monobeast.config import Config
from monobeast.environments import EnvironmentMaker
from monobeast.errors import describe
from monobeast.makers import Makers
from monobeast.networks import NetworkMaker
from monobeast.preparation import Run, prepare
from monobeast.presets import PRESETS
from monobeast.processes import StopSignals
from monobeast.runs import run_folder
from monobeast.runs.console import console, logger
from monobeast.runs.logs import RunLog
from monobeast.runs.metadata import Metadata
from monobeast.runs.sinks import Sinks, choose_sinks
from monobeast.session import Session


class Result(NamedTuple):
    """How a run ended."""

    folder: Path
    state: str  # complete: total_steps or max_seconds reached; stopped: by a signal; failed
    step: int
    mean_episode_return: float | None  # of the last 100 episodes
    signal: int | None  # the signal that stopped it


def train(
    config: Config, network: NetworkMaker | None = None, make_environments: EnvironmentMaker | None = None
) -> Result:
    """Trains an agent as `monobeast train` does.

    A script that calls this needs the guard `if __name__ == "__main__":`, since actor processes import the script.
    SIGINT and SIGTERM end the run, not the script: look at the result's `state`.

    Args:
        config: The settings.
        network: In the place of `config.network`: a class of networks, or whatever else is called with the observation
            space and A and gives a module of torch; docs/extending.md says what that must do.
        make_environments: In the place of `config.env`: called with the settings, E and E seeds, it gives a
            `monobeast.environments.VectorEnvironment` of E environments, or what has its attributes. Both of these are
            pickled on the way to actor processes.

    Raises:
        ValueError: a setting that cannot be; the message names flag, value and what would do.
        RuntimeError: the script came by standard input.
    """
    return run(prepare(config, makers=Makers(network, make_environments)))


def run(prepared: Run) -> Result:
    """Trains until the steps or the time are up, or a signal or a failure ends it; leaves no process behind.

    Raises:
        ValueError: the run's name is in use, or its folder cannot be made.
    """
    config = prepared.config
    if prepared.saved and prepared.saved["learner"]["step"] >= config.total_steps:
        return _already_complete(config, prepared.saved)
    with (
        _threads_restored(),
        StopSignals() as stop,  # from here on there are files and processes to clear up
    ):
        make_folder = run_folder.find if config.resume else run_folder.create
        folder = make_folder(config.savedir, config.xpid)
        with (
            run_folder.held(folder),
            console(folder / "out.log"),
            _choose_sinks(prepared, folder) as sinks,
            _open_log(prepared, folder, sinks) as log,
        ):
            metadata = _open_metadata(prepared, folder)
            logger.info("%s", _describe(config, folder))
            logger.info("%s", _describe_preset(config))
            if prepared.auto:
                logger.info("%s", prepared.auto)
            with _failure_recorded(metadata):
                session = Session(prepared, folder, log, stop, sinks)
                state = session.train()
            step, mean_return = session.learner.step, log.mean_return
            if state == "stopped" and step == 0:
                logger.info("stopped before the first update; nothing is kept")
                run_folder.remove(folder)
            else:
                if advice := session.advise():
                    logger.info("%s", advice)
                reason = {"reason": session.failure} if state == "failed" else {}
                try:
                    metadata.finish(state, step=step, mean_return_of_last_100_episodes=mean_return, **reason)
                except OSError as error:  # a full disk, say
                    logger.error("meta.json could not be written: %s", error)
                logger.info("%s at step %s; the run is in %s", state, f"{step:,}", folder)
    return Result(folder, state, step, mean_return, stop.received)


@contextmanager
def _threads_restored() -> Iterator[None]:
    """Gives the caller back torch's threads, of which a run has as many as its learner."""
    before = torch.get_num_threads()
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def _failure_recorded(metadata: Metadata) -> Iterator[None]:
    """Keeps in meta.json what ends the run without a way to end it well: memory that is not there, say."""
    try:
        yield
    except BaseException as error:
        with suppress(OSError):
            metadata.finish("failed", reason=describe(error))
        raise


def _already_complete(config: Config, saved: dict[str, Any]) -> Result:
    folder = run_folder.find(config.savedir, config.xpid)
    step, returns = saved["learner"]["step"], saved["log"]["recent_returns"]
    with console(folder / "out.log"):
        hint = "give a larger --total_steps to continue"
        logger.info("already complete at step %s; %s; the run is in %s", f"{step:,}", hint, folder)
    return Result(folder, "complete", step, sum(returns) / len(returns) if returns else None, None)


def _choose_sinks(prepared: Run, folder: Path) -> Sinks:
    return choose_sinks(prepared.config, folder, prepared.saved["learner"]["step"] if prepared.saved else None)


def _open_log(prepared: Run, folder: Path, sinks: Sinks) -> RunLog:
    config = prepared.config
    state = prepared.saved["log"] if prepared.saved else None
    return RunLog(folder, prepared.network, config.total_steps, config.log_interval_s, state, sinks)


def _open_metadata(prepared: Run, folder: Path) -> Metadata:
    if prepared.saved is None:
        return Metadata(folder, prepared.config, auto=prepared.auto)
    for name, (before, now) in (prepared.changes or {}).items():
        logger.info("--%s: %s, was %s", name, now, before)
    step = prepared.saved["learner"]["step"]
    logger.info("resumed at step %s", f"{step:,}")
    return Metadata(folder, prepared.config, step, prepared.changes, prepared.auto)


def _describe(config: Config, folder: Path) -> str:
    who = f"{config.num_actors} actors of {config.envs_per_actor} environments" if config.num_actors else "no actors"
    network = f"{config.network} network{' with LSTM' if config.use_lstm else ''}"
    return f"training on {config.env} in {folder}: {network} on {config.device}, {who}, seed {config.seed}"


def _describe_preset(config: Config) -> str:
    preset = PRESETS[config.preset]
    given = [name for name, value in preset.items() if getattr(config, name) != value]
    settings = ", ".join(f"{name} {getattr(config, name)}" for name in preset)
    return f"preset {config.preset}: {settings}" + (f"; given in its place: {', '.join(given)}" if given else "")

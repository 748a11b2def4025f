"""Trains an agent: prepares the run, opens its files, runs a session and records how it ended."""

import dataclasses
import shlex
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
from monobeast.phrases import describe_actors, describe_network
from monobeast.preparation import PreparedRun, prepare
from monobeast.presets import PRESETS
from monobeast.runs import checkpoint, permission, run_folder
from monobeast.runs.console import console, logger
from monobeast.runs.logs import RunLog
from monobeast.runs.metadata import Metadata
from monobeast.runs.sinks import Sinks, choose_sinks
from monobeast.session import Session
from monobeast.signals import StopSignals


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
    SIGINT, SIGTERM and SIGHUP end the run, not the script: look at the result's `state`.

    Args:
        config: The settings.
        network: Replaces `config.network`: a class, or any callable of the observation space and A that returns a torch
            module; docs/extending.md describes its methods.
        make_environments: Replaces `config.env`: a callable of the settings, E and E seeds that returns a
            `monobeast.environments.VectorEnvironment` of E environments, or an object with its attributes. Both
            callables are pickled on the way to actor processes.

    Raises:
        ValueError: an invalid setting; the message names flag, value and what would work.
        OSError: the run's files cannot be written.
        RuntimeError: the script was read from standard input.
    """
    return run(prepare(config, makers=Makers(network, make_environments)))


def run(prepared: PreparedRun) -> Result:
    """Trains until the steps or the time are used up, or a signal or a failure ends it; leaves no process behind.

    Raises:
        ValueError: the run's name is in use, its folder cannot be made, or another process has taken it further.
        OSError: its files cannot be written.
    """
    config = prepared.config
    if prepared.is_complete:
        return _already_complete(config, prepared.saved)
    with (
        _threads_restored(),
        torch.random.fork_rng([] if config.device == "cpu" else [config.device]),
        StopSignals() as stop,  # from here on there are files and processes to clear up
    ):
        make_folder = run_folder.find if config.resume else run_folder.create
        folder = make_folder(config.savedir, config.xpid)
        with run_folder.held(folder), console(folder / "out.log"):
            _require_newest(prepared, folder)
            metadata = _open_metadata(prepared, folder)
            logger.info("%s", _describe(config, folder))
            logger.info("%s", _describe_preset(config))
            if prepared.auto:
                logger.info("%s", prepared.auto)
            with (
                _failure_recorded(metadata),
                _choose_sinks(prepared, folder) as sinks,
                _open_log(prepared, folder, sinks) as log,
            ):
                session = Session(prepared, folder, log, stop, sinks)
                state = session.train()
            result = Result(folder, state, session.learner.step, log.mean_return, stop.received)
            if state == "stopped" and result.step == 0 and prepared.saved is None:
                logger.info("stopped before the first update; nothing is kept")
                run_folder.remove(folder)
            else:
                _record_end(result, session, metadata)
    return result


def _require_newest(prepared: PreparedRun, folder: Path) -> None:
    """Raises ValueError where another process trained in the folder after the checkpoint to go on with was read."""
    if prepared.saved is not None:
        before, now = (saved["learner"]["step"] for saved in (prepared.saved, checkpoint.load(folder)))
        if before != now:
            what = f"another process has taken the run from step {before} to {now} meanwhile"
            raise ValueError(f"--xpid {folder.name}: {what}; try again")


def _record_end(result: Result, session: Session, metadata: Metadata) -> None:
    """Says how the run ended, here and in meta.json."""
    if advice := session.advise():
        logger.info("%s", advice)
    reason = {"reason": session.failure} if result.state == "failed" else {}
    numbers = {"step": result.step, "mean_return_of_last_100_episodes": result.mean_episode_return}
    try:
        metadata.finish(result.state, **numbers, **reason)
    except OSError as error:  # a full disk, say
        logger.error("meta.json could not be written: %s", error)
    logger.info("%s at step %s; the run is in %s", result.state, f"{result.step:,}", result.folder)
    if result.state == "stopped" and not session.config.disable_checkpoint:
        logger.info("to go on: %s", _resume_command(session.config))


def _resume_command(config: Config) -> str:
    default = next(setting.default for setting in dataclasses.fields(Config) if setting.name == "savedir")
    savedir = "" if config.savedir == default else f" --savedir {shlex.quote(config.savedir)}"
    return f"python -m monobeast train --resume --xpid {config.xpid}{savedir}{permission.flags(config)}"


@contextmanager
def _threads_restored() -> Iterator[None]:
    """Restores the caller's number of torch threads, which a run sets to the learner's."""
    before = torch.get_num_threads()
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def _failure_recorded(metadata: Metadata) -> Iterator[None]:
    """Records in meta.json an exception that ends the run abruptly, such as a lack of memory."""
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


def _choose_sinks(prepared: PreparedRun, folder: Path) -> Sinks:
    return choose_sinks(prepared.config, folder, prepared.saved["learner"]["step"] if prepared.saved else None)


def _open_log(prepared: PreparedRun, folder: Path, sinks: Sinks) -> RunLog:
    config = prepared.config
    state = prepared.saved["log"] if prepared.saved else None
    return RunLog(folder, prepared.network, config.total_steps, config.log_interval_s, state, sinks)


def _open_metadata(prepared: PreparedRun, folder: Path) -> Metadata:
    if prepared.saved is None:
        try:
            return Metadata(folder, prepared.config, auto=prepared.auto)
        except OSError:  # a full disk, say: the name is free again
            run_folder.remove(folder)
            raise
    for name, (before, now) in (prepared.changes or {}).items():
        logger.info("--%s: %s, was %s", name, now, before)
    step = prepared.saved["learner"]["step"]
    logger.info("resumed at step %s", f"{step:,}")
    return Metadata(folder, prepared.config, step, prepared.changes, prepared.auto)


def _describe(config: Config, folder: Path) -> str:
    settings = f"{describe_network(config)}, {describe_actors(config)}, seed {config.seed}"
    return f"training on {config.env} in {folder}: {settings}"


def _describe_preset(config: Config) -> str:
    preset = PRESETS[config.preset]
    given = [name for name, value in preset.items() if getattr(config, name) != value]
    settings = ", ".join(f"{name} {getattr(config, name)}" for name in preset)
    return f"preset {config.preset}: {settings}" + (f"; given in its place: {', '.join(given)}" if given else "")

"""Prepares a run: refuses whatever can be refused before its folder and its processes exist."""

import dataclasses
import textwrap
from typing import Any, NamedTuple

import torch

from monobeast import autotuning, environments, seeding
from monobeast.config import AUTO, Config
from monobeast.environments import Spaces
from monobeast.errors import describe, is_out_of_memory
from monobeast.files import require_place, user_path
from monobeast.main_script import check_main_script
from monobeast.makers import Makers
from monobeast.networks import Network, choose_network, require_fit
from monobeast.resources import requirements
from monobeast.runs import checkpoint, exact_resume, resumption, run_folder, sinks
from monobeast.user_code import is_own


class PreparedRun(NamedTuple):
    """A run that is ready to begin: everything is checked except its name and folder."""

    config: Config  # resolved: nothing is left to be chosen
    spaces: Spaces
    network: Network  # initialized, on the learner's device
    saved: dict[str, Any] | None = None  # the checkpoint to go on with
    changes: resumption.Changes | None = None  # of settings, since that checkpoint
    makers: Makers = Makers()  # of environments and networks
    auto: str | None = None  # what was chosen for sizes that were left open

    @property
    def is_complete(self) -> bool:
        """Whether the checkpoint has all steps; sizes that were left open are still so then."""
        return self.saved is not None and self.saved["learner"]["step"] >= self.config.total_steps


def prepare(config: Config, given: set[str] | None = None, makers: Makers = Makers()) -> PreparedRun:
    """Checks what `Config` alone cannot, and fills open settings.

    Args:
        config: With `resume`, what is not given in it is as the run had it.
        given: Names of the settings that count as given then; None for those that are neither at their default nor at
            their preset's.
        makers: What makes environments and networks in the place of `env` and `network`.

    Raises:
        ValueError: the environment or network cannot be made, there is no such device, a required package or compiler
            is missing, or the machine is too small; there is no run to resume, or it cannot continue with these
            settings.
        RuntimeError: actor processes could not import the main script.
    """
    config = makers.record(config)
    saved = changes = None
    if config.resume:
        folder = run_folder.find(config.savedir, config.xpid)
        saved = checkpoint.load(folder)
        before = checkpoint.read_config(saved, folder)
        if "log" not in saved:
            found = f"the checkpoint in {folder} holds weights alone, as {checkpoint.BEST_FILE_NAME} does"
            raise ValueError(f"--resume: {found}: test plays them, train cannot go on with them")
        config, changes = resumption.merge(before, config, given)
    if config.num_actors != 0 or config.evaluate_every is not None:
        check_main_script()
        makers.pickle()
    if config.timeline:
        require_place(f"--timeline {config.timeline}", user_path(config.timeline))
    sinks.require_packages(config)
    config = environments.resolve(config)
    spaces = makers.check_environments(config)
    if config.exact_resume:
        exact_resume.check(config, saved)
    config = _choose(config, spaces)
    if config.compile:
        require_compiler(config.device)
    network = _make_network(config, spaces, makers)
    if saved:
        _check_weights(network, saved, config)
        if saved["learner"]["step"] >= config.total_steps:
            _require_more_steps(before, config, saved["learner"]["step"])
            # Complete: nothing is left to be chosen for it.
            return PreparedRun(config, spaces, network, saved, changes, makers)
    config, auto = _choose_sizes(config, spaces, network, makers)
    if changes is not None:
        changes = resumption.settle(before, config, changes)
    requirements.check(config, spaces, network)
    return PreparedRun(config, spaces, network.to(config.device), saved, changes, makers, auto)


def require_compiler(device: str) -> None:
    """Raises ValueError unless PyTorch can compile a sum; which tools that needs depends on device and system."""
    try:
        torch.compile(lambda tensor: tensor + 1, dynamic=False)(torch.zeros(1, device=device))
    except Exception as error:
        reason = describe(error, is_short=True)
        raise ValueError(f"--compile: PyTorch can compile nothing for {device} here: {reason}") from error


def _require_more_steps(before: Config, config: Config, step: int) -> None:
    """Raises ValueError where a run that was not complete would be so by a smaller `--total_steps` alone."""
    if step < before.total_steps:
        raise ValueError(f"--total_steps {config.total_steps}: must be more than {step}, the step that the run is at")


def _make_network(config: Config, spaces: Spaces, makers: Makers) -> Network:
    try:
        return makers.make_network(config, spaces)
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        reason = f"for observations {textwrap.shorten(str(spaces.observation), 200)} does not fit into memory"
        raise ValueError(f"--network {config.network}: one {reason}") from error


def _choose(config: Config, spaces: Spaces) -> Config:
    """Fills settings that depend on the network, the machine or the time."""
    return dataclasses.replace(
        config,
        xpid=config.xpid or run_folder.new_xpid(),
        seed=seeding.draw_seed() if config.seed is None else config.seed,
        network=choose_network(spaces.observation, config.network),
        device=str(_find_device(config)),
    )


def _check_weights(network: Network, saved: dict[str, Any], config: Config) -> None:
    """Raises ValueError unless the saved weights fit such a network for these spaces."""
    try:
        require_fit(network, saved["learner"]["network"])
    except ValueError as error:
        what = f"--network {config.network}" if is_own(config.network) else f"the spaces of {config.env}"
        raise ValueError(f"--resume: the weights of {config.xpid} do not fit {what} as it is now: {error}") from None


def _choose_sizes(config: Config, spaces: Spaces, network: Network, makers: Makers) -> tuple[Config, str | None]:
    """Fills open sizes; the smallest candidates must fit, otherwise there is nothing to measure."""
    auto = None
    if any(getattr(config, name) is None for name in AUTO):
        requirements.require_fit(_with_buffers(autotuning.choose_smallest(config)), spaces, network)
        config, auto = autotuning.choose(config, spaces, network, makers)
    return _with_buffers(config), auto


def _with_buffers(config: Config) -> Config:
    return dataclasses.replace(config, num_buffers=config.num_buffers or 2 * max(1, config.num_actors))


def _find_device(config: Config) -> torch.device:
    if config.disable_cuda or config.device == "cpu":
        return torch.device("cpu")
    if config.device is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    device = torch.device(config.device)
    if (device.index or 0) >= torch.cuda.device_count():
        raise ValueError(f"--device {config.device}: this machine has {torch.cuda.device_count()} CUDA devices")
    return device

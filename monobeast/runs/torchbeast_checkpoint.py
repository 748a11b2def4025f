"""Converts checkpoints of TorchBeast's MonoBeast, `model.tar`, into runs of this package.

`TorchBeastNetwork` computes the same function as AtariNet from the same numbers. Layers are renamed, and the columns
for last action and last reward change places, since in TorchBeast the reward comes first. The optimizer's state moves
with the weights.
"""

import dataclasses
import re
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from monobeast import environments, seeding
from monobeast.config import Config
from monobeast.errors import describe
from monobeast.learner import Learner
from monobeast.networks import load_weights, make_network
from monobeast.runs import checkpoint, run_folder
from monobeast.runs.metadata import Metadata
from monobeast.user_code import is_own

# AtariNet's modules and those of `TorchBeastNetwork`.
_MODULES = {
    "conv1": "torso.convolutions.0",
    "conv2": "torso.convolutions.2",
    "conv3": "torso.convolutions.4",
    "fc": "torso.fully_connected",
    "policy": "policy",
    "baseline": "baseline",
}
# Parameters of `nn.LSTM` and those of a layer of ours.
_LSTM_PARTS = {"ih": "from_input", "hh": "from_hidden"}

# Flags that mean the same here. The threads of its learner do not, and the name and place of the run are new.
_FLAGS = (
    *("env", "total_steps", "num_actors", "num_buffers", "batch_size", "unroll_length", "use_lstm"),
    *("discounting", "baseline_cost", "entropy_cost", "reward_clipping"),
    *("learning_rate", "alpha", "momentum", "epsilon", "grad_norm_clipping"),
)


class TorchBeastCheckpoint(NamedTuple):
    """The content of a `model.tar`."""

    path: Path
    flags: dict[str, Any]
    weights: dict[str, Tensor]  # by AtariNet's names, in their order
    optimizer: dict[str, Any] | None  # state of its RMSProp; None where the file has none
    num_updates: int


def read(path: Path) -> TorchBeastCheckpoint:
    """Reads a `model.tar` from any version of PyTorch, without running code in it.

    Raises:
        ValueError: it does not exist, or is not of MonoBeast's AtariNet; the message names the path.
    """
    if not path.is_file():
        raise ValueError(f"no checkpoint at {path}")
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a damaged file may raise anything
        raise ValueError(f"{path} cannot be read: {describe(error, is_short=True)}") from error
    content = content if isinstance(content, dict) else {}
    weights, flags = content.get("model_state_dict"), content.get("flags")
    if not isinstance(weights, dict) or not isinstance(flags, dict) or "env" not in flags:
        raise ValueError(f"{path} is no checkpoint of MonoBeast: it lacks model_state_dict, or flags with an env")
    missing = [name for name in _MODULES if f"{name}.weight" not in weights]
    if missing:
        raise ValueError(f"{path} is not of MonoBeast's AtariNet: it has no layer {missing[0]}")
    num_updates = int(content.get("scheduler_state_dict", {}).get("last_epoch", 0))
    return TorchBeastCheckpoint(path, flags, weights, content.get("optimizer_state_dict"), num_updates)


def save_as_run(found: TorchBeastCheckpoint, savedir: str, xpid: str) -> tuple[Path, Config, int]:
    """Saves it as a run, for `test` and `train --resume`.

    Returns:
        The run's folder, settings and agent steps.

    Raises:
        ValueError: a flag or a layer does not fit here, or the name is in use; nothing is left behind then.
    """
    config = _read_config(found, savedir, xpid)
    learner = _make_learner(found, config)
    folder = run_folder.create(savedir, xpid)
    try:
        with run_folder.held(folder):
            checkpoint.save(folder, _make_content(config, learner))
            is_complete = learner.step >= config.total_steps
            metadata = Metadata(folder, dataclasses.replace(config, device="cpu"))
            metadata.finish("complete" if is_complete else "stopped", step=learner.step)
    except BaseException:
        run_folder.remove(folder)
        raise
    return folder, config, learner.step


def convert_weights(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """AtariNet's parameters, or per-parameter data, by our names and in our order."""
    num_actions = weights["policy.bias"].numel()
    has_lstm = any(name.startswith("core.") for name in weights)
    see_what_led_here = ("core.weight_ih_l0",) if has_lstm else ("policy.weight", "baseline.weight")
    converted = {}
    for name, tensor in weights.items():
        if name in see_what_led_here:
            features, reward, actions = tensor.split([tensor.shape[1] - 1 - num_actions, 1, num_actions], dim=1)
            tensor = torch.cat([features, actions, reward], dim=1)
        converted[_rename(name)] = tensor
    return converted


def _rename(name: str) -> str:
    if lstm := re.fullmatch(r"core\.(weight|bias)_(ih|hh)_l(\d)", name):
        kind, part, layer = lstm.groups()
        return f"lstm.layers.{layer}.{_LSTM_PARTS[part]}.{kind}"
    module, _, kind = name.rpartition(".")
    return f"{_MODULES.get(module, module)}.{kind}"


def _read_config(found: TorchBeastCheckpoint, savedir: str, xpid: str) -> Config:
    settings = {name: found.flags[name] for name in _FLAGS if found.flags.get(name) is not None}
    settings["use_lstm"] = any(name.startswith("core.") for name in found.weights)
    if is_own(str(settings.get("env"))):
        raise ValueError(f"{found.path}: --env {settings['env']} is code that is not imported for a file that names it")
    settings |= {"preset": "torchbeast", "network": "torchbeast", "seed": seeding.draw_seed()}
    try:
        return environments.resolve(Config(**settings | {"savedir": savedir, "xpid": xpid}))
    except (TypeError, ValueError) as error:
        raise ValueError(f"{found.path}: {error}") from error


def _make_learner(found: TorchBeastCheckpoint, config: Config) -> Learner:
    """A learner in the same state as TorchBeast's."""
    spaces = environments.check(config)
    network = make_network(spaces.observation, spaces.action, config.network, config.use_lstm)
    try:
        load_weights(network, convert_weights(found.weights))
    except ValueError as error:
        raise ValueError(f"{found.path}: not for {config.env}: {error}") from error
    learner = Learner(network, config)
    state = learner.state_dict() | {
        "step": found.num_updates * (config.unroll_length or 0) * (config.batch_size or 0),
        "num_updates": found.num_updates,
    }
    _fill_optimizer(state["optimizer"], found, [name for name, _ in network.named_parameters()])
    learner.load_state_dict(state)
    return learner


def _fill_optimizer(own: dict[str, Any], found: TorchBeastCheckpoint, own_names: list[str]) -> None:
    """Copies the state of TorchBeast's RMSProp into `own`, the state of an optimizer before its first step."""
    if found.optimizer is None or not found.optimizer["state"]:
        return
    keys = found.optimizer["param_groups"][0]["params"]  # numbers of parameters, or once their addresses
    remembered = [found.optimizer["state"][key] for key in keys]
    for entry in ("square_avg", "momentum_buffer"):
        if entry in remembered[0]:
            tensors = [each[entry] for each in remembered]
            converted = convert_weights(dict(zip(found.weights, tensors, strict=True)))
            for number, name in enumerate(own_names):
                if entry in own["state"][number]:
                    own["state"][number][entry] = converted[name].clone()
    for number in range(len(own_names)):
        own["state"][number]["step"] = torch.tensor(float(found.num_updates))


def _make_content(config: Config, learner: Learner) -> dict[str, Any]:
    """The checkpoint's content, as saved by a session. Episodes were not counted, and there were no reset steps."""
    log = {"step": learner.step, "environment_steps": learner.step, "seconds": 0.0}
    return {
        "config": dataclasses.asdict(config),
        "learner": learner.state_dict(),
        "log": log | {"num_episodes": 0, "recent_returns": []},
        "actor_restarts": 0,
        "num_resumes": 0,
    }

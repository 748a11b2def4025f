"""`monobeast export`: writes the network of a run to a file for other programs."""

import argparse
import dataclasses

from monobeast.config import Config
from monobeast.files import require_place, user_path
from monobeast.runs.recorded_run import find_folder


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the flags of this command."""
    parser.description = (
        "Writes the network of a run's checkpoint. An ONNX file holds one step. Inputs: observation, is_first, "
        "last_action, last_reward, each [1, B, ...], and with an LSTM hidden and cell. Outputs: policy_logits, "
        "baseline, and with an LSTM next_hidden and next_cell. Whatever is Discrete or MultiDiscrete counts from 0, "
        "wherever its space starts. Where actions are continuous, policy_params replace the logits: means, then "
        "logarithms of standard deviations; an element of an action with two bounds ranges from -1 to 1, and must be "
        "clipped to that and scaled to its bounds. The state of a network of your own is state_0, state_1 and so on."
    )
    parser.add_argument("run", metavar="RUN", help="folder of a run, or its name in savedir")
    parser.add_argument("--onnx", metavar="FILE", help="write an ONNX file, in float32")
    parser.add_argument("--state_dict", metavar="FILE", help="write the weights by name, for torch.load")
    parser.add_argument("--env", metavar="STR", help="the run's environment; needed if it is module:Id")
    parser.add_argument("--network", metavar="STR", help="the run's network; needed if it is module:Class")
    parser.add_argument(
        "--savedir", default=Config.savedir, metavar="STR", help="folder of all runs (default: %(default)s)"
    )


def run(arguments: argparse.Namespace) -> int:
    """Writes the requested files.

    Raises:
        ValueError: no file was requested, the run has no checkpoint, or a file's folder cannot be written to.
        OSError: a file cannot be written; one that was there stays as it was.
    """
    wanted = {flag: getattr(arguments, flag) for flag in ("onnx", "state_dict") if getattr(arguments, flag) is not None}
    if not wanted:
        raise ValueError("--onnx FILE, --state_dict FILE: at least one must be given")
    if len({user_path(file).absolute() for file in wanted.values()}) < len(wanted):
        raise ValueError(f"--onnx and --state_dict {arguments.state_dict}: must be two files")
    for flag, file in wanted.items():
        require_place(f"--{flag} {file}", user_path(file))
    folder = find_folder(arguments.run, arguments.savedir).resolve()
    from monobeast import environments, onnx_file, player
    from monobeast.runs import checkpoint, permission

    if arguments.onnx is not None:
        onnx_file.require_writer(arguments.onnx)
    content = checkpoint.load(folder)
    saved = dataclasses.replace(checkpoint.read_config(content, folder), precision="float32")
    config = permission.choose(saved, arguments.env, arguments.network, f"the checkpoint in {folder}")
    spaces = environments.check(config)
    network = player.load_network(content, folder, config, spaces)
    step = content["learner"]["step"]
    if arguments.onnx is not None:
        description = {"env": config.env, "step": str(step), "run": folder.name}
        onnx_file.write(user_path(arguments.onnx), network, spaces, description)
    if arguments.state_dict is not None:
        checkpoint.write_tensors(user_path(arguments.state_dict), network.state_dict())
    for file in wanted.values():
        print(f"wrote {file}: {config.env}, trained for {step:,} agent steps")
    return 0

"""`monobeast import-torchbeast`: converts a checkpoint of TorchBeast's MonoBeast into a run."""

import argparse

from monobeast.config import Config
from monobeast.files import user_path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the flags of this command."""
    parser.description = (
        "Turns a checkpoint of TorchBeast's MonoBeast into a run, with or without LSTM: test plays it, and train "
        "--resume goes on with it. Weights and optimizer are taken exactly; docs/from_torchbeast.md says what else "
        "differs."
    )
    parser.add_argument("file", metavar="FILE", help="model.tar in the folder of a MonoBeast run")
    parser.add_argument("--xpid", required=True, metavar="STR", help="name of the new run's folder in savedir")
    parser.add_argument(
        "--savedir", default=Config.savedir, metavar="STR", help="folder of all runs (default: %(default)s)"
    )


def run(arguments: argparse.Namespace) -> int:
    """Converts, and prints the result.

    Raises:
        ValueError: the file cannot be converted, or the name is in use.
    """
    Config(xpid=arguments.xpid)  # refused before the seconds that torch takes to import
    from monobeast.runs import torchbeast_checkpoint

    found = torchbeast_checkpoint.read(user_path(arguments.file))
    folder, config, step = torchbeast_checkpoint.save_as_run(found, arguments.savedir, arguments.xpid)
    network = "with LSTM" if config.use_lstm else "without LSTM"
    print(f"{config.env}, {network}, at step {step:,} of {config.total_steps:,}; the run is in {folder}")
    if not found.optimizer or not found.optimizer["state"]:
        print("the file holds no optimizer state; with --resume it starts afresh")
    print(f"train --resume --xpid {arguments.xpid} goes on with {config.num_actors} actors, or as --num_actors says")
    return 0

"""`monobeast replay-update`: repeats, on the CPU, an update whose numbers were not finite."""

import argparse

from monobeast.files import user_path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the flags of this command."""
    parser.description = (
        "Repeats the loss and the gradients of a kept batch on the CPU and says which numbers are not finite."
    )
    parser.epilog = "exit codes: 0 all are finite here, 1 some are not, 2 bad flag or value"
    parser.add_argument("file", metavar="FILE", help="bad_batch.pt in the folder of the run that failed")
    parser.add_argument("--env", metavar="STR", help="the run's environment; needed if it is module:Id")
    parser.add_argument("--network", metavar="STR", help="the run's network; needed if it is module:Class")


def run(arguments: argparse.Namespace) -> int:
    """Repeats the update and prints the result.

    Raises:
        ValueError: the file cannot be replayed here.
    """
    from monobeast.runs import bad_batch

    kept = bad_batch.load(user_path(arguments.file), arguments.env, arguments.network)
    replay = bad_batch.replay(kept)
    for name, value in replay.numbers.items():
        print(f"{name:40} {value:.6g}")
    for name, (num_bad, num) in replay.counts.items():
        if num_bad:
            print(f"{name:40} {num_bad:,} of {num:,} not finite")
    print(f"first: {replay.fault}" if replay.fault else "all numbers are finite here")
    return 1 if replay.fault else 0

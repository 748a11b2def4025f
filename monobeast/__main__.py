"""The command line: `monobeast COMMAND ...`; without a command, train.

Exit codes: 0 complete; 1 failed; 2 bad flag or value; 128 + n stopped by signal n (129 by SIGHUP, 130 by Ctrl-C, 143 by
SIGTERM), with a checkpoint if there was an update.
"""

import argparse
import contextlib
import dataclasses
import difflib
import importlib
import multiprocessing
import os
import signal
import sys
from typing import Any, NoReturn, get_args

from monobeast import __version__
from monobeast.config import AUTO, Config

_MODES = {"train": "train an agent", "test": "play the checkpoint of a run"}  # their flags are fields of `Config`
# Each is a module of monobeast.commands that offers add_arguments(parser) and run(arguments) -> exit code. One with
# TAKES_TRAIN_FLAGS has those of train too; it gets what was given of them as a dict: run(arguments, settings).
_FURTHER = {
    "ls": "list the runs of a folder: how far each is, what it reached, and whether it runs",
    "benchmark": "measure each part alone, the limit that follows, and how much of it a run reaches",
    "plan": "say what a run with the same flags would need, and whether this machine has it",
    "plot": "draw the returns of runs, with a band over seeds",
    "replay-update": "repeat an update whose numbers were not finite",
    "export": "write the network of a run as ONNX, or its weights",
    "import-torchbeast": "turn a checkpoint of TorchBeast's MonoBeast into a run",
    "check-vtrace": "compare any V-trace function with exact numbers",
}
_COMMANDS = _MODES | _FURTHER
_TEST_ONLY = ("test",)  # groups of flags
_TEST_TOO = ("environment",)
_RUN_FLAGS_OF_TEST = ("env", "xpid", "savedir", "seed", "network")
_ALIASES = {"num_learner_threads": ("--num_threads",)}  # TorchBeast's other name for it
_EXIT_CODES = (
    "exit codes: 0 complete, 1 failed, 2 bad flag or value, 129 stopped by SIGHUP, 130 by Ctrl-C, 143 by SIGTERM"
)
_PAPER = '"The paper" is IMPALA, arXiv 1802.01561.'


def main() -> NoReturn:
    """Entry point of the console script and of `python -m monobeast`."""
    _occupy_standard_streams()
    for stream in filter(None, (sys.stdout, sys.stderr)):
        stream.reconfigure(errors="backslashreplace")  # a name may have letters that a terminal can't show
    # Until the training loop takes signals over there is nothing to save: leave at once, without a traceback.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _frame: os._exit(128 + number))
    if "" not in sys.path and os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())  # the console script leaves it out; --env my_module:Id needs it
    _leave(run_command(sys.argv[1:]))


def _occupy_standard_streams() -> None:
    """Opens those that are closed, on nothing: else the next file would get their numbers, and what is printed."""
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free


def _leave(exit_code: int) -> NoReturn:
    """Ends the process at once: no second Ctrl-C changes the exit code, and no environment's thread keeps it alive."""
    from monobeast import start_methods  # not above: until `main` has begun, a Ctrl-C ends in a traceback

    for child in multiprocessing.active_children():  # of an environment as well
        child.kill()
    start_methods.remove_temporary_folder()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, AttributeError):  # nobody reads any more; closed from the start
            stream.flush()
    os._exit(exit_code)


def run_command(argv: list[str]) -> int:
    """Runs one command line, without the program's name; returns its exit code."""
    command, arguments, is_named = _split_command(argv)
    try:
        if command in _FURTHER:
            return _run_further(command, arguments)
        chosen = vars(_make_parser(command, command, takes_all=not is_named).parse_args(arguments))
        return _train(chosen) if command == "train" else _test(chosen)
    except ValueError as error:
        return _complain(str(error), command)
    except BrokenPipeError:  # as after `| head -1`
        return 128 + signal.SIGPIPE
    except OSError as error:  # a full disk, say
        _complain(str(error), command)
        return 1


def _complain(message: str, command: str = "") -> int:
    if sys.stderr is not None:  # else print would take standard output
        print(f"monobeast{' ' if command else ''}{command}: error: {message}", file=sys.stderr)
    return 2


def _train(chosen: dict[str, Any]) -> int:
    config = Config(**chosen)  # refused before the seconds that torch takes to import
    from monobeast import training

    result = training.run(training.prepare(config, given=set(chosen)))
    return {"complete": 0, "failed": 1, "stopped": 128 + (result.signal or 0)}[result.state]


def _test(chosen: dict[str, Any]) -> int:
    if chosen.get("xpid") == "latest":
        del chosen["xpid"]  # the newest run is played where none is named
    Config(**chosen)  # refused before the seconds that torch takes to import
    import torch

    from monobeast import score
    from monobeast.player import load_player, play
    from monobeast.window import WindowClosed

    torch.set_num_threads(1)  # threads that share one observation wait for each other more than they work
    player = load_player(chosen)
    config = player.config
    print(f"playing {player.folder}: {config.env}, trained for {player.step:,} agent steps", flush=True)
    print(score.describe_conditions(config, player.environment.action_space, player.seed), flush=True)
    episodes = []
    with score.EpisodeTable(config.save_episodes) as table, contextlib.closing(player.environment):
        with contextlib.suppress(WindowClosed):
            for episode in play(player):
                episodes.append(episode)
                table.add(episode)
                cut_off = ", cut off" if episode.is_capped else ""
                result = f"return {episode.episode_return:g}, {episode.length} steps{cut_off}"
                print(f"episode {len(episodes)}: {result}", flush=True)
    for what, where in (("films", config.video), ("episodes", config.save_episodes)):
        if where is not None:
            print(f"{what}: {where}", flush=True)
    if episodes:
        print(score.summarize(episodes, config.env), flush=True)
    return 0


def _run_further(command: str, arguments: list[str]) -> int:
    module = importlib.import_module(f"monobeast.commands.{command.replace('-', '_')}")
    if not getattr(module, "TAKES_TRAIN_FLAGS", False):
        parser = _Parser(prog=f"monobeast {command}", epilog=_EXIT_CODES, allow_abbrev=False)
        module.add_arguments(parser)
        return module.run(parser.parse_intermixed_args(arguments))
    parser = _make_parser(command, flags_of="train")
    module.add_arguments(parser)
    chosen = parser.parse_intermixed_args(arguments)
    names = {setting.name for setting in dataclasses.fields(Config)}
    return module.run(chosen, {name: value for name, value in vars(chosen).items() if name in names})


def _split_command(argv: list[str]) -> tuple[str, list[str], bool]:
    """The subcommand, its flags, and whether it was named.

    TorchBeast's `--mode` does not count as naming it; a test then accepts training flags, too.
    """
    if argv and not argv[0].startswith("-"):
        command = argv[0].replace("_", "-")
        if command not in _COMMANDS:
            raise SystemExit(_complain(f"no command {argv[0]}: must be one of {', '.join(_COMMANDS)}"))
        return command, argv[1:], True
    mode = _Parser(prog="monobeast", add_help=False, allow_abbrev=False)
    mode.add_argument("--mode", choices=[*_MODES, "test_render"], default="train")
    chosen, rest = mode.parse_known_args(argv)
    if chosen.mode == "test_render":
        return "test", [*rest, "--render"], False
    return chosen.mode, rest, chosen.mode == "train"


def _with_underscores(argument: str) -> str:
    name, equals, value = argument[2:].partition("=")
    if not argument.startswith("--") or " " in name:  # the latter: flags within a flag's value
        return argument
    return f"--{name.replace('-', '_')}{equals}{value}"


class _Parser(argparse.ArgumentParser):
    """An argument parser that reads dashes as underscores and answers a mistake with one line and a suggestion."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        return super().parse_known_args([_with_underscores(argument) for argument in args], namespace)

    def error(self, message: str) -> NoReturn:
        for word in message.split():
            word = word.rstrip(":")
            flags = [flag.removeprefix("--") for flag in self._option_string_actions]  # dashes are like no others
            known = difflib.get_close_matches(word.removeprefix("--"), flags, n=1)
            if word.startswith("--") and word not in self._option_string_actions and known:
                message += f"; did you mean --{known[0]}?"
        self.exit(2, f"{self.prog}: error: {message} (--help lists the flags)\n")


def _make_parser(command: str, flags_of: str, takes_all: bool = False) -> _Parser:
    """A parser for the `Config` fields of train or test, or for all; it returns only the flags that were given."""
    commands = "\n".join(f"monobeast {name}: {what}" for name, what in _COMMANDS.items())
    parser = _Parser(
        prog=f"monobeast {command}",
        usage="%(prog)s [flags]",
        description=f"{commands}\n\nWithout a command: train. A switch is turned off by --no_NAME. {_PAPER}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=_EXIT_CODES,
        argument_default=argparse.SUPPRESS,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"monobeast {__version__}")
    groups: dict[str, Any] = {}
    for setting in dataclasses.fields(Config):
        group = setting.metadata["group"]
        if _belongs(setting, flags_of):
            if group not in groups:
                groups[group] = parser.add_argument_group(group)
            _add_flag(groups[group], parser, setting)
        elif takes_all:
            _add_flag(None, parser, setting)
    return parser


def _belongs(setting: dataclasses.Field, command: str) -> bool:
    group = setting.metadata["group"]
    if command == "train":
        return group not in _TEST_ONLY
    return group in _TEST_ONLY + _TEST_TOO or setting.name in _RUN_FLAGS_OF_TEST


def _add_flag(group: Any, parser: _Parser, setting: dataclasses.Field) -> None:
    kind = next(iter(get_args(setting.type)), setting.type)
    optional = type(None) in get_args(setting.type)
    help = setting.metadata["help"]
    if setting.default is not None:
        help += f" (default: {setting.default})"
    options: dict[str, Any] = {"help": help.replace("%", "%%") if group else argparse.SUPPRESS}
    names = (f"--{setting.name}", *_ALIASES.get(setting.name, ()))
    if kind is bool:
        target = (group or parser).add_mutually_exclusive_group()
        target.add_argument(*names, action="store_true", **options)
        target.add_argument(f"--no_{setting.name}", dest=setting.name, action="store_false", help=argparse.SUPPRESS)
        return
    metavar = "|".join(setting.metadata.get("choices", ())) or kind.__name__.upper()
    (group or parser).add_argument(
        *names, dest=setting.name, type=_reader(kind, optional, setting.name in AUTO), metavar=metavar, **options
    )


def _reader(kind: type, optional: bool, auto: bool) -> Any:
    """A reader of values of `kind`: "none" or "auto" gives None if the field allows it, and 1e6 is an integer."""

    def read(text: str) -> Any:
        if (optional and text.lower() == "none") or (auto and text.lower() == "auto"):
            return None
        if kind is int:
            return int(text) if text.lstrip("-").replace("_", "").isdigit() else _whole(float(text))
        return kind(text)

    read.__name__ = kind.__name__  # argparse names it: "invalid int value"
    return read


def _whole(number: float) -> int:
    if not number.is_integer():
        raise ValueError
    return int(number)


if __name__ == "__main__":
    main()

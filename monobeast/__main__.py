"""The command line: `monobeast train|test ...`; without a subcommand, train.

Exit codes: 0 the run is complete; 1 it failed; 2 a bad flag or value; 128 + n it was stopped by signal n, with a
checkpoint once there was an update (130 by Ctrl-C, 143 by SIGTERM).
"""

import argparse
import dataclasses
import difflib
import os
import signal
import sys
from typing import Any, NoReturn, get_args

from monobeast import __version__
from monobeast.config import Config

_COMMANDS = {"train": "train an agent", "test": "play the checkpoint of a run"}
_GROUPS = {
    "train": ("run", "actors", "learner", "loss", "network", "environment"),
    "test": ("run", "environment", "test"),
}
_ALIASES = {"num_learner_threads": ("--num_threads",)}  # TorchBeast's other name for it
_EXIT_CODES = "exit codes: 0 complete, 1 failed, 2 bad flag or value, 130 stopped by Ctrl-C, 143 by SIGTERM"


def main() -> NoReturn:
    """Entry point of the console script and of `python -m monobeast`."""
    # Until the training loop takes signals over there is nothing to save: leave at once, without a traceback.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _frame: os._exit(128 + number))
    if "" not in sys.path and os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())  # the console script leaves it out; --env my_module:Id needs it
    exit_code = run_command(sys.argv[1:])
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # a second Ctrl-C must not spoil the exit code
    sys.exit(exit_code)


def run_command(argv: list[str]) -> int:
    """Runs one command line, without the program's name; returns its exit code."""
    command, arguments = _split_command(argv)
    try:
        chosen = vars(_make_parser(command).parse_args(arguments))
        return _train(chosen) if command == "train" else _test(chosen)
    except ValueError as error:
        print(f"monobeast {command}: error: {error}", file=sys.stderr)
        return 2


def _train(chosen: dict[str, Any]) -> int:
    config = Config(**chosen)  # refused before the seconds that torch takes to import
    from monobeast import training

    result = training.run(training.prepare(config))
    return {"complete": 0, "failed": 1, "stopped": 128 + (result.signal or 0)}[result.state]


def _test(chosen: dict[str, Any]) -> int:
    Config(**chosen)  # likewise
    from monobeast import evaluation

    player = evaluation.load_player(chosen)
    how = "the most probable action" if player.config.greedy else "actions sampled from the policy"
    print(f"{player.config.env}, trained for {player.step:,} steps; {how}; seed {player.seed}", flush=True)
    episodes = []
    for episode in evaluation.play(player):
        episodes.append(episode)
        cut_off = ", cut off" if episode.is_capped else ""
        result = f"return {episode.episode_return:g}, {episode.length} steps{cut_off}"
        print(f"episode {len(episodes)}: {result}", flush=True)
    print(evaluation.summarize(episodes))
    return 0


def _split_command(argv: list[str]) -> tuple[str, list[str]]:
    """The subcommand and its flags, spelled with underscores; TorchBeast's `--mode` serves as a subcommand."""
    argv = [_with_underscores(argument) for argument in argv]
    if argv and argv[0] in _COMMANDS:
        return argv[0], argv[1:]
    mode = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    mode.add_argument("--mode", choices=[*_COMMANDS, "test_render"], default="train")
    chosen, rest = mode.parse_known_args(argv)
    return ("test", [*rest, "--render"]) if chosen.mode == "test_render" else (chosen.mode, rest)


def _with_underscores(argument: str) -> str:
    if not argument.startswith("--"):
        return argument
    name, equals, value = argument[2:].partition("=")
    return f"--{name.replace('-', '_')}{equals}{value}"


class _Parser(argparse.ArgumentParser):
    """An argument parser that answers a mistake in one line, with a suggestion."""

    def error(self, message: str) -> NoReturn:
        for word in message.split():
            known = difflib.get_close_matches(word, self._option_string_actions, n=1)
            if word.startswith("--") and word not in self._option_string_actions and known:
                message += f"; did you mean {known[0]}?"
        self.exit(2, f"{self.prog}: error: {message} (--help lists the flags)\n")


def _make_parser(command: str) -> _Parser:
    """A parser of every `Config` field; it yields those alone that were given."""
    commands = "; ".join(f"monobeast {name}: {what}" for name, what in _COMMANDS.items())
    parser = _Parser(
        prog=f"monobeast {command}",
        usage="%(prog)s [flags]",
        description=f"{commands}. Without a command: train.",
        epilog=_EXIT_CODES,
        argument_default=argparse.SUPPRESS,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"monobeast {__version__}")
    groups = {name: parser.add_argument_group(name) for name in _GROUPS[command]}
    for setting in dataclasses.fields(Config):
        # A flag of the other command is taken as well, so that one command line serves both; help leaves it out.
        _add_flag(groups.get(setting.metadata["group"]), parser, setting)
    return parser


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
    if setting.name == "sticky_actions":
        options |= {"nargs": "?", "const": 0.25}  # without a value: the probability of ALE's v5 ids
    metavar = "|".join(setting.metadata.get("choices", ())) or kind.__name__.upper()
    (group or parser).add_argument(
        *names, dest=setting.name, type=_reader(kind, optional), metavar=metavar, **options
    )


def _reader(kind: type, optional: bool) -> Any:
    """Reads a value of `kind`; "none" is None where the field allows that, and 1e6 is a whole number."""

    def read(text: str) -> Any:
        if optional and text.lower() == "none":
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

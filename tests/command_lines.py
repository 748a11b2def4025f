"""Command lines in this process, for tests."""

from monobeast.__main__ import run_command


def run(capfd, *arguments):
    """Exit code, output and errors of a command line."""
    try:
        exit_code = run_command([str(argument) for argument in arguments])
    except SystemExit as leaving:  # argparse's own way
        exit_code = leaving.code
    return (exit_code, *capfd.readouterr())

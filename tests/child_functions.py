"""What tests run in processes of their own; imports nothing of monobeast, so that a child does not either."""

import os
import signal
import sys


def report_modules(connection):
    """Sends the names of the modules that this process found loaded."""
    connection.send(sorted(sys.modules))


def survive_stop_signals(connection):
    """Sends itself both signals, and then a sign of life."""
    for number in (signal.SIGINT, signal.SIGTERM):
        os.kill(os.getpid(), number)
    connection.send("alive")


def exit_with(code):
    """Ends at once."""
    sys.exit(code)


def sleep_forever():
    """Ends by a signal only."""
    while True:
        signal.pause()

"""What tests run in processes of their own; imports nothing of monobeast, so that a child does not either."""

import signal
import sys


def report_modules(connection):
    """Sends the names of the modules that this process found loaded."""
    connection.send(sorted(sys.modules))


def report_ignored_signals(connection):
    """Sends whether SIGINT and SIGTERM do nothing to this process, from its first moment."""
    ignored = [signal.getsignal(number) == signal.SIG_IGN for number in (signal.SIGINT, signal.SIGTERM)]
    connection.send(ignored)


def exit_with(code):
    """Ends at once."""
    sys.exit(code)


def sleep_forever():
    """Ends by a signal only."""
    while True:
        signal.pause()

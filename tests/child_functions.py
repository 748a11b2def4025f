"""What tests run in processes of their own; imports nothing of monobeast by itself, so that a child does not either."""

import os
import signal
import subprocess
import sys


def report_modules(connection):
    """Sends the names of the modules that this process found loaded."""
    connection.send(sorted(sys.modules))


def survive_stop_signals(connection):
    """Sends itself both signals, and then a sign of life."""
    for number in (signal.SIGINT, signal.SIGTERM):
        os.kill(os.getpid(), number)
    connection.send("alive")


def stop_a_program(connection):
    """Sends how a program ended that this actor process, once set up, started and terminated."""
    from monobeast import processes

    processes.set_up_child()
    program = subprocess.Popen(["sleep", "60"])
    program.terminate()
    connection.send(program.wait(10))


def exit_with(code):
    """Ends at once."""
    sys.exit(code)


def sleep_forever():
    """Ends by a signal only."""
    while True:
        signal.pause()

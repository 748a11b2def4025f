"""What tests run in processes of their own; imports nothing of monobeast by itself, so that a child does not either."""

import ctypes
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
    """Sends how a program ended that this process started and terminated."""
    program = subprocess.Popen(["sleep", "60"])
    program.terminate()
    connection.send(program.wait(10))


def answer(requests, replies):
    """Sends back what it gets, until there is no more."""
    while (request := requests.get()) is not None:
        replies.put(request)


def exit_with(code):
    """Ends at once."""
    sys.exit(code)


def sleep_forever():
    """Ends by a signal only."""
    while True:
        signal.pause()


def hold_the_gil(connection):
    """As an environment that hangs in a call that lets no other thread run; sends its process's number before."""
    connection.send(os.getpid())
    ctypes.PyDLL(None).sleep(3600)


class HoldsTheGilWhenUnpickled:
    """As an argument whose unpickling imports for long."""

    def __init__(self, connection):
        self._connection = connection

    def __reduce__(self):
        return hold_the_gil, (self._connection,)


def be_the_parent(start_method, is_held_up):
    """Prints the number of a child that holds the GIL, in its call or held up before it, and waits to be killed."""
    import multiprocessing

    from monobeast import start_methods
    from monobeast.child_setup import ChildCall
    from monobeast.watched_process import WatchedProcess

    reader, writer = multiprocessing.Pipe(duplex=False)
    argument = HoldsTheGilWhenUnpickled(writer) if is_held_up else writer
    call = ChildCall(hold_the_gil, argument)
    WatchedProcess(start_methods.context(start_method, []).Process(target=call))
    print(reader.recv(), flush=True)
    sleep_forever()


def train_until_killed(savedir):
    """Goes on with the run of that folder, or begins it; every update is followed by a checkpoint."""
    from monobeast import Config, train
    from monobeast.child_setup import die_with_parent

    die_with_parent()  # should the test be killed itself
    settings = {"savedir": savedir, "xpid": "run"}
    if os.path.exists(os.path.join(savedir, "run")):
        train(Config(resume=True, **settings))
    else:
        settings |= {"env": "monobeast/Catch-v0", "num_actors": 0, "num_learner_threads": 1, "total_steps": 10**12}
        train(Config(seed=1, checkpoint_interval_s=1e-6, log_interval_s=0.02, **settings))

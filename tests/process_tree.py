"""Who lives, and whose child is whose, as /proc tells it."""

import os
import time
from pathlib import Path


def read_stat(pid):
    """State and parent of a process; None once it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] in "ZX" else (fields[0], int(fields[1]))


def is_alive(pid):
    return read_stat(pid) is not None


def catches(pid, number):
    """Whether a process has a handler of its own for a signal; Python itself brings one for SIGINT alone."""
    status = Path(f"/proc/{pid}/status").read_text()
    return bool(int(status.partition("SigCgt:")[2].split()[0], 16) >> (number - 1) & 1)


def children_of(parent):
    """Numbers of the living children of a process, in the order of their start as far as numbers tell it."""
    numbers = sorted(int(name) for name in os.listdir("/proc") if name.isdigit())
    return [pid for pid in numbers if (stat := read_stat(pid)) is not None and stat[1] == parent]


def command_line(pid):
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return ""


def find(parent, text):
    """The living children of a process whose command lines hold a text."""
    return [pid for pid in children_of(parent) if text in command_line(pid)]


def actors_of(learner):
    """Numbers of the actors of a learner: children of its fork server, or its own where they are spawned."""
    served = [actor for server in find(learner, "multiprocessing.forkserver") for actor in children_of(server)]
    return served + find(learner, "multiprocessing.spawn")


def wait_until(is_so, timeout_s=300.0):
    """Whether something came to be so."""
    deadline = time.monotonic() + timeout_s
    while not is_so():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True

"""The folder of a run, `<savedir>/<xpid>/`, and the link `latest` beside it."""

import datetime
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from monobeast.files import replaced, user_path

_LATEST = "latest"
# `is_held` takes the lock for a moment; these retries outlast that.
_LOCK_TRIES, _LOCK_WAIT_S = 5, 0.1


def new_xpid() -> str:
    """A name from date and time, to the millisecond, so that two runs started together differ."""
    return datetime.datetime.now().strftime("monobeast-%Y%m%d-%H%M%S-%f")[:-3]


def create(savedir: str, xpid: str) -> Path:
    """Makes the folder of a new run.

    Raises:
        ValueError: the name is in use, or the folder cannot be made; the message names flag and path.
    """
    folder = _root(savedir) / xpid
    try:
        folder.mkdir(parents=True)
    except FileExistsError:
        if folder.exists():
            hint = "choose another name, or continue it with --resume if it has a checkpoint"
            raise ValueError(f"--xpid {xpid}: in use, {folder} exists; {hint}") from None
        raise ValueError(f"--savedir {savedir}: a file is in the way of {folder}") from None
    except OSError as error:
        raise ValueError(f"--savedir {savedir}: cannot make {folder}: {error.strerror}") from None
    return folder


def find(savedir: str, xpid: str | None) -> Path:
    """The folder of an earlier run; of the newest if `xpid` is None.

    Raises:
        ValueError: there is no such run; the message names the path.
    """
    root = _root(savedir)
    folder = root / (xpid or _LATEST)
    if not folder.is_dir():
        flag = f"--xpid {xpid}" if xpid else f"--savedir {savedir}"
        hint = f"; python -m monobeast ls {savedir} lists those that are there" if root.is_dir() else ""
        raise ValueError(f"{flag}: no run at {folder}{hint}")
    return folder.resolve()


def link_latest(folder: Path) -> None:
    """Lets `latest` point to `folder`, relatively, so that the savedir can be moved; nothing where links can't be."""
    # At no moment is there no link.
    with suppress(OSError), replaced(folder.parent / _LATEST, is_shared=True) as partial:
        partial.symlink_to(folder.name, target_is_directory=True)


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Locks `folder` against training by other processes; the kernel releases the lock however this process ends.

    Raises:
        ValueError: another process holds it.
    """
    if os.name != "posix":
        yield
        return
    import fcntl

    descriptor = os.open(folder, os.O_RDONLY)
    try:
        for tries_left in reversed(range(_LOCK_TRIES)):
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if not tries_left:
                    raise ValueError(f"--xpid {folder.name}: another process is training in {folder}") from None
                time.sleep(_LOCK_WAIT_S)
            except OSError:
                break  # a file system without locks
        yield
    finally:
        os.close(descriptor)


def is_held(folder: Path) -> bool | None:
    """Whether a process trains in `folder` now, by its lock; None without support for locks.

    It takes a shared lock for a moment, so that several callers may ask at once.
    """
    if os.name != "posix":
        return None
    import fcntl

    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return None
    finally:
        os.close(descriptor)
    return False


def remove(folder: Path) -> None:
    """Removes a run that learned nothing, which frees its name."""
    shutil.rmtree(folder, ignore_errors=True)


def _root(savedir: str) -> Path:
    return user_path(savedir).absolute()

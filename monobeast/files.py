"""Paths that users give, and files that replace others whole or not at all, whatever ends the process that writes."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

# What is in the folder of a run, beside what users put there.
RUN_FILES = ("meta.json", "logs.csv", "episodes.csv", "evaluations.csv", "out.log")
RUN_FILES += ("checkpoint.pt", "checkpoint.previous.pt", "best.pt")


@contextmanager
def replaced(path: Path, is_shared: bool = False) -> Iterator[Path]:
    """Gives a path beside `path` to write to; what is there in the end takes the place of `path`.

    Where that fails, `path` stays as it was, and what was written is removed. What a killed process leaves there is
    removed by the next one that replaces `path`, unless that is shared.

    Args:
        path: Of the file, or link, which need not be there yet.
        is_shared: Whether several processes may replace it at a time: each then writes to a path of its own.

    Raises:
        OSError: it cannot be replaced.
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial" if is_shared else f"{path.name}.partial")
    try:
        yield partial
        os.replace(partial, path)
    finally:
        with suppress(OSError):  # of which there is none where it has the other's name by now
            partial.unlink()


def sync(path: Path) -> None:
    """Waits until a file's content, or a folder's names, would outlive a power cut.

    Raises:
        OSError: the disk does not take it.
    """
    if path.is_dir() and os.name != "posix":
        return  # Windows opens no folders
    descriptor = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def user_path(text: str) -> Path:
    """The path that a user gave, "~" being the home folder, if there is one."""
    return Path(os.path.expanduser(text))


def require_place(what: str, path: Path) -> None:
    """Raises ValueError, beginning with `what`, unless a file may be written to `path`, as far as can be told before.

    A run's own files are never written over.
    """
    folder = path.absolute().parent
    if os.path.isdir(path) or not (os.path.isdir(folder) and os.access(folder, os.W_OK)):
        raise ValueError(f"{what}: must be a file in a folder that can be written to")
    if path.name in RUN_FILES and os.path.exists(folder / "meta.json"):
        raise ValueError(f"{what}: is a file of the run in {folder}, which must be left to it")

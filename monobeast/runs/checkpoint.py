"""Checkpoints: written atomically, and safe to open."""

import io
import logging
import os
import pickle
import zipfile
from pathlib import Path
from typing import Any

import torch

from monobeast.config import Config
from monobeast.errors import describe
from monobeast.files import replaced, sync

FILE_NAME = "checkpoint.pt"
PREVIOUS_FILE_NAME = "checkpoint.previous.pt"
BEST_FILE_NAME = "best.pt"  # what evaluations beside training found best; without the optimizer's state
_FORMAT_VERSION = 1

logger = logging.getLogger(__name__)


def save(folder: Path, content: dict[str, Any]) -> None:
    """Writes `content` as the folder's checkpoint, atomically: the folder always has a complete one, old or new.

    The previous one is kept as `checkpoint.previous.pt`.

    Args:
        folder: Of the run.
        content: Tensors and plain values (numbers, strings, lists, dicts), which load without running code.
    """
    write(folder / FILE_NAME, content, previous=folder / PREVIOUS_FILE_NAME)


def write(path: Path, content: dict[str, Any], previous: Path | None = None) -> None:
    """Like `save`, for any file; the previous file is kept as `previous`, if given."""
    write_tensors(path, {"format_version": _FORMAT_VERSION, **content}, previous)


def write_tensors(path: Path, content: dict[str, Any], previous: Path | None = None) -> None:
    """Like `write`, of the content alone, as any program reads it by `torch.load`.

    Raises:
        OSError: the disk does not take it; what was there stays as it was.
    """
    packed = io.BytesIO()  # into a file, torch would make of a full disk an error that is no OSError
    torch.save(content, packed)
    with replaced(path) as partial:
        partial.write_bytes(packed.getbuffer())
        sync(partial)
        if previous is not None and path.exists():
            _keep(path, previous)
    sync(path.parent)  # else the new name may not outlive a power cut


def load(folder: Path) -> dict[str, Any]:
    """The folder's checkpoint, with tensors on the CPU; if it is damaged, the previous one, with a warning.

    Raises:
        ValueError: there is none, it is not a checkpoint, or it has another format; the message names the path.
        OSError: it cannot be opened.
    """
    path, previous = folder / FILE_NAME, folder / PREVIOUS_FILE_NAME
    if not path.exists() and not previous.exists():
        raise ValueError(f"no checkpoint at {path}")
    try:
        return read(path)
    except ValueError as error:
        if not previous.exists():
            raise
        content = read(previous)
        logger.warning("%s; %s is used in its place", error, previous.name)
        return content


def read(path: Path) -> dict[str, Any]:
    """Reads what `write` wrote.

    Raises:
        ValueError, OSError: as for `load`.
    """
    if not path.exists():
        raise ValueError(f"no checkpoint at {path}")
    with open(path, "rb"):  # one that is closed to us is not damaged
        pass
    if not zipfile.is_zipfile(path):  # torch.load would try it as the pickle that old checkpoints were
        raise ValueError(f"{path} is not a checkpoint: not an archive, or cut off")
    try:
        _check_sums(path)
        content = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        reason = "it holds more than tensors and plain values, of which nothing was run"
        raise ValueError(f"{path} is not a checkpoint: {reason}") from error
    except Exception as error:  # a damaged file may raise anything
        raise ValueError(f"{path} is not a checkpoint: {describe(error, is_short=True)}") from error
    version = content.get("format_version") if isinstance(content, dict) else None
    if version != _FORMAT_VERSION:
        raise ValueError(f"{path} is not a checkpoint of format {_FORMAT_VERSION}: its format is {version}")
    return content


def _check_sums(path: Path) -> None:
    """Raises ValueError if bytes differ from those written, which `torch.load` does not check."""
    with zipfile.ZipFile(path) as archive:
        damaged = archive.testzip()
    if damaged is not None:
        raise ValueError(f"its part {damaged} is damaged")


def read_config(content: dict[str, Any], folder: Path) -> Config:
    """The settings of a checkpoint's run.

    Raises:
        ValueError: they are from another version of this package; the message names the folder.
    """
    try:
        return Config(**content["config"])
    except (KeyError, TypeError) as error:
        raise ValueError(f"the checkpoint in {folder} is none that this version can read: {error}") from error


def _keep(path: Path, kept: Path) -> None:
    """Gives a file a second name, in place of an older file of that name."""
    try:
        with replaced(kept) as link:
            link.unlink(missing_ok=True)  # left by a process that was killed
            os.link(path, link)
    except OSError:  # a file system without links: for a moment there is the previous one alone, which `load` takes
        os.replace(path, kept)

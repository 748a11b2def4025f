"""Checkpoints: whole or not there, and safe to open."""

import os
import zipfile
from pathlib import Path
from typing import Any

import torch

FILE_NAME = "checkpoint.pt"
_FORMAT_VERSION = 1


def save(folder: Path, content: dict[str, Any]) -> None:
    """Writes `content` as the folder's checkpoint; at every moment the folder holds a whole one, the old or the new.

    Args:
        folder: Of the run.
        content: Tensors and plain values (numbers, strings, lists, dicts), so that it loads without running code.
    """
    path, partial = folder / FILE_NAME, folder / (FILE_NAME + ".partial")
    try:
        with open(partial, "wb") as file:
            torch.save({"format_version": _FORMAT_VERSION, **content}, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)
    _sync_folder(folder)  # else the new name may not outlive a power cut


def load(folder: Path) -> dict[str, Any]:
    """The folder's checkpoint, its tensors on the CPU.

    Raises:
        ValueError: there is none, it is not a checkpoint, or it is of another format; the message names the path.
    """
    path = folder / FILE_NAME
    if not path.exists():
        raise ValueError(f"no checkpoint at {path}")
    if not zipfile.is_zipfile(path):  # torch.load would try it as the pickle that old checkpoints were
        raise ValueError(f"{path} is not a checkpoint: not an archive, or cut off")
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a damaged file may raise anything
        raise ValueError(f"{path} is not a checkpoint: {(str(error).splitlines() or [repr(error)])[0]}") from error
    version = content.get("format_version") if isinstance(content, dict) else None
    if version != _FORMAT_VERSION:
        raise ValueError(f"{path} is not a checkpoint of format {_FORMAT_VERSION}: its format is {version}")
    return content


def _sync_folder(folder: Path) -> None:
    if os.name != "posix":
        return  # Windows opens no folders
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

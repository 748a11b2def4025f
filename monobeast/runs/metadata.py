"""`meta.json`: a run's origin, from an allow-list; never the environment variables."""

import dataclasses
import datetime
import json
import os
import platform
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

import monobeast
from monobeast.config import Config
from monobeast.files import replaced
from monobeast.resources import machine

FILE_NAME = "meta.json"
# What is kept of a start when the run is gone on with.
_HISTORY = ("start", "end", "state", "reason", "step", "command_line", "git_commit", "resumed_from_step", "changes")
_PACKAGES = ("torch", "gymnasium", "ale-py", "numpy")
_CHECKOUT = Path(monobeast.__file__).parent.parent  # where this package lies in one


class Metadata:
    """The file `meta.json` of one run; rewritten whole at every change.

    Args:
        folder: Of the run.
        config: Resolved.
        resumed_from: The step of the checkpoint from which the run is resumed.
        changes: Settings that differ from the previous start: name, values before and now.
        auto: The text of `autotuning` on the sizes that it chose.
    """

    def __init__(
        self,
        folder: Path,
        config: Config,
        resumed_from: int | None = None,
        changes: dict[str, Any] | None = None,
        auto: str | None = None,
    ) -> None:
        self._path = folder / FILE_NAME
        self._content: dict[str, Any] = {
            "config": dataclasses.asdict(config),
            "auto": auto,
            "command_line": [Path(sys.argv[0]).name, *sys.argv[1:]],  # where the program lies is nobody's business
            "python": platform.python_version(),
            "packages": {name: _package_version(name) for name in ("monobeast", *_PACKAGES)},
            "git_commit": _git_commit(_CHECKOUT),
            "platform": platform.platform(),
            "cpu": machine.name_cpu(),
            "cpu_count": os.cpu_count(),
            "gpu": torch.cuda.get_device_name(config.device) if config.device != "cpu" else None,
            "start": _now(),
            "end": None,
            "state": "running",
        }
        if resumed_from is not None:
            self._content |= {"resumed_from_step": resumed_from, "changes": changes, "history": self._read_history()}
        self._write()

    def finish(self, state: str, **results: Any) -> None:
        """Records how the run ended: `state` is complete, stopped or failed; `results` are numbers and texts."""
        self._content |= {"end": _now(), "state": state, **results}
        self._write()

    def _read_history(self) -> list[dict[str, Any]]:
        """The previous starts, oldest first."""
        try:
            before = json.loads(self._path.read_text())
            history = [*before.pop("history", [])]
        except (OSError, ValueError, AttributeError, TypeError):
            return []  # a damaged file is no reason not to go on
        return [*history, {name: before[name] for name in _HISTORY if name in before}]

    def _write(self) -> None:
        with replaced(self._path) as partial:
            partial.write_text(json.dumps(self._content, indent=2) + "\n")


def _now() -> str:
    return datetime.datetime.now().astimezone().isoformat(timespec="seconds")


def _package_version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _git_commit(checkout: Path) -> str | None:
    """The checked-out commit, marked if files differ from it; None outside of a checkout.

    Recorded results do not count as differences, since they are output, not code.
    """
    if not (checkout / ".git").exists():
        return None

    def ask_git(*arguments: str) -> str:
        command = ["git", "-C", str(checkout), *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.strip()

    try:
        commit = ask_git("rev-parse", "HEAD")
        changes = ask_git("status", "--porcelain", "--untracked-files=no", "--", ".", ":(exclude)results")
    except (OSError, subprocess.SubprocessError):
        return None
    return f"{commit}-dirty" if changes else commit

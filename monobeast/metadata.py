"""`meta.json`: what made a run, from an allow-list; never the environment's variables."""

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

from monobeast.config import Config

FILE_NAME = "meta.json"
_PACKAGES = ("torch", "gymnasium", "ale-py", "numpy")


class Metadata:
    """The file `meta.json` of one run; rewritten whole at every change."""

    def __init__(self, folder: Path, config: Config) -> None:
        """Writes the configuration (resolved) and where and with what it runs."""
        self._path = folder / FILE_NAME
        self._content: dict[str, Any] = {
            "config": dataclasses.asdict(config),
            "command_line": [Path(sys.argv[0]).name, *sys.argv[1:]],  # where the program lies is nobody's business
            "python": platform.python_version(),
            "packages": {name: _package_version(name) for name in ("monobeast", *_PACKAGES)},
            "git_commit": _git_commit(),
            "platform": platform.platform(),
            "cpu": _cpu_name(),
            "cpu_count": os.cpu_count(),
            "gpu": torch.cuda.get_device_name(config.device) if config.device != "cpu" else None,
            "start": _now(),
            "end": None,
            "state": "running",
        }
        self._write()

    def finish(self, state: str, **results: Any) -> None:
        """Records the end: `state` is complete, stopped or failed; `results` are numbers and texts."""
        self._content |= {"end": _now(), "state": state, **results}
        self._write()

    def _write(self) -> None:
        partial = self._path.with_suffix(".partial")
        partial.write_text(json.dumps(self._content, indent=2) + "\n")
        os.replace(partial, self._path)


def _now() -> str:
    return datetime.datetime.now().astimezone().isoformat(timespec="seconds")


def _package_version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _git_commit() -> str | None:
    """The commit of the checkout this package lies in, marked where files differ from it; None outside a checkout."""
    checkout = Path(__file__).parent.parent
    if not (checkout / ".git").exists():
        return None
    command = ["git", "-C", str(checkout), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor()

"""`python -m monobeast` of this checkout, as scripts run it in a process of its own."""

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def monobeast(*arguments: str) -> list[str]:
    """The words of a command, by the Python that runs this."""
    return [sys.executable, "-m", "monobeast", *arguments]


def environment(*folders: Path) -> dict[str, str]:
    """This process's variables, but that modules are looked for in this checkout, then in `folders`, before others."""
    before = filter(None, [os.environ.get("PYTHONPATH")])  # an empty entry would be the current folder
    return os.environ | {"PYTHONPATH": os.pathsep.join([*map(str, (ROOT, *folders)), *before])}

"""docs/extending.md: its files are copied out, its commands are run, in order."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "extending.md").read_text().replace("0000", "000").replace("0_000", "_000")  # fewer steps
FILES = dict(re.findall(r"`(\w+\.py)`:\n\n```python\n(.*?)```", PAGE, re.DOTALL))
COMMANDS = re.findall(r"^    python (.*)", PAGE, re.MULTILINE)


def test_every_example_is_of_about_twenty_lines():
    lengths = {name: len([line for line in text.splitlines() if line.strip()]) for name, text in FILES.items()}

    names = ["my_env.py", "my_reach.py", "my_network.py", "my_parts.py", "my_parts_network.py", "my_training.py"]
    assert list(lengths) == names
    assert all(length <= 22 for length in lengths.values())


@pytest.mark.skipif(os.name != "posix", reason="HOME is where runs go on POSIX")
def test_the_files_do_what_the_page_says(tmp_path):
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    environment = os.environ | {"PYTHONPATH": str(ROOT), "HOME": str(tmp_path), "OMP_NUM_THREADS": "1"}

    for command in COMMANDS:
        words = [sys.executable, *command.split()]
        result = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=200)
        errors = [line for line in result.stderr.splitlines() if not line.startswith("auto: measuring")]
        assert (result.returncode, errors) == (0, []), command

    settings = {}
    for xpid in ("corridor", "reach", "own", "both", "parts", "own_parts", "python"):
        meta = json.loads((tmp_path / "logs" / "monobeast" / xpid / "meta.json").read_text())
        assert meta["state"] == "complete"
        settings[xpid] = meta["config"]["env"], meta["config"]["network"], meta["step"]
    assert settings == {
        "corridor": ("my_env:Corridor-v0", "mlp", 2000),
        "reach": ("my_reach:Reach-v0", "mlp", 10000),
        "own": ("my_env:Corridor-v0", "my_network:MyNet", 3040),
        "both": ("my_reach:Reach-v0", "my_network:MyNet", 2000),
        "parts": ("my_parts:Lights-v0", "shallow", 2000),
        "own_parts": ("my_parts:Lights-v0", "my_parts_network:PartsNet", 2000),
        "python": ("my_training:make_environments(...)", "my_network:MyNet", 2000),
    }

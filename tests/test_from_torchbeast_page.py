"""What docs/from_torchbeast.md says of flags and commands is so."""

import dataclasses
import re
from pathlib import Path

from monobeast.__main__ import _COMMANDS
from monobeast.config import Config
from monobeast.presets import PRESETS

PAGE = (Path(__file__).parent.parent / "docs" / "from_torchbeast.md").read_text()
FIELDS = {setting.name for setting in dataclasses.fields(Config)}
NOT_FIELDS = {"mode", "num_threads"}  # of TorchBeast; both are understood


def test_every_flag_on_the_page_is_one_of_ours():
    assert set(re.findall(r"--(\w+)", PAGE)) - NOT_FIELDS <= FIELDS


def test_every_flag_of_the_preset_stands_in_the_table():
    table = PAGE.split("## Flags")[1].split("## Files")[0]
    flags = set(re.findall(r"^\| `--(\w+)`", table, re.MULTILINE))

    # What MonoBeast has no flag for.
    assert set(PRESETS["torchbeast"]) - flags == {"envs_per_actor", "optimizer", "rmsprop_start", "entropy_cost_end"}


def test_every_command_on_the_page_is_one_of_ours():
    assert set(re.findall(r"python -m monobeast ([\w-]+)", PAGE)) <= set(_COMMANDS)

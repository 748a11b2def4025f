"""The README's tables say what the code says."""

import dataclasses
import re
from pathlib import Path

from monobeast.config import Config
from monobeast.runs.logs import LOG_COLUMNS
from monobeast.presets import PRESETS
from monobeast.rollouts import Rollout

README = (Path(__file__).parent.parent / "README.md").read_text()


def test_every_flag_stands_in_the_table_with_its_default_and_meaning():
    expected = [
        f"| `--{setting.name}` | {'' if setting.default is None else setting.default} | {setting.metadata['help']} |"
        for setting in dataclasses.fields(Config)
    ]
    table = README.split("| flag | default | meaning |")[1].split("\n\n")[0]
    rows = [line for line in table.splitlines() if line.startswith("| `--")]

    assert [row.replace("\\|", "|") for row in rows] == expected


def test_every_preset_stands_in_its_table():
    table = README.split("## Presets")[1].split("## ")[0]
    values = {name: [preset[name] for preset in PRESETS.values()] for name in PRESETS["atari"]}
    cells = [[f"`--{name}`", *("" if one is None else str(one) for one in row)] for name, row in values.items()]
    expected = [f"| {' | '.join(row)} |" for row in cells]

    assert [line for line in table.splitlines() if line.startswith("| `--")] == expected


def test_every_logged_column_is_explained():
    table = README.split("## Logged columns")[1].split("## ")[0]

    first_cells = "".join(re.findall(r"^\| (`.*?) \|", table, re.MULTILINE))
    assert tuple(re.findall(r"`(\w+)`", first_cells)) == (*LOG_COLUMNS, "dead_units_K")


def test_every_field_of_a_rollout_stands_in_the_table_of_shapes():
    table = README.split("| paper (arXiv")[1].split("\n\n")[0]

    assert set(Rollout._fields) <= set(re.findall(r"`(\w+)`", table))

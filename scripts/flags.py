"""Generates the tables of docs/flags.md, presets and flags, from the code: `python scripts/flags.py`."""

import argparse
import dataclasses
import itertools
import re
from pathlib import Path
from typing import Any

from monobeast.config import Config
from monobeast.presets import PRESETS

PAGE = Path(__file__).parent.parent / "docs" / "flags.md"
# Headings of the groups of `Config`.
_TITLES = {
    "run": "The run",
    "actors": "Actors",
    "learner": "Learner",
    "loss": "Loss",
    "network": "Network",
    "environment": "Environment (also flags of `test`)",
    "test": "Only for `test`",
}
_BLOCK = re.compile(r"(<!-- from the code: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def _row(*cells: Any) -> str:
    return f"| {' | '.join('' if cell is None else str(cell) for cell in cells)} |"


def _presets() -> list[str]:
    lines = [_row("flag", *(f"`{name}`" for name in PRESETS)), _row(*["---"] * (len(PRESETS) + 1))]
    for name in dict.fromkeys(itertools.chain.from_iterable(PRESETS.values())):
        lines.append(_row(f"`--{name}`", *(preset.get(name) for preset in PRESETS.values())))
    return lines


def _flags() -> list[str]:
    lines = []
    for group, settings in itertools.groupby(dataclasses.fields(Config), lambda setting: setting.metadata["group"]):
        lines += [f"### {_TITLES[group]}", "", _row("flag", "default", "meaning"), _row("---", "---", "---")]
        for setting in settings:
            meaning = setting.metadata["help"].replace("|", "\\|")
            lines.append(_row(f"`--{setting.name}`", setting.default, meaning))
        lines.append("")
    return lines[:-1]


_MAKERS = {"presets": _presets, "flags": _flags}


def render(page: str) -> str:
    """The page with its tables regenerated."""
    return _BLOCK.sub(lambda block: "\n".join([block[1].rstrip(), "", *_MAKERS[block[2]](), "", block[3]]), page)


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()
    PAGE.write_text(render(PAGE.read_text()))

"""Generates the tables of docs/flags.md, presets and flags, from the code: `python scripts/flags.py`."""

import argparse
import dataclasses
import itertools
from pathlib import Path

from pages import fill, table

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


def _presets() -> str:
    names = dict.fromkeys(itertools.chain.from_iterable(PRESETS.values()))
    rows = [[f"`--{name}`", *(preset.get(name) for preset in PRESETS.values())] for name in names]
    return table(["flag", *(f"`{name}`" for name in PRESETS)], rows)


def _flags() -> str:
    parts = []
    for group, settings in itertools.groupby(dataclasses.fields(Config), lambda setting: setting.metadata["group"]):
        rows = [[f"`--{one.name}`", one.default, one.metadata["help"].replace("|", "\\|")] for one in settings]
        parts += [f"### {_TITLES[group]}", table(["flag", "default", "meaning"], rows)]
    return "\n\n".join(parts)


def render(page: str) -> str:
    """The page with its tables made anew."""
    return fill(page, __file__, {"presets": _presets, "flags": _flags})


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()
    PAGE.write_text(render(PAGE.read_text()))

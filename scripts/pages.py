"""Pages that scripts write in part: the blocks between `<!-- from scripts/NAME.py: BLOCK -->` and `<!-- end -->`."""

import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any


def fill(page: str, script: str, makers: dict[str, Callable[[], str]]) -> str:
    """The page with the script's blocks made anew; those of other scripts stay as they are.

    Args:
        page: The text.
        script: Path of the script, its `__file__`.
        makers: What gives the text of each block, by its name; an empty one leaves nothing between the comments.

    Raises:
        KeyError: a block of the script's has no maker.
    """

    def write(block: re.Match) -> str:
        text = makers[block["name"]]()
        return block["begin"] + (f"\n{text}\n\n" if text else "") + block["end"]

    begin = rf"<!-- from scripts/{re.escape(Path(script).name)}: (?P<name>\w+) -->\n"
    return re.sub(rf"(?P<begin>{begin}).*?(?P<end><!-- end -->)", write, page, flags=re.DOTALL)


def table(head: Sequence[str], rows: Iterable[Iterable[Any]]) -> str:
    """A table in Markdown; cells that are None, and those that a row has too few of, are empty."""
    lines = [head, ["---"] * len(head), *([*row] for row in rows)]
    return "\n".join(_line([*line, *[None] * (len(head) - len(line))]) for line in lines)


def _line(cells: Iterable[Any]) -> str:
    return f"| {' | '.join('' if cell is None else str(cell) for cell in cells)} |"

"""The table of README.md beside this file names tests that exist, and leaves out no case."""

import ast
import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
README = (TESTS / "README.md").read_text()
CASES = [
    *(f"P{n:02}" for n in range(1, 19)),
    *(f"V{n:02}" for n in range(8, 13)),
    *(f"E{n:02}" for n in (1, 4, *range(8, 16))),
    *(f"S{n:02}" for n in range(1, 22)),
]
NAMED = sorted(set(re.findall(r"`(\w+\.py)::(\w+)`", README)))


def test_every_case_has_its_row_with_a_test():
    rows = re.findall(r"^\| ([PVES]\d\d) \| [^|]+ \| `\w+\.py::\w+`", README, re.MULTILINE)

    assert rows == CASES


@pytest.mark.parametrize(("file", "name"), NAMED)
def test_a_test_that_is_named_exists(file, name):
    tree = ast.parse((TESTS / file).read_text())

    assert name in [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]


def test_every_slow_test_of_endurance_has_its_outcome():
    tree = ast.parse((TESTS / "test_endurance.py").read_text())
    slow = {node.name for node in tree.body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")}

    outcomes = README.split("## Slow tests")[1]
    assert set(re.findall(r"`test_endurance\.py::(\w+)`", outcomes)) == slow

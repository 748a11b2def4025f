"""Generates the table of equations of docs/vtrace.md from docstrings: `python scripts/equations.py`.

A mathematical function or a test is listed in the row of every equation that its docstring names. A test that is or may
be skipped, or is expected to fail, is not listed, since it shows nothing.
"""

import argparse
import ast
import re
from functools import cache
from pathlib import Path

from pages import fill, table

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "vtrace.md"
MATHEMATICS = [ROOT / "monobeast" / f"{name}.py" for name in ("vtrace", "corrections", "losses", "learner")]
TESTS = sorted((ROOT / "tests").glob("test_*.py"))
EQUATIONS = {
    "equation (1)": "v_s, with delta, rho and c",
    "equation (2)": "on-policy: the n-step return",
    "equation (3)": "the policy that rho-bar leads to",
    "equation (4)": "the policy gradient's q_s",
    "remark 1": "the backward recursion",
    "remark 2": "lambda",
    "theorem 1": "fixed point and contraction",
    "section 4.2": "the three updates",
    "appendix D.1": "losses are sums",
    "table 2": "other corrections",
}
_SKIP = re.compile(r"\b(?:skip|skipif|xfail|importorskip)\b")
_CITATION = re.compile(r"equation \(\d\)|(?:remark|theorem|table) \d|section \d\.\d|appendix \w\.\d", re.IGNORECASE)


@cache
def find_citations(path: Path) -> list[tuple[str, str]]:
    """Every equation that a function's docstring names, spelled as in `EQUATIONS`, with the function's name."""
    nodes = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef)]
    named = [(node.name, _CITATION.findall(ast.get_docstring(node) or "")) for node in nodes if node.name[0] != "_"]
    return [(text[0].lower() + text[1:], name) for name, texts in named for text in dict.fromkeys(texts)]


def find_functions(equation: str) -> list[str]:
    """Functions that compute the equation."""
    cited = [(path, *citation) for path in MATHEMATICS for citation in find_citations(path)]
    return [f"`{path.stem}.{name}`" for path, found, name in cited if found == equation]


def find_tests(equation: str) -> list[str]:
    """Tests of the equation: their files, and their names as sentences."""
    cited = [(path, *citation) for path in TESTS for citation in find_citations(path)]
    tests = [(path.stem, name) for path, found, name in cited if found == equation and name in find_run(path)]
    return [f"`{stem}`: {name.removeprefix('test_').replace('_', ' ')}" for stem, name in tests]


@cache
def find_run(path: Path) -> set[str]:
    """Names of a file's tests that always run; of functions with one name, pytest takes the last at module level."""
    body = ast.parse(path.read_text()).body
    functions = {node.name: node for node in body if isinstance(node, ast.FunctionDef)}
    others = [node for node in body if not isinstance(node, ast.FunctionDef)]
    if any(_SKIP.search(ast.unparse(node)) for node in others):  # a mark of all tests, or a name for one
        return set()
    tests = {name: node for name, node in functions.items() if name.startswith("test_")}
    return {name for name, node in tests.items() if not _SKIP.search(ast.unparse(node))}


def render(page: str) -> str:
    """The page with its table made anew."""
    return fill(page, __file__, {"equations": _equations})


def _equations() -> str:
    rows = [
        [equation, what, ", ".join(find_functions(equation)), "; ".join(find_tests(equation))]
        for equation, what in EQUATIONS.items()
    ]
    return table(["arXiv 1802.01561", "what", "function", "test"], rows)


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()
    PAGE.write_text(render(PAGE.read_text()))

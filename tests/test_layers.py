"""The house: which file may import which."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import monobeast

PACKAGE = Path(monobeast.__file__).parent

# A file imports only from rows above it.
ROWS = [
    "vtrace",
    "losses",
    "config",
    "seeding",
    "networks",
    "environments",
    "rollouts",
    "queues",
    "weights",
    "processes",
    "policy",
    "actor",
    "learner",
    "actor_pool",
    "checkpoint",
    "run_folder",
    "metadata",
    "logs",
    "training",
    "evaluation",
    "commands",
    "__main__",
]


def imported_modules(path):
    """Names below `monobeast` that a file imports, anywhere in it."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            package, _, rest = name.partition(".")
            if package == "monobeast":
                yield rest.split(".")[0]


def row_of(path):
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_file_imports_only_from_rows_above_it(path):
    row = row_of(path)
    if row == "__init__":
        return  # imports on request alone; the next tests see that
    above = ROWS[: ROWS.index(row)]
    for name in imported_modules(path):
        if name in ROWS:
            assert name in above or (name == row and path.parent != PACKAGE)


@pytest.mark.parametrize(
    ("module", "absent"),
    [
        ("monobeast", ["torch", "gymnasium", "numpy"]),
        ("monobeast.config", ["torch", "gymnasium", "numpy"]),
        ("monobeast.__main__", ["torch", "gymnasium", "numpy"]),
        ("monobeast.environments", ["torch"]),
        ("monobeast.vtrace", ["gymnasium"]),
    ],
)
def test_an_import_brings_nothing_that_it_does_not_need(module, absent):
    code = f"import sys, {module}; print(*set(sys.modules).intersection({absent}))"

    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.split() == []


def test_mathematics_imports_torch_alone():
    for name in ("vtrace", "losses"):
        assert set(imported_modules(PACKAGE / f"{name}.py")) <= {"vtrace"}

"""The house: which file may import which."""

import ast
import configparser
import re
import subprocess
import sys
from pathlib import Path

import pytest

import monobeast

PACKAGE = Path(monobeast.__file__).parent

# A file imports only from rows above it.
ROWS = [
    "vtrace",
    "corrections",
    "losses",
    "moments",
    "errors",
    "vtrace_vectors",
    "vtrace_check",
    "atari_scores",
    "registration",
    "user_code",
    "files",
    "presets",
    "config",
    "phrases",
    "seeding",
    "plain_values",
    "one_hot",
    "distributions",
    "trees",
    "networks",
    "environments",
    "makers",
    "rollouts",
    "rewards",
    "reward_normalizer",
    "queues",
    "bottleneck",
    "timeline",
    "weights",
    "allocator",
    "signals",
    "main_script",
    "start_methods",
    "child_setup",
    "watched_process",
    "silence",
    "child",
    "trial",
    "restarts",
    "policy",
    "episode",
    "actor",
    "health",
    "faults",
    "transfer",
    "publisher",
    "optimizers",
    "learner",
    "rollout_source",
    "actor_pool",
    "inline_actor",
    "costs",
    "resources",
    "runs",
    "stall_watch",
    "autotuning",
    "preparation",
    "score",
    "film",
    "window",
    "player",
    "evaluator",
    "evaluation_schedule",
    "session",
    "training",
    "onnx_file",
    "plotting",
    "benchmarks",
    "commands",
    "__main__",
]


def imported_modules(path):
    """Names below `monobeast` that a file imports, anywhere in it."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative imports are not looked through"
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
        ("monobeast.vtrace_check", ["torch", "gymnasium"]),
        ("monobeast.commands.check_vtrace", ["torch", "gymnasium"]),
        ("monobeast.commands.plot", ["torch", "gymnasium", "matplotlib"]),
        ("monobeast.commands.plan", ["torch", "gymnasium"]),
        ("monobeast.commands.ls", ["torch", "gymnasium"]),
        ("monobeast.commands.export", ["torch", "gymnasium"]),
        ("monobeast.commands.import_torchbeast", ["torch", "gymnasium"]),
        ("monobeast.commands.benchmark", ["torch", "gymnasium"]),
        ("monobeast.resources.machine", ["torch", "gymnasium"]),
        ("monobeast.runs.console", ["torch", "gymnasium", "tqdm"]),
        ("monobeast.plotting.figure", ["torch", "gymnasium", "matplotlib.pyplot"]),
    ],
)
def test_an_import_brings_nothing_that_it_does_not_need(module, absent):
    code = f"import sys, {module}; print(*set(sys.modules).intersection({absent}))"

    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert result.stdout.split() == []


@pytest.mark.parametrize("name", ["vtrace", "corrections", "losses"])
def test_mathematics_imports_torch_alone(name):
    nodes = ast.walk(ast.parse((PACKAGE / f"{name}.py").read_text()))
    modules = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    nodes = ast.walk(ast.parse((PACKAGE / f"{name}.py").read_text()))
    modules |= {node.module for node in nodes if isinstance(node, ast.ImportFrom)}

    modules.discard("monobeast.vtrace")  # which is mathematics itself
    assert {module.split(".")[0] for module in modules} <= {"torch", "typing", "collections"}


def test_every_package_that_is_imported_is_declared():
    setup = configparser.ConfigParser()
    setup.read(PACKAGE.parent / "setup.cfg")
    extras = setup["options.extras_require"]
    optional = [extras[name] for name in ("progress", "plot", "video", "render", "onnx", "tensorboard", "wandb")]
    declared = "\n".join([setup["options"]["install_requires"], *optional])
    declared = {name.replace("-", "_") for name in re.findall(r"^[\w-]+", declared, re.MULTILINE)}
    imported = set()
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module] if isinstance(node, ast.ImportFrom) else []
            imported |= {name.split(".")[0] for name in names}

    declared -= {"onnx"}  # onnxscript's own, which it does not ask for
    declared = {name.removesuffix("_ce") for name in declared}  # pygame-ce is imported as pygame
    declared -= {"tensorboard"}  # which torch imports
    assert imported - sys.stdlib_module_names - {"monobeast"} == declared

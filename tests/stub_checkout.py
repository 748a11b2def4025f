"""A copy of the checkout in which the tests of the scripts can break and mend things in milliseconds.

The scripts are the real ones, and so are the virtual environments that they make. Two things are not: the Python to
build on is a shell script that leaves pip out of a new environment (which takes seconds) and puts in the stub below,
and this pip "installs" by writing empty packages, and notes each call.
"""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent

STUB_PYTHON = """#!/bin/sh
case "$*" in
  *"-m venv "*)
    "$REAL_PYTHON" "$@" --without-pip || exit
    for venv; do :; done
    site=$(echo "$venv"/lib/python*/site-packages)
    mkdir "$site/pip" && cp "$STUB_PIP" "$site/pip/__main__.py" && touch "$site/pip/__init__.py" ;;
  *_base_executable*) "$REAL_PYTHON" "$@" >/dev/null && echo "$0" ;;
  *) exec "$REAL_PYTHON" "$@" ;;
esac
"""

STUB_PIP = '''
import os, pathlib, sys, time
arguments = sys.argv[1:]
with open(os.environ["PIP_CALLS"], "a") as calls:
    print(*arguments, file=calls)
package = arguments[arguments.index("-e") + 1]
assert package == "." or package.startswith(".[") and len(package) > len(".[]"), package
assert pathlib.Path("setup.cfg").exists() and "constraints.txt" in arguments
time.sleep(float(os.environ.get("PIP_SECONDS", "0")))
if os.environ.get("PIP_FAILS") == "before it changes anything":
    sys.exit("ERROR: Could not find a version that satisfies the requirement")
site = pathlib.Path(__file__).parent.parent
for name in ["torch", "monobeast"] + ["pytest"] * ("test" in package):
    (site / name).mkdir(exist_ok=True)
    (site / name / "__init__.py").touch()
    (site / name / "__main__.py").write_text("import os, sys; print(os.getcwd(), *sys.argv[1:], sep='|')")
if os.environ.get("PIP_FAILS") == "half-way":
    sys.exit("ERROR: Could not install packages due to an OSError: No space left on device")
'''


# A Python of another version: {number} as it calls itself, {tuple} as sys.version_info.
STUB_OTHER_PYTHON = """#!/bin/sh
case "$*" in
  --version) echo "Python {number}" ;;
  *_base_executable*) exec "$REAL_PYTHON" -I -c "import sys; sys.version_info = {tuple}; $3" ;;
  *) exit 1 ;;
esac
"""


def write_program(path: Path, text: str) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def write_other_python(path: Path, number: str) -> Path:
    return write_program(path, STUB_OTHER_PYTHON.format(number=number, tuple=tuple(map(int, number.split(".")))))


class Checkout:
    """A copy of what the scripts read, and the calls of pip that they made there."""

    def __init__(self, folder: Path):
        self.root = folder / "my checkout"
        self.elsewhere = folder / "elsewhere"
        self.calls_file = folder / "pip calls"
        self.elsewhere.mkdir()
        self.root.mkdir()
        shutil.copytree(ROOT / "scripts", self.root / "scripts")
        for name in ("setup.cfg", "pyproject.toml", "constraints.txt"):
            shutil.copy(ROOT / name, self.root)
        write_program(folder / "bin/python3", STUB_PYTHON)
        (folder / "stub_pip.py").write_text(STUB_PIP)
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("PYTHON")},
            "PATH": f"{folder}/bin:{os.environ['PATH']}",
            "REAL_PYTHON": sys.executable,
            "STUB_PIP": str(folder / "stub_pip.py"),
            "PIP_CALLS": str(self.calls_file),
        }

    @property
    def venv(self) -> Path:
        return self.root / ".venv"

    @property
    def site(self) -> Path:
        return next(self.venv.glob("lib/python*/site-packages"))

    def start(self, script: str, *arguments: str, **environment: str) -> subprocess.Popen:
        return subprocess.Popen(
            [self.root / "scripts" / script, *arguments],
            cwd=self.elsewhere,
            env={**self.environment, **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def run(self, script: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess:
        process = self.start(script, *arguments, **environment)
        try:
            output, error = process.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            raise
        return subprocess.CompletedProcess(process.args, process.returncode, output, error)

    def pip_calls(self) -> list[str]:
        return self.calls_file.read_text().splitlines() if self.calls_file.exists() else []

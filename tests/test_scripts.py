"""scripts/train and scripts/test: when they install, when they don't, and what they mend.

The scripts are the real ones, in a copy of the checkout, and so are the virtual environments that they make. Two things are
not: the Python to build on is a shell script that leaves pip out of a new environment (which takes seconds) and puts in
the stub below, and the stub "installs" by writing empty packages, noting each call.
"""

import configparser
import importlib.metadata
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

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
        python = folder / "python"
        python.write_text(STUB_PYTHON)
        python.chmod(0o755)
        (folder / "stub_pip.py").write_text(STUB_PIP)
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("PYTHON")},
            "PYTHON": str(python),
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


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path)


@pytest.fixture
def trained(checkout: Checkout) -> Checkout:
    assert checkout.run("train").returncode == 0
    return checkout


def test_train_installs_then_trains_in_the_folder_it_was_called_from(checkout):
    result = checkout.run("train", "--xpid", "two words", "")
    assert result.stdout == f"{checkout.elsewhere}|train|--xpid|two words|\n"
    assert [call.split()[-2:] for call in checkout.pip_calls()] == [["-e", "."]]


def test_test_installs_its_extra_then_tests_in_the_root_of_the_checkout(checkout):
    result = checkout.run("test", "-m", "slow or gpu")
    assert result.stdout == f"{checkout.root}|-m|slow or gpu\n"
    assert [call.split()[-2:] for call in checkout.pip_calls()] == [["-e", ".[test]"]]


@pytest.mark.parametrize("script", ["train", "test"])
def test_the_second_call_installs_and_says_nothing(checkout, script):
    checkout.run(script)
    second = checkout.run(script)
    assert (second.returncode, second.stderr, len(checkout.pip_calls())) == (0, "", 1)


def test_test_after_train_adds_its_extra_once_and_train_after_it_installs_nothing(trained):
    results = [trained.run(script) for script in ("test", "train", "test")]
    assert [result.returncode for result in results] == [0, 0, 0]
    assert [call.split()[-1] for call in trained.pip_calls()] == [".", ".[test]"]


@pytest.mark.parametrize("name", ["setup.cfg", "pyproject.toml", "constraints.txt"])
def test_a_change_of_what_to_install_installs_again_with_the_extras_already_there(checkout, name):
    checkout.run("test")
    with open(checkout.root / name, "a") as file:
        file.write("# changed\n")
    assert checkout.run("train").returncode == 0
    assert checkout.run("test").returncode == 0
    assert [call.split()[-1] for call in checkout.pip_calls()] == [".[test]", ".[test]"]


def remove_the_stamp(checkout: Checkout) -> None:
    (checkout.venv / "installed").unlink()


def remove_a_required_package(checkout: Checkout) -> None:
    shutil.rmtree(checkout.site / "torch")


def remove_python(checkout: Checkout) -> None:
    (checkout.venv / "bin/python").unlink()


def let_python_dangle(checkout: Checkout) -> None:
    remove_python(checkout)
    (checkout.venv / "bin/python").symlink_to("/nowhere/python3.11")


def put_another_python_under_it(checkout: Checkout) -> None:
    remove_python(checkout)
    (checkout.venv / "bin/python").write_text("#!/bin/sh\necho Python 3.10.1\n")
    (checkout.venv / "bin/python").chmod(0o755)


def move_the_checkout(checkout: Checkout) -> None:
    checkout.root = checkout.root.rename(checkout.root.with_name("moved"))


def leave_a_file_in_its_place(checkout: Checkout) -> None:
    shutil.rmtree(checkout.venv)
    checkout.venv.touch()


@pytest.mark.parametrize(
    "damage",
    [
        remove_the_stamp,
        remove_a_required_package,
        remove_python,
        let_python_dangle,
        put_another_python_under_it,
        move_the_checkout,
        leave_a_file_in_its_place,
    ],
)
def test_a_damaged_environment_is_made_anew(trained, damage):
    (trained.site / "remnant").mkdir()
    damage(trained)
    mended = trained.run("train")
    assert mended.stdout == f"{trained.elsewhere}|train\n"
    assert len(trained.pip_calls()) == 2
    assert not (trained.site / "remnant").exists()
    assert trained.run("train").stderr == ""


def test_a_failing_install_ends_with_the_words_of_pip_and_leaves_no_stamp(checkout):
    failed = checkout.run("train", PIP_FAILS="half-way")
    assert failed.returncode == 1
    assert failed.stdout == ""
    assert "No space left on device" in failed.stderr
    assert not (checkout.venv / "installed").exists()
    assert checkout.run("train").returncode == 0


def test_without_a_network_what_was_installed_before_goes_on_working(trained):
    assert trained.run("test", PIP_FAILS="before it changes anything").returncode == 1
    assert trained.run("train").returncode == 0
    assert len(trained.pip_calls()) == 2


def test_an_addition_that_fails_half_way_is_made_anew(trained):
    assert trained.run("test", PIP_FAILS="half-way").returncode == 1
    assert not (trained.venv / "installed").exists()
    (trained.site / "remnant").mkdir()
    assert trained.run("test").returncode == 0
    assert not (trained.site / "remnant").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupted_install_is_made_anew(trained, number):
    (trained.site / "remnant").mkdir()
    process = trained.start("test", PIP_SECONDS="60")
    while len(trained.pip_calls()) < 2:
        assert process.poll() is None
        time.sleep(0.01)
    os.killpg(process.pid, number)
    process.communicate(timeout=60)
    assert process.returncode != 0
    assert trained.run("test").stdout == f"{trained.root}\n"
    assert not (trained.site / "remnant").exists()


@pytest.mark.skipif(shutil.which("flock") is None, reason="without flock nothing keeps two installs apart")
def test_two_scripts_started_at_once_install_once(checkout):
    processes = [checkout.start("test", PIP_SECONDS="0.3") for _ in range(3)]
    outputs = [process.communicate(timeout=60)[0] for process in processes]
    assert outputs == [f"{checkout.root}\n"] * 3
    assert len(checkout.pip_calls()) == 1


@pytest.mark.parametrize("version", ["Python 3.10.13", "Python 2.7.18"])
def test_a_python_too_old_is_refused_before_anything_changes(trained, tmp_path, version):
    old = tmp_path / "old"
    old.write_text(f'#!/bin/sh\n[ "$1" = --version ] && echo "{version}"\n')
    old.chmod(0o755)
    refused = trained.run("train", PYTHON=str(old))
    assert refused.returncode == 1
    assert f"{old} ({version})" in refused.stderr
    assert trained.run("train").stderr == ""


def test_a_python_without_venv_is_refused_with_the_name_of_the_missing_package(checkout, tmp_path):
    bare = tmp_path / "bare"
    bare.write_text(STUB_PYTHON.replace('"$REAL_PYTHON" "$@" --without-pip', "false"))
    bare.chmod(0o755)
    refused = checkout.run("train", PYTHON=str(bare))
    assert refused.returncode == 1
    assert "python3-venv" in refused.stderr


def test_a_link_to_the_script_works_from_anywhere(trained):
    link = trained.elsewhere / "train"
    link.symlink_to(trained.root / "scripts/train")
    result = subprocess.run([link, "--help"], cwd="/", env=trained.environment, capture_output=True, text=True)
    assert result.stdout == "/|train|--help\n"


def test_constraints_pin_the_versions_that_the_tests_run_with():
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    required = setup["options"]["install_requires"] + setup["options.extras_require"]["test"]
    names = re.findall(r"^([\w-]+)", required, re.MULTILINE)
    pins = dict(re.findall(r"^([\w-]+)==(\S+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE))
    # On a machine without CUDA, torch calls itself 2.13.0+cpu.
    assert {name: pins.get(name) for name in names} == {
        name: importlib.metadata.version(name).partition("+")[0] for name in names
    }

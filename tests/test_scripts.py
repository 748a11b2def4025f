"""scripts/train and scripts/test: when they install, when they don't, and what they mend."""

import configparser
import importlib.metadata
import os
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest
from stub_checkout import ROOT, STUB_PYTHON, Checkout, write_other_python, write_program


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
    assert [call.split()[-2:] for call in checkout.pip_calls()] == [["-e", ".[progress]"]]


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
    assert [call.split()[-1] for call in trained.pip_calls()] == [".[progress]", ".[progress,test]"]


@pytest.mark.parametrize("name", ["setup.cfg", "pyproject.toml", "constraints.txt"])
def test_a_change_of_what_to_install_installs_again_with_the_extras_already_there(checkout, name):
    checkout.run("test")
    with open(checkout.root / name, "a") as file:
        file.write("# changed\n")
    assert checkout.run("train").returncode == 0
    assert checkout.run("test").returncode == 0
    assert [call.split()[-1] for call in checkout.pip_calls()] == [".[test]", ".[progress,test]"]


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
    write_other_python(checkout.venv / "bin/python", "3.10.1")


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


@pytest.mark.parametrize("number", ["3.10.13", "3.14.0"])
def test_a_python_that_does_not_fit_is_refused_before_anything_changes(trained, tmp_path, number):
    other = write_other_python(tmp_path / "other", number)
    refused = trained.run("train", PYTHON=str(other))
    assert refused.returncode == 1
    assert f"{other} (Python {number})" in refused.stderr
    assert trained.run("train").stderr == ""


def test_a_python3_that_does_not_fit_is_passed_over_for_another_on_the_path(checkout, tmp_path):
    write_program(tmp_path / "bin/python3.13", STUB_PYTHON)
    write_other_python(tmp_path / "bin/python3", "3.10.13")
    assert checkout.run("train").returncode == 0


def test_a_python_without_venv_is_refused_with_the_name_of_the_missing_package(checkout, tmp_path):
    bare = write_program(tmp_path / "bare", STUB_PYTHON.replace('"$REAL_PYTHON" "$@" --without-pip', "false"))
    refused = checkout.run("train", PYTHON=str(bare))
    assert refused.returncode == 1
    assert "python3-venv" in refused.stderr


def test_what_pythonpath_holds_takes_no_part_in_the_install(checkout):
    write_program(checkout.elsewhere / "pip.py", "raise SystemExit('a pip of somebody else')")
    assert checkout.run("train", PYTHONPATH=str(checkout.elsewhere)).returncode == 0


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

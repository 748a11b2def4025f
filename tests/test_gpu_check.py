"""`scripts/gpu_check`, as far as it goes without a GPU."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent.parent / "scripts" / "gpu_check"


def check(*arguments):
    command = [sys.executable, str(SCRIPT), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=900)


def test_a_folder_in_use_and_missing_wheels_are_refused(tmp_path):
    (tmp_path / "file").touch()

    used, without_wheels = check(tmp_path), check(tmp_path / "new", "--wheels", tmp_path / "none")

    assert (used.returncode, without_wheels.returncode) == (2, 2)
    assert f"error: OUT {tmp_path}: must be new or empty" in used.stderr
    assert f"error: --wheels {tmp_path / 'none'}: must be a folder" in without_wheels.stderr
    assert not (tmp_path / "new").exists()


@pytest.mark.slow
def test_the_table_has_a_row_for_every_step(tmp_path):
    result = check(tmp_path / "out", "--device", "cpu", "--benchmark_seconds", "60", "--pong_seconds", "5")

    rows = {line.split()[0]: line.split()[2] for line in result.stdout.splitlines()[-6:]}
    assert list(rows) == ["tests", "shallow", "shallow-bfloat16", "deep-bfloat16", "shallow-lstm-bfloat16", "pong"]
    assert {name for name, exit_code in rows.items() if exit_code == "0"} >= set(rows) - {"tests"}
    assert "steps/s, " in result.stdout and "samples/s" in result.stdout
    assert (tmp_path / "out" / "deep-bfloat16.json").exists() and (tmp_path / "out" / "runs" / "pong").is_dir()

"""Which code a run was of."""

import subprocess
from pathlib import Path

from monobeast.runs.metadata import _CHECKOUT, _git_commit


def git(checkout, *arguments):
    identity = ["-c", "user.name=test", "-c", "user.email=test@localhost", "-c", "commit.gpgsign=false"]
    command = ["git", "-C", str(checkout), *identity, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def test_the_commit_says_whether_code_differs_from_it_and_records_of_runs_do_not_count(tmp_path):
    assert _git_commit(tmp_path) is None
    git(tmp_path, "init")
    for folder in ("monobeast", "results"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "file").write_text("first")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--message", "first")
    commit = git(tmp_path, "rev-parse", "HEAD")

    assert _git_commit(tmp_path) == commit and len(commit) == 40
    (tmp_path / "results" / "file").write_text("another run")
    assert _git_commit(tmp_path) == commit
    (tmp_path / "monobeast" / "file").write_text("another program")
    assert _git_commit(tmp_path) == f"{commit}-dirty"


def test_the_checkout_is_that_of_the_package():
    assert _CHECKOUT == Path(__file__).parent.parent

"""Files are replaced whole or not at all."""

import os
from pathlib import Path

import pytest

import monobeast
from monobeast import files
from monobeast.config import Config


@pytest.mark.parametrize("is_shared", [False, True])
def test_a_file_is_replaced_when_it_is_whole(tmp_path, is_shared):
    path = tmp_path / "file.txt"
    path.write_text("old")

    with files.replaced(path, is_shared) as partial:
        partial.write_text("new")
        assert partial.parent == path.parent and path.read_text() == "old"

    assert path.read_text() == "new" and os.listdir(tmp_path) == ["file.txt"]


@pytest.mark.parametrize("is_shared", [False, True])
def test_where_writing_fails_the_old_file_stays_alone(tmp_path, is_shared):
    path = tmp_path / "file.txt"
    path.write_text("old")

    with pytest.raises(RuntimeError, match="in the middle"):
        with files.replaced(path, is_shared) as partial:
            partial.write_text("n")
            raise RuntimeError("in the middle")

    assert path.read_text() == "old" and os.listdir(tmp_path) == ["file.txt"]


def test_what_a_killed_process_left_does_not_last(tmp_path):
    path = tmp_path / "file.txt"
    with files.replaced(path) as partial:
        partial.write_text("new")
    partial.write_text("cut o")

    with files.replaced(path) as partial:
        partial.write_text("new")

    assert path.read_text() == "new" and os.listdir(tmp_path) == ["file.txt"]


def test_processes_that_replace_a_file_at_a_time_write_to_paths_of_their_own(tmp_path, monkeypatch):
    paths = set()
    for pid in (1, 2):
        monkeypatch.setattr(os, "getpid", lambda pid=pid: pid)
        with files.replaced(tmp_path / "file.txt", is_shared=True) as partial:
            partial.touch()
        paths.add(partial)

    assert len(paths) == 2


def test_an_error_of_the_caller_is_not_hidden_by_that_of_clearing_up(tmp_path):
    (tmp_path / "file").touch()

    with pytest.raises(RuntimeError, match="the first"):
        with files.replaced(tmp_path / "file" / "below"):
            raise RuntimeError("the first")


def test_files_and_folders_can_be_synced(tmp_path):
    (tmp_path / "file").write_text("x")

    files.sync(tmp_path / "file")
    files.sync(tmp_path)


def test_a_file_needs_a_folder_that_is_there(tmp_path):
    (tmp_path / "file").touch()
    files.require_place("--out new", tmp_path / "new")

    for path in (tmp_path / "none" / "new", tmp_path / "file" / "new", tmp_path, Path("")):
        with pytest.raises(ValueError, match="^--out new: must be a file in a folder that can be written to$"):
            files.require_place("--out new", path)


def test_the_files_of_a_run_are_not_written_over(tmp_path):
    (tmp_path / "meta.json").touch()
    files.require_place("--out policy.onnx", tmp_path / "policy.onnx")

    for name in files.RUN_FILES:
        with pytest.raises(ValueError, match=f"^--out it: is a file of the run in {tmp_path}"):
            files.require_place("--out it", tmp_path / name)


def test_all_files_of_a_run_are_known(tmp_path):
    config = Config("monobeast/Catch-v0", num_actors=0, total_steps=160, evaluate_every=80, savedir=str(tmp_path))
    folder = monobeast.train(config).folder

    assert {path.name for path in folder.iterdir() if path.is_file()} <= {*files.RUN_FILES}


def test_a_path_of_a_user_may_begin_with_their_home_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))

    assert files.user_path("~/run.json") == tmp_path / "run.json"
    assert files.user_path("run.json") == Path("run.json")

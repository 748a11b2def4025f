import os

import pytest

from monobeast.runs import run_folder


def test_a_name_in_use_is_refused(tmp_path):
    run_folder.create(str(tmp_path), "example")

    with pytest.raises(ValueError, match="--xpid example: in use"):
        run_folder.create(str(tmp_path), "example")


def test_latest_is_the_newest_run_also_under_a_relative_savedir(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for xpid in ("first", "second"):
        run_folder.link_latest(run_folder.create("./logs", xpid))

    assert os.readlink("logs/latest") == "second"
    assert run_folder.find("./logs", None) == tmp_path / "logs" / "second"
    assert sorted(os.listdir("logs")) == ["first", "latest", "second"]


def test_the_savedir_can_be_moved(tmp_path):
    run_folder.link_latest(run_folder.create(str(tmp_path / "old"), "example"))

    (tmp_path / "old").rename(tmp_path / "new")

    assert run_folder.find(str(tmp_path / "new"), None) == tmp_path / "new" / "example"


@pytest.mark.parametrize(("xpid", "flag"), [("never_ran", "--xpid never_ran"), (None, "--savedir")])
def test_a_missing_run_is_named_with_the_path_looked_for(tmp_path, xpid, flag):
    with pytest.raises(ValueError, match=f"{flag}.*: no run at {tmp_path}"):
        run_folder.find(str(tmp_path), xpid)


def test_a_savedir_that_is_a_file_is_refused(tmp_path):
    (tmp_path / "file").write_text("")

    with pytest.raises(ValueError, match="--savedir .*file"):
        run_folder.create(str(tmp_path / "file"), "example")

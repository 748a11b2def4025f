"""What is read back from a run's folder, and the refusals of folders that are not whole."""

import gzip

import numpy as np
import pytest
from recorded_runs import write_run

from monobeast.runs.recorded_run import RecordedRun, find_folder


def test_a_run_is_read_as_it_was_written(tmp_path):
    run = RecordedRun(write_run(tmp_path / "example", episodes=[(100, -1.5), (100, 2.0)], seed=7))

    assert (run.name, run.meta["state"], run.config["seed"]) == ("example", "complete", 7)
    assert [column.tolist() for column in run.episodes] == [[100, 100], [-1.5, 2.0], [9, 9]]
    assert [column.dtype for column in run.episodes] == [np.int64, np.float64, np.int64]
    assert run.episodes is run.episodes  # read once


def test_a_run_has_its_own_name_and_not_that_of_a_link_to_it(tmp_path):
    write_run(tmp_path / "example")
    (tmp_path / "latest").symlink_to("example")

    assert RecordedRun(find_folder("latest", str(tmp_path))).name == "example"


def test_the_starts_of_a_resumed_run_are_in_their_order(tmp_path):
    run = RecordedRun(write_run(tmp_path / "run", meta={"step": 300, "history": [{"step": 100}, {"step": 200}]}))

    assert [start["step"] for start in run.starts] == [100, 200, 300]


def test_an_empty_cell_of_the_logs_is_nan(tmp_path):
    logs = [{"step": 1, "seconds": 2, "entropy": 0.5}, {"step": 3, "seconds": 4}]

    columns = RecordedRun(write_run(tmp_path / "run", logs=logs)).logs

    assert columns["step"].tolist() == [1, 3]
    np.testing.assert_equal(columns["entropy"], [0.5, np.nan])


def test_compressed_files_read_the_same(tmp_path):
    folder = write_run(tmp_path / "run")
    before = RecordedRun(folder)
    expected = before.episodes, before.logs
    for name in ("episodes.csv", "logs.csv"):
        (folder / f"{name}.gz").write_bytes(gzip.compress((folder / name).read_bytes()))
        (folder / name).unlink()

    run = RecordedRun(folder)

    np.testing.assert_equal((run.episodes, run.logs), expected)


def test_a_line_that_is_still_being_written_is_left_out(tmp_path):
    folder = write_run(tmp_path / "run")
    with open(folder / "episodes.csv", "a", newline="") as file:
        file.write("400,0,0,-2")  # of -21, say

    assert RecordedRun(folder).episodes.steps.tolist() == [100, 200, 300]


def test_a_blank_line_is_passed_over(tmp_path):
    folder = write_run(tmp_path / "run")
    with open(folder / "episodes.csv", "a", newline="") as file:
        file.write("\r\n")

    assert RecordedRun(folder).episodes.steps.tolist() == [100, 200, 300]


def test_files_that_are_not_asked_for_are_not_needed(tmp_path):
    folder = write_run(tmp_path / "run")
    (folder / "episodes.csv").unlink()

    assert RecordedRun(folder).logs["step"].tolist() == [200, 400]


HEADER = "step,actor,env,episode_return,episode_length\n"


@pytest.mark.parametrize(
    ("file_name", "content", "message"),
    [
        ("meta.json", "{", "meta.json is damaged"),
        ("meta.json", b"\xff", "meta.json is damaged"),
        ("meta.json", "[]", "meta.json is damaged: it holds no config with an env"),
        ("meta.json", '{"config": {"seed": 1}}', "meta.json is damaged: it holds no config with an env"),
        ("episodes.csv", "", "episodes.csv is damaged: its first line names no column step"),
        ("episodes.csv", "step,episode_return\n1,2\n", "its first line names no column episode_length"),
        ("episodes.csv", HEADER, "episodes.csv: no episode has finished yet"),
        ("episodes.csv", HEADER + "9,0,0,1,9\n9,0,0,1\n", "episodes.csv, line 3: 4 cells, expected 5"),
        ("episodes.csv", HEADER + "9,0,0,x,9\n", "episodes.csv, line 2: could not convert string to float: 'x'"),
        ("episodes.csv", HEADER + '9,0,0,1,9\n9,0,0,"1,9\n9,0,0,1,9\n', "episodes.csv, line 3: could not convert"),
        ("episodes.csv", HEADER + "9,0,0,,9\n", "episode_return of row 1 is empty or not finite"),
        ("episodes.csv", HEADER + "9,0,0,1,9\n8,0,0,1,9\n", "row 2 is of an earlier step than the row before it"),
        ("episodes.csv", b"\xff\n", "episodes.csv is damaged"),
        ("episodes.csv", None, "no episodes.csv nor episodes.csv.gz in it"),
        ("logs.csv", "step,seconds\n", "logs.csv: no row has been written yet"),
        ("logs.csv", "step,seconds\n1,\n", "seconds of row 1 is empty or not finite"),
    ],
)
def test_a_file_that_is_not_whole_is_refused_with_the_place_of_the_fault(tmp_path, file_name, content, message):
    folder = write_run(tmp_path / "run")
    path = folder / file_name
    path.unlink()
    if content is not None:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())

    with pytest.raises(ValueError) as refusal:
        _ = RecordedRun(folder).episodes, RecordedRun(folder).logs

    assert str(refusal.value).startswith(f"run {folder}: ") and message in str(refusal.value)


@pytest.mark.parametrize("damage", [lambda content: content[:-9], lambda content: b"no gzip", lambda content: b""])
def test_a_damaged_compressed_file_is_refused(tmp_path, damage):
    folder = write_run(tmp_path / "run")
    content = gzip.compress((folder / "episodes.csv").read_bytes())
    (folder / "episodes.csv").unlink()
    (folder / "episodes.csv.gz").write_bytes(damage(content))

    with pytest.raises(ValueError, match="run .*episodes.csv"):
        _ = RecordedRun(folder).episodes


def test_a_run_is_found_by_its_path_and_by_its_name(tmp_path):
    folder = write_run(tmp_path / "savedir" / "example")

    assert find_folder(str(folder), "nowhere") == folder
    assert find_folder("example", str(tmp_path / "savedir")) == folder


@pytest.mark.parametrize(
    ("name", "message"),
    [("never_ran", "no such folder, neither here nor in --savedir"), ("empty", "holds no meta.json")],
)
def test_what_is_no_run_is_refused(tmp_path, name, message):
    (tmp_path / "empty").mkdir()

    with pytest.raises(ValueError, match=f"run {name}: .*{message}"):
        find_folder(name, str(tmp_path))

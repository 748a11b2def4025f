"""The list of runs: how far, how good, how old, and what became of each."""

import datetime
import gzip
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from monobeast.runs import run_folder
from monobeast.__main__ import run_command
from monobeast.commands.ls import RunLine, format_table, list_runs
from recorded_runs import write_run

ROOT = Path(__file__).parent.parent
NOW = datetime.datetime(2026, 1, 31, 12, 0, tzinfo=datetime.UTC)
HOLD = "import sys, time; from pathlib import Path; from monobeast.runs import run_folder\n"
HOLD += "with run_folder.held(Path(sys.argv[1])): print('held', flush=True); time.sleep(60)"


def ls(savedir):
    (line,) = list_runs(str(savedir))
    return line


def test_a_line_tells_name_environment_steps_and_return(tmp_path):
    write_run(tmp_path / "example", meta={"start": "2026-01-31T10:00:00+00:00"}, total_steps=1000)

    assert ls(tmp_path) == RunLine(
        name="example",
        environment="monobeast/Catch-v0",
        step=400,
        total_steps=1000,
        mean_return=3.0,
        start=datetime.datetime(2026, 1, 31, 10, 0, tzinfo=datetime.UTC),
        state="complete",
    )


def test_the_return_is_that_of_the_last_hundred_episodes_of_however_many(tmp_path):
    write_run(tmp_path / "example", episodes=[(step, float(step)) for step in range(5000)])

    assert ls(tmp_path).mean_return == sum(range(4900, 5000)) / 100


def test_a_run_without_episodes_and_rows_has_the_step_of_its_metadata(tmp_path):
    write_run(tmp_path / "example", episodes=[], logs=[], meta={"step": 80})

    assert (ls(tmp_path).step, ls(tmp_path).mean_return) == (80, None)


def test_half_a_line_that_is_being_written_is_left_out(tmp_path):
    folder = write_run(tmp_path / "example")
    with open(folder / "episodes.csv", "a") as file:
        file.write("400,0,0,-99")

    assert ls(tmp_path).mean_return == 3.0


def test_compressed_files_are_read_too(tmp_path):
    folder = write_run(tmp_path / "example")
    for name in ("episodes.csv", "logs.csv"):
        (folder / f"{name}.gz").write_bytes(gzip.compress((folder / name).read_bytes()))
        (folder / name).unlink()

    assert (ls(tmp_path).step, ls(tmp_path).mean_return) == (400, 3.0)


@pytest.mark.parametrize("said", ["running", "complete"])
def test_a_run_whose_lock_is_held_is_running(tmp_path, said):
    folder = write_run(tmp_path / "example", meta={"state": said})

    with run_folder.held(folder):
        assert ls(tmp_path).state == "running"


def test_a_killed_run_is_not_running(tmp_path):
    folder = write_run(tmp_path / "example", meta={"state": "running"})
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    holder = subprocess.Popen([sys.executable, "-c", HOLD, folder], stdout=subprocess.PIPE, env=environment)
    try:
        holder.stdout.readline()
        assert ls(tmp_path).state == "running"
    finally:
        holder.send_signal(signal.SIGKILL)
        holder.communicate()

    assert ls(tmp_path).state == "failed: killed before it recorded an end"


@pytest.mark.parametrize(
    ("meta", "expected"),
    [
        ({"state": "complete"}, "complete"),
        ({"state": "stopped"}, "stopped"),
        ({"state": "failed"}, "failed"),
        ({"state": "failed", "reason": "no room"}, "failed: no room"),
    ],
)
def test_a_run_that_ended_says_how(tmp_path, meta, expected):
    write_run(tmp_path / "example", meta=meta)

    assert ls(tmp_path).state == expected


def test_looking_at_a_run_does_not_keep_it_from_starting(tmp_path):
    folder = write_run(tmp_path / "example")
    assert run_folder.is_held(folder) is False

    with run_folder.held(folder):
        assert run_folder.is_held(folder) is True
    assert run_folder.is_held(folder) is False


def test_a_look_at_the_moment_of_a_start_is_waited_for(tmp_path, monkeypatch):
    import fcntl

    looking = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(looking, fcntl.LOCK_SH)
    monkeypatch.setattr(run_folder.time, "sleep", lambda _: os.close(looking))

    with run_folder.held(tmp_path):
        assert run_folder.is_held(tmp_path) is True


def test_the_newest_run_comes_first_and_the_link_to_it_is_none(tmp_path):
    for name, hour in (("b", 8), ("c", 10), ("a", 9)):
        write_run(tmp_path / name, meta={"start": f"2026-01-31T{hour:02}:00:00+00:00"})
    os.symlink("c", tmp_path / "latest")
    (tmp_path / "no_run").mkdir()

    assert [line.name for line in list_runs(str(tmp_path))] == ["c", "a", "b"]


def test_a_damaged_run_is_named_with_its_fault_beside_the_others(tmp_path):
    write_run(tmp_path / "good")
    (write_run(tmp_path / "bad") / "meta.json").write_text("{")

    good, bad = sorted(list_runs(str(tmp_path)), key=lambda line: line.state)
    assert (good.name, good.state) == ("good", "complete")
    assert bad.name == "bad" and "meta.json is damaged" in bad.state


@pytest.mark.parametrize("damage", [{"step": "abc"}, {"step": [1]}, {"history": None}, {"state": {}}], ids=str)
def test_numbers_that_are_none_in_one_run_do_not_hide_the_others(tmp_path, damage):
    write_run(tmp_path / "good")
    write_run(tmp_path / "bad", meta=damage)

    good, bad = sorted(list_runs(str(tmp_path)), key=lambda line: line.state)
    assert (good.name, good.state) == ("good", "complete")
    assert f"meta.json is damaged: its {next(iter(damage))} is" in bad.state


def test_no_damaged_row_hides_a_run(tmp_path):
    folder = write_run(tmp_path / "example")
    (folder / "logs.csv").write_text("x" * 300_000 + '\n"\n')

    assert ls(tmp_path).mean_return == 3.0


def test_what_would_move_the_cursor_is_not_printed(tmp_path):
    write_run(tmp_path / "example", env="a\x1b[2J\nb")

    (line,) = format_table(list_runs(str(tmp_path)), NOW)[1:]
    assert "a?[2J?b" in line


@pytest.mark.parametrize(
    ("seconds", "age"),
    [(0, "0 s"), (119, "119 s"), (120, "2 min"), (7199, "119 min"), (7200, "2 h"), (3 * 86_400, "3 d"), (-5, "0 s")],
)
def test_an_age_has_the_longest_unit_that_says_something(seconds, age):
    line = RunLine("example", start=NOW - datetime.timedelta(seconds=seconds), state="complete")

    assert format_table([line], NOW)[1].split("  ")[-2] == age


def test_columns_stand_below_each_other():
    lines = [
        RunLine("a", "X-v0", 5, 10, 1.0, NOW, "complete"),
        RunLine("longer", "Y-v10", 1000, 2000, -10.5, NOW, "stopped"),
    ]

    assert format_table(lines, NOW) == [
        "name    environment  steps     of  return  age  state",
        "a       X-v0             5     10    1.00  0 s  complete",
        "longer  Y-v10        1,000  2,000  -10.50  0 s  stopped",
    ]


def test_the_command_lists_a_folder(tmp_path, capsys):
    write_run(tmp_path / "example", meta={"start": "2026-01-31T10:00:00+00:00"})

    assert run_command(["ls", str(tmp_path)]) == 0
    assert "example  monobeast/Catch-v0" in capsys.readouterr().out


def test_a_folder_without_runs_is_said_to_have_none(tmp_path, capsys):
    assert run_command(["ls", str(tmp_path)]) == 0
    assert capsys.readouterr().out == "no runs\n"


def test_a_folder_that_is_not_there_is_refused(tmp_path, capsys):
    assert run_command(["ls", str(tmp_path / "none")]) == 2
    assert f"SAVEDIR {tmp_path / 'none'}: cannot be listed: No such file or directory" in capsys.readouterr().err


def test_a_run_that_failed_keeps_the_reason(tmp_path, capsys):
    boom = ["--env", "stub_environments:Boom-v0", "--env_kwargs", '{"k": 45}', "--num_actors", "0"]

    assert run_command([*boom, "--savedir", str(tmp_path), "--xpid", "example"]) == 1

    state = ls(tmp_path).state
    assert state.startswith("failed: the actor (stub_environments:Boom-v0) ended with an exception:")
    assert "boom" in state


def test_the_folder_can_be_named_as_for_other_commands(tmp_path, capsys):
    write_run(tmp_path / "example", meta={"start": "2026-01-31T10:00:00+00:00"})

    assert run_command(["ls", "--savedir", str(tmp_path)]) == 0
    assert "example  monobeast/Catch-v0" in capsys.readouterr().out
    assert run_command(["ls", "a", "--savedir", "b"]) == 2
    assert "SAVEDIR a --savedir b: exclude each other" in capsys.readouterr().err

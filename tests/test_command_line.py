"""The program as a person at a shell meets it, in processes of its own."""

import dataclasses
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from command_lines import run
from csv_rows import rows_of
from process_tree import catches, wait_until

from monobeast.__main__ import _COMMANDS, run_command
from monobeast.config import Config, to_flags

TESTS = Path(__file__).parent
# The limit ends a run that a killed test leaves behind.
CATCH = (
    *("--env", "monobeast/Catch-v0", "--seed", "1", "--num_threads", "1", "--max_seconds", "100"),
    *("--unroll_length", "20", "--envs_per_actor", "8", "--batch_size", "8"),  # 160 steps an update
)

NOISY = """
import os
import gymnasium
from monobeast.environments.catch import Catch

class Noisy(Catch):
    def step(self, action):
        for descriptor in (1, 2):
            os.write(descriptor, b"noise")
        return super().step(action)

gymnasium.register("Noisy-v0", Noisy)
"""


def monobeast(*arguments, timeout=120, **options):
    """Runs `python -m monobeast` to its end."""
    return subprocess.run(command(*arguments), capture_output=True, text=True, timeout=timeout, **in_tests(options))


def command(*arguments):
    return [sys.executable, "-m", "monobeast", *(str(argument) for argument in arguments)]


def in_tests(options):
    """Settings for a subprocess that finds this package and the stub environments, and measures no terminal."""
    path = os.pathsep.join([str(TESTS.parent), os.environ.get("PYTHONPATH", "")])
    environment = os.environ | {"PYTHONPATH": path, "COLUMNS": "120"}
    return {"cwd": TESTS, "env": environment} | options


def processes_of(group):
    """Command lines of the living processes of a process group."""
    listing = subprocess.run(["ps", "-eo", "pgid=,stat=,args="], capture_output=True, text=True).stdout
    rows = [line.split(None, 2) for line in listing.splitlines()]
    return [args for pgid, stat, args in rows if int(pgid) == group and not stat.startswith("Z")]


@pytest.mark.parametrize("arguments", [["--help"], ["train", "--help"]])
def test_help_names_every_flag_of_training_with_its_default(arguments):
    result = monobeast(*arguments)

    assert result.returncode == 0
    for setting in dataclasses.fields(Config):
        if setting.metadata["group"] != "test":
            entry = re.search(rf"^  --{setting.name}\b.*?(?=^  --|^\S|\Z)", result.stdout, re.MULTILINE | re.DOTALL)
            assert entry, setting.name
            if setting.default is not None:
                assert f"(default: {setting.default})" in " ".join(entry.group().split())
    assert "monobeast test: play the checkpoint of a run" in result.stdout


@pytest.mark.parametrize("command", _COMMANDS)
def test_every_command_has_help(command, capsys):
    with pytest.raises(SystemExit) as end:
        run_command([command, "--help"])

    assert end.value.code == 0
    assert capsys.readouterr().out.startswith(f"usage: monobeast {command}")


def test_flags_of_settings_give_back_the_settings(monkeypatch):
    settings = {"env": "CartPole-v1", "use_lstm": True, "life_loss_terminal": False, "clip_c_threshold": None}
    settings |= {"env_kwargs": '{"sutton_barto_reward": true}', "learning_rate": 5e-4, "num_actors": 3}
    seen = []
    monkeypatch.setattr("monobeast.__main__._train", lambda chosen: seen.append(chosen) or 0)

    assert run_command(["train", *to_flags(settings)]) == 0

    assert seen == [settings]


def test_help_of_test_names_its_own_flags():
    result = monobeast("test", "--help")

    assert "--num_episodes" in result.stdout and "--greedy" in result.stdout
    assert "--learning_rate" not in result.stdout and "--total_steps" not in result.stdout


def test_version():
    result = monobeast("--version")

    assert (result.returncode, result.stdout) == (0, "monobeast 0.1.0\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--discounting", "1.5"], "--discounting 1.5: must be at least 0 and at most 1"),
        (["--learning_rate", "nan"], "--learning_rate nan: must be a number that is finite"),
        (["--unroll_length", "0"], "--unroll_length 0: must be at least 1"),
        (["--num_actors", "two"], "argument --num_actors: invalid int value: 'two'"),
        (["--total_steps", "1.5"], "argument --total_steps: invalid int value: '1.5'"),
        (["--batch_size", "6", "--envs_per_actor", "4"], "--batch_size 6 --envs_per_actor 4: one must divide"),
        (["--num_actors", "4", "--num_buffers", "2"], "--num_buffers 2: must be at least --num_actors 4"),
        (["--resme"], "unrecognized arguments: --resme"),
        (["--greedy"], "unrecognized arguments: --greedy"),
        (["test", "--learning_rate", "0.1"], "unrecognized arguments: --learning_rate"),
        (["tset"], "no command tset: must be one of train, test"),
        (["--entropy-costs", "1"], "did you mean --entropy_cost?"),
        (["--lr", "1"], "unrecognized arguments: --lr 1 (--help"),  # like nothing that there is
        (["--xpid", "a/b"], "at most 200; the folder that it is in goes to --savedir"),
        (["--env", "ALE/Pogn-v5"], "did you mean ALE/Pong-v5"),
        (["--env", "no_such_module:Id-v0"], "no_such_module"),
        (["--env", "stub_environments:OddSpaces-v0", "--env_kwargs", '{"action": "bits"}'], "only Discrete, Multi"),
        (["--env", "stub_environments:OddSpaces-v0", "--env_kwargs", '{"observation": "text"}'], "not supported"),
        (["--env", "stub_environments:OddSpaces-v0", "--env_kwargs", '{"observation": "endless"}'], "fit into memory"),
        (
            ["--env", "stub_environments:OddSpaces-v0", "--env_kwargs", '{"observation": "matrix"}']
            + ["--normalize_observations"],
            "has no floats",
        ),
        (["--env", "stub_environments:Boom-v0", "--env_kwargs", '{"k": -1}'], "boom in the constructor"),
        (["--env", "CartPole-v1", "--network", "shallow"], "--network"),
        (["--device", "cuda:99"], "--device cuda:99: this machine has"),
        (["--evaluate_every", "0"], "--evaluate_every 0: must be at least 1"),
        (["--evaluate_every", "1.5"], "argument --evaluate_every: invalid int value: '1.5'"),
        (["--evaluate_episodes", "0"], "--evaluate_episodes 0: must be at least 1"),
        (["--best"], "unrecognized arguments: --best"),
        (["test", "--xpid", "never_ran"], "--xpid never_ran: no run at"),
    ],
)
def test_a_bad_value_ends_with_exit_code_2_and_a_line_that_names_it(tmp_path, capfd, arguments, message):
    try:
        exit_code = run_command([*arguments, "--savedir", str(tmp_path)])
    except SystemExit as leaving:  # argparse's own way
        exit_code = leaving.code

    assert exit_code == 2
    output, errors = capfd.readouterr()
    assert message in errors and errors.count("\n") == 1
    assert output == ""
    assert not os.listdir(tmp_path)


def test_a_refusal_is_one_line(tmp_path):
    result = monobeast("--env", "ALE/Pogn-v5", "--savedir", tmp_path)

    assert (result.returncode, result.stdout) == (2, "")
    message = "monobeast train: error: --env ALE/Pogn-v5: no such environment; did you mean ALE/Pong-v5"
    assert result.stderr.startswith(message) and result.stderr.endswith("\n") and result.stderr.count("\n") == 1


def test_a_run_leaves_what_the_readme_says(tmp_path):
    where = ("--savedir", tmp_path, "--xpid", "example")
    result = monobeast(*CATCH, *where, "--num_actors", 2, "--total_steps", 10_000)

    assert (result.returncode, result.stderr) == (0, "")
    folder = tmp_path / "example"
    checkpoints = ["checkpoint.previous.pt", "checkpoint.pt"]
    assert sorted(os.listdir(folder)) == [*checkpoints, "episodes.csv", "logs.csv", "meta.json", "out.log"]
    assert os.readlink(tmp_path / "latest") == "example"
    last = rows_of(folder / "logs.csv")[-1]
    # 160 steps an update: the end is the first multiple at or over the total.
    assert (last["step"], last["updates"]) == ("10080", "63")
    episodes = rows_of(folder / "episodes.csv")
    assert len(episodes) == int(last["episodes"]) > 900
    assert {row["episode_length"] for row in episodes} == {"9"}
    assert {row["episode_return"] for row in episodes} == {"1", "-1"}
    meta = json.loads((folder / "meta.json").read_text())
    assert (meta["state"], meta["step"]) == ("complete", 10080)
    assert meta["config"]["seed"] == 1 and meta["config"]["reward_clipping"] == "none"
    assert meta["packages"]["torch"]
    assert meta["command_line"][:3] == ["__main__.py", "--env", "monobeast/Catch-v0"]
    assert meta["config"]["network"] == "mlp"
    assert (folder / "out.log").read_text() == result.stdout
    for text in (f"training on monobeast/Catch-v0 in {folder}", "mlp network on cpu", "seed 1", "(100.0%)"):
        assert text in result.stdout


def test_no_value_is_an_empty_cell(tmp_path):
    arguments = ["--env", "stub_environments:Fixed-v0", "--env_kwargs", '{"n": 100000}', "--savedir", tmp_path]

    result = monobeast(*arguments, "--xpid", "long", "--total_steps", 2000, "--num_actors", 0)

    assert result.returncode == 0
    rows = rows_of(tmp_path / "long" / "logs.csv")
    assert rows
    for row in rows:
        assert row["mean_episode_return"] == row["mean_episode_length"] == ""
        assert row["episodes"] == "0"
        assert float(row["total_loss"]) < float("inf")
    assert "nan" not in (tmp_path / "long" / "out.log").read_text().lower()


def test_a_name_in_use_is_refused_and_its_run_left_alone(tmp_path, capfd):
    (tmp_path / "taken").mkdir()
    exit_code, _, errors = run(capfd, *CATCH, "--savedir", tmp_path, "--xpid", "taken")

    assert exit_code == 2
    assert "--xpid taken: in use" in errors
    assert not os.listdir(tmp_path / "taken")


@pytest.fixture(scope="module")
def catch_run(tmp_path_factory):
    """The savedir of one short run named `example`."""
    savedir = tmp_path_factory.mktemp("savedir")
    arguments = ["--savedir", savedir, "--xpid", "example", "--num_actors", 0, "--total_steps", 1000, "--use_lstm"]
    assert monobeast(*CATCH, *arguments).returncode == 0
    return savedir


@pytest.mark.parametrize(
    "arguments",
    [["test"], ["--mode", "test", "--xpid", "example", "--num_actors", 45], ["test", "--greedy"]],
)
def test_a_trained_agent_is_played(catch_run, capfd, arguments):
    exit_code, output, errors = run(capfd, *arguments, "--savedir", catch_run, "--num_episodes", 3)

    assert (exit_code, errors) == (0, "")
    assert ("the most probable action" in output) == ("--greedy" in arguments)
    assert ("sampled" in output) == ("--greedy" not in arguments)
    assert output.count(", 9 steps\n") == 3
    for word in (f"playing {catch_run / 'example'}", "mean", "standard deviation", "minimum", "maximum"):
        assert word in output


def test_an_episode_that_was_cut_off_is_said_to_be(catch_run, capfd):
    arguments = ["test", "--savedir", catch_run, "--num_episodes", 2, "--max_episode_steps", 4]

    _, output, _ = run(capfd, *arguments)

    assert output.count("4 steps, cut off") == 2
    assert "2 of them cut off" in output


def test_a_checkpoint_for_another_environment_is_refused(catch_run, capfd):
    exit_code, _, errors = run(capfd, "test", "--savedir", catch_run, "--env", "CartPole-v1")

    assert exit_code == 2
    assert "--env CartPole-v1: the checkpoint" in errors and "is for monobeast/Catch-v0" in errors


def test_a_run_without_a_checkpoint_is_refused(tmp_path, capfd):
    (tmp_path / "empty").mkdir()

    exit_code, _, errors = run(capfd, "test", "--savedir", tmp_path, "--xpid", "empty")

    assert exit_code == 2
    assert f"no checkpoint at {tmp_path / 'empty' / 'checkpoint.pt'}" in errors


def test_a_run_without_evaluations_has_no_best_checkpoint(catch_run, capfd):
    exit_code, _, errors = run(capfd, "test", "--savedir", catch_run, "--best")

    assert exit_code == 2 and errors.count("\n") == 1
    assert f"--best: no checkpoint at {catch_run / 'example' / 'best.pt'}; it is of runs with --evaluate_" in errors


def test_a_torchbeast_command_line_works(tmp_path):
    arguments = (
        "--env PongNoFrameskip-v4 --num_actors 2 --total_steps 640 --learning_rate 0.0004 --epsilon 0.01 "
        "--entropy_cost 0.01 --batch_size 4 --unroll_length 80 --num_buffers 4 --num_threads 1 --xpid example "
        "--envs_per_actor 4"
    ).split()

    trained = monobeast(*arguments, "--savedir", tmp_path)
    played = monobeast(
        "--mode", "test", "--xpid", "example", "--savedir", tmp_path, "--num_episodes", 1, "--max_episode_steps", 20
    )

    assert (trained.returncode, trained.stderr) == (0, "")
    assert (played.returncode, played.stderr) == (0, "")
    config = json.loads((tmp_path / "example" / "meta.json").read_text())["config"]
    assert config["sticky_actions"] == 0.0 and config["life_loss_terminal"] and config["reward_clipping"] == "abs_one"


@pytest.fixture
def start(tmp_path_factory):
    """Starts runs in process groups of their own, of which nothing is left, also when the test has failed."""
    processes = []
    temporary = tmp_path_factory.mktemp("temporary")

    def start_one(*arguments, before=()):
        options = in_tests({"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True})
        options["env"]["TMPDIR"] = str(temporary)
        processes.append(subprocess.Popen([*before, *command(*arguments)], start_new_session=True, **options))
        return processes[-1]

    yield start_one
    for process in processes:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
    assert not list(temporary.glob("pymp-*"))  # the folder of the fork server's socket


@pytest.mark.parametrize(
    ("number", "to_group", "num_actors"),
    [
        pytest.param(signal.SIGINT, True, 2, id="Ctrl-C"),  # a terminal sends it to the whole group
        pytest.param(signal.SIGTERM, False, 2, id="SIGTERM to the process"),
        pytest.param(signal.SIGHUP, True, 2, id="a terminal that is gone"),
        pytest.param(signal.SIGINT, False, 1, marks=pytest.mark.slow, id="SIGINT to the process, one actor"),
        pytest.param(signal.SIGTERM, True, 17, marks=pytest.mark.slow, id="SIGTERM to the group, many actors"),
    ],
)
def test_a_signal_ends_a_run_with_a_checkpoint_of_the_last_logged_step(start, tmp_path, number, to_group, num_actors):
    import torch

    flags = ["--log_interval_s", 0.2, "--num_actors", num_actors]
    process = start(*CATCH, "--savedir", tmp_path, "--xpid", "run", *flags)
    assert "training on" in process.stdout.readline()
    assert "preset" in process.stdout.readline()
    assert any(re.search(r"step [1-9]", line) for line in process.stdout)

    (os.killpg if to_group else os.kill)(process.pid, number)
    time.sleep(0.2)
    if process.poll() is None and to_group:
        os.killpg(process.pid, number)  # impatient
    output, errors = process.communicate(timeout=30)

    assert process.returncode == 128 + number
    assert errors == "" and "Traceback" not in output
    assert re.search(rf"stopping on {number.name}: saving a checkpoint\n.*stopped at step", output, re.DOTALL), output
    command = f"python -m monobeast train --resume --xpid run --savedir {tmp_path}"
    assert output.endswith(f"to go on: {command}\n")
    assert wait_until(lambda: processes_of(process.pid) == [], timeout_s=10.0)  # the fork server is on its way out
    state = torch.load(tmp_path / "run" / "checkpoint.pt", weights_only=True)
    rows = rows_of(tmp_path / "run" / "logs.csv")
    assert state["learner"]["step"] == int(rows[-1]["step"]) > 0
    assert json.loads((tmp_path / "run" / "meta.json").read_text())["state"] == "stopped"


def test_under_nohup_a_run_outlives_its_terminal(start, tmp_path):
    flags = ["--log_interval_s", 0.2, "--num_actors", 0]
    process = start(*CATCH, "--savedir", tmp_path, "--xpid", "run", *flags, before=["nohup"])
    assert any(re.search(r"step [1-9]", line) for line in process.stdout)

    os.killpg(process.pid, signal.SIGHUP)

    assert any(re.search(r"step [1-9]", line) for line in process.stdout) and process.poll() is None
    process.terminate()
    process.communicate(timeout=30)
    assert process.returncode == 128 + signal.SIGTERM


def test_with_all_streams_closed_what_is_printed_gets_into_no_file(tmp_path):
    (tmp_path / "noisy.py").write_text(NOISY)
    flags = "--num_actors 0 --envs_per_actor 2 --batch_size 2 --num_learner_threads 1 --total_steps 400 --xpid run"
    command = f"{sys.executable} -m monobeast --env noisy:Noisy-v0 {flags} --savedir {tmp_path} <&- >&- 2>&-"

    search_path = os.pathsep.join([str(tmp_path), os.getcwd()])
    result = subprocess.run(["sh", "-c", command], env=os.environ | {"PYTHONPATH": search_path})

    assert result.returncode == 0
    assert not any(b"noise" in path.read_bytes() for path in (tmp_path / "run").iterdir())
    assert "complete at step 400" in (tmp_path / "run" / "out.log").read_text()


def test_an_environment_that_hangs_in_this_process_does_not_outlast_a_signal(start, tmp_path):
    hang = ["--env", "stub_environments:Hang-v0", "--env_kwargs", '{"k": 45}', "--num_actors", 0]
    process = start(*hang, "--savedir", tmp_path, "--xpid", "run", "--log_interval_s", 0.01)
    assert "training on" in process.stdout.readline()
    assert "preset" in process.stdout.readline()
    assert "step" in process.stdout.readline()
    time.sleep(0.5)

    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=30)

    assert (process.returncode, errors) == (130, "")
    assert "stopping on SIGINT: saving a checkpoint" in output
    assert (tmp_path / "run" / "checkpoint.pt").exists()


def test_an_environment_that_hangs_as_it_starts_in_this_process_does_not_outlast_a_signal(start, tmp_path):
    hang = ["--env", "stub_environments:HangOnReset-v0", "--num_actors", 0, "--envs_per_actor", 1]
    process = start(*hang, "--savedir", tmp_path, "--xpid", "run")
    assert "training on" in process.stdout.readline()
    assert "preset" in process.stdout.readline()
    time.sleep(1.0)  # now it hangs, or will soon

    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=30)

    assert (process.returncode, errors) == (130, "")
    assert "stopped before the first update; nothing is kept" in output
    assert not (tmp_path / "run").exists()


def test_a_reader_that_leaves_does_not_end_the_run(start, tmp_path):
    process = start(*CATCH, "--savedir", tmp_path, "--xpid", "run", "--num_actors", 0, "--total_steps", 2000)
    process.stdout.readline()
    process.stdout.close()

    assert process.wait(60) == 0
    assert process.stderr.read() == ""
    process.stderr.close()
    assert "complete at step 2,080" in (tmp_path / "run" / "out.log").read_text()


def test_closed_streams_change_no_exit_code(tmp_path):
    arguments = ["--env", "stub_environments:Fixed5-v0", "--num_actors", "0", "--total_steps", "100"]
    line = " ".join(command(*arguments, "--savedir", tmp_path))

    for redirected, expected in [(f"{line} >&- 2>&-", 0), (f"{line} --total_steps=-5 2>&-", 2)]:
        result = subprocess.run(["sh", "-c", redirected], capture_output=True, text=True, **in_tests({}))

        assert (result.returncode, result.stdout, result.stderr) == (expected, "", "")


def test_a_thread_of_an_environment_does_not_keep_the_program_alive(tmp_path):
    arguments = ["--env", "stub_environments:Threaded-v0", "--num_actors", 0, "--total_steps", 500]

    assert monobeast(*arguments, "--savedir", tmp_path, timeout=60).returncode == 0


@pytest.mark.parametrize(("k", "expected"), [(30, 1), (0, 2)])
def test_an_environment_that_exits_is_no_success(tmp_path, capfd, k, expected):
    arguments = ["--env", "stub_environments:Exit-v0", "--env_kwargs", f'{{"k": {k}}}', "--num_actors", 0]

    assert run(capfd, *arguments, "--savedir", tmp_path)[0] == expected


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="/proc tells when the program has begun")
@pytest.mark.parametrize(
    ("number", "delay"),
    [
        (signal.SIGINT, 0),
        (signal.SIGINT, 0.4),
        (signal.SIGINT, 1.3),
        (signal.SIGTERM, 2.3),
        pytest.param(signal.SIGTERM, 0.4, marks=pytest.mark.slow),
        pytest.param(signal.SIGINT, 2.3, marks=pytest.mark.slow),
    ],
)
def test_a_signal_during_the_start_leaves_nothing_behind(start, tmp_path, number, delay):
    os.makedirs(tmp_path / "earlier")
    os.symlink("earlier", tmp_path / "latest")
    process = start(*CATCH, "--savedir", tmp_path, "--xpid", "run")
    assert wait_until(lambda: catches(process.pid, signal.SIGTERM))  # `main` has begun, after a tenth of a second
    time.sleep(delay)

    os.killpg(process.pid, number)
    output, errors = process.communicate(timeout=30)

    assert process.returncode == 128 + number
    assert errors == "" and "Traceback" not in output
    assert wait_until(lambda: processes_of(process.pid) == [], timeout_s=10.0)
    if (tmp_path / "run").exists():
        assert (tmp_path / "run" / "checkpoint.pt").exists()  # it had learned something already
    else:
        assert sorted(os.listdir(tmp_path)) == ["earlier", "latest"]
        assert os.readlink(tmp_path / "latest") == "earlier"

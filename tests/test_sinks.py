"""`--tensorboard` and `--wandb`: the rows of the CSV files in further places, which can't do a run any harm."""

import os
import subprocess
import sys
import threading

import pytest
from command_lines import run
from csv_rows import rows_of
from stub_wandb import StubWandb
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from monobeast.config import Config
from monobeast.runs import sinks
from monobeast.runs.evaluation_log import Evaluation, EvaluationLog
from monobeast.runs.sinks import Sinks, SinkThread
from monobeast.runs.tensorboard_sink import TensorBoardSink
from monobeast.training import train

SETTINGS = {
    **{"env": "monobeast/Catch-v0", "num_actors": 0, "seed": 3, "xpid": "run", "total_steps": 400},
    **{"envs_per_actor": 2, "batch_size": 2, "log_interval_s": 0.01, "num_learner_threads": 1},
}
SMALL = [f"--{name}={value}" for name, value in SETTINGS.items()]
EVALUATION = Evaluation(80, 2, 1, 3.0, None, 1.0, 6.0, 20.0, 0, 0.5)
FLOAT32 = 1e-6  # relative: as exact as TensorBoard keeps numbers


class StubSink:
    """Keeps rows; raises in the method that is named."""

    def __init__(self, raises_in=None):
        self.rows, self.calls, self._raises_in = [], [], raises_in
        self._call("open")

    def _call(self, name):
        self.calls.append(name)
        if name == self._raises_in:
            raise OSError("no room\nfor more")

    def write(self, numbers, step):
        self._call("write")
        self.rows.append((step, numbers))

    def close(self):
        self._call("close")


@pytest.fixture
def wandb(monkeypatch):
    """A stub, and no variables of the user's own."""
    stub = StubWandb()
    monkeypatch.setitem(sys.modules, "wandb", stub)
    for name in [name for name in os.environ if name.startswith("WANDB")]:
        monkeypatch.delenv(name)
    return stub


def begin(tmp_path, **settings):
    return train(Config(**SETTINGS | {"savedir": str(tmp_path)} | settings))


def go_on(tmp_path, **settings):
    return train(Config(resume=True, xpid="run", savedir=str(tmp_path), **settings))


def numbers_of(path):
    """Each column's pairs of step and number, without empty cells and without the column `step` itself."""
    numbers = {}
    for row in rows_of(path):
        for name, cell in row.items():
            if cell and name != "step":
                numbers.setdefault(name, []).append((int(row["step"]), float(cell)))
    return numbers


def scalars_of(folder):
    """What TensorBoard shows of a run."""
    events = EventAccumulator(str(folder / "tensorboard"), size_guidance={"scalars": 0})
    events.Reload()
    return {name: [(event.step, event.value) for event in events.Scalars(name)] for name in events.Tags()["scalars"]}


def assert_equal_scalars(found, expected):
    assert found.keys() == expected.keys()
    for name, pairs in expected.items():
        assert [step for step, _ in found[name]] == [step for step, _ in pairs]
        assert [number for _, number in found[name]] == pytest.approx([number for _, number in pairs], rel=FLOAT32)


def test_tensorboard_shows_the_numbers_of_logs_csv_by_their_names_over_steps_also_after_a_resumption(tmp_path):
    folder = begin(tmp_path, tensorboard=True).folder
    go_on(tmp_path, total_steps=800)

    expected = numbers_of(folder / "logs.csv")
    assert {"total_loss", "steps_per_second", "dead_units_1"} <= expected.keys()
    assert expected["total_loss"][-1][0] == 800
    assert_equal_scalars(scalars_of(folder), expected)


def test_tensorboard_leaves_out_what_lies_beyond_the_checkpoint(tmp_path):
    for up_to_step, steps in ((None, (20, 40, 60, 80)), (40, (50, 70))):
        sink = TensorBoardSink(tmp_path, up_to_step)
        for step in steps:
            sink.write({"total_loss": float(step)}, step)
        sink.close()

    assert scalars_of(tmp_path) == {"total_loss": [(step, step) for step in (20, 40, 50, 70)]}


def test_evaluations_go_to_the_sinks_under_names_of_their_own(tmp_path):
    sink = StubSink()
    with Sinks([SinkThread("stub", lambda: sink)]) as opened:
        log = EvaluationLog(tmp_path, sinks=opened)
        log.write(EVALUATION)
        log.close()

    expected = {name: pairs[0][1] for name, pairs in numbers_of(tmp_path / "evaluations.csv").items()}
    assert sink.rows == [(80, {f"evaluations/{name}": number for name, number in expected.items()})]
    assert sink.calls == ["open", "write", "close"]


@pytest.mark.parametrize(
    ("flag", "module", "package"),
    [("--tensorboard", "torch.utils.tensorboard", "tensorboard"), ("--wandb", "wandb", "wandb")],
)
def test_without_its_package_a_sink_is_refused_before_anything_is_made(
    tmp_path, capfd, monkeypatch, flag, module, package
):
    monkeypatch.setitem(sys.modules, module, None)

    exit_code, _, errors = run(capfd, "train", *SMALL, "--savedir", tmp_path / "runs", flag)

    assert exit_code == 2
    assert errors.startswith(f"monobeast train: error: {flag}: needs {package} (")
    assert errors.endswith(f"): python -m pip install {package}\n") and errors.count("\n") == 1
    assert not (tmp_path / "runs").exists()


def test_a_folder_named_wandb_does_not_pass_for_the_package(tmp_path, capfd, monkeypatch):
    (tmp_path / "wandb").mkdir()
    monkeypatch.setattr(sys, "path", [str(tmp_path), *(path for path in sys.path if "site-packages" not in path)])
    monkeypatch.setitem(sys.modules, "wandb", None)  # so that what is imported now is taken out at the end
    monkeypatch.delitem(sys.modules, "wandb")

    exit_code, _, errors = run(capfd, "train", *SMALL, "--savedir", tmp_path / "runs", "--wandb")

    assert (exit_code, "python -m pip install wandb" in errors) == (2, True)


def test_wandb_gets_the_numbers_of_logs_csv_with_step_as_their_axis(tmp_path, wandb):
    folder = begin(tmp_path, wandb=True).folder

    (begun,) = wandb.runs
    found = {}
    for row in begun.rows:
        for name in row.keys() - {"step"}:
            found.setdefault(name, []).append((row["step"], row[name]))
    assert_equal_scalars(found, numbers_of(folder / "logs.csv"))
    assert begun.axes == {"step": None, "*": "step"} and begun.is_finished
    assert begun.arguments["config"]["batch_size"] == 2 and begun.arguments["dir"] == str(folder)


def test_a_resumed_run_is_the_same_at_wandb(tmp_path, wandb):
    folder = begin(tmp_path, wandb=True).folder
    go_on(tmp_path, total_steps=800)
    begin(tmp_path, wandb=True, xpid="other")

    first, second, other = [begun.arguments["id"] for begun in wandb.runs]
    assert first == second == (folder / "wandb" / "run_id").read_text().strip() != other
    assert {begun.arguments["resume"] for begun in wandb.runs} == {"allow"}
    assert [row["step"] for row in wandb.runs[1].rows][-1] == 800


@pytest.mark.parametrize(
    ("is_logged_in", "variables", "mode"),
    [(False, {}, "offline"), (True, {}, None), (False, {"WANDB_MODE": "online"}, None)],
)
def test_wandb_is_offline_where_nobody_is_logged_in(tmp_path, wandb, monkeypatch, is_logged_in, variables, mode):
    wandb.is_logged_in = is_logged_in
    for name, value in variables.items():
        monkeypatch.setenv(name, value)

    begin(tmp_path, wandb=True)

    assert wandb.runs[0].arguments["mode"] == mode


@pytest.mark.parametrize("raises_in", ["open", "write", "close"])
def test_a_sink_that_fails_is_named_once_and_the_run_goes_on(tmp_path, monkeypatch, capfd, raises_in):
    thread = SinkThread("stub", lambda: StubSink(raises_in))
    monkeypatch.setattr("monobeast.training.choose_sinks", lambda *_: Sinks([thread]))

    result = begin(tmp_path)

    assert (result.state, result.step) == ("complete", 400)
    assert numbers_of(result.folder / "logs.csv")["total_loss"][-1][0] == 400
    lines = [line for line in capfd.readouterr().out.splitlines() if "--stub" in line]
    assert [line.partition("] ")[2] for line in lines] == [
        "--stub: OSError: no room ...; no more rows go there; training goes on"
    ]


def test_nobody_waits_for_a_sink_that_hangs(monkeypatch, caplog):
    monkeypatch.setattr(sinks, "_CLOSE_S", 0.0)
    monkeypatch.setattr(sinks, "_MOST_WAITING", 2)
    has_to_end = threading.Event()
    thread = SinkThread("stub", lambda: has_to_end.wait() and StubSink())
    with Sinks([thread]) as opened:
        for step in range(5):
            opened.write({"step": step})

    assert caplog.messages == [
        "--stub: is too slow, rows are left out",
        "--stub: did not finish in time; its last rows may be missing",
    ]
    has_to_end.set()
    thread.join(timeout_s=60)


def test_a_sink_without_a_row_is_never_opened():
    opened = []

    with Sinks([SinkThread("stub", lambda: opened.append(StubSink()))]):
        pass

    assert opened == []


@pytest.mark.slow
def test_wandb_itself_keeps_a_run_offline_and_no_secret(tmp_path):
    pytest.importorskip("wandb", reason="the tests do not install it: python -m pip install wandb")
    key = "0123456789abcdef" * 3
    environment = os.environ | {"WANDB_API_KEY": key, "WANDB_MODE": "offline"}
    command = [sys.executable, "-m", "monobeast", *SMALL, f"--savedir={tmp_path}", "--wandb"]

    for further in ([], ["--resume", "--total_steps=800"]):
        result = subprocess.run([*command, *further], env=environment, capture_output=True, text=True, check=True)
        assert "--wandb: offline, `wandb sync` in" in result.stdout
        assert "no more rows go there" not in result.stdout and result.stderr == ""

    files = [path for path in (tmp_path / "run").rglob("*") if path.is_file()]
    run_id = (tmp_path / "run" / "wandb" / "run_id").read_text().strip()
    records = [path for path in files if path.name == f"run-{run_id}.wandb"]
    assert len(records) == 2 and all(b"total_loss" in path.read_bytes() for path in records)
    assert not any(key.encode() in path.read_bytes() for path in files)

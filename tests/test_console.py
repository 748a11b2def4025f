"""What a run says, where: lines without a terminal, a bar below the messages on one, and the same out.log."""

import io
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from process_tree import actors_of
from terminal import Terminal, lines_shown

import monobeast
from monobeast.runs.console import console, logger
from monobeast.runs.progress import Progress

tqdm = pytest.importorskip("tqdm")

TESTS = Path(__file__).parent
CATCH = (
    *("--env", "monobeast/Catch-v0", "--seed", "1", "--num_threads", "1", "--max_seconds", "100"),
    *("--unroll_length", "20", "--envs_per_actor", "8", "--batch_size", "8"),  # 160 steps an update
)
PROGRESS = Progress(
    *(44_800, 2_000_000, 1226.7, -20.152, 40, 40),
    **{"total_loss": -1.875, "entropy": 1.7666, "policy_lag": 4.0, "verdict": "learner-bound"},
)
BAR = re.compile(
    r"\d+%\|.+\| [\d.]+k?/[\d.]+[kM][, ]+[\d,]+ steps/s[, ]+ETA [\d:]+[, ]+return -?[\d.]+[, ]+lag \d+\.\d"
    r"[, ]+(learner-bound|actor-bound|copy-bound|balanced)"
)


class StubTerminal(io.StringIO):
    def isatty(self):
        return True


def make_stub_terminal(monkeypatch, columns):
    """Puts it in the place of standard output. No fixture: pytest takes standard output again for the test itself."""
    terminal = StubTerminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.delenv("TQDM_DISABLE", raising=False)
    return terminal


@pytest.fixture
def start(tmp_path):
    """Starts runs, each on a terminal of its own, of which nothing is left, also when the test has failed."""
    terminals = []

    def start_one(*arguments, columns=0, path=TESTS.parent):
        search_path = os.pathsep.join([str(path), str(TESTS.parent), str(TESTS)])
        own = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "TQDM_DISABLE")}
        command = [sys.executable, "-m", "monobeast", *map(str, arguments), "--savedir", tmp_path, "--xpid", "run"]
        environment = own | {"PYTHONPATH": search_path}
        terminals.append(Terminal(command, columns, env=environment, cwd=tmp_path))
        return terminals[-1]

    yield start_one
    for terminal in terminals:
        terminal.close()


def split_log(folder):
    """The lines of `out.log`: those of intervals, all others."""
    lines = (folder / "out.log").read_text().splitlines()
    of_intervals = [line for line in lines if re.match(r"\[[\d:]+\] step [\d,]+ of ", line)]
    return of_intervals, [line for line in lines if line not in of_intervals]


def frames_of(output):
    """What was drawn at the place of the bar, one drawing after the other."""
    return [part for part in re.split(r"[\r\n]", output) if "%|" in part]


def test_the_line_of_an_interval_has_all_that_is_known():
    assert str(PROGRESS) == (
        "step 44,800 of 2,000,000 (2.2%), 1,227 steps/s, 0:26:34 to go, return -20.15 (last 40 of 40 episodes), "
        "loss -1.875, entropy 1.767, lag 4.0, learner-bound"
    )
    assert str(Progress(1040, 1000)) == "step 1,040 of 1,000 (100.0%), no episode ended yet"
    assert "to go" not in str(Progress(1, 10**18, 1.0))  # longer than anybody waits


@pytest.mark.parametrize("columns", [0, pytest.param(30, marks=pytest.mark.slow)])
def test_a_run_on_a_terminal_has_one_bar_below_its_messages(start, tmp_path, columns):
    flags = ["--num_actors", 0, "--total_steps", 2000, "--log_interval_s", 0.01]
    terminal = start(*CATCH, *flags, columns=columns)

    assert terminal.finish() == 0

    intervals, messages = split_log(tmp_path / "run")
    *above, bar, after = terminal.lines
    assert above == messages and after == ""
    assert "training on monobeast/Catch-v0" in messages[0] and "complete at step 2,080" in messages[-1]
    assert bar.startswith("100%|") and len(bar) < (columns or 80)
    assert BAR.fullmatch(bar) or columns == 30
    assert len(set(frames_of(terminal.output))) > 2 and len(intervals) > 2
    assert not re.search(r"[\r\x1b|]", (tmp_path / "run" / "out.log").read_text())


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize(
    ("number", "is_typed"), [(signal.SIGINT, True), pytest.param(signal.SIGTERM, False, marks=pytest.mark.slow)]
)
def test_a_warning_stands_above_the_bar_and_a_signal_ends_both_cleanly(start, tmp_path, number, is_typed):
    terminal = start(*CATCH, "--num_actors", 2, "--log_interval_s", 0.1, columns=110)
    terminal.wait_for("bound")

    os.kill(actors_of(terminal.process.pid)[0], signal.SIGKILL)
    terminal.wait_for("It is replaced")
    terminal.wait_for("steps/s")
    if is_typed:
        terminal.press("\x03")
    else:
        os.kill(terminal.process.pid, number)

    assert terminal.finish() == 128 + number
    _, messages = split_log(tmp_path / "run")
    *above, bar, after = terminal.lines
    assert above == messages and after == ""
    assert any("killed by SIGKILL" in message for message in messages) and "stopped at step" in messages[-2]
    assert BAR.match(bar) and sum("%|" in line for line in above) == 0


def test_without_tqdm_a_terminal_has_the_lines_of_the_log(start, tmp_path):
    (tmp_path / "hiding").mkdir()
    (tmp_path / "hiding" / "tqdm.py").write_text("raise ImportError('hidden')")

    terminal = start(*CATCH, "--num_actors", 0, "--total_steps", 1000, path=tmp_path / "hiding")

    assert terminal.finish() == 0
    assert terminal.output.replace("\r\n", "\n") == (tmp_path / "run" / "out.log").read_text()


def test_by_tqdms_own_switch_a_terminal_has_the_lines_of_the_log(tmp_path, monkeypatch):
    stub_terminal = make_stub_terminal(monkeypatch, columns=120)
    monkeypatch.setenv("TQDM_DISABLE", "1")
    with console(tmp_path / "out.log"):
        logger.info(PROGRESS)

    assert stub_terminal.getvalue() == (tmp_path / "out.log").read_text()


def train(tmp_path, **settings):
    common = {"num_actors": 0, "num_learner_threads": 1, "seed": 1, "savedir": str(tmp_path), "xpid": "run"}
    return monobeast.train(monobeast.Config(**common | {"env": "monobeast/Catch-v0"} | settings))


def test_a_resumed_run_starts_the_bar_at_its_step(tmp_path, monkeypatch):
    train(tmp_path, total_steps=800)
    stub_terminal = make_stub_terminal(monkeypatch, columns=120)

    train(tmp_path, total_steps=1600, resume=True, log_interval_s=0.001)

    first, *_, last = frames_of(stub_terminal.getvalue())
    assert first.startswith("55%|") and "| 880/1.60k" in first  # after the first update
    assert last.startswith("100%|")


def test_a_run_that_fails_closes_its_bar_below_the_traceback(tmp_path, monkeypatch):
    stub_terminal = make_stub_terminal(monkeypatch, columns=120)
    result = train(tmp_path, env="stub_environments:Boom50-v0", max_actor_restarts=0, log_interval_s=0.001)

    assert result.state == "failed"
    *above, bar, after = lines_shown(stub_terminal.getvalue(), 120)
    assert above == split_log(tmp_path / "run")[1] and after == ""
    assert any("RuntimeError: boom in step 50" in line for line in above)
    assert "%|" in bar


def test_an_exception_that_nobody_foresaw_closes_the_bar_too(tmp_path, monkeypatch):
    stub_terminal = make_stub_terminal(monkeypatch, columns=120)
    with pytest.raises(KeyError):
        with console(tmp_path / "out.log"):
            handlers = list(logger.handlers)  # held here, so that none is closed for being forgotten
            logger.info(PROGRESS)
            raise KeyError

    assert len(handlers) == 2 and logger.handlers == []
    *_, bar, after = lines_shown(stub_terminal.getvalue(), 120)
    assert BAR.fullmatch(bar) and after == ""


def test_on_eighty_columns_nothing_of_the_bar_is_cut_off(tmp_path, monkeypatch):
    stub_terminal = make_stub_terminal(monkeypatch, columns=80)
    with console(tmp_path / "out.log"):
        logger.info(PROGRESS._replace(step=448_000))

    bar = frames_of(stub_terminal.getvalue())[-1]
    assert bar.endswith("| 448k/2.00M 1,227 steps/s ETA 21:06 return -20.15 lag 4.0 learner-bound")
    assert len(bar + "^C") <= 80


def test_what_the_terminal_puts_behind_the_bar_goes_with_it(tmp_path, monkeypatch):
    stub_terminal = make_stub_terminal(monkeypatch, columns=120)
    with console(tmp_path / "out.log"):
        logger.info(PROGRESS)
        stub_terminal.write("^C")
        logger.info("stopped")

    message, bar, _ = lines_shown(stub_terminal.getvalue(), 120)
    assert message.endswith("] stopped") and BAR.fullmatch(bar)


def test_a_bar_starts_no_thread_and_settles_nothing_for_the_callers_processes():
    code = """
import multiprocessing, sys, threading
from monobeast.runs.progress import Progress
from monobeast.runs.progress_bar import ProgressBar
bar = ProgressBar(sys.stdout)
bar.show(Progress(1, 2))
with bar.hidden():
    print(threading.active_count(), multiprocessing.get_start_method(allow_none=True))
"""
    result = subprocess.run([sys.executable, "-c", code], cwd=TESTS.parent, capture_output=True, text=True, check=True)

    assert "1 None\n" in result.stdout


def test_a_terminal_whose_width_changes_has_the_bar_in_its_width(tmp_path, monkeypatch):
    stub_terminal = make_stub_terminal(monkeypatch, columns=120)
    with console(tmp_path / "out.log"):
        for columns in ("120", "40", "2", "1"):
            monkeypatch.setenv("COLUMNS", columns)
            logger.info(PROGRESS)

    widths = [len(part.rstrip()) for part in stub_terminal.getvalue().split("\r")]
    assert widths[1:] == [118, 118, 38, 1, 1, 1]  # the first is drawn twice, and the last once more at the end


def test_a_terminal_that_is_gone_does_not_end_the_run(tmp_path, monkeypatch):
    stub_terminal = make_stub_terminal(monkeypatch, columns=120)

    def fail(text):
        raise OSError(32, "Broken pipe")

    with console(tmp_path / "out.log"):
        logger.info(PROGRESS)
        monkeypatch.setattr(stub_terminal, "write", fail)
        logger.info(PROGRESS)
        logger.warning("nobody reads this there")

    assert "nobody reads this there" in (tmp_path / "out.log").read_text()


def test_a_bar_of_the_caller_stays_whole(tmp_path, monkeypatch):
    stub_terminal = make_stub_terminal(monkeypatch, columns=120)
    with tqdm.tqdm(total=3, desc="seeds", file=stub_terminal) as bar_of_the_caller:
        with console(tmp_path / "out.log"):
            logger.info(PROGRESS)
            logger.warning("a message")
            logger.info(PROGRESS)
        bar_of_the_caller.update()

    message, bar, seeds, *_ = lines_shown(stub_terminal.getvalue(), 120)
    assert message.endswith("a message") and BAR.fullmatch(bar) and seeds.startswith("seeds:  33%|")


def test_a_message_that_cannot_be_shown_silences_no_other(tmp_path, monkeypatch):
    shown = io.TextIOWrapper(io.BytesIO(), encoding="latin-1", write_through=True)
    monkeypatch.setattr(sys, "stdout", shown)
    with console(tmp_path / "out.log"):
        for message in ("one", "π", "two"):
            logger.info(message)

    lines = shown.buffer.getvalue().decode("latin-1").splitlines()
    assert [line.split()[-1] for line in lines] == ["one", "two"]
    assert "π" in (tmp_path / "out.log").read_text(encoding="utf-8")

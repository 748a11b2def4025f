"""`monobeast plot`: the numbers drawn, which runs make one curve, and what is refused."""

import argparse
import os
import subprocess
import sys

import command_lines
import numpy as np
import pytest
from recorded_runs import EPISODES, write_run

from monobeast.__main__ import run_command
from monobeast.commands import plot
from monobeast.plotting.curves import Curve, average, rolling_mean
from monobeast.plotting.figure import short_number


def figure_of(*arguments):
    """The Figure that a command line draws."""
    parser = argparse.ArgumentParser()
    plot.add_arguments(parser)
    chosen = parser.parse_intermixed_args([*(str(argument) for argument in arguments), "--out", "unused.png"])
    return plot.draw_runs(chosen).figure


def points(line):
    return [tuple(point) for point in line.get_xydata().tolist()]


def bands(axes):
    """Least and greatest y of each band over the whole of it."""
    return [(band.get_datalim(axes.transData).y0, band.get_datalim(axes.transData).y1) for band in axes.collections]


def legend(figure):
    """The legend's texts, unwrapped; a long one stands below all panels."""
    box = figure.axes[0].get_legend() or figure.legends[0]
    return [text.get_text().replace("\n", " ") for text in box.get_texts()]


def test_a_line_is_the_mean_of_the_last_episodes(tmp_path):
    run = write_run(tmp_path / "run", episodes=[(100, 1), (200, 3), (200, 8), (300, 5)])

    figure = figure_of(run, "--window", 2)

    (line,) = figure.axes[0].get_lines()
    assert points(line) == [(100, 1), (200, 5.5), (300, 6.5)]  # at 200, both of its episodes have ended
    assert figure.axes[0].get_ylabel() == "mean return of the last 2 episodes, at first of fewer"
    assert figure.axes[0].get_title(loc="left") == "monobeast/Catch-v0"
    assert legend(figure) == ["run"]
    assert bands(figure.axes[0]) == []


def test_frames_are_steps_times_the_frame_skip_of_an_atari_game(tmp_path):
    run = write_run(tmp_path / "run", env="ALE/Pong-v5", frame_skip=3)

    figure = figure_of(run, "--x", "frames", "--window", 1)

    assert points(figure.axes[0].get_lines()[0]) == [(300, 1), (600, 3), (900, 5)]
    assert figure.axes[0].get_xlabel() == "emulator frames"


def test_hours_lie_between_those_of_the_logs_and_end_with_them(tmp_path):
    # The logs say an hour at step 200, and three at 400: 300 lies between them, and 500 was when nobody knows.
    run = write_run(tmp_path / "run", episodes=[*EPISODES, (500, 7)])

    figure = figure_of(run, "--x", "hours", "--window", 1)

    assert points(figure.axes[0].get_lines()[0]) == [(0.5, 1), (1, 3), (2, 5)]


def test_seeds_become_their_mean_and_a_band_from_the_least_to_the_greatest(tmp_path):
    first = write_run(tmp_path / "first", episodes=[(100, 1), (200, 3), (400, 5)], seed=1)
    second = write_run(tmp_path / "second", episodes=[(150, 0), (300, 10), (350, 20)], seed=2)

    figure = figure_of(first, second, "--window", 1)

    # From where both have begun to where one ends; each holds its value until its next episode.
    (line,) = figure.axes[0].get_lines()
    assert points(line) == [(150, 0.5), (200, 1.5), (300, 6.5), (350, 11.5)]
    assert bands(figure.axes[0]) == [(0, 20)]
    assert legend(figure) == ["2 seeds"]
    assert "minimum to maximum" in figure.axes[0].get_legend().get_title().get_text()


def test_a_band_has_the_least_and_the_greatest_of_every_point():
    x = np.array([0.0, 1.0])

    mean = average([Curve(x, np.array(y)) for y in ([1.0, 10.0], [4.0, 1.0], [4.0, 1.0])])

    assert [column.tolist() for column in mean] == [[0, 1], [3, 4], [1, 1], [4, 10]]


def test_a_long_run_is_drawn_with_as_many_points_as_a_picture_shows():
    x = np.arange(1, 100_001, dtype=np.float64)

    mean = average([Curve(x, x)])

    assert len(mean.x) == 2000 and (mean.x[0], mean.x[-1]) == (1, 100_000)
    assert np.abs(mean.mean - mean.x).max() < 1


def test_unlike_settings_become_curves_named_by_what_differs(tmp_path):
    runs = [
        write_run(tmp_path / name, episodes=[(100, value)], batch_size=batch_size, seed=seed)
        for name, value, batch_size, seed in [("a", 1, 8, 1), ("b", 5, 32, 1), ("c", 3, 8, 2)]
    ]

    figure = figure_of(*runs)

    assert [points(line) for line in figure.axes[0].get_lines()] == [[(100, 2)], [(100, 5)]]
    assert legend(figure) == ["batch_size 8, 2 seeds", "batch_size 32"]
    assert len({line.get_color() for line in figure.axes[0].get_lines()}) == 2


def test_every_differing_setting_is_named(tmp_path):
    write_run(tmp_path / "a", use_lstm=True, clip_c_threshold=None, learning_rate=1e-3)
    write_run(tmp_path / "b", use_lstm=False, clip_c_threshold=1.0, learning_rate=1)

    names = legend(figure_of(tmp_path / "a", tmp_path / "b"))

    assert names == [
        "learning_rate 0.001, clip_c_threshold none, use_lstm True",
        "learning_rate 1, clip_c_threshold 1, use_lstm False",
    ]


def test_settings_that_do_not_change_what_is_learned_make_no_curve_of_their_own(tmp_path):
    write_run(tmp_path / "a")
    others = {"seed": 3, "savedir": "elsewhere", "log_interval_s": 1.0, "num_learner_threads": 2, "device": "cuda"}
    others |= {"timeline": "trace.json", "evaluate_every": 1000, "evaluate_episodes": 3, "compile": True}
    write_run(tmp_path / "b", max_seconds=60.0, num_episodes=3, disable_checkpoint=True, **others)

    assert legend(figure_of(tmp_path / "a", tmp_path / "b")) == ["2 seeds"]


def test_what_changes_the_speed_counts_where_time_does(tmp_path):
    write_run(tmp_path / "a", device="cpu")
    write_run(tmp_path / "b", device="cuda")

    assert legend(figure_of(tmp_path / "a", tmp_path / "b", "--x", "hours")) == ["device cpu", "device cuda"]


def test_a_setting_that_came_after_a_run_counts_as_its_default(tmp_path):
    write_run(tmp_path / "new", vtrace_lambda=1.0, use_lstm=True)
    old = write_run(tmp_path / "old", use_lstm=True)
    text = (old / "meta.json").read_text()
    (old / "meta.json").write_text(text.replace('"vtrace_lambda": 1.0, ', "").replace('"use_lstm": true, ', ""))

    assert "vtrace_lambda" not in (old / "meta.json").read_text()
    assert legend(figure_of(tmp_path / "new", old)) == ["use_lstm True", "use_lstm False"]


def test_a_setting_that_changed_on_the_way_is_unlike_one_that_did_not(tmp_path):
    first = {"changes": {"batch_size": [8, 16], "device": ["cpu", "cuda"]}, "resumed_from_step": 100}
    second = {"changes": {"batch_size": [16, 32]}, "resumed_from_step": 200, "history": [{"step": 100}, first]}
    write_run(tmp_path / "resumed", batch_size=32, meta=second)
    write_run(tmp_path / "whole", batch_size=32)

    assert legend(figure_of(tmp_path / "resumed", tmp_path / "whole")) == [
        "batch_size 8 then 16 (from step 100) then 32 (from step 200)",
        "batch_size 32",
    ]


def test_two_runs_with_one_seed_are_not_called_two_seeds(tmp_path):
    write_run(tmp_path / "a", seed=1)
    write_run(tmp_path / "b", seed=1)

    assert legend(figure_of(tmp_path / "a", tmp_path / "b")) == ["2 runs"]


def test_given_labels_name_the_curves_in_their_order_and_are_no_mathematics(tmp_path):
    write_run(tmp_path / "a", batch_size=8)
    write_run(tmp_path / "b", batch_size=32)

    figure = figure_of(tmp_path / "a", "--label", "cheap $x_$", tmp_path / "b", "--label", "large")

    assert legend(figure) == ["cheap $x_$", "large"]
    figure.savefig(os.devnull, format="svg")


def test_a_long_legend_stands_below_the_panels(tmp_path):
    write_run(tmp_path / "a", batch_size=8)
    write_run(tmp_path / "b", batch_size=32)

    figure = figure_of(tmp_path / "a", tmp_path / "b", "--label", "word " * 50, "--label", "b")

    figure.draw_without_rendering()
    assert legend(figure) == [("word " * 50).strip(), "b"]
    assert figure.legends[0].get_window_extent().y1 < figure.axes[0].get_tightbbox().y0


def test_panels_draw_the_columns_that_a_run_has(tmp_path):
    logs = [{"step": 200, "seconds": 1, "entropy": 1.5}, {"step": 300, "seconds": 2, "total_loss": -4, "kl": None}]
    run = write_run(tmp_path / "run", logs=logs)

    figure = figure_of(run, "--panels")

    assert [axes.get_title(loc="left") for axes in figure.axes[1:]] == ["loss", "entropy (nats)"]
    assert [points(axes.get_lines()[0]) for axes in figure.axes[1:]] == [[(300, -4)], [(200, 1.5)]]


def test_a_panel_of_what_is_never_negative_begins_at_0_and_leaves_room_above(tmp_path):
    logs = [{"step": step, "seconds": 1, "entropy": lag, "total_loss": -lag} for step, lag in [(1, 3.99), (2, 4)]]
    run = write_run(tmp_path / "run", logs=logs)

    loss, entropy = figure_of(run, "--panels").axes[1:]

    assert entropy.get_ylim()[0] == 0 and entropy.get_ylim()[1] > 4.1
    assert -4.1 < loss.get_ylim()[0] < loss.get_ylim()[1] < -3.9


def test_a_column_is_drawn_by_its_name_for_the_groups_that_have_it(tmp_path):
    logs = [{"step": 200, "seconds": 1}]
    write_run(tmp_path / "a", logs=[{"step": 200, "seconds": 1, "own": 2}], batch_size=8, seed=1)
    write_run(tmp_path / "b", logs=[{"step": 200, "seconds": 1, "own": 4}], batch_size=8, seed=2)
    write_run(tmp_path / "c", logs=[{"step": 200, "seconds": 1, "own": 6}], batch_size=32, seed=1)
    write_run(tmp_path / "d", logs=logs, batch_size=32, seed=2)

    figure = figure_of(*(tmp_path / name for name in "abcd"), "--column", "own")

    panel = figure.axes[1]
    assert panel.get_title(loc="left") == "own"
    assert [points(line) for line in panel.get_lines()] == [[(200, 3)]]  # not 6: one of its seeds has none
    assert panel.get_lines()[0].get_color() == figure.axes[0].get_lines()[0].get_color()


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0"), (0.25, "0.25"), (-20, "\u221220"), (1500, "1.5k"), (2e6, "2M"), (1.25e6, "1.25M"), (2e9, "2B")],
)
def test_axes_have_short_numbers(number, text):
    assert short_number(number) == text


@pytest.mark.parametrize(
    ("ending", "signature"), [("png", b"\x89PNG\r\n\x1a\n"), ("svg", b"<?xml"), ("pdf", b"%PDF"), ("PNG", b"\x89PNG")]
)
def test_the_ending_decides_the_format_and_nothing_else_is_left(tmp_path, capfd, ending, signature):
    run = write_run(tmp_path / "runs" / "example")
    out = tmp_path / "out" / f"picture.{ending}"
    out.parent.mkdir()

    where = ("--savedir", run.parent, "--out", out)
    exit_code, output, errors = command_lines.run(capfd, "plot", "example", "--window", 2, *where)

    assert (exit_code, errors) == (0, "")
    assert output == f"example: return 4.00 at 300 agent steps\nwrote {out}\n"
    assert out.read_bytes().startswith(signature)
    assert os.listdir(out.parent) == [out.name]


def test_the_same_runs_give_the_same_file(tmp_path, capfd):
    run = write_run(tmp_path / "run")

    for name in ("a.svg", "b.svg"):
        assert command_lines.run(capfd, "plot", run, "--out", tmp_path / name)[0] == 0

    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()


def test_it_is_said_where_a_seed_ends_long_before_the_others(tmp_path, capfd):
    first = write_run(tmp_path / "first", episodes=[(100, 1), (1000, 3)], seed=1)
    second = write_run(tmp_path / "second", episodes=[(100, 5), (200, 7)], seed=2)

    _, output, _ = command_lines.run(capfd, "plot", first, "--window", 1, second, "--out", tmp_path / "x.png")

    assert "2 seeds: return 4.00 at 200 agent steps, where second ends, long before others\n" in output


@pytest.fixture
def runs(tmp_path, monkeypatch):
    """The current folder, with three runs in it: `a` and `b` differ in a setting, `pong` in the environment."""
    monkeypatch.chdir(tmp_path)
    write_run(tmp_path / "a", batch_size=8)
    write_run(tmp_path / "b", batch_size=32, use_lstm=True)
    write_run(tmp_path / "c", batch_size=8, episodes=[(10, 1)])
    write_run(tmp_path / "pong", env="ALE/Pong-v5")
    write_run(tmp_path / "empty", episodes=[])
    (tmp_path / "folder.png").mkdir()
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("a --out x.jpg", "--out x.jpg: must end in .png, .svg, .pdf"),
        ("a --out x", "--out x: must end in"),
        ("a --out nowhere/x.png", "--out nowhere/x.png: must be a file in a folder that can be written to"),
        ("a --out folder.png", "--out folder.png: must be a file in a folder that can be written to"),
        ("a", "the following arguments are required: --out"),
        ("--out x.png", "the following arguments are required: RUN"),
        ("a --out x.png --window 0", "--window 0: must be at least 1"),
        ("a --out x.png --x epochs", "argument --x: invalid choice: 'epochs'"),
        ("a --out x.png --pannels", "did you mean --panels?"),
        ("nothing --out x.png", "run nothing: no such folder, neither here nor in --savedir"),
        ("empty --out x.png", "run empty: episodes.csv: no episode has finished yet"),
        ("a ./a --out x.png", "run a: is given twice"),
        ("a c --out x.png", "run c: ends before the first episode of another seed does"),
        ("a b --as-one --out x.png", "batch_size is 8 in a, 32 in b; use_lstm is False in a, True in b"),
        ("a pong --out x.png", "run pong is of ALE/Pong-v5, run a of monobeast/Catch-v0"),
        ("a b --out x.png --label one", "--label: 1 given for 2 curves (batch_size 8, use_lstm False; batch_size 32"),
        ("a --out x.png --x frames", "--x frames: monobeast/Catch-v0 is not an Atari game"),
        ("a --out x.png --column ent", "--column ent: no such column in logs.csv; there are step, seconds, entropy"),
    ],
)
def test_what_cannot_be_drawn_is_refused_in_a_line_and_nothing_is_written(runs, capfd, arguments, message):
    before = sorted(runs.rglob("*"))
    try:
        exit_code = run_command(["plot", *arguments.split()])
    except SystemExit as leaving:  # argparse's own way
        exit_code = leaving.code

    output, errors = capfd.readouterr()
    assert exit_code == 2
    assert errors.startswith("monobeast plot: error: ") and message in errors and errors.count("\n") == 1
    assert output == ""
    assert sorted(runs.rglob("*")) == before


def test_a_run_of_an_environment_that_is_not_there_has_unknown_frames(tmp_path, capfd):
    run = write_run(tmp_path / "run", env="no_such_module:Id-v0")

    exit_code, _, errors = command_lines.run(capfd, "plot", run, "--x", "frames", "--out", tmp_path / "x.png")

    assert exit_code == 2 and "whether no_such_module:Id-v0 has frames is unknown here" in errors


def test_a_failing_write_leaves_the_earlier_picture_alone(tmp_path, capfd, monkeypatch):
    run = write_run(tmp_path / "run")
    out = tmp_path / "x.png"
    out.write_text("the earlier one")

    def refuse(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "replace", refuse)
    exit_code, _, errors = command_lines.run(capfd, "plot", run, "--out", out)

    assert (exit_code, errors) == (2, f"monobeast plot: error: --out {out}: cannot be written: Permission denied\n")
    assert out.read_text() == "the earlier one"
    assert sorted(os.listdir(tmp_path)) == ["run", "x.png"]


def test_without_matplotlib_the_line_that_installs_it_is_said(tmp_path, capfd, monkeypatch):
    run = write_run(tmp_path / "run")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.delitem(sys.modules, "monobeast.plotting.figure")

    exit_code, _, errors = command_lines.run(capfd, "plot", run, "--out", tmp_path / "x.png")

    assert exit_code == 2 and errors.endswith(": python -m pip install matplotlib\n") and errors.count("\n") == 1
    assert not (tmp_path / "x.png").exists()


def test_help_lists_the_commands_and_the_flags_of_this_one(capfd):
    for arguments in (["--help"], ["plot", "--help"]):
        with pytest.raises(SystemExit) as leaving:
            run_command(arguments)
        assert leaving.value.code == 0

    output, _ = capfd.readouterr()
    for text in ("monobeast plot: draw", "--out FILE", "--as_one", "--x {steps,frames,hours}", "(default: 100)"):
        assert text in output


def test_no_torch_is_imported_to_draw(tmp_path):
    run = write_run(tmp_path / "run")
    code = (
        "import sys; from monobeast.__main__ import run_command\n"
        f"assert run_command(['plot', {str(run)!r}, '--out', {str(tmp_path / 'x.png')!r}]) == 0\n"
        "print(*{'torch', 'gymnasium', 'matplotlib.pyplot'} & set(sys.modules))"
    )

    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert result.stdout.splitlines()[-1] == ""


def test_a_rolling_mean_begins_with_what_there_is():
    values = np.array([4.0, 2.0, 0.0, 7.0])

    assert rolling_mean(values, 2).tolist() == [4.0, 3.0, 1.0, 3.5]
    assert rolling_mean(values, 10).tolist() == [4.0, 3.0, 2.0, 3.25]

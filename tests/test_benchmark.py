"""`monobeast benchmark`: its arithmetic on numbers made up, its parts and its runs on Catch. Nothing asserts a time."""

import json
import os
import signal
import subprocess
import sys
import types
from pathlib import Path

import numpy as np
import pytest
import torch
from command_lines import run
from process_tree import actors_of, wait_until
from recorded_runs import write_run
from resource_needs import make_config

from monobeast import environments, preparation
from monobeast.benchmarks import baseline, process_tree, python_atari, report, whole
from monobeast.benchmarks.whole import Whole
from monobeast.config import Config
from monobeast.costs import parts
from monobeast.costs.limit import Costs, find_bounds, find_limit, foretell
from monobeast.costs.parts import Part, Parts, Stopwatch

CATCH = ("--env", "monobeast/Catch-v0", "--device", "cpu", "--envs_per_actor", "8", "--num_learner_threads", "1")
FAKE_PARTS = Parts(
    [Part("environment", 4e-4, "actors"), Part("inference", 3e-4, "actors"), Part("forward", 8e-4, "learner")],
    Part("an update as a whole", 9e-4, "learner"),
)
FAKE_WHOLE = Whole(steps=12_000, updates=150, seconds=10.0, peak_memory=900_000_000)


# The limit


def test_costs_are_the_sums_of_parts_by_their_place():
    gpu = Part("forward", 2e-4, "GPU")

    assert Costs.of([*FAKE_PARTS.summed, gpu]) == pytest.approx(Costs(actor=7e-4, learner=8e-4, gpu=2e-4))


@pytest.mark.parametrize(
    ("costs", "num_actors", "threads", "cores", "expected", "what"),
    [
        # Two actors and a learner share two cores.
        (Costs(7e-4, 5e-4, 0), 2, 1, 2, 2 / (7e-4 + 5e-4), "cores"),
        # The learner alone would be slower than its share of the cores: it has one thread.
        (Costs(7e-4, 8e-4, 0), 1, 1, 2, 1 / 8e-4, "learner"),
        (Costs(9e-4, 8e-4, 0), 1, 1, 2, 1 / 9e-4, "actors"),
        # The time is that of both threads together: an update keeps two cores busy for 0.5 ms a step.
        (Costs(7e-4, 5e-4, 0), 2, 2, 2, 2 / (7e-4 + 2 * 5e-4), "cores"),
        # More threads than cores get no more than the cores.
        (Costs(7e-4, 5e-4, 0), 2, 8, 2, 2 / (7e-4 + 2 * 5e-4), "cores"),
        # No actors: all by turns, whatever the cores.
        (Costs(7e-4, 8e-4, 0), 0, 1, 64, 1 / 15e-4, "learner"),
        # A GPU and the learner's core work beside each other.
        (Costs(7e-4, 1e-5, 5e-5), 15, 8, 16, 1 / 5e-5, "GPU"),
        (Costs(7e-4, 5e-5, 1e-5), 15, 8, 16, 1 / 5e-5, "learner"),
        (Costs(7e-4, 1e-5, 2e-5, 5e-5), 15, 8, 16, 1 / 5e-5, "copies"),
        (Costs(7e-4, 1e-5, 2e-5), 15, 1, 16, 15 / 7e-4, "actors"),
        (Costs(7e-4, 1e-5, 2e-5), 32, 8, 16, 16 / (7e-4 + 2e-5), "cores"),
    ],
)
def test_the_limit_is_the_least_bound(costs, num_actors, threads, cores, expected, what):
    limit = find_limit(find_bounds(costs, num_actors, threads, cores))

    assert (limit.what, limit.steps_per_second) == (what, pytest.approx(expected))


def test_a_formula_of_a_bound_gives_its_number():
    bounds = find_bounds(Costs(7e-4, 8e-4, 1e-4), num_actors=2, num_learner_threads=1, cores=2)

    for bound in bounds:
        value = eval(bound.formula.replace(" ms", "e-3").replace("x", "*"))
        assert value == pytest.approx(bound.steps_per_second, rel=0.01)


def test_on_more_cores_the_actors_take_what_the_learner_leaves():
    costs = Costs(7e-4, 1e-5, 2e-5)

    assert foretell(costs, num_learner_threads=8, cores=16).steps_per_second == pytest.approx(15 / 7e-4)
    assert foretell(costs, num_learner_threads=8, cores=128).what == "GPU"


# The parts


def test_the_parts_of_catch_are_all_measured_and_leave_the_run_as_it_was():
    sizes = {"num_actors": 2, "envs_per_actor": 8, "num_learner_threads": 1}
    prepared = preparation.prepare(Config(env="monobeast/Catch-v0", device="cpu", seed=1, **sizes))
    before = {name: tensor.clone() for name, tensor in prepared.network.state_dict().items()}
    threads = torch.get_num_threads()

    found = parts.measure(prepared, seconds=0.0)

    assert [(part.name, part.place) for part in found.summed] == [
        ("environment", "actors"),
        ("inference, 8 a forward pass", "actors"),
        ("taking weights", "actors"),
        ("batch assembly", "learner"),
        ("publishing weights", "learner"),
        ("transfer", "learner"),
        ("forward", "learner"),
        ("V-trace", "learner"),
        ("backward", "learner"),
        ("optimizer", "learner"),
        ("losses, checks, statistics", "learner"),
    ]
    may_be_0 = ("transfer", "losses, checks, statistics")
    assert all(part.seconds_per_step > 0 for part in found.summed if part.name not in may_be_0)
    assert found.update.seconds_per_step > 0
    assert all(torch.equal(tensor, before[name]) for name, tensor in prepared.network.state_dict().items())
    assert torch.get_num_threads() == threads


@pytest.mark.parametrize(
    "settings",
    [
        {"envs_per_actor": 2, "batch_size": 8, "use_lstm": True},
        {"envs_per_actor": 8, "batch_size": 4, "num_actors": 0, "optimizer": "adam"},
        {"env": "stub_environments:Parts-v0", "network": "mlp", "normalize_observations": True},
    ],
)
def test_parts_can_be_measured_at_any_sizes(settings):
    defaults = {"env": "monobeast/Catch-v0", "device": "cpu", "num_learner_threads": 1, "seed": 1}
    config = Config(**defaults | settings)

    assert Costs.of(parts.measure(preparation.prepare(config), seconds=0.0).summed).learner > 0


def test_a_stopwatch_counts_neither_preparation_nor_warm_up(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(parts.time, "perf_counter", lambda: now[0])
    calls = []

    def prepare():
        now[0] += 100.0

    def call(_):
        calls.append(now[0])
        now[0] += 50.0 if len(calls) <= 3 else 2.0  # the first ones compile, say

    assert Stopwatch("cpu", seconds=250.0).time(call, prepare) == [2.0] * 3
    assert len(calls) == 6


# The tables


def make_case(name="as given", **settings):
    return report.Case(name, make_config(**settings), FAKE_PARTS, cores=2)


def test_the_table_of_parts_ends_with_the_limit():
    lines = report.format_parts(make_case())

    assert lines[0].split() == ["part", "one", "agent", "step", "where"]
    assert lines[1].split() == ["environment", "0.4000", "ms", "2", "cores,", "one", "an", "actor"]
    assert lines[3].split() == ["forward", "0.8000", "ms", "1", "core", "of", "the", "learner"]
    assert lines[4].startswith("(an update as a whole)")
    assert "1,250 /s  = 1 / 0.8 ms" in lines[6]
    assert lines[8].split() == ["limit", "1,250", "/s", "set", "by", "the", "learner"]
    assert "16: 1,250 /s (learner)" in lines[9]


def test_reached_is_compared_with_the_limit():
    line = report.format_whole(make_case(), FAKE_WHOLE)

    assert line == (
        "as given: 1,200 steps/s (12,000 steps, 150 updates in 10.0 s), efficiency 0.96, peak memory 900 MB"
    )
    assert "peak memory unknown" in report.format_whole(make_case(), FAKE_WHOLE._replace(peak_memory=None))


def test_ratios_are_of_pairs_in_their_order():
    slow, fast = FAKE_WHOLE._replace(steps=6_000), FAKE_WHOLE

    ratios = report.find_ratios([fast, fast, slow], [slow, fast, fast])

    assert ratios == [2.0, 1.0, 0.5]
    assert report.format_ratios(["A", "B"], ratios) == "A / B: 2.00 1.00 0.50 (median 1.00)"


def test_everything_found_is_json():
    found = report.to_plain([make_case("A"), make_case("B")], [[FAKE_WHOLE] * 2] * 2)

    read = json.loads(json.dumps(found))
    assert read["ratios"] == [1.0, 1.0]
    first = read["cases"][0]
    assert (first["name"], first["limit"], first["config"]["num_actors"]) == ("A", pytest.approx(1250), 2)
    assert first["parts"][0] == {"name": "environment", "seconds_per_step": 4e-4, "place": "actors"}
    assert first["runs"][0]["efficiency"] == pytest.approx(0.96)


# Whole runs


def rows(*cells):
    return [{"step": step, "updates": updates, "seconds": seconds} for step, updates, seconds in cells]


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        ([(0, 0, 5.0)], None),  # no update yet
        ([(0, 0, 5.0), (80, 1, 7.0)], None),  # no warm row
        ([(0, 0, 5.0), (80, 1, 7.0), (800, 10, 9.0)], None),  # one
        # From the first row that is 2 s past the first update's, to the first that is 4 s past that one.
        ([(0, 0, 5.0), (80, 1, 7.0), (800, 10, 9.0), (1600, 20, 11.0)], Whole(800, 10, 2.0, None)),
        (
            [(0, 0, 5.0), (80, 1, 7.0), (800, 10, 9.0), (1600, 20, 11.0), (2400, 30, 13.5), (9999, 99, 20.0)],
            Whole(1600, 20, 4.5, None),
        ),
    ],
)
def test_start_and_warm_up_are_left_out_of_a_run(tmp_path, cells, expected):
    write_run(tmp_path / "run", logs=rows(*cells))

    assert whole.find_window(tmp_path / "run", seconds=4.0, warm_up_s=2.0) == expected


def test_a_run_that_has_not_begun_has_no_window(tmp_path):
    assert whole.find_window(tmp_path / "run", seconds=1.0, warm_up_s=1.0) is None


def write_process(proc, pid, parent, pss_kilobytes=None):
    folder = proc / str(pid)
    folder.mkdir()
    (folder / "stat").write_text(f"{pid} (a) name) S {parent} 1 1 0")
    if pss_kilobytes is not None:
        (folder / "smaps_rollup").write_text(f"00-ff ---p [rollup]\nRss: 999 kB\nPss:   {pss_kilobytes} kB\n")


def test_the_memory_of_a_tree_is_that_of_all_its_processes(tmp_path, monkeypatch):
    monkeypatch.setattr(process_tree, "_PROC", tmp_path)
    for pid, parent, pss in ((1, 0, 5), (20, 1, 100), (30, 20, 20), (40, 30, 3), (50, 1, 7000), (60, 20, None)):
        write_process(tmp_path, pid, parent, pss)

    assert sorted(process_tree.find(20)) == [20, 30, 40, 60]
    assert process_tree.measure_memory(20) == 123 * 1024
    assert process_tree.measure_memory(60) is None
    assert process_tree.measure_memory(99) is None


# The baseline


def test_the_baseline_is_set_as_monobeast_is():
    given = {"env": "CartPole-v1", "num_actors": 2, "precision": "bfloat16", "num_learner_threads": 2}

    config = Config(**baseline.like_monobeast(given))

    assert (config.num_actors, config.envs_per_actor, config.num_buffers) == (4, 1, 8)
    assert (config.precision, config.memory_format) == ("float32", "contiguous")
    assert (config.env, config.preset, config.num_learner_threads) == ("CartPole-v1", "classic", None)


@pytest.fixture
def opencv(monkeypatch):
    """A stand-in that takes every so many pixels."""

    def resize(image, size, interpolation):
        rows, columns = (np.arange(n) * have // n for n, have in zip(size[::-1], image.shape, strict=True))
        return image[rows][:, columns]

    module = types.ModuleType("cv2")
    module.resize, module.INTER_AREA, module.__spec__ = resize, 0, types.SimpleNamespace()
    monkeypatch.setitem(sys.modules, "cv2", module)


def test_the_baseline_of_atari_plays_the_same_game_through_the_wrappers_of_gymnasium(opencv):
    given = {"env": "ALE/Breakout-v5", "frame_skip": 4, "sticky_actions": 0.0, "noop_max": 0}

    config = environments.resolve(Config(**baseline.like_monobeast(given)))

    assert (config.env, config.reward_clipping, config.life_loss_terminal) == (python_atari.ENV, "abs_one", True)
    assert (config.preset, config.frame_skip) == ("atari", 4)
    spaces = environments.check(config)
    assert spaces == environments.check(environments.resolve(Config(env="ALE/Breakout-v5")))
    environment = environments.make(config, 1, [7])
    step = environment.reset()
    for _ in range(200):
        step = environment.step(np.array([1 + step.episode_length[0] % 2]))
        if step.terminal[0]:
            break
    assert step.observation.shape == (1, 4, 84, 84)
    assert step.terminal[0] and not step.done[0]  # a life
    environment.close()


def test_without_opencv_the_baseline_of_atari_says_what_is_missing(capfd, monkeypatch):
    monkeypatch.setattr(baseline.importlib.util, "find_spec", lambda name: None)

    exit_code, output, errors = run(capfd, "benchmark", "--baseline", "monobeast")

    assert (exit_code, output) == (2, "")
    assert errors == (
        "monobeast benchmark: error: --baseline monobeast: needs OpenCV (Gymnasium's wrappers for Atari use it): "
        "python -m pip install opencv-python-headless\n"
    )


# The command


@pytest.fixture
def fake_runs(monkeypatch):
    """Runs that are made up: twice as fast with four actors. Gives the settings of all that were asked for."""
    asked = []

    def fake_run(settings, seconds, warm_up_s):
        asked.append(settings)
        return FAKE_WHOLE._replace(steps=FAKE_WHOLE.steps * settings.get("num_actors", 2))

    monkeypatch.setattr(whole, "run", fake_run)
    monkeypatch.setattr(parts, "measure", lambda prepared, seconds: FAKE_PARTS)
    return asked


def test_the_command_prints_both_tables_and_the_ratio_of_runs_by_turns(capfd, fake_runs, tmp_path):
    other = "--num-actors 4 --precision=bfloat16"
    file = tmp_path / "found.json"

    exit_code, output, errors = run(
        capfd, "benchmark", *CATCH, "--compare", other, "--rounds", "3", "--json", str(file)
    )

    assert (exit_code, errors) == (0, "")
    assert [settings.get("num_actors") for settings in fake_runs] == [None, 4] * 3
    assert fake_runs[1]["precision"] == "bfloat16" and fake_runs[1]["env"] == "monobeast/Catch-v0"
    lines = output.splitlines()
    assert lines[0].startswith("A: monobeast/Catch-v0 with the mlp network on cpu: ") and "of 8 env" in lines[0]
    assert sum(line.startswith("B: ") for line in lines) == 4
    assert lines[-1] == "A / B: 0.50 0.50 0.50 (median 0.50)"
    assert json.loads(file.read_text())["ratios"] == [0.5] * 3


def test_the_command_without_a_comparison_runs_once(capfd, fake_runs):
    exit_code, output, _ = run(capfd, "benchmark", *CATCH)

    assert exit_code == 0
    assert len(fake_runs) == 1
    assert output.splitlines()[-1].startswith("as given: 2,400 steps/s ")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--seconds 0", "--seconds 0.0: must be above 0"),
        ("--seconds nan", "--seconds nan: must be above 0"),
        ("--warm_up -1", "--warm_up -1.0: must be at least 0"),
        ("--rounds 0", "--rounds 0: must be at least 1"),
        ("--baseline torchbeast", "--baseline torchbeast: must be monobeast"),
        ("--baseline monobeast --compare=--use_lstm", "--baseline monobeast --compare: exclude each other"),
        ("--json /nowhere/found.json", "--json /nowhere/found.json: must be a file in a folder that can be written to"),
        ("--xpid mine", "--xpid mine: not for benchmark, which keeps none of its runs"),
        ("--wandb", "--wandb True: not for benchmark, which keeps none of its runs"),
        ("--compare=--wandb", "--compare: takes flags of train that a benchmark can vary, not --wandb"),
        ("--num_actors -1", "--num_actors -1: must be at least 0"),
        ("--compare=--num_actors=-1", "--num_actors -1: must be at least 0"),
        ("--compare=--seconds=3", "--compare: takes flags of train that a benchmark can vary, not --seconds"),
        ("--compare=--zzz", "unrecognized arguments: --zzz (--help lists the flags)"),
        ("--secnds 3", "unrecognized arguments: --secnds 3; did you mean --seconds? (--help lists the flags)"),
    ],
)
def test_bad_flags_are_refused_in_a_line(capfd, arguments, message):
    exit_code, output, errors = run(capfd, "benchmark", *CATCH, *arguments.split())

    assert (exit_code, output, errors) == (2, "", f"monobeast benchmark: error: {message}\n")


@pytest.mark.slow
def test_a_real_benchmark_of_catch(capfd):
    short = ("--seconds", "0.5", "--warm_up", "0.1", "--part_seconds", "0.01", "--rounds", "1")

    exit_code, output, errors = run(capfd, "benchmark", *CATCH, *short, "--compare=--num_actors=1")

    assert (exit_code, errors) == (0, "")
    assert output.splitlines()[-1].startswith("A / B: ")
    assert "peak memory unknown" not in output or sys.platform != "linux"


@pytest.mark.slow
def test_a_run_that_fails_ends_the_benchmark_with_its_last_words(capfd, monkeypatch):
    monkeypatch.setattr(whole, "to_flags", lambda settings: ["--num_actors", "-1"])

    exit_code, output, _ = run(capfd, "benchmark", *CATCH, "--part_seconds", "0", "--seconds", "1")

    assert exit_code == 1
    assert output.endswith("monobeast train: error: --num_actors -1: must be at least 0\n")


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_stopped_benchmark_leaves_no_process(tmp_path):
    command = [sys.executable, "-m", "monobeast", "benchmark", *CATCH, "--part_seconds", "0", "--seconds", "100"]
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    root = Path(__file__).parent.parent
    benchmark = subprocess.Popen(command, env=environment, cwd=root, stdout=subprocess.DEVNULL)

    def find_run():
        return [pid for pid in process_tree.find(benchmark.pid) if actors_of(pid)]

    try:
        assert wait_until(find_run, timeout_s=300)
        tree = process_tree.find(benchmark.pid)
        benchmark.send_signal(signal.SIGTERM)
        assert benchmark.wait(60) == 143
        assert wait_until(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in tree))
    finally:
        benchmark.kill()
        benchmark.wait()
    assert not any(path.name.startswith("monobeast-benchmark") for path in tmp_path.iterdir())

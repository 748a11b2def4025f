"""scripts/growth.py and scripts/grid.py: what they run can be run, and what they measure is what they print."""

import sys
from pathlib import Path

import pytest

import monobeast
from monobeast.benchmarks import whole
from monobeast.config import Config

SCRIPTS = str(Path(__file__).resolve().parent.parent / "scripts")
sys.path.insert(0, SCRIPTS)
import command_line  # noqa: E402
import grid  # noqa: E402
import growth  # noqa: E402

SETTINGS = [settings for group in growth.GROUPS.values() for settings in group.values()]


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_every_setting_is_one(settings):
    Config(**settings)


@pytest.mark.parametrize(("network", "num_weights"), [("growth:Wide", 1.6e6), ("growth:Wider", 16e6)])
def test_frames_and_networks_can_be_trained_and_have_the_sizes_that_are_named(tmp_path, network, num_weights):
    settings = growth.FRAMES | {"num_actors": 0, "network": network, "device": "cpu", "unroll_length": 2}

    result = monobeast.train(Config(**settings, total_steps=32, savedir=str(tmp_path), seed=1))

    assert result.state == "complete"
    module = getattr(growth, network.partition(":")[2])(growth.Frames().observation_space, 6)
    assert sum(parameter.numel() for parameter in module.parameters()) == pytest.approx(num_weights, rel=0.05)


def test_a_grid_has_the_median_of_runs_by_turns(monkeypatch, capsys):
    order, speeds = [], iter([100.0, 500.0, 300.0, 700.0, 200.0, 600.0])

    def run(settings, seconds, warm_up_s):
        order.append(settings["num_actors"])
        return whole.Whole(steps=int(next(speeds)), updates=1, seconds=1.0, peak_memory=None)

    monkeypatch.setattr(whole, "run", run)
    monkeypatch.setattr(grid, "ROUNDS", 3)

    assert grid.measure([{"num_actors": 1}, {"num_actors": 2}]) == [200.0, 600.0]
    assert order == [1, 2] * 3


@pytest.mark.parametrize(("before", "kept"), [(None, []), ("", []), ("/a:/b", ["/a", "/b"])])
def test_what_a_script_starts_looks_for_modules_in_named_folders_alone(monkeypatch, before, kept):
    monkeypatch.delenv("PYTHONPATH", raising=False)
    if before is not None:
        monkeypatch.setenv("PYTHONPATH", before)

    path = command_line.environment(Path(SCRIPTS))["PYTHONPATH"]

    assert path.split(":") == [str(Path(SCRIPTS).parent), SCRIPTS, *kept]

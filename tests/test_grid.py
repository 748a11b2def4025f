"""scripts/grid.py: settings take turns, and each has the median of its runs."""

import grid

from monobeast.benchmarks import whole


def test_a_grid_has_the_median_of_runs_by_turns(monkeypatch, capsys):
    order, speeds = [], iter([100.0, 500.0, 300.0, 700.0, 200.0, 600.0])

    def run(settings, seconds, warm_up_s):
        order.append(settings["num_actors"])
        return whole.Whole(steps=int(next(speeds)), updates=1, seconds=1.0, peak_memory=None)

    monkeypatch.setattr(whole, "run", run)
    monkeypatch.setattr(grid, "ROUNDS", 3)

    assert grid.measure([{"num_actors": 1}, {"num_actors": 2}]) == [200.0, 600.0]
    assert order == [1, 2] * 3

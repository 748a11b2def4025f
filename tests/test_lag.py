"""scripts/lag.py: which runs it makes, and which it takes from the record."""

from pathlib import Path
from types import SimpleNamespace

import lag
import pytest

RUNS = [("Catch", correction, late, seed) for correction in ("none", "vtrace") for late in (0, 4) for seed in (1, 2)]


class Study:
    """A small study whose runs take no time, on a machine of one core."""

    def __init__(self, folder, monkeypatch):
        self.meta = {name: "the same" for name in lag._KEPT}
        self.trained, self.failing = [], None
        for name, value in (
            *(("FOLDER", folder), ("SETTINGS", {"Catch": {"total_steps": 1}}), ("CORRECTIONS", ("none", "vtrace"))),
            *(("LAGS", (0, 4)), ("SEEDS", (1, 2)), ("train", self.train), ("measure", self.measure)),
            ("RecordedRun", lambda folder: SimpleNamespace(meta=self.meta)),
        ):
            monkeypatch.setattr(lag, name, value)
        monkeypatch.setattr(lag.os, "cpu_count", lambda: 1)

    def train(self, *run):
        *what, savedir = run
        if tuple(what) == self.failing:
            raise RuntimeError("failed")
        self.trained.append(tuple(what))
        return savedir

    def measure(self, task, correction, late, seed, folder):
        assert isinstance(folder, Path)
        return lag.Outcome(task, correction, late, seed, 0.5, 0.25, 0.75, 0.125)

    def run(self):
        """The runs that were made, in the order of their names."""
        self.trained.clear()
        lag.run_all()
        return sorted(self.trained)


@pytest.fixture
def study(tmp_path, monkeypatch):
    return Study(tmp_path / "lag", monkeypatch)


def test_every_run_is_made_once_and_recorded(study):
    assert study.run() == RUNS
    assert [outcome[:4] for outcome in lag.read()] == RUNS


def test_runs_on_record_are_not_repeated_but_for_the_first_which_tells_commit_and_machine(study):
    study.run()
    before = (lag.FOLDER / "runs.csv").read_text()

    assert study.run() == RUNS[:1]
    assert (lag.FOLDER / "runs.csv").read_text() == before


@pytest.mark.parametrize("name", ["git_commit", "cpu", "settings"])
def test_runs_of_another_commit_machine_or_settings_are_repeated(study, monkeypatch, name):
    study.run()
    if name == "settings":
        monkeypatch.setattr(lag, "SETTINGS", {"Catch": {"total_steps": 2}})
    study.meta = study.meta | {name: "another"}

    assert study.run() == RUNS
    assert [outcome[:4] for outcome in lag.read()] == RUNS


def test_after_a_failure_the_runs_that_are_left_are_made(study):
    study.failing = RUNS[3]
    with pytest.raises(RuntimeError, match="failed"):
        study.run()
    recorded = [outcome[:4] for outcome in lag.read()]
    assert RUNS[0] in recorded and RUNS[3] not in recorded

    study.failing = None
    assert study.run() == [RUNS[0], *(run for run in RUNS[1:] if run not in recorded)]
    assert [outcome[:4] for outcome in lag.read()] == RUNS

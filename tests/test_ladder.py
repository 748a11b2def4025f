"""The ladder pins what it runs, checks what it says, and docs/results.md follows from the records."""

import gzip
import json
import subprocess
import sys
from pathlib import Path

import bounds
import ladder
import numpy as np
import pytest
import recorder
import reproduction
import results
from recorded_runs import write_run

from monobeast.__main__ import _make_parser
from monobeast.config import Config
from monobeast.environments.atari import ATARI_ONLY
from monobeast.plotting.run_groups import _IRRELEVANT
from monobeast.presets import PRESETS

ROOT = Path(__file__).parent.parent
RUNS = [run for name in ladder.RUNGS for run in ladder.runs_of(name)]
# What does not change what is learned, or is given by the seed; an environment's own; what is for a study alone.
UNPINNED = _IRRELEVANT | {"compile", "env_kwargs", "force_lag"}


def parsed(variant, seed):
    return vars(_make_parser("train", flags_of="train", takes_all=False).parse_args(ladder.flags_of(variant, seed)))


@pytest.mark.parametrize(("name", "variant", "seed"), RUNS, ids=[name for name, _, _ in RUNS])
def test_a_rung_pins_every_setting_that_matters_and_its_command_says_so(name, variant, seed):
    given = parsed(variant, seed)

    assert given == variant.settings | {"seed": seed}
    unpinned = UNPINNED if variant.settings["preset"] == "atari" else UNPINNED | set(ATARI_ONLY)
    assert set(given) >= {setting.name for setting in Config.__dataclass_fields__.values()} - unpinned
    assert set(given) >= set(PRESETS["atari"])
    Config(**given)


def test_runs_have_names_of_their_own():
    names = [name for name, _, _ in RUNS]

    assert len(set(names)) == len(names)


@pytest.mark.parametrize(
    ("value", "holds"), [(0.95, True), (1.05, True), (0.94, False), (1.06, False), (np.nan, False), (np.inf, False)]
)
def test_a_bound_holds_within_its_limits_and_for_numbers_alone(value, holds):
    check = bounds.Check("value", lambda _: value, low=0.95, high=1.05)

    assert check.holds(value) is holds
    assert check.describe() == "value at least 0.95 and at most 1.05"


def make_run(folder, returns):
    """A run with an episode a step."""
    return write_run(folder, episodes=list(enumerate(returns, 1)), savedir=str(folder.parent))


def test_the_mean_return_is_of_the_last_hundred_episodes_and_of_no_fewer(tmp_path):
    assert bounds.mean_return(make_run(tmp_path / "a", [0.0] * 50 + [2.0] * 50 + [4.0] * 50)) == 3.0
    assert np.isnan(bounds.mean_return(make_run(tmp_path / "b", [9.0] * 99)))


def test_an_outcome_is_printed_and_kept_with_its_bound(tmp_path, capsys):
    folder = make_run(tmp_path / "run", [9.0] * 100)
    variant = ladder.Variant({}, (bounds.mean_at_least(9), bounds.mean_at_least(10)))

    outcomes = reproduction.check(variant, folder)

    assert [outcome["holds"] for outcome in outcomes] == [True, False]
    assert json.loads((folder / "checks.json").read_text()) == outcomes
    assert "at least 9: 9: reached" in (out := capsys.readouterr().out) and "at least 10: 9: NOT REACHED" in out


@pytest.mark.parametrize(("exit_codes", "bound", "expected"), [([0, 0], 9, 0), ([0, 0], 10, 1), ([0, 130], 9, 130)])
def test_a_rung_is_reached_where_every_run_is(tmp_path, monkeypatch, exit_codes, bound, expected):
    codes = iter(exit_codes)

    def stub_train(variant, seed, savedir, xpid):
        make_run(savedir / xpid, [9.0] * 100)
        return next(codes)

    monkeypatch.setattr(reproduction, "train", stub_train)
    rung = ladder.Rung("", (ladder.Variant({}, (bounds.mean_at_least(bound),)),), seeds=(1, 2))
    monkeypatch.setitem(ladder.RUNGS, "stub", rung)

    assert reproduction.reproduce("stub", None, tmp_path, keep=False) == expected


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ({"catch": 0, "memory": 0, "pong": 0}, 0),
        ({"catch": 1, "memory": 0, "pong": 0}, 1),  # not reached: the others are trained all the same
        ({"catch": 0, "memory": 130}, 130),  # stopped: nothing is begun any more
        ({"catch": 1, "memory": 143}, 143),
        ({"catch": 2}, 2),
    ],
    ids=str,
)
def test_several_rungs_are_trained_in_turn_until_one_is_stopped(tmp_path, monkeypatch, found, expected):
    trained = []

    def stub_reproduce(name, seeds, savedir, keep):
        trained.append(name)
        assert (seeds, savedir.parent, keep) == ((3, 4), tmp_path, True)
        return found[name]

    monkeypatch.setattr(reproduction, "reproduce", stub_reproduce)
    monkeypatch.setattr(sys, "path", [*sys.path])  # main adds to it
    flags = ["--seeds", "3", "4", "3", "--savedir", str(tmp_path), "--record"]
    monkeypatch.setattr(sys, "argv", ["reproduce", "catch", "memory", "catch", "pong", *flags])

    assert reproduction.main() == expected
    assert trained == list(found)


def test_a_run_that_is_killed_is_no_success(tmp_path, monkeypatch):
    command = [sys.executable, "-c", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"]
    start = subprocess.Popen
    monkeypatch.setattr(subprocess, "Popen", lambda _, env: start(command, env=env))

    assert reproduction.reproduce("catch", (1,), tmp_path, keep=False) == 128 + 9


def test_a_record_holds_no_path_and_compresses_what_is_large(tmp_path, monkeypatch):
    monkeypatch.setattr(recorder, "RESULTS", tmp_path / "results")
    folder = make_run(tmp_path / "secret" / "run", [float(i) for i in range(60_000)])
    (folder / "checkpoint.pt").write_bytes(b"large")

    kept = recorder.record(folder)

    assert sorted(path.name for path in kept.iterdir()) == ["episodes.csv.gz", "logs.csv", "meta.json"]
    assert "secret" not in (kept / "meta.json").read_text()
    with gzip.open(kept / "episodes.csv.gz", "rt") as file:
        assert file.read() == (folder / "episodes.csv").read_text()


def test_the_score_of_a_test_is_read_from_what_it_says():
    score = recorder.read_test(ROOT / "results" / "trials" / "entropy-0.01-2M")

    assert score == recorder.TestScore(20, -6.15, 7.41, -17, 6)


@pytest.mark.parametrize("page", results.PAGES, ids=lambda page: page.name)
def test_what_a_page_says_of_runs_follows_from_the_records(page):
    text = page.read_text()

    assert "<!-- from scripts/results.py: " in text and results.render(text) == text


def test_every_record_is_of_a_run_that_can_be_made_again():
    known = {name for name, _, _ in RUNS} | {"lag", "trials"}
    assert {path.name for path in recorder.RESULTS.iterdir()} <= known


@pytest.mark.parametrize("folder", sorted(recorder.RESULTS.rglob("checks.json")), ids=lambda path: path.parent.name)
def test_a_recorded_outcome_is_that_of_the_recorded_episodes(folder):
    run = folder.parent
    meta = json.loads((run / "meta.json").read_text())
    name, variant, seed = next(one for one in RUNS if one[0] == run.name)
    outcomes = json.loads(folder.read_text())

    assert meta["state"] == "complete" and not meta["git_commit"].endswith("-dirty")
    # A setting that is younger than the record was then no choice, but part of the code: at what is pinned now.
    assert {key: meta["config"].get(key, value) for key, value in variant.settings.items()} == variant.settings
    assert meta["config"]["seed"] == seed
    assert [outcome["check"] for outcome in outcomes] == [check.describe() for check in variant.checks]
    for outcome, check in zip(outcomes, variant.checks, strict=True):
        assert outcome["holds"] is check.holds(outcome["value"])
        if check.measure is bounds.mean_return:
            assert outcome["value"] == pytest.approx(bounds.mean_return(run))
        if check.measure is bounds.test_return:
            assert outcome["value"] == recorder.read_test(run).mean


def test_a_score_has_its_meaning_from_ataris_own_settings_and_two_more():
    assert set(results._MEANING) == {*ATARI_ONLY, "reward_clipping", "life_loss_terminal"}


def test_an_unknown_rung_is_refused():
    command = [sys.executable, str(ROOT / "scripts" / "reproduction.py"), "chess"]
    result = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env={"PYTHONPATH": str(ROOT)})

    assert result.returncode == 2 and "invalid choice: 'chess'" in result.stderr

"""docs/troubleshooting.md says what the recorded runs showed."""

import re
from pathlib import Path

import lag
import numpy as np
import pytest
import recorder
import results

from monobeast.atari_scores import human_normalized
from monobeast.runs.recorded_run import RecordedRun

ROOT = Path(__file__).resolve().parent.parent
SAID = [
    ("pong-1", "rho_clipped", ["0.48", "0.49", "0.50"]),
    ("pong-1", "kl", ["0.006", "0.001", "0.00001"]),
    ("pong-1", "feature_std", ["0.012", "0.074", "0.099"]),
    ("pong-1", "logits_std", ["0.04", "1.2", "1.7"]),
    ("pong-bfloat16-1", "effective_sample_size", ["0.997", "0.996", "1.000"]),
    ("pong-bfloat16-1", "kl", ["0.002", "0.002", "0.00002"]),
    ("pong-wide-1", "policy_lag_mean", ["9.3", "9.5", "9.5"]),
    ("pong-wide-1", "kl", ["0.009", "0.002", "0.00003"]),
    ("pong-wide-1", "effective_sample_size", ["0.98", "1.00", "1.00"]),
    ("pong-bfloat16-wide-1", "policy_lag_mean", ["8.7", "5.5", "5.5"]),
    ("pong-bfloat16-wide-1", "kl", ["0.011", "0.0006", "0.00002"]),
    ("pong-bfloat16-wide-1", "effective_sample_size", ["0.98", "1.00", "1.00"]),
    ("pong-lstm-1", "logits_std", ["0.005", "0.9", "0.9"]),
    ("pong-lstm-1", "feature_std", ["0.02", "0.16", "0.18"]),
    ("pong-lstm-1", "kl", ["0.0006", "0.006", "0.00003"]),
    ("pong-deep-1", "feature_std", ["0.04", "0.20", "0.23"]),
    ("pong-deep-1", "kl", ["0.006", "0.003", "0.00005"]),
    ("pong-deep-1", "effective_sample_size", ["0.99", "0.99", "1.00"]),
    ("breakout-1", "kl", ["0.002", "0.022", "0.0002"]),
    ("breakout-1", "effective_sample_size", ["0.996", "0.950", "1.000"]),
    ("breakout-1", "explained_variance", ["0.89", "0.70", "0.97"]),
    ("qbert-1", "kl", ["0.012", "0.012", "0.0002"]),
    ("qbert-1", "effective_sample_size", ["0.974", "0.977", "1.000"]),
    ("qbert-1", "policy_lag_mean", ["2.6", "2.9", "3.0"]),
    ("qbert-1", "grad_norm", ["15", "140", "236"]),
    ("qbert-1", "entropy", ["1.60", "1.18", "0.67"]),
    ("trials/entropy-0.002", "feature_std", ["0.007", "0.009", "0.016"]),
    ("trials/entropy-0.002", "dead_units_1", ["0.41", "0.84", "0.84"]),
    ("lunarlander-1", "explained_variance", ["0.90", "0.94", "0.97"]),
    ("lunarlander-1", "entropy", ["0.98", "0.44", "0.38"]),
    ("lunarlander-1", "grad_norm", ["12", "20", "18"]),
    ("acrobot-1", "grad_norm", ["757", "1,581", "1,300"]),
    ("cartpole-1", "kl", ["0.03", "0.16", "0.001"]),
    ("cartpole-1", "effective_sample_size", ["0.95", "0.73", "1.00"]),
    ("pong-lstm-1", "explained_variance", ["0.68", "0.88", "0.96"]),
    ("trials/lstm-epsilon-0.0008", "explained_variance", ["0.26", "0.06", "0.06"]),
    ("memory-mlp-1", "explained_variance", ["-0.006", "-0.002", "0.001"]),
    ("memory-lstm-1", "explained_variance", ["0.36", "0.64", "0.99"]),
    ("pendulum-1", "kl", ["0.004", "0.032", "0.0002"]),
    ("pendulum-1", "effective_sample_size", ["0.99", "0.92", "1.00"]),
]


@pytest.mark.parametrize(("run", "column", "said"), SAID)
def test_the_page_has_the_medians_of_first_middle_and_last_tenth(run, column, said):
    values = RecordedRun(ROOT / "results" / run).logs[column]

    for tenth, text in zip(results.tenths_of(len(values)), said, strict=True):
        last_digit = 10.0 ** -len(text.partition(".")[2])
        assert np.nanmedian(values[tenth]) == pytest.approx(float(text.replace(",", "")), abs=0.5001 * last_digit)
    page = " ".join((ROOT / "docs" / "troubleshooting.md").read_text().split())
    assert ", ".join(said) in page or " and ".join([", ".join(said[:-1]), said[-1]]) in page


def test_the_page_has_the_last_returns_of_the_runs_that_it_names():
    _, page = (ROOT / "docs" / "troubleshooting.md").read_text().split("\n## What healthy runs look like\n")
    page = " ".join(page.split())
    said = re.findall(r"`([\w-]+)`, (-?[\d.]+) at the end", page)

    assert len(said) == page.count("at the end") > 0
    for run, text in said:
        returns = RecordedRun(ROOT / "results" / run).episodes.returns
        assert f"{returns[-100:].mean():.1f}" == text, run


def test_the_page_compares_precisions_at_the_same_steps():
    runs = [RecordedRun(ROOT / "results" / name) for name in ("pong-wide-1", "pong-bfloat16-wide-1")]
    page = " ".join((ROOT / "docs" / "troubleshooting.md").read_text().split())

    at = [
        [f"{one.episodes.returns[one.episodes.steps <= million * 1e6][-100:].mean():.1f}" for one in runs]
        for million in (1, 2, 3)
    ]
    assert "{} and {} at 1M steps, {} and {} at 2M. At 3M bfloat16 is ahead ({} and {})".format(*sum(at, [])) in page
    scores = [recorder.read_test(one.folder).mean for one in runs]
    assert "at 4M float32 (`test`: {:.2f} and {:.2f})".format(*scores) in page


def test_the_page_compares_the_deep_network_with_the_runs_of_the_shallow_one():
    names = ("pong-1", "pong-noframeskip-1", "pong-wide-1", "pong-bfloat16-1", "pong-bfloat16-wide-1")
    deep, *shallow = (RecordedRun(ROOT / "results" / name).episodes for name in ("pong-deep-1", *names))
    page = " ".join((ROOT / "docs" / "troubleshooting.md").read_text().split())

    for million, said in ((1, ["15.1", "4.3", "16.6"]), (2, ["20.6", "17.6", "19.0"])):
        mean, *others = (one.returns[one.steps <= million * 1e6][-100:].mean() for one in (deep, *shallow))
        assert [f"{value:.1f}" for value in (mean, min(others), max(others))] == said
        assert f"{said[0]} at {million}M, where that has {said[1]} to {said[2]}" in page


def test_the_page_tells_of_breakout_what_was_recorded():
    run = RecordedRun(ROOT / "results" / "breakout-1")
    steps, returns, lengths = run.episodes
    page = " ".join((ROOT / "docs" / "troubleshooting.md").read_text().split())

    at = [f"{returns[steps <= million * 1e6][-100:].mean():.1f}" for million in (1, 5, 8)]
    assert at == ["3.2", "37.8", "158.4"] and "3.2 at 1M steps, 37.8 at 5M, 158.4 at 8M" in page
    fall = (run.logs["step"] > 3.9e6) & (run.logs["step"] < 4.05e6)
    means, spreads = (run.logs[name][fall] for name in ("mean_episode_return", "feature_std"))
    assert means.round(1).tolist() == [29.6, 8.2, 2.2, 3.1, 25.3]
    assert spreads.round(2).tolist() == [0.19, 0.02, 0.05, 0.19, 0.15]
    at = [f"{returns[steps <= million * 1e6][-100:].mean():.1f}" for million in (6.9, 7, 8.5, 8.7)]
    assert at == ["102.0", "47.5", "197.4", "143.5"]
    assert "falls from 102.0 to 47.5 at 7M, and from 197.4 to 143.5 at 8.7M" in page
    assert (lengths[-100:] == 27_000).sum() == 11 and "11 of the last 100 games run into the limit" in page


def test_the_page_tells_of_qbert_what_was_recorded():
    run = RecordedRun(ROOT / "results" / "qbert-1")
    steps, returns, _ = run.episodes
    page = " ".join((ROOT / "docs" / "troubleshooting.md").read_text().split())

    at = [f"{returns[steps <= million * 1e6][-100:].mean():,.0f}" for million in (1, 2, 3, 3.5)]
    assert at == ["830", "2,107", "8,710", "10,638"]
    assert "It has 830 at 1M steps, 2,107 at 2M, 8,710 at 3M and 10,638 at 3.5M" in page
    scores = returns[-100:].mean(), recorder.read_test(run.folder).mean
    assert [f"{human_normalized('qbert', score):.0f}" for score in scores] == ["76", "74"]
    assert "Human-normalized that is 76 %, in `test` 74 %" in page


@pytest.mark.parametrize(
    ("run", "worst_kl", "said"), [("pong-bfloat16-1", 0.11, "`kl` reaches 0.11"), ("pong-1", 0.03, "in float32 0.03")]
)
def test_the_page_has_the_worst_rows_of_bfloat16_and_float32(run, worst_kl, said):
    page = " ".join((ROOT / "docs" / "troubleshooting.md").read_text().split())

    assert round(np.nanmax(RecordedRun(ROOT / "results" / run).logs["kl"]), 2) == worst_kl and said in page


def test_the_page_has_the_worst_rows_of_the_deep_network():
    sizes = RecordedRun(ROOT / "results" / "pong-deep-1").logs["effective_sample_size"]
    page = " ".join((ROOT / "docs" / "troubleshooting.md").read_text().split())

    assert (sizes < 0.8).sum() == 3 and round(np.nanmin(sizes), 2) == 0.13
    assert "three rows under 0.8, the lowest 0.13" in page


@pytest.mark.parametrize(
    ("run", "at_1M", "at_the_end"),
    [("pong-bfloat16-1", "16.6", "18.7"), ("pong-1", "5.6", "19.9"), ("pong-noframeskip-1", "12.5", "19.3")],
)
def test_the_page_has_the_returns_of_runs_that_it_compares(run, at_1M, at_the_end):
    episodes = RecordedRun(ROOT / "results" / run).episodes

    assert f"{episodes.returns[episodes.steps <= 1_000_000][-100:].mean():.1f}" == at_1M
    assert f"{episodes.returns[-100:].mean():.1f}" == at_the_end
    page = " ".join((ROOT / "docs" / "troubleshooting.md").read_text().split())
    assert "(16.6; 5.6 and 12.5) and behind them at 3M (18.7; 19.9 and 19.3)" in page


@pytest.mark.parametrize(
    ("correction", "updates_late", "sentence"),
    [
        ("vtrace", 64, "is {:.2f} and `kl` {:.1f} over the whole run, with V-trace and a return of {:.0f};"),
        ("vtrace", 4, "at a lag of 4 they are {:.2f} and {:.2f}, and it reaches {:.0f}."),
        ("none", 64, "Without correction `effective_sample_size` is {0:.2f} at a return of {2:.0f}:"),
    ],
)
def test_the_page_tells_of_late_weights_what_was_recorded(correction, updates_late, sentence):
    page = " ".join((ROOT / "docs" / "troubleshooting.md").read_text().split())
    runs = [one for one in lag.read() if (one.task, one.correction, one.lag) == ("CartPole", correction, updates_late)]

    means = [np.mean([getattr(one, name) for one in runs]) for name in ("effective_sample_size", "kl", "last_return")]
    assert sentence.format(*means) in page

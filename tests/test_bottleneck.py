"""Who waits for whom, as shares and in words."""


import pytest
from csv_rows import rows_of
from resource_needs import make_config

import monobeast
from monobeast.bottleneck import Shares, ShareMeter, Times, advise, judge

BASIC = Times(actors_working=30.0, actors_waiting=10.0, learner_waiting=2.0, copying=1.0, clock=20.0)
CUDA = {"device": "cuda", "num_learner_threads": 9}


def test_shares_are_of_the_time_of_those_who_wait():
    assert Shares.of(BASIC) == Shares(actor_wait_share=0.25, learner_wait_share=0.1, copy_share=0.05)


def test_without_a_rollout_there_is_no_share():
    assert Shares.of(BASIC._replace(actors_working=0.0, actors_waiting=0.0)) == Shares()


def test_a_meter_counts_from_its_start_and_each_interval_by_itself():
    meter, start = ShareMeter(), Times(100.0, 900.0, 50.0, 0.0, 1000.0)
    assert meter.read(start) == Shares() and meter.total() == (Shares(), 0.0)
    meter.start(start)
    meter.start(BASIC)  # counts already

    first = meter.read(Times(130.0, 910.0, 52.0, 1.0, 1020.0))
    second = meter.read(Times(140.0, 940.0, 72.0, 1.0, 1040.0))

    assert first == Shares(0.25, 0.1, 0.05)
    assert second == Shares(0.75, 1.0, 0.0)
    assert meter.total() == (Shares(0.5, 22 / 40, 1 / 40), 40.0)


@pytest.mark.parametrize(
    ("shares", "expected"),
    [
        (Shares(0.40, 0.02, 0.05), "learner-bound"),
        (Shares(0.40, 0.02, 0.50), "copy-bound"),
        (Shares(0.40, 0.20, 0.39), "learner-bound"),
        (Shares(0.40, 0.20, 0.41), "copy-bound"),
        (Shares(0.02, 0.40, 0.50), "actor-bound"),
        (Shares(0.05, 0.02, 0.90), "balanced"),
        (Shares(0.40, 0.45, 0.05), "balanced"),
        (Shares(), None),
    ],
)
def test_what_binds_is_the_side_that_does_not_wait(shares, expected):
    assert judge(shares) == expected


@pytest.mark.parametrize(
    ("shares", "settings", "cores", "ways"),
    [
        (Shares(0.4, 0.0, 0.0), {"network": "shallow"}, 3, "--precision bfloat16, or --batch_size 16"),
        (Shares(0.4, 0.0, 0.0), {}, 8, "--num_learner_threads 2, or --batch_size 16"),
        (Shares(0.4, 0.0, 0.0), {"envs_per_actor": 12, "batch_size": 4}, 3, "more cores"),
        (Shares(0.4, 0.0, 0.9), {}, 8, "--envs_per_actor 16"),
        (Shares(0.0, 0.4, 0.0), {}, 3, "--envs_per_actor 16"),
        (Shares(0.0, 0.4, 0.0), {"network": "deep"}, 3, "--envs_per_actor 16, or --precision bfloat16"),
        (Shares(0.2, 0.8, 0.0), {"num_actors": 0}, 1, "--envs_per_actor 16, or --num_actors 1"),
        (Shares(0.0, 0.4, 0.0), {**CUDA}, 4, "--envs_per_actor 16, or --num_actors 3"),
        (Shares(0.05, 0.05, 0.1), {"network": "deep"}, 2, "--precision bfloat16, or --envs_per_actor 16"),
        (Shares(0.05, 0.05, 0.1), {"network": "deep", "precision": "bfloat16"}, 2, "--envs_per_actor 16"),
        (Shares(0.4, 0.4, 0.1), {}, 8, "--num_buffers 8"),
    ],
)
def test_advice_names_flags_and_values(shares, settings, cores, ways):
    advice = advise(shares, make_config(**settings), cores)

    assert advice.partition("; to go faster: ")[2] == ways


def test_advice_says_what_was_measured():
    advice = advise(Shares(0.41, 0.02, 0.034), make_config(), cores=2)

    assert advice.startswith(
        "learner-bound: actors waited 41% of their time for slots, the learner 2% for rollouts, copies took 3%; "
    )
    assert advise(Shares(), make_config(), cores=2) is None


@pytest.mark.parametrize("num_actors", [0, 2])
def test_a_run_logs_the_shares_and_their_verdict(tmp_path, num_actors):
    settings = {"env": "monobeast/Catch-v0", "device": "cpu", "num_learner_threads": 1, "seed": 1}
    settings |= {"log_interval_s": 0.01, "total_steps": 800, "savedir": str(tmp_path), "disable_checkpoint": True}

    folder = monobeast.train(monobeast.Config(num_actors=num_actors, **settings)).folder

    rows = [row for row in rows_of(folder / "logs.csv") if row["learner_wait_share"]]
    assert rows
    for row in rows:
        assert all(0.0 <= float(row[name]) <= 1.0 for name in Shares._fields)
    verdicts = ("learner-bound", "actor-bound", "copy-bound", "balanced")
    lines = [line for line in (folder / "out.log").read_text().splitlines() if line.endswith(verdicts)]
    assert len(lines) == len(rows)

"""What is refused, in which words, and whether the way out is one."""

import dataclasses
import math
import re

import pytest
import torch
from resource_needs import GB, IMAGE, ROOMY, UNKNOWN, make_agent, make_config

from monobeast.resources import dry_update, footprint, machine, requirements
from monobeast.resources.machine import OpenFiles


def make_plan(monkeypatch, there=ROOMY, config=None, **settings):
    monkeypatch.setattr(machine, "read", lambda: there)
    monkeypatch.setattr(machine, "is_container", lambda: False)
    return requirements.make_plan(config or make_config(**settings), IMAGE, make_agent())


def row_of(plan, what):
    return next(row for row in plan.rows if row.what == what)


def test_a_run_that_fits_is_not_refused_and_every_row_says_both_numbers(monkeypatch):
    plan = make_plan(monkeypatch)

    assert (plan.refusal, plan.warning) == (None, None)
    assert [row.what for row in plan.rows] == [
        "shared memory",
        "memory, at least",
        "open files, learner",
        "open files, fork server",
        "open files, an actor",
        "processes and threads",
        "threads on cores, one over is fine",
    ]
    assert all(row.needed > 0 and row.available is not None for row in plan.rows)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"num_buffers": 5000},
            r"--num_buffers 5000: rollout slots and weights need 12\.4 GB of shared memory and /dev/shm has 9\.0 GB "
            r"free; --num_buffers 3400 would fit, or enlarge it with mount -o remount,size=13G /dev/shm",
        ),
        # A larger /dev/shm would not help: there is not so much memory either.
        ({"num_buffers": 10**9}, r"--num_buffers 1000000000: .* 2\.4 PB .*, and the run .* PB .* \d+ would fit$"),
        ({"envs_per_actor": 100_000}, r"--envs_per_actor 100000: .* need 124 GB .*; --envs_per_actor 6800 would fit"),
        ({"unroll_length": 10**8}, r"--unroll_length 100000000: .* need 90\.\d TB .*; --unroll_length \d+ would fit"),
        ({"num_actors": 50_000}, r"--num_actors 50000: .*the learner needs 250,\d+ open files and the limit is 20,000"),
        ({"batch_size": 8 * 10**8}, r"--batch_size 800000000: the run needs at least 2\.\d PB of memory and 990 GB is"),
        ({"num_learner_threads": 40_000}, r"--num_learner_threads 40000: the run needs 40,004 processes and threads"),
        ({"num_buffers": 10**300, "unroll_length": 10**300}, r"10\^58\d EB .*; --num_buffers 4 --unroll_length \d+ "),
    ],
)
def test_what_does_not_fit_is_refused_with_both_numbers_and_a_way_out_that_is_one(monkeypatch, settings, message):
    there = ROOMY._replace(shared_memory=9 * GB, memory=990 * GB)
    config = make_config(**settings)

    plan = make_plan(monkeypatch, there, config)

    assert re.match(f"{message}" if message.startswith("--") else f".*{message}", plan.refusal), plan.refusal
    changes = {name: int(value) for name, value in re.findall(r"--(\w+) (\d+)", plan.refusal.split(";")[1])}
    assert changes and all(value < getattr(config, name) for name, value in changes.items())
    if changes.get("num_actors"):
        changes["num_buffers"] = 2 * changes["num_actors"]  # the default
    assert make_plan(monkeypatch, there, dataclasses.replace(config, **changes)).refusal is None
    nearly = {name: max(value, int(1.2 * value / 8) * 8) for name, value in changes.items()}
    larger = make_plan(monkeypatch, there, dataclasses.replace(config, **nearly))
    assert larger.refusal is not None or larger.is_tight


def test_a_default_that_does_not_fit_is_no_fault_of_a_flag(monkeypatch):
    plan = make_plan(monkeypatch, ROOMY._replace(shared_memory=10**6))

    assert plan.refusal.startswith("--num_buffers 4 --num_actors 2 --envs_per_actor 8 --unroll_length 10 --batch_size")
    assert plan.refusal.endswith("; enlarge it with mount -o remount,size=1G /dev/shm")


def test_where_nothing_helps_that_is_said(monkeypatch):
    plan = make_plan(monkeypatch, ROOMY._replace(memory=10**6))

    assert plan.refusal.endswith("of memory and 1.0 MB is available; smaller values of these are not enough")


def test_in_a_container_the_way_out_is_its_shm_size(monkeypatch):
    monkeypatch.setattr(machine, "read", lambda: ROOMY._replace(shared_memory=67_108_864))
    monkeypatch.setattr(machine, "is_container", lambda: True)

    with pytest.raises(ValueError, match="has 67.1 MB free; .* or start the container with --shm-size=3g"):
        requirements.check(make_config(num_buffers=1000), IMAGE, make_agent())


def test_what_cannot_be_known_refuses_nothing(monkeypatch):
    plan = make_plan(monkeypatch, UNKNOWN, num_buffers=10**9)

    assert plan.refusal is None
    assert row_of(plan, "shared memory").available is None


def test_the_soft_limit_of_open_files_is_raised_by_itself(monkeypatch):
    monkeypatch.setattr(machine, "read", lambda: ROOMY._replace(open_files=OpenFiles(10, soft=50, hard=math.inf)))
    raised_to = []
    monkeypatch.setattr(machine, "allow_open_files", raised_to.append)
    agent = make_agent()
    sizes = footprint.measure(make_config(), IMAGE, agent)

    requirements.check(make_config(num_actors=40), IMAGE, agent)

    assert raised_to == [footprint.open_files(make_config(num_actors=40), sizes, 10)["learner"]]


def test_a_limit_that_cannot_be_raised_after_all_is_told(monkeypatch):
    def fail(number):
        raise OSError(22, "Invalid argument")

    monkeypatch.setattr(machine, "read", lambda: ROOMY)
    monkeypatch.setattr(machine, "allow_open_files", fail)

    told = "--num_actors 2: the learner needs 103 open files .* may not have as many: .*Invalid argument"
    with pytest.raises(ValueError, match=told):
        requirements.check(make_config(), IMAGE, make_agent())


def test_more_threads_than_cores_are_a_warning(monkeypatch, caplog):
    monkeypatch.setattr(machine, "read", lambda: ROOMY._replace(cores=4))
    monkeypatch.setattr(machine, "allow_open_files", lambda number: None)

    requirements.check(make_config(num_actors=4), IMAGE, make_agent())
    assert caplog.messages == []
    requirements.check(make_config(num_actors=4, num_learner_threads=2), IMAGE, make_agent())

    assert caplog.messages == [
        "--num_actors 4 --num_learner_threads 2: 6 threads share 4 cores, which is slower than fewer"
    ]


def test_looking_leaves_network_and_random_numbers_as_they_were(monkeypatch):
    monkeypatch.setattr(machine, "read", lambda: ROOMY)
    agent = make_agent(use_lstm=True)
    before, random_state = {name: t.clone() for name, t in agent.state_dict().items()}, torch.get_rng_state()

    requirements.make_plan(make_config(), IMAGE, agent)

    assert all(torch.equal(tensor, before[name]) for name, tensor in agent.state_dict().items())
    assert all(parameter.grad is None for parameter in agent.parameters())
    assert torch.equal(torch.get_rng_state(), random_state)


def with_gpu(monkeypatch, free, fits_up_to, bytes_a_column=10**8):
    """A GPU on which updates of more columns than `fits_up_to` run out of memory; the batch sizes that were tried."""
    tried = []

    def measure_peak(config, spaces, network):
        tried.append(config.batch_size)
        return config.batch_size * bytes_a_column if config.batch_size <= fits_up_to else None

    monkeypatch.setattr(dry_update, "measure_peak", measure_peak)
    monkeypatch.setattr(dry_update, "free_memory", lambda device: free)
    return tried


def test_an_update_that_fits_the_gpu_is_a_row_of_the_table(monkeypatch):
    tried = with_gpu(monkeypatch, free=2 * GB, fits_up_to=16)

    plan = make_plan(monkeypatch, device="cuda:0")

    assert plan.refusal is None and tried == [8]
    assert row_of(plan, "GPU memory of an update")[1:3] == (800_000_000, 2 * GB)


def test_an_update_that_does_not_fit_the_gpu_is_refused_with_a_batch_that_does(monkeypatch):
    tried = with_gpu(monkeypatch, free=2 * GB, fits_up_to=20)

    plan = make_plan(monkeypatch, device="cuda:0", batch_size=64)

    assert tried == [64, 32, 16]
    assert plan.refusal == (
        "--batch_size 64: an update needs about 6.4 GB of GPU memory and cuda:0 has 2.0 GB free; "
        "--batch_size 16 would fit"
    )


def test_a_gpu_too_small_for_any_batch_is_told(monkeypatch):
    tried = with_gpu(monkeypatch, free=1000, fits_up_to=0)

    plan = make_plan(monkeypatch, device="cuda:0", batch_size=16)

    assert tried == [16, 8, 4, 2, 1]
    assert "not even --batch_size 1 fits: cuda:0 has 1.0 kB of memory free" in plan.refusal


def test_no_update_is_tried_where_its_batch_would_not_fit_this_machine(monkeypatch):
    tried = with_gpu(monkeypatch, free=2 * GB, fits_up_to=16)

    plan = make_plan(monkeypatch, device="cuda:0", num_buffers=10**9)

    assert plan.refusal.startswith("--num_buffers") and tried == []


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (0, "0 bytes"),
        (999, "999 bytes"),
        (1000, "1.0 kB"),
        (67_108_864, "67.1 MB"),
        (99_960_000_000, "99.9 GB"),  # never more than there is
        (123_900_000_000, "123 GB"),
        (5 * 10**21, "5,000 EB"),
        (10**600, "10^582 EB"),
        pytest.param(10**9999, "10^9981 EB", id="more digits than Python writes"),
    ],
)
def test_bytes_are_written_as_people_do(number, expected):
    assert requirements.format_bytes(number) == expected


def test_a_count_has_commas_or_no_limit():
    assert [requirements.format_count(number) for number in (20_000, math.inf)] == ["20,000", "no limit"]

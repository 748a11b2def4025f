"""`auto`: what may be chosen, what is chosen from which costs, and that it is measured once."""

import dataclasses
import json
import multiprocessing

import pytest
import torch
from command_lines import run
from gymnasium.spaces import Box, Discrete
from hypothesis import given
from hypothesis import strategies as st

from monobeast import autotuning, preparation, trial
from monobeast.autotuning import Sizes, estimate, find_candidates, find_fastest
from monobeast.config import AUTO, NETWORKS, Config
from monobeast.costs import parts
from monobeast.costs.limit import Costs, find_bounds
from monobeast.environments import Spaces
from monobeast.makers import Makers
from monobeast.resources import machine

CATCH = {"env": "monobeast/Catch-v0", "preset": "classic", "device": "cpu", "seed": 1}
GIVEN = {"num_actors": 1, "envs_per_actor": 8, "num_learner_threads": 1}


@pytest.fixture
def measured(monkeypatch):
    """Measurements that take no time: the settings that each was asked for."""
    seen = []

    def measure_actor(subject, seconds):
        seen.append(subject.config)
        return 1e-4, None

    monkeypatch.setattr(trial, "run", lambda start_method, timeout_s, function, *arguments: function(*arguments))
    monkeypatch.setattr(parts, "measure_actor", measure_actor)
    monkeypatch.setattr(parts, "measure_update", lambda subject, seconds, batch: (3e-4, 1e-6))
    return seen


@pytest.fixture
def folder(monkeypatch, tmp_path):
    """Where measurements are kept, empty at first."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "monobeast"


def prepare(**settings):
    return preparation.prepare(Config(**(CATCH | settings)))


# What may be chosen


@given(
    batch_size=st.integers(1, 2000),
    cores=st.integers(1, 130),
    device=st.sampled_from(["cpu", "cuda"]),
    given=st.sets(st.sampled_from(["num_actors", "num_learner_threads"])),
)
def test_all_that_may_be_chosen_can_be_run(batch_size, cores, device, given):
    config = Config(env="CartPole-v1", batch_size=batch_size, device=device, **{name: 3 for name in given})

    candidates = find_candidates(config, cores)

    assert candidates
    for sizes in candidates:
        Config(env="CartPole-v1", batch_size=batch_size, **sizes._asdict())  # raises unless B and E divide
        assert all(getattr(sizes, name) == 3 for name in given)
        assert sizes.envs_per_actor <= 2 * batch_size
        assert "num_actors" in given or sizes.num_actors <= cores
        has_cores = sizes.num_learner_threads == 1 or sizes.num_learner_threads + sizes.num_actors <= cores
        assert "num_learner_threads" in given or has_cores


def test_two_batches_in_a_row_are_of_different_environments_where_that_can_be():
    candidates = find_candidates(Config(batch_size=8, preset="atari"), cores=2)

    assert candidates == [Sizes(1, 16, 1), Sizes(2, 8, 1), Sizes(2, 16, 1)]
    assert find_candidates(Config(batch_size=8, envs_per_actor=4, num_actors=1), cores=1) == [Sizes(1, 4, 1)]


def test_of_images_slots_may_be_wider():
    """Staler weights did Pong no harm, and CartPole some."""
    widths = {network: _widths(network, batch_size=8) for network in NETWORKS[1:]}

    assert widths == {"mlp": {8, 16}, "shallow": {8, 16, 32}, "deep": {8, 16, 32}, "torchbeast": {8, 16, 32}}
    assert _widths("shallow", batch_size=32) == {32, 64} and _widths("mlp", batch_size=640) == {40, 64}


def _widths(network, batch_size):
    candidates = find_candidates(Config(batch_size=batch_size, network=network, num_actors=2), cores=2)
    return {sizes.envs_per_actor for sizes in candidates}


def test_there_are_no_more_actors_than_slots():
    assert max(find_candidates(Config(batch_size=8, num_buffers=3), cores=16)).num_actors == 3


# What is chosen


@given(st.builds(Costs, *4 * [st.floats(1e-6, 1e-2)]), st.integers(1, 20), st.integers(1, 4), st.integers(2, 20))
def test_less_is_expected_than_every_bound(costs, num_actors, threads, cores):
    speed = estimate(costs, Sizes(num_actors, 8, threads), cores)

    least = min(bound.steps_per_second for bound in find_bounds(costs, num_actors, threads, cores))
    assert 0.85 * least < speed < least  # three bounds that are one number: 3 ** (-1 / 8) of it


def test_bounds_that_are_alike_are_not_reached():
    costs = Costs(actor=1.0, learner=1.0, gpu=0.0)  # with two cores, each side has one, and both together have two

    assert estimate(costs, Sizes(1, 8, 1), cores=2) == pytest.approx(3 ** (-1 / 8))


@pytest.mark.parametrize(
    ("of_actor", "of_learner", "expected"),
    [
        # Environments take most of the time: every core has an actor. The learner needs little of them.
        (1e-3, 1e-4, Sizes(4, 8, 1)),
        # Updates take most of the time, and two threads have them done in half of it: they get what is left.
        (1e-4, 1e-3, Sizes(1, 8, 2)),
    ],
)
def test_the_slower_side_gets_the_cores(of_actor, of_learner, expected):
    candidates = [Sizes(actors, 8, threads) for actors in (1, 2, 3, 4) for threads in (1, 2) if actors + threads < 6]

    costs = {sizes: Costs(of_actor, of_learner / sizes.num_learner_threads, 0.0) for sizes in candidates}

    assert find_fastest(costs, cores=4) == expected


def test_of_sizes_that_are_alike_the_one_with_the_fewest_processes_and_environments_is_chosen():
    bound_by_the_learner = {Sizes(actors, E, 1): Costs(1e-6, 1e-3, 0.0) for actors in (1, 2, 3) for E in (16, 8)}

    assert find_fastest(bound_by_the_learner, cores=8) == Sizes(1, 8, 1)


# Measured once


@pytest.mark.parametrize("another", [{"unroll_length": 7}, {"normalize_rewards": True}])
def test_what_was_measured_is_kept_for_the_same_settings_alone(measured, folder, another):
    first = prepare()
    num_measured = len(measured)
    second, other = prepare(learning_rate=1.0), prepare(**another)

    assert 0 < num_measured and len(measured) == 2 * num_measured  # not for the second
    sizes = [tuple(getattr(run.config, name) for name in AUTO) for run in (first, second)]
    assert sizes[0] == sizes[1]
    path = next(path for path in folder.iterdir() if str(path) in first.auto)
    assert first.auto.endswith(f"(measured now, kept in {path})")
    assert second.auto.endswith(f"(as measured before: {path})") and str(path) not in other.auto
    assert sorted(folder.iterdir()) == sorted(folder.glob("*.json"))  # nothing half-written


@pytest.mark.parametrize(
    "content",
    ["", "{", "[]", '{"sizes": {"num_actors": 1}}', '{"sizes": {"num_actors": 1, "envs_per_actor": 5, "x": 1}}'],
)
def test_a_damaged_measurement_is_made_again(measured, folder, content):
    prepare()
    next(folder.iterdir()).write_text(content)
    measured.clear()

    assert "measured now" in prepare().auto and measured
    assert "as measured before" in prepare().auto


def test_a_kept_measurement_of_other_settings_is_not_believed(measured, folder):
    prepare()
    path = next(folder.iterdir())
    content = json.loads(path.read_text())
    content["measured_for"]["cores"] += 1
    path.write_text(json.dumps(content))

    assert "measured now" in prepare().auto


ANOTHER = {
    **{"env": "CartPole-v1", "env_kwargs": '{"n": 2}', "frame_skip": 2, "noop_max": 1, "full_action_space": True},
    **{"max_episode_frames": 5, "unroll_length": 7, "batch_size": 7, "num_buffers": 7, "optimizer": "adam"},
    **{"momentum": 0.5, "network": "deep", "use_lstm": True, "precision": "bfloat16", "memory_format": "contiguous"},
    **{"normalize_observations": True, "normalize_rewards": True, "compile": True},
    **{"num_actors": 7, "envs_per_actor": 7, "num_learner_threads": 7},
}


def test_what_changes_a_cost_is_part_of_what_was_measured(monkeypatch):
    config, network = Config(**CATCH, batch_size=14), torch.nn.Linear(2, 3)
    spaces = Spaces(Discrete(2), Discrete(3))

    def describe(*, config=config, spaces=spaces, network=network):
        return autotuning._describe(config, spaces, network)

    usual = describe()
    assert set(ANOTHER) == {*autotuning.COSTLY, *AUTO}
    for name, value in ANOTHER.items():
        assert describe(config=dataclasses.replace(config, **{name: value})) != usual, name
    assert describe(config=dataclasses.replace(config, learning_rate=1.0)) == usual
    assert describe(network=torch.nn.Linear(2, 4)) != usual
    assert describe(spaces=Spaces(Discrete(2), Discrete(4))) != usual
    for function, value in (("name_cpu", "another"), ("count_cores", 77)):
        with monkeypatch.context() as patch:
            patch.setattr(machine, function, lambda value=value: value)
            assert describe() != usual, function


@pytest.mark.parametrize(("device", "expected"), [("cpu", Costs(3e-4, 5e-4, 0.0)), ("cuda", Costs(3e-4, 1e-4, 4e-4))])
def test_publishing_is_the_learners_work_wherever_it_updates(monkeypatch, device, expected):
    monkeypatch.setattr(parts, "measure_actor", lambda subject, seconds: (3e-4, None))
    monkeypatch.setattr(parts, "measure_update", lambda subject, seconds, batch: (4e-4, 1e-4))
    monkeypatch.setattr(torch.nn.Module, "to", lambda network, device: network)
    seen = {}
    monkeypatch.setattr(autotuning, "find_fastest", lambda costs, cores: seen.update(costs))
    config = Config(**(CATCH | {"device": device, "network": "mlp"}))

    autotuning._measure(config, Spaces(Box(-1, 1, (2,)), Discrete(3)), Makers().pickle())

    assert seen and all(costs == pytest.approx(expected) for costs in seen.values())


def test_where_nothing_can_be_kept_that_is_said(measured, monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))

    assert "could not be kept" in prepare().auto


def test_what_is_given_is_not_measured(measured, folder):
    run = prepare(**GIVEN)

    assert run.auto is None and not measured and not folder.exists()


def test_where_one_size_alone_may_be_chosen_nothing_is_measured(measured, monkeypatch):
    monkeypatch.setattr(autotuning, "find_candidates", lambda config, cores: [Sizes(2, 8, 1)])

    run = prepare()

    assert (run.config.num_actors, run.config.envs_per_actor, run.auto, list(measured)) == (2, 8, None, [])


def test_without_actors_nothing_is_measured_since_such_runs_are_to_be_repeatable(measured, folder):
    run = prepare(num_actors=0)

    assert (run.config.envs_per_actor, run.config.batch_size) == (8, 8)
    assert run.auto is None and not measured and not folder.exists()


def test_what_is_measured_is_no_longer_than_needed(measured, folder):
    prepare(unroll_length=300, batch_size=32, envs_per_actor=1)
    assert {(config.unroll_length, config.batch_size, config.envs_per_actor) for config in measured} == {(100, 32, 1)}

    measured.clear()
    prepare(unroll_length=300, batch_size=640)
    assert {(config.unroll_length, config.batch_size, config.envs_per_actor) for config in measured} == {
        (100, 40, 40),
        (100, 64, 64),
    }


NUMBERS = {"env": "stub_environments:Mirror-v0", "env_kwargs": '{"space": "matrix"}', "use_lstm": True}


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"use_lstm": True, "batch_size": 3},
        {"env": "ALE/Pong-v5", "network": "deep", "batch_size": 1},
        NUMBERS | {"normalize_observations": True, "normalize_rewards": True},
    ],
)
def test_it_can_be_measured_with_every_network(folder, settings):
    run = prepare(unroll_length=2, **settings)

    candidates = find_candidates(Config(**(CATCH | settings)), machine.count_cores())
    assert tuple(getattr(run.config, name) for name in AUTO) in candidates and "measured now" in run.auto


@pytest.mark.parametrize(
    ("env", "env_kwargs", "limit_s", "reason"),
    [
        ("Hang", {"k": 30}, 8.0, "was not done within 8 s"),
        ("Hang", {"k": 30, "hold_gil": True}, 8.0, "was not done within 8 s"),
        ("Boom", {"k": 30}, 60.0, "RuntimeError: boom in step 30"),
        ("Vanish", {"k": 30}, 60.0, "exited with code "),
        ("Exit", {"k": 30}, 60.0, "SystemExit: 0"),
    ],
)
def test_what_an_environment_does_while_it_is_measured_is_not_the_runs_fault(folder, env, env_kwargs, limit_s, reason):
    """The limit has the start of the process in it; it is short where the test waits for it to pass."""
    settings = {"env": f"stub_environments:{env}-v0", "env_kwargs": json.dumps(env_kwargs), "actor_timeout_s": limit_s}

    run = prepare(**settings)

    assert f"(a guess, since the measurement failed: {reason}" in run.auto and not folder.exists()
    assert run.config.num_actors == min(2, machine.count_cores())
    assert run.config.num_learner_threads == 1 and run.config.envs_per_actor * run.config.num_actors >= 16
    assert not [child for child in multiprocessing.active_children() if child.name == "trial"]


# A run


def test_a_run_says_what_was_chosen_records_it_and_keeps_it_when_resumed(folder, tmp_path, capfd):
    flags = ("--env", "monobeast/Catch-v0", "--savedir", str(tmp_path), "--xpid", "a", "--device", "cpu")
    flags += ("--num_actors", "auto", "--num_learner_threads", "auto")

    exit_code, output, _ = run(capfd, "train", *flags, "--total_steps", "500")
    assert exit_code == 0
    meta = json.loads((tmp_path / "a" / "meta.json").read_text())
    assert meta["auto"].startswith("auto: num_actors ") and meta["auto"] in output
    for name in AUTO:
        assert f"{name} {meta['config'][name]}" in meta["auto"]

    exit_code, output, errors = run(capfd, "train", "--xpid", "a", "--savedir", str(tmp_path), "--resume",
                                    "--total_steps", "900")  # fmt: skip
    assert (exit_code, errors) == (0, "") and "auto:" not in output
    resumed = json.loads((tmp_path / "a" / "meta.json").read_text())["config"]
    assert {name: resumed[name] for name in AUTO} == {name: meta["config"][name] for name in AUTO}


def test_other_flags_are_not_chosen(capfd):
    exit_code, _, errors = run(capfd, "train", "--unroll_length", "auto")

    assert exit_code == 2 and "--unroll_length: invalid int value: 'auto'" in errors

"""`--compile`: the same updates, compiled once; refused where nothing can be compiled."""

import copy
import dataclasses
import os
import subprocess
import sys

import pytest
import torch
from network_inputs import ACTIONS, VECTOR, make, random_inputs

from monobeast import preparation
from monobeast.config import Config
from monobeast.costs import parts
from monobeast.learner import Learner
from monobeast.rollouts import allocate

T, B = 3, 2
CONFIG = Config(preset="classic", reward_clipping="none", unroll_length=T, batch_size=B, total_steps=100)


@pytest.fixture
def graphs():
    """Counts what is compiled within the test."""
    try:
        preparation.require_compiler("cpu")
    except ValueError as error:
        pytest.skip(str(error))
    torch.compiler.reset()
    counters = torch._dynamo.utils.counters["stats"]
    counters.clear()
    yield counters
    torch.compiler.reset()


def make_batch(network):
    inputs = random_inputs(num_steps=T + 1, num_columns=B)
    batch = allocate(T, B, VECTOR, ACTIONS, network.initial_state(1)).map(torch.Tensor.zero_)
    reward = torch.randn(T, B, generator=torch.Generator().manual_seed(5))
    done = torch.tensor([[False, True], [False, False], [False, False]])
    is_first = torch.cat([torch.zeros(1, B, dtype=torch.bool), done])
    return batch._replace(**inputs._asdict() | {"is_first": is_first}, reward=reward, done=done, terminal=done)


@pytest.mark.parametrize("settings", [{}, {"use_lstm": True}], ids=str)
def test_compiled_updates_are_those_that_are_not_to_rounding_and_are_compiled_once(graphs, settings):
    network = make(**settings)
    plain = Learner(copy.deepcopy(network), CONFIG)
    compiled = Learner(copy.deepcopy(network), dataclasses.replace(CONFIG, compile=True))
    batch = make_batch(network)

    for _ in range(3):  # rate and cost fall from update to update
        expected, found = plain.update(batch), compiled.update(batch)
        compiled.measure_features(batch)  # hooks come and go
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)

    torch.testing.assert_close(compiled.network.state_dict(), plain.network.state_dict(), rtol=1e-4, atol=1e-6)
    assert graphs["unique_graphs"] == 1


def test_without_a_compiler_it_is_refused_before_anything_is_made(tmp_path):
    settings = "--env CartPole-v1 --num_actors 0 --batch_size 1 --num_learner_threads 1 --total_steps 20".split()
    command = [sys.executable, "-m", "monobeast", *settings, "--compile", "--savedir", tmp_path / "runs"]
    nothing_found = {"CXX": "no-such-compiler", "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "cache")}

    result = subprocess.run(command, env=os.environ | nothing_found, capture_output=True, text=True)

    assert result.returncode == 2
    assert result.stderr.startswith("monobeast train: error: --compile: PyTorch can compile nothing for cpu here: ")
    assert result.stderr.count("\n") == 1 and "no-such-compiler" in result.stderr
    assert not (tmp_path / "runs").exists()


def test_of_a_compiled_program_no_pieces_are_measured(graphs):
    sizes = {"num_actors": 1, "envs_per_actor": 8, "num_learner_threads": 1}
    prepared = preparation.prepare(Config(env="monobeast/Catch-v0", device="cpu", compile=True, **sizes))

    found = parts.measure(prepared, seconds=0.0)

    *_, transfer, optimizer, rest = found.summed
    names = [part.name for part in (transfer, optimizer, rest)]
    assert names == ["transfer", "optimizer", "forward, losses, backward, checks"]
    pieces, update = optimizer.seconds_per_step, found.update.seconds_per_step
    assert rest.seconds_per_step == pytest.approx(max(0.0, update - pieces)) and transfer.seconds_per_step == 0.0

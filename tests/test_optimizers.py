"""The optimizers compute as PyTorch's own; neither they nor anything else in a run brings its compiler along."""

import subprocess
import sys

import pytest
import torch
from torch import nn

from monobeast.config import Config
from monobeast.optimizers import make_optimizer

RUN = """
import sys
import monobeast
run = {"env": "monobeast/Catch-v0", "num_actors": 0, "seed": 1, "savedir": sys.argv[1], "xpid": "run"}
new = {"total_steps": 400, "num_learner_threads": 1, "optimizer": sys.argv[2]}
for settings in (new, {"total_steps": 800, "resume": True}):
    assert monobeast.train(monobeast.Config(**run, **settings)).state == "complete"
print([name for name in ("torch._dynamo", "sympy") if name in sys.modules])
"""


@pytest.mark.parametrize(
    ("settings", "kind", "arguments"),
    [
        ({"optimizer": "adam"}, torch.optim.Adam, {}),
        ({"rmsprop_start": 0.0, "momentum": 0.0}, torch.optim.RMSprop, {"alpha": 0.9}),
        ({"rmsprop_start": 0.0, "momentum": 0.5}, torch.optim.RMSprop, {"alpha": 0.9, "momentum": 0.5}),
    ],
)
def test_steps_are_those_of_pytorchs_own_bit_by_bit(settings, kind, arguments):
    generator = torch.Generator().manual_seed(1)
    values = [torch.randn(shape, generator=generator) for shape in [(5, 3), (7,)]]
    one, other = ([nn.Parameter(value.clone()) for value in values] for _ in range(2))
    config = Config(**({"optimizer": "rmsprop", "alpha": 0.9, "learning_rate": 0.01, "epsilon": 1e-3} | settings))
    own, theirs = make_optimizer(one, config), kind(other, lr=0.01, eps=1e-3, **arguments)

    for step in range(5):
        for mine, its in zip(one, other, strict=True):
            mine.grad = torch.randn(mine.shape, generator=generator)
            its.grad = mine.grad.clone()
        own.step()
        theirs.step()
        own.load_state_dict(own.state_dict())

    assert all(torch.equal(mine, its) for mine, its in zip(one, other, strict=True))
    assert not any(torch.equal(mine, value) for mine, value in zip(one, values, strict=True))
    own.zero_grad()
    assert all(parameter.grad is None for parameter in one)


@pytest.mark.parametrize("optimizer", ["adam", "rmsprop"])
def test_a_run_does_not_import_the_compiler_which_takes_a_second_and_60_megabytes(tmp_path, optimizer):
    command = [sys.executable, "-c", RUN, str(tmp_path), optimizer]

    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()[-1] == "[]"

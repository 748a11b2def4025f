"""An update never waits for its device: on torch's device `meta`, which has no data, whatever would read any shows."""

import contextlib
import sys

import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete
from network_inputs import IMAGE, VECTOR
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from monobeast import optimizers
from monobeast.config import Config
from monobeast.learner import Learner
from monobeast.networks import make_network
from monobeast.rollouts import allocate

ATEN = torch.ops.aten


class NoWaiting(TorchDispatchMode):
    """Refuses what a GPU would be waited for: reading a number, and copies between it and memory that is not pinned."""

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        assert function is not ATEN._local_scalar_dense.default, "a number is read"
        if function in (ATEN._to_copy.default, ATEN.copy_.default):
            devices = {arg.device.type for arg in args if isinstance(arg, Tensor)}
            devices |= {torch.device(kwargs["device"]).type} if kwargs.get("device") else set()
            assert len(devices) == 1, f"a copy between {devices}"
        return function(*args, **kwargs)


@pytest.fixture
def meta_device(monkeypatch):
    """The device `meta`, made to stand for a GPU where torch looks which it is."""
    monkeypatch.setattr(torch, "autocast", lambda *args, **kwargs: contextlib.nullcontext())
    for kind in ("adam", "rmsprop"):
        module = sys.modules[f"torch.optim.{kind}"]
        monkeypatch.setattr(module, "_get_capturable_supported_devices", lambda *args, **kwargs: ["meta"])
    return torch.device("meta")


def make_learner(device, space, action_space, use_lstm=False, **settings):
    sizes = {"num_actors": 1, "envs_per_actor": 4}
    config = Config(preset="classic", reward_clipping="abs_one", seed=1, **sizes, **settings)
    name = "shallow" if space is IMAGE else "auto"
    return Learner(make_network(space, action_space, name, use_lstm).to(device), config)


def make_batch(device, space, action_space, core_state):
    batch = allocate(5, 4, space, action_space, core_state)
    return batch.map(lambda tensor: tensor.zero_().to(device))


@pytest.mark.parametrize(
    ("space", "action_space", "settings"),
    [
        (IMAGE, Discrete(3), {}),
        (IMAGE, Discrete(3), {"use_lstm": True, "momentum": 0.5}),
        (VECTOR, Box(-1, 1, (2,)), {"optimizer": "adam"}),
        (VECTOR, Discrete(3), {"normalize_rewards": True}),
        (MultiDiscrete([3, 2]), MultiDiscrete([3, 2]), {}),
        (Dict(image=IMAGE, vector=VECTOR), Discrete(3), {}),
        *((VECTOR, Discrete(3), {"correction": name}) for name in ("one_step", "epsilon", "none")),
    ],
    ids=str,
)
def test_an_update_reads_nothing_of_its_device(meta_device, space, action_space, settings):
    learner = make_learner(meta_device, space, action_space, **settings)
    batch = make_batch(meta_device, space, action_space, learner.network.initial_state(4))

    with NoWaiting():
        for _ in range(2):
            learner.update(batch)

    assert learner.num_updates == 2


def test_reading_a_number_or_copying_one_does_show(meta_device):
    number = torch.zeros(1, device=meta_device)

    with NoWaiting():
        for read in (number.item, lambda: number.to("cpu"), lambda: number.copy_(torch.zeros(1))):
            with pytest.raises(AssertionError):
                read()
        with pytest.raises(AssertionError):
            torch.zeros(3, device=meta_device)[number.long()[0]]


def test_the_state_of_an_optimizer_goes_on_where_counts_lie_elsewhere(meta_device):
    settings = {"space": VECTOR, "action_space": Discrete(3), "optimizer": "adam"}
    there, here = make_learner(meta_device, **settings), make_learner("cpu", **settings)

    optimizers.load(there._optimizer, here.state_dict()["optimizer"])

    batch = make_batch(meta_device, VECTOR, Discrete(3), ())
    with NoWaiting():
        there.update(batch)

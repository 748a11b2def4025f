"""scripts/growth.py: what it runs can be run, and has the sizes that it names."""

import growth
import pytest

import monobeast
from monobeast.config import Config

SETTINGS = [settings for group in growth.GROUPS.values() for settings in group.values()]


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_every_setting_is_one(settings):
    Config(**settings)


@pytest.mark.parametrize(("network", "num_weights"), [("growth:Wide", 1.6e6), ("growth:Wider", 16e6)])
def test_frames_and_networks_can_be_trained_and_have_the_sizes_that_are_named(tmp_path, network, num_weights):
    settings = growth.FRAMES | {"num_actors": 0, "network": network, "device": "cpu", "unroll_length": 2}

    result = monobeast.train(Config(**settings, total_steps=32, savedir=str(tmp_path), seed=1))

    assert result.state == "complete"
    module = getattr(growth, network.partition(":")[2])(growth.Frames().observation_space, 6)
    assert sum(parameter.numel() for parameter in module.parameters()) == pytest.approx(num_weights, rel=0.05)

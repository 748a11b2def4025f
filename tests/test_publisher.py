import pytest
from torch import nn

from monobeast.config import Config
from monobeast.publisher import LateWeights, make_publisher
from monobeast.weights import SharedWeights, WeightsReader


def make_network(value):
    network = nn.Linear(3, 4)
    for parameter in network.parameters():
        nn.init.constant_(parameter, value)
    return network


@pytest.mark.parametrize("delay", [1, 3])
def test_late_weights_are_those_of_so_many_updates_before(delay):
    learner, actor = make_network(0.0), make_network(-1.0)
    shared = SharedWeights(learner.parameters())
    reader, late = WeightsReader(shared, actor), LateWeights(shared, delay)

    for update in range(1, 8):
        nn.init.constant_(learner.weight, update)
        late.publish(learner.parameters())
        assert reader.refresh() == max(0, update - delay)
        assert (actor.weight == max(0, update - delay)).all()


def test_weights_are_published_at_once_unless_they_are_to_be_late():
    shared = SharedWeights(make_network(0.0).parameters())

    assert make_publisher(shared, Config(device="cpu")) is shared
    assert isinstance(make_publisher(shared, Config(device="cpu", force_lag=2)), LateWeights)

import multiprocessing

import pytest
import torch
from torch import nn

from monobeast.weights import SharedWeights, WeightsReader, name_weights


def make_network(value):
    network = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
    for parameter in network.parameters():
        nn.init.constant_(parameter, value)
    return network


def test_a_reader_takes_the_newest_version():
    learner, actor = make_network(0.0), make_network(-1.0)
    shared = SharedWeights(learner.parameters())
    reader = WeightsReader(shared, actor)
    assert reader.refresh() == 0

    for version in range(1, 10):
        nn.init.constant_(learner[0].weight, version)
        shared.publish(learner.parameters())
        assert reader.refresh() == version
        assert (actor[0].weight == version).all()
        assert (actor[1].weight == 0).all()


def test_weights_are_copied_only_when_their_version_moved():
    learner, actor = make_network(1.0), make_network(0.0)
    shared = SharedWeights(learner.parameters())
    reader = WeightsReader(shared, actor)
    reader.refresh()
    nn.init.constant_(actor[0].weight, 7.0)  # a second copy would overwrite this

    assert reader.refresh() == 0
    assert (actor[0].weight == 7.0).all()


def test_published_weights_do_not_follow_the_learners_next_update():
    learner, actor = make_network(1.0), make_network(0.0)
    shared = SharedWeights(learner.parameters())
    reader = WeightsReader(shared, actor)

    nn.init.constant_(learner[0].weight, 5.0)
    reader.refresh()

    assert (actor[0].weight == 1.0).all()


def test_a_version_counter_goes_on_where_it_is_told():
    shared = SharedWeights(make_network(3.0).parameters(), version=2**31)
    reader = WeightsReader(shared, actor := make_network(0.0))
    shared.publish(make_network(4.0).parameters())

    assert reader.refresh() == 2**31 + 1
    assert (actor[0].weight == 4.0).all()


class _Overtaken(SharedWeights):
    """A learner that publishes `overtakes` versions while the reader copies."""

    def __init__(self, parameters, overtakes):
        super().__init__(parameters)
        self.overtakes = overtakes
        self.attempts = 0

    def copy_newest(self, target):
        buffers = self._buffers

        class Copying:
            def __getitem__(_, index):
                self.attempts += 1
                self._published += self.overtakes
                return buffers[index]

        self._buffers = Copying()
        try:
            return super().copy_newest(target)
        finally:
            self._buffers = buffers


@pytest.mark.parametrize(("overtakes", "is_whole"), [(0, True), (1, True), (2, True), (3, False), (4, False)])
def test_a_copy_that_the_learner_may_have_written_over_does_not_count(overtakes, is_whole):
    # With four buffers the learner writes version v + 4 over v once v + 3 is announced.
    shared = _Overtaken(make_network(1.0).parameters(), overtakes)

    version = shared.copy_newest(torch.empty(26))

    assert (version == 0) == is_whole
    assert shared.attempts == (1 if is_whole else 10)


def test_a_reader_that_is_always_overtaken_keeps_its_weights_and_their_version():
    shared = _Overtaken(make_network(1.0).parameters(), overtakes=0)
    reader = WeightsReader(shared, actor := make_network(0.0))
    reader.refresh()
    shared.publish(make_network(2.0).parameters())
    shared.overtakes = 4

    assert reader.refresh() == 0
    assert (actor[0].weight == 1.0).all()


def test_where_stores_may_come_late_the_content_must_agree():
    learner = make_network(1.0)
    shared = SharedWeights(learner.parameters())
    shared.is_checked = True
    shared.publish(make_network(2.0).parameters())
    assert shared.copy_newest(torch.empty(26)) == 1

    shared._buffers[1, 3] = 1.0  # announced, but one number of it has not arrived yet

    assert shared.copy_newest(torch.empty(26)) is None


def _publish_forever(shared, size, stop):
    parameter = nn.Parameter(torch.zeros(size))
    version = 0
    while not stop.is_set():
        version += 1
        nn.init.constant_(parameter, version % 2)
        shared.publish([parameter])


def test_no_copy_mixes_two_versions_while_the_learner_publishes_at_full_speed():
    size = 200_000
    shared = SharedWeights([nn.Parameter(torch.zeros(size))])
    context = multiprocessing.get_context("spawn")
    stop = context.Event()
    learner = context.Process(target=_publish_forever, args=(shared, size, stop))
    learner.start()
    try:
        copy, versions = torch.empty(size), set()
        while len(versions) < 300:
            version = shared.copy_newest(copy)
            if version is not None:
                assert (copy == version % 2).all()
                versions.add(version)
            assert learner.is_alive()
    finally:
        stop.set()
        learner.join(10)
        learner.kill()
        learner.join()


def test_flat_weights_by_name_load_into_another_network_with_its_buffers_and_what_layers_share():
    def make():
        network = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.Linear(3, 3))
        network[2].weight = network[0].weight
        return network

    one, other = make(), make()
    nn.init.constant_(one[1].running_mean, 7.0)
    vector = torch.arange(9.0 + 3 + 3 + 3 + 3)

    named = name_weights(vector, one)
    other.load_state_dict(named)

    assert torch.equal(nn.utils.parameters_to_vector(other.parameters()), vector)
    assert torch.equal(other[2].weight, vector[:9].view(3, 3)) and (other[1].running_mean == 7).all()
    vector.zero_()
    assert named["0.weight"].sum() == sum(range(9))  # a copy

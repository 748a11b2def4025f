import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Discrete

from monobeast.rollouts import BatchStaging, allocate

IMAGE = gymnasium.spaces.Box(0, 255, (4, 6, 6), np.uint8)


def make_rollout(num_columns=6, unroll_length=3, space=IMAGE):
    core_state = (torch.zeros(2, 1, 5), torch.zeros(2, 1, 5))
    return allocate(unroll_length, num_columns, space, action_space=Discrete(4), core_state=core_state)


def test_observations_have_one_row_more_than_transitions():
    rollout = make_rollout()

    assert rollout.observation.shape == (4, 6, 4, 6, 6)
    assert rollout.is_first.shape == rollout.last_action.shape == rollout.last_reward.shape == (4, 6)
    assert rollout.action.shape == rollout.reward.shape == rollout.terminal.shape == rollout.done.shape == (3, 6)
    assert rollout.behavior_params.shape == (3, 6, 4)
    assert [state.shape for state in rollout.core_state] == [(2, 6, 5), (2, 6, 5)]
    assert rollout.policy_version.shape == (1, 6)


@pytest.mark.parametrize(
    ("space", "value"),
    [
        (gymnasium.spaces.Box(0, 1, (8,), np.float32), 0.5),
        (gymnasium.spaces.Box(-10, 10, (8,), np.float32), -3.7),
        (gymnasium.spaces.Box(-10, 10, (8,), np.float64), -3.7),
        (gymnasium.spaces.Box(-2000, 2000, (3,), np.int16), 1000),
        (gymnasium.spaces.Box(0, 255, (3,), np.uint8), 255),
        (gymnasium.spaces.Discrete(500), 499),
    ],
)
def test_an_observation_comes_back_with_its_number_and_dtype(space, value):
    rollout = make_rollout(space=space)
    written = np.full(space.shape, value, dtype=space.dtype)

    rollout.map(torch.Tensor.numpy).observation[0, 0] = written

    read = rollout.observation[0, 0].numpy()
    assert read.dtype == space.dtype
    assert np.array_equal(read, written)


def test_unwritten_memory_shows():
    rollout = make_rollout()

    assert rollout.behavior_params.isnan().all() and rollout.core_state[0].isnan().all()
    assert rollout.episode_return.isnan().all()
    assert (rollout.action < 0).all() and (rollout.policy_version < 0).all()


def test_columns_are_views_of_every_tensor():
    store = make_rollout()
    slot = store.columns(2, 4)

    for tensor in (*slot[:11], *slot.core_state, *slot[12:]):
        tensor.fill_(1)

    assert slot.num_columns == 2
    for tensor in (*store[:11], *store.core_state, *store[12:]):
        assert (tensor[:, 2:4] == 1).all()
        assert not (tensor[:, [0, 1, 4, 5]] == 1).any()


def test_copying_refuses_another_shape_instead_of_broadcasting():
    with pytest.raises(ValueError, match="observation: expected shape .* found"):
        make_rollout(num_columns=2).copy_(make_rollout(num_columns=1))


def test_a_step_that_led_to_a_first_observation_is_a_reset_step():
    rollout = make_rollout(num_columns=1)
    rollout.is_first.copy_(torch.tensor([[True], [False], [True], [False]]))

    # x_0 opens an episode, but what led to it lies in the rollout before.
    assert rollout.is_reset.flatten().tolist() == [False, True, False]


def make_staging(slot_columns, batch_size, times=1):
    return BatchStaging([make_rollout(batch_size) for _ in range(times * max(1, slot_columns // batch_size))])


def make_slot(num_columns, number):
    slot = make_rollout(num_columns)
    slot.actor.fill_(number)
    slot.env.copy_(torch.arange(num_columns).unsqueeze(0))
    return slot


@pytest.mark.parametrize(
    ("slot_columns", "batch_size", "batches"),
    [
        (2, 4, [[0, 0, 1, 1], [2, 2, 3, 3]]),
        (4, 2, [[0, 0], [0, 0], [1, 1], [1, 1], [2, 2], [2, 2], [3, 3], [3, 3]]),
        (3, 3, [[0, 0, 0], [1, 1, 1], [2, 2, 2], [3, 3, 3]]),
        (1, 2, [[0, 1], [2, 3]]),
    ],
)
@pytest.mark.parametrize("times", [1, 2])
def test_every_column_of_every_slot_goes_to_one_batch(slot_columns, batch_size, batches, times):
    staging = make_staging(slot_columns, batch_size, times)
    seen = []

    for number in range(4):
        staging.put(make_slot(slot_columns, number))
        while (batch := staging.pop()) is not None:
            assert all(tensor.is_contiguous() for tensor in batch.named_tensors().values())
            first = len(seen) * batch_size
            assert batch.env.flatten().tolist() == [(first + column) % slot_columns for column in range(batch_size)]
            seen.append(batch.actor.flatten().tolist())

    assert seen == batches


@pytest.mark.parametrize(("slot_columns", "batch_size"), [(2, 4), (4, 2), (3, 3)])
def test_with_twice_the_memory_a_batch_stays_as_it_is_while_the_next_are_filled(slot_columns, batch_size):
    columns = max(slot_columns, batch_size)
    staging = make_staging(slot_columns, batch_size, times=2)
    batches = []

    for number in range(5):
        for _ in range(columns // slot_columns):
            staging.put(make_slot(slot_columns, number))
        if batches:
            assert (batches[-1].actor == number - 1).all()
        while (batch := staging.pop()) is not None:
            batches.append(batch)

    assert len(batches) == 5 * columns // batch_size


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize(("slot_columns", "batch_size"), [(2, 4), (6, 2), (3, 3)])
@pytest.mark.parametrize("num_steps", range(1, 9))
def test_another_staging_goes_on_from_the_state_of_one_as_that_does(slot_columns, batch_size, times, num_steps):
    def go_on(staging, steps):
        found = []
        for number in steps:  # a batch is taken, or where there is none a slot put
            if (batch := staging.pop()) is not None:
                found.append((batch.actor.flatten().tolist(), batch.env.flatten().tolist()))
            else:
                staging.put(make_slot(slot_columns, number))
        return found

    staging, other = (make_staging(slot_columns, batch_size, times) for _ in range(2))
    go_on(staging, range(num_steps))
    other.set_state(staging.get_state())

    assert other.get_state()["waiting"]["actor"].tolist() == staging.get_state()["waiting"]["actor"].tolist()
    assert go_on(other, range(10, 20)) == go_on(staging, range(10, 20))

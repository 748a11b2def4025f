"""What only a machine with a GPU can show."""

import multiprocessing

import pytest
import torch
from csv_rows import rows_of
from gymnasium.spaces import Box, MultiDiscrete
from network_inputs import ACTIONS, IMAGE, VECTOR, make

import monobeast
from monobeast import learner
from monobeast.config import Config
from monobeast.learner import compute_loss
from monobeast.rollouts import BatchStaging, allocate
from monobeast.publisher import StreamedWeights
from monobeast.transfer import Transfer
from monobeast.weights import SharedWeights

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]
CONFIG = Config(preset="atari", reward_clipping="none")


def random_batch(space, action_space, network):
    """Five steps of four trajectories, one of which ends."""
    generator = torch.Generator().manual_seed(5)
    batch = allocate(5, 4, space, action_space, network.initial_state(1)).map(lambda tensor: tensor.zero_())
    observation = torch.randint(256, batch.observation.shape, generator=generator)
    batch.observation.copy_(observation if space is IMAGE else observation / 256)
    batch.behavior_params.normal_(generator=generator)
    actions = network.distribution.sample(batch.behavior_params.flatten(0, 1), generator)
    batch.action.copy_(actions.unflatten(0, (5, 4)))
    batch.reward.normal_(generator=generator)
    batch.done[2, 0] = batch.terminal[2, 0] = batch.is_first[4, 0] = True
    return batch


@pytest.mark.parametrize(
    ("space", "name", "use_lstm", "action_space"),
    [
        *((IMAGE, "shallow", False, ACTIONS), (IMAGE, "deep", False, ACTIONS), (IMAGE, "shallow", True, ACTIONS)),
        *((VECTOR, "mlp", False, space) for space in (ACTIONS, MultiDiscrete([3, 2]), Box(-1, 1, (2,)))),
    ],
)
def test_loss_and_gradients_are_those_of_the_cpu(space, name, use_lstm, action_space):
    def loss_and_gradients(device):
        network = make(space, name, use_lstm, action_space)
        batch = random_batch(space, action_space, network).map(lambda tensor: tensor.to(device))
        network.to(device)
        with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):  # which by design keeps 10 bits
            result = compute_loss(network, batch, CONFIG)
            result.total_loss.backward()
        return [result.total_loss.detach().cpu(), *(parameter.grad.cpu() for parameter in network.parameters())]

    for one, other in zip(loss_and_gradients("cpu"), loss_and_gradients("cuda"), strict=True):
        assert other.isfinite().all()
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4 * float(one.abs().max()))


@pytest.mark.parametrize("start_method", ["forkserver", "spawn"])
def test_actors_and_evaluator_of_a_learner_on_the_gpu_do_not_use_it(tmp_path, start_method):
    torch.zeros(1, device="cuda")  # before any actor starts: what a fork would not survive
    config = Config(
        **{"env": "stub_environments:Torch-v0", "env_kwargs": '{"what": "cuda"}', "savedir": str(tmp_path)},
        **{"device": "cuda", "start_method": start_method, "num_actors": 2, "total_steps": 4000, "seed": 1},
        **{"evaluate_every": 4000, "evaluate_episodes": 2, "max_episode_steps": 10},
    )
    rewards, intact = [], learner.Learner.update

    def look(self, batch):
        rewards.append(batch.reward.abs().max().item())
        return intact(self, batch)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("monobeast.learner.Learner.update", look)
        result = monobeast.train(config)

    assert result.state == "complete"
    rewards += [float(row["max_episode_return"]) for row in rows_of(result.folder / "evaluations.csv")]
    assert max(rewards) == 0.0  # the environment pays 1 where its process has opened the GPU


@pytest.mark.parametrize(("slot_columns", "batch_size"), [(16, 32), (32, 32), (32, 16)])
def test_batches_that_are_copied_beside_updates_arrive_whole(slot_columns, batch_size):
    num_batches = 2 * max(1, slot_columns // batch_size)
    staging = BatchStaging([allocate(80, batch_size, IMAGE, ACTIONS, is_pinned=True) for _ in range(num_batches)])
    slot, transfer = allocate(80, slot_columns, IMAGE, ACTIONS), Transfer(torch.device("cuda"))
    work = torch.randn(4096, 4096, device="cuda")
    sums = []

    for number in range(100):
        batches_before = len(sums)
        while len(sums) == batches_before:
            slot.observation.fill_(number)
            staging.put(slot)
            while (batch := staging.pop()) is not None:
                there = transfer(batch)
                work = (work @ work).clamp(-1, 1)  # an update that is still under way when the next copies begin
                sums.append((there.observation == number).all())

    assert all(found.item() for found in sums)


@pytest.mark.parametrize("settings", [{}, {"use_lstm": True}, {"optimizer": "adam"}], ids=str)
def test_an_update_makes_no_call_that_waits_for_the_gpu(settings):
    use_lstm = settings.pop("use_lstm", False)
    network = make(IMAGE, "shallow", use_lstm, ACTIONS)
    batch = random_batch(IMAGE, ACTIONS, network).map(lambda tensor: tensor.to("cuda"))
    config = Config(preset="atari", reward_clipping="none", device="cuda", **settings)
    subject = learner.Learner(network.to("cuda"), config)
    subject.update(batch)  # the first one sets libraries up
    torch.cuda.synchronize()

    torch.cuda.set_sync_debug_mode("error")
    try:
        for _ in range(3):
            subject.update(batch)
    finally:
        torch.cuda.set_sync_debug_mode("default")

    assert subject.num_updates == 4 and subject.faults.num_bad == 0


def _read(shared, size, last, results):
    """What an actor does, until it has the last version: any copy that mixes two, and how many it saw."""
    copy, seen, torn = torch.empty(size), set(), 0
    while last not in seen:
        version = shared.copy_newest(copy)
        if version is not None:
            seen.add(version)
            torn += not bool((copy == version).all())
    results.put((len(seen), torn))


def test_the_gpu_publishes_by_itself_and_no_reader_sees_half_a_version():
    size, last = 1_600_000, 300
    weight = torch.zeros(size, device="cuda")
    shared = SharedWeights([weight])
    publisher = StreamedWeights(shared, weight.device)
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    reader = context.Process(target=_read, args=(shared, size, last, results))
    work, lead = torch.randn(4096, 4096, device="cuda"), 0
    reader.start()
    try:
        for number in range(1, last + 1):
            work = (work @ work).clamp(-1, 1)  # an update that is still under way when its weights are published
            weight.fill_(number)
            publisher.publish([weight])
            lead = max(lead, number - shared.version)
        num_seen, num_torn = results.get(timeout=60)
    finally:
        reader.kill()
        reader.join()

    assert num_torn == 0 and num_seen > 1
    assert lead > 1  # nobody waited for the device
    assert shared.version == last

"""What a run needs: the arithmetic against the real thing."""

import dataclasses
import os
import re
import subprocess
import sys
from multiprocessing import forkserver
from pathlib import Path

import pytest
import torch
from resource_needs import IMAGE, NUMBER, PARTS, VECTOR, make_agent, make_config, on_linux

from monobeast import environments, trees
from monobeast.resources import footprint, machine
from monobeast.actor_pool import ActorPool
from monobeast.rollouts import allocate
from monobeast.weights import SharedWeights

CHECKOUT = Path(__file__).parent.parent


@pytest.mark.parametrize("use_lstm", [False, True])
@pytest.mark.parametrize("spaces", [IMAGE, VECTOR, NUMBER, PARTS])
def test_bytes_of_every_field_are_those_of_a_real_rollout(spaces, use_lstm):
    agent = make_agent(spaces, use_lstm)
    sizes = footprint.measure(make_config(), spaces, agent)
    real = allocate(13, 6, spaces.observation, spaces.action, agent.initial_state(1))

    assert footprint.rollout_bytes(sizes, unroll_length=13, num_columns=6) == {
        name: tensor.nbytes for name, tensor in real.named_tensors().items()
    }


def shared_files():
    """Bytes of memory behind each file that torch shares, by its number."""
    sizes = {}
    for number in os.listdir("/proc/self/fd"):
        try:
            if "/torch_" in os.readlink(f"/proc/self/fd/{number}"):
                sizes[number] = 512 * os.fstat(int(number)).st_blocks
        except OSError:  # that of the listing itself
            continue
    return sizes


@on_linux
@pytest.mark.parametrize(("spaces", "use_lstm"), [(VECTOR, False), (VECTOR, True), (PARTS, False)])
def test_shared_memory_is_what_a_real_pool_takes_to_the_byte(spaces, use_lstm):
    agent, config = make_agent(spaces, use_lstm), make_config(num_buffers=70, unroll_length=30)
    sizes = footprint.measure(config, spaces, agent)
    before = shared_files()

    weights = SharedWeights(agent.parameters())
    pool = ActorPool(config, spaces, agent.initial_state(1), weights)
    new = {number: size for number, size in shared_files().items() if number not in before}
    observation_bytes = [part.nbytes for part in trees.leaves(pool._store.observation)]
    del pool, weights

    needed = footprint.shared_memory(config, sizes)
    assert sum(needed.values()) == sum(new.values())
    assert needed["observations"] == sum(map(footprint._pages, observation_bytes))
    assert len(new) == len(sizes.first_step) + footprint._OF_WEIGHTS


@on_linux
@pytest.mark.slow
def test_the_slots_are_in_memory_once_while_they_are_made():
    code = """if True:
        import gymnasium, monobeast.rollouts, numpy, resource, torch
        from gymnasium.spaces import Box
        peak = lambda: 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        torch.zeros(10**6)
        before = peak()
        space = Box(0, 255, (84, 84, 4), numpy.uint8)
        store = monobeast.rollouts.allocate(10, 400, space, gymnasium.spaces.Discrete(6), is_shared=True)
        print(peak() - before, store.observation.nbytes, store.observation.is_shared())"""

    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=CHECKOUT)

    peak, size, is_shared = result.stdout.split()
    assert int(peak) < 1.2 * int(size) and is_shared == "True"


def test_without_actors_there_are_no_slots():
    sizes = footprint.measure(make_config(), IMAGE, make_agent())

    few, many = (footprint.shared_memory(make_config(num_actors=0, num_buffers=n), sizes) for n in (2, 1000))

    assert few == many and set(few.values()) == {0, footprint._pages(4 * sizes.parameters) + 2 * 4096}
    assert footprint.processes(make_config(num_actors=0)) == 1


def test_activations_grow_with_the_layers_and_are_no_parameters():
    """A linear layer keeps its input; a ReLU its output, which is the input of the next; sizes in float32."""
    agent = make_agent(VECTOR)
    widths = [module.out_features for module in agent.torso.modules() if isinstance(module, torch.nn.Linear)]
    core = agent.policy.in_features

    kept = footprint.measure(make_config(), VECTOR, agent).activations

    assert 4 * (sum(widths) + core) <= kept <= 4 * (2 * sum(widths) + 2 * core + 7 + 8)


def test_batch_gradients_and_averages_are_the_learners_memory():
    sizes = footprint.measure(make_config(), IMAGE, make_agent())

    def learner(**settings):
        return footprint.memory(make_config(**settings), sizes)["learner"]

    batch = sum(footprint.rollout_bytes(sizes, 10, 8).values())
    rows = int(1.25 * 8 * 11 * sizes.activations)
    assert learner(optimizer="rmsprop") == batch + rows + 3 * sizes.parameters
    assert learner(optimizer="adam") == learner(momentum=0.9) == batch + rows + 4 * sizes.parameters
    assert learner(envs_per_actor=16) == learner() + batch  # a slot is the larger of the two
    assert learner(device="cuda") == 2 * batch  # one is filled while the other is copied
    assert learner(force_lag=5) - learner() == 5 * sizes.parameters
    assert learner(device="cuda", force_lag=5) == learner(device="cuda")  # late weights are held on the GPU


def test_actors_memory_counts_imports_once_where_the_fork_server_shares_them():
    sizes = footprint.measure(make_config(), IMAGE, make_agent())

    def actors(**settings):
        return footprint.memory(make_config(**settings), sizes)["actors"]

    own = 2 * sizes.parameters + 8 * 4000
    assert actors(num_actors=3) == 146_000_000 + 3 * (16_700_000 + own)
    assert actors(num_actors=3, start_method="spawn") == 3 * (146_000_000 + own)
    config = make_config(num_actors=0)
    slot = sum(footprint.rollout_bytes(sizes, config.unroll_length, config.envs_per_actor).values())
    assert actors(num_actors=0) == own + slot


def test_an_evaluator_is_one_more_process_with_weights_of_its_own():
    sizes = footprint.measure(make_config(), IMAGE, make_agent())

    def needs(**settings):
        config = make_config(**settings)
        memory = footprint.memory(config, sizes)
        return memory, footprint.open_files(config, sizes, used=7), footprint.processes(config)

    without, files_without, number_without = needs()
    memory, files, number = needs(evaluate_every=100)
    weights = footprint._pages(sizes.parameters)
    assert memory == without | {"shared memory": without["shared memory"] + weights, "evaluator": 16_700_000 + 4000}
    assert {who: count - files_without[who] for who, count in files.items()} == {
        **{"learner": 1 + footprint._A_CHILD_IN_THE_LEARNER, "an actor": 1},
        "fork server": 1 + footprint._A_CHILD_IN_THE_FORK_SERVER,
    }
    assert number == number_without + 1


@pytest.mark.parametrize(
    ("start_method", "helpers", "own"), [("forkserver", 2, 146_000_000 + 16_700_000), ("spawn", 1, 146_000_000)]
)
def test_without_actors_the_evaluator_brings_what_it_needs_itself(start_method, helpers, own):
    sizes = footprint.measure(make_config(), IMAGE, make_agent())
    config = make_config(num_actors=0, evaluate_every=100, start_method=start_method)

    assert footprint.memory(config, sizes)["evaluator"] == own + 4000
    assert footprint.processes(config) == 1 + helpers + 1
    assert set(footprint.open_files(config, sizes, used=7)) == {"learner", "evaluator"} | (
        {"fork server"} if start_method == "forkserver" else set()
    )


def test_an_atari_game_takes_more_than_a_small_task():
    atari = footprint.measure(make_config(env="ALE/Pong-v5"), IMAGE, make_agent())

    assert atari.environment == 1_600_000


class Observed:
    """A running pool: what its processes have open, and the memory that is theirs alone."""

    def __init__(self, num_actors, start_method="forkserver"):
        config = environments.resolve(make_config(env="monobeast/Catch-v0", num_actors=num_actors, seed=1))
        config = dataclasses.replace(config, start_method=start_method)
        spaces = environments.check(config)
        agent = make_agent(spaces)
        sizes = footprint.measure(config, spaces, agent)
        self.estimate = footprint.open_files(config, sizes, machine.open_files().used)
        self.memory_estimate = footprint.memory(config, sizes)["actors"]
        weights = SharedWeights(agent.parameters())
        with ActorPool(config, spaces, agent.initial_state(1), weights) as pool:
            seen = set()
            while len(seen) < num_actors:
                seen |= set(pool.get_batch(60).actor[0].tolist())
            self.processes = pool.pids
            self.learner = machine.open_files().used
            self.actors = [self.count_files(pid) for pid in self.processes]
            if start_method == "forkserver":
                self.processes.append(forkserver._forkserver._forkserver_pid)
                self.fork_server = self.count_files(self.processes[-1])
            self.memory = sum(self.anonymous_memory(pid) for pid in self.processes)

    @staticmethod
    def count_files(pid):
        return len(os.listdir(f"/proc/{pid}/fd"))

    @staticmethod
    def anonymous_memory(pid):
        """Bytes, where what n processes share counts 1/n for each."""
        return 1024 * int(re.search(r"Pss_Anon: *(\d+)", Path(f"/proc/{pid}/smaps_rollup").read_text())[1])


@on_linux
@pytest.mark.slow
def test_descriptors_of_running_pools_are_those_that_were_foretold():
    forkserver._forkserver._stop()  # of earlier tests, so that its start counts
    two = Observed(2)
    forkserver._forkserver._stop()
    three = Observed(3)
    spare = footprint._SPARE

    assert three.learner - two.learner == footprint._A_CHILD_IN_THE_LEARNER
    assert three.fork_server - two.fork_server == footprint._A_CHILD_IN_THE_FORK_SERVER
    for pool in (two, three):
        assert pool.estimate["learner"] - spare <= pool.learner + 1 <= pool.estimate["learner"]
        assert pool.estimate["fork server"] > pool.fork_server
        assert pool.estimate["an actor"] - spare <= max(pool.actors) + 1 <= pool.estimate["an actor"]
        assert 0.8 * pool.memory < pool.memory_estimate < 1.1 * pool.memory


@on_linux
@pytest.mark.slow
def test_spawned_actors_take_as_many_descriptors_as_foretold():
    two, three = Observed(2, "spawn"), Observed(3, "spawn")

    assert three.learner - two.learner == footprint._A_CHILD_IN_THE_LEARNER
    assert three.estimate["learner"] - footprint._SPARE <= three.learner + 1 <= three.estimate["learner"]
    assert 0.8 * three.memory < three.memory_estimate < 1.1 * three.memory

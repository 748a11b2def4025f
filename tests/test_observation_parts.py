"""Observations of several parts, from the environment through rollout, network and update into files."""

import os
import signal

import numpy as np
import pytest
import torch
from command_lines import run
from csv_rows import rows_of
from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from random_rollouts import weigh
from stub_environments import Parts, stub_config
from stub_networks import PartsNet

from monobeast import environments, faults, onnx_file, trees
from monobeast.actor import Actor
from monobeast.environments import EnvStep, Spaces, VectorEnvironment
from monobeast.inline_actor import InlineActor
from monobeast.learner import Learner
from monobeast.networks import AgentInput, AgentOutput, make_network
from monobeast.networks.contract import make_inputs
from monobeast.policy import LocalPolicy
from monobeast.rollouts import BatchStaging, allocate
from monobeast.runs import checkpoint
from monobeast.training import Config, train

ENV = "stub_environments:Parts-v0"
ACTIONS = Discrete(2)
NAMES = [f"observation{place}" for place in ("[0]['a.b']", "[0]['n']", "[0]['on']", "[1]", "[2]")]
NAMES += [f"observation[3][{i}]" for i in range(3)]
SETTINGS = {
    **{"env": ENV, "network": "mlp", "num_actors": 0, "envs_per_actor": 2, "batch_size": 2, "unroll_length": 5},
    **{"num_learner_threads": 1, "seed": 1, "xpid": "run", "total_steps": 120},
}


def begin(tmp_path, **settings):
    return train(Config(**SETTINGS | {"savedir": str(tmp_path)} | settings))


def make_parts(num_envs=2, **settings):
    return environments.make(stub_config("Parts-v0", **settings), num_envs, range(num_envs))


def test_the_environment_gives_every_part_in_its_dtype_counted_from_zero():
    environment = make_parts()
    environment.reset()
    for _ in range(3):
        observation = environment.step(np.zeros(2, np.int64)).observation

    parts = trees.name_leaves(observation, "observation")
    found = {name: (part.dtype.name, part.shape, part.reshape(2, -1)[1, -1].item()) for name, part in parts.items()}
    assert list(found) == NAMES
    assert list(found.values()) == [
        *[("uint8", (2, 36, 40, 3), 3), ("int64", (2,), 3), ("bool", (2,), True), ("int64", (2, 2, 2), 3)],
        *[("int8", (2, 4), 0), ("float64", (2, 2), 3.125), ("float16", (2,), 3.0), ("int8", (2, 1), -3)],
    ]
    spaces = trees.leaves(trees.of_space(environment.observation_space))
    assert all(space.contains(np.asarray(part[1])) for space, part in zip(spaces, parts.values(), strict=True))
    assert spaces[1] == Discrete(16) and spaces[3] == MultiDiscrete([[16, 17], [18, 19]])


def test_the_part_that_is_not_finite_is_named():
    environment = make_parts(bad_step=2)
    environment.reset()
    environment.step(np.zeros(2, np.int64))

    with pytest.raises(ValueError, match=r"environment 0, step 2 of its episode: observation\[3\]\[0\] \[nan nan\] is"):
        environment.step(np.zeros(2, np.int64))


def collect(network, num_rollouts=4, unroll_length=7):
    environment = make_parts()
    spaces = environment.observation_space, environment.action_space
    actor = Actor(environment, LocalPolicy(network, None, seed=0), index=0)
    for _ in range(num_rollouts):
        slot = allocate(unroll_length, 2, *spaces, network.initial_state(1))
        actor.unroll(slot)
        yield slot


@pytest.mark.parametrize("use_lstm", [False, True])
def test_a_rollout_keeps_every_part_of_every_step(use_lstm):
    network = make_network(make_parts().observation_space, ACTIONS, use_lstm=use_lstm)

    numbers = []
    for slot in collect(network):
        step = slot.observation[0]["n"]
        numbers += step[:-1, 0].tolist()
        assert list(slot.named_tensors())[: len(NAMES)] == NAMES
        assert torch.equal(slot.observation[3][0], (step + 0.125).double().unsqueeze(-1).expand(8, 2, 2))
        assert torch.equal(slot.observation[0]["a.b"][:, :, 5, 7, 2], step.to(torch.uint8))
        assert torch.equal(slot.observation[3][1], step.half())
    assert numbers == [t % 13 for t in range(28)]  # 12 steps and the reset step


@pytest.mark.parametrize("use_lstm", [False, True])
def test_the_learner_sees_what_the_actor_saw(use_lstm):
    network = make_network(make_parts().observation_space, ACTIONS, use_lstm=use_lstm)
    torch.nn.init.orthogonal_(network.policy.weight)
    for slot in collect(network):
        inputs = AgentInput(slot.observation, slot.is_first, slot.last_action, slot.last_reward)

        log_rhos, _ = weigh(slot, network(inputs, slot.core_state).policy_params[:-1])

        assert log_rhos[~slot.is_reset].abs().max() < 1e-5  # other orders of the same sums, in float32


def make_store(num_columns):
    return allocate(3, num_columns, make_parts().observation_space, ACTIONS)


def test_unwritten_memory_shows_in_every_part():
    parts = trees.name_leaves(make_store(2).observation, "observation")

    assert parts["observation[3][0]"].isnan().all() and parts["observation[3][1]"].isnan().all()
    assert (parts["observation[0]['n']"] < 0).all() and (parts["observation[3][2]"] == -128).all()


def test_columns_are_views_of_every_part_and_copies_go_by_the_key():
    store, slot = make_store(6), make_store(2).map(torch.Tensor.zero_)
    first = slot.observation[0]
    slot = slot._replace(observation=(dict(reversed(first.items())), *slot.observation[1:]))

    store.columns(2, 4).copy_(slot)

    for name, part in trees.name_leaves(store.observation, "observation").items():
        assert not part[:, 2:4].any(), name
        assert part[:, :2].bool().any() or part.dtype in (torch.uint8, torch.bool), name


def test_a_part_of_another_shape_is_named_instead_of_broadcast():
    with pytest.raises(ValueError, match=r"^observation\[0\]\['a.b'\]: expected shape \(4, 2, 36, 40, 3\), found "):
        make_store(2).copy_(make_store(1))


def test_slots_are_gathered_into_batches_part_by_part():
    staging, slot = BatchStaging([make_store(4)]), make_store(2)
    for number in (1, 2):
        trees.map_leaves(lambda part: part.fill_(number), slot.observation)
        staging.put(slot)

    assert staging.pop().observation[0]["n"][0].tolist() == [1, 1, 2, 2]


@pytest.mark.parametrize(("place", "name"), [((3, 0), "observation[3][0]"), ((3, 1), "observation[3][1]")])
def test_an_update_names_the_part_that_is_not_finite(place, name):
    batch = make_store(2).map(torch.Tensor.zero_)
    batch.observation[place[0]][place[1]][2, 1] = torch.nan
    output = AgentOutput(torch.full((4, 2, 2), torch.nan), torch.zeros(4, 2), ())

    fault = faults.locate(batch, output, torch.tensor(torch.nan), torch.tensor(1.0))

    assert faults.describe(fault, faults.quantities(batch.observation)) == faults.Fault(name, 0, 0, 2)


def test_quantities_of_the_whole_update_keep_their_names():
    batch = make_store(2).map(torch.Tensor.zero_)
    output = AgentOutput(torch.zeros(4, 2, 2), torch.zeros(4, 2), ())
    names = faults.quantities(batch.observation)

    for values, name in [((torch.nan, torch.nan), "total_loss"), ((1.0, torch.inf), "grad_norm")]:
        fault = faults.locate(batch, output, *map(torch.tensor, values))
        assert str(faults.describe(fault, names)) == f"{name} is not finite"
    batch.reward[0, 1] = torch.nan
    fault = faults.locate(batch, output, torch.tensor(1.0), torch.tensor(1.0))
    assert faults.describe(fault, names).quantity == "reward"


@pytest.mark.parametrize("network", ["auto", "stub_networks:PartsNet"])
@pytest.mark.parametrize("num_actors", [0, 1])
def test_it_is_trained_evaluated_and_played(tmp_path, capfd, network, num_actors):
    result = begin(tmp_path, num_actors=num_actors, network=network, evaluate_every=60, evaluate_episodes=1)

    assert result.state == "complete"
    row = rows_of(result.folder / "logs.csv")[-1]
    assert row["bad_updates"] == "0" and row["dead_units_1"] != ""
    assert rows_of(result.folder / "evaluations.csv")[-1]["mean_episode_return"] == "12"
    named = ["--env", ENV, *(["--network", network] if ":" in network else [])]
    exit_code, output, errors = run(capfd, "test", "--best", "--savedir", tmp_path, *named, "--num_episodes", 2)
    assert (exit_code, errors) == (0, "") and "return over 2 episodes: mean 12.00" in output


def test_a_stopped_run_goes_on_bit_by_bit(tmp_path, monkeypatch):
    settings = {"exact_resume": True, "envs_per_actor": 4, "batch_size": 2}  # a batch of a slot waits
    begin(tmp_path, xpid="whole", **settings)
    intact, calls = Learner.update, []

    def update(self, batch):
        calls.append(os.kill(os.getpid(), signal.SIGINT) if len(calls) == 4 else None)
        return intact(self, batch)

    with monkeypatch.context() as patch:
        patch.setattr(Learner, "update", update)
        assert begin(tmp_path, xpid="stopped", **settings).state == "stopped"
    resumed = Config(resume=True, xpid="stopped", savedir=str(tmp_path), env=ENV)
    assert train(resumed).state == "complete"

    whole, stopped = (checkpoint.load(tmp_path / xpid)["learner"] for xpid in ("whole", "stopped"))
    torch.testing.assert_close(whole, stopped, rtol=0, atol=0)


def test_a_bad_update_is_repeated_with_the_parts_name(tmp_path, capfd, monkeypatch):
    intact = InlineActor.get_batch

    def spoil(self, timeout_s):
        batch = intact(self, timeout_s)
        batch.observation[3][1][2, 1] = torch.nan
        return batch

    monkeypatch.setattr(InlineActor, "get_batch", spoil)
    assert begin(tmp_path, max_bad_updates=2).state == "failed"
    assert "update 1 is left out: observation[3][1] is not finite, first in actor 0, environment 1, t = 2" in (
        capfd.readouterr().out
    )

    exit_code, output, errors = run(capfd, "replay-update", tmp_path / "run" / "bad_batch.pt", "--env", ENV)

    assert (exit_code, errors) == (1, "") and "first: observation[3][1] is not finite, first in actor 0" in output
    assert "observation[3][1] " in output and "1 of 12 not finite" in output


def test_a_plan_is_made(tmp_path, capfd):
    exit_code, output, _ = run(capfd, "plan", "--env", ENV, "--device", "cpu", "--savedir", tmp_path)

    assert exit_code == 0 and "with the shallow network" in output.splitlines()[0]


@pytest.mark.parametrize(
    ("observation", "message"),
    [
        ({"a": np.zeros((2, 3)), "b": np.zeros(2, np.int64)}, r"observation\['a'\] is float64 \[2, 3\]: must be float"),
        ({"a": np.zeros((2, 3), np.float32)}, r"gave observation\['a'\]: must be observation\['a'\], obs.*'b'"),
        (np.zeros((2, 3), np.float32), r"gave observation: must be observation\['a'\], observation\['b'\], as"),
    ],
)
def test_environments_of_ones_own_give_what_their_space_says(observation, message):
    class Own:
        num_envs, action_space = 2, Discrete(2)
        observation_space = Dict(a=Box(0, 1, (3,)), b=Discrete(4))
        step = close = None

        def reset(self):
            zeros = np.zeros(2)
            flags = [np.ones(2, bool), zeros.astype(np.float32), zeros.astype(bool), zeros.astype(bool)]
            return EnvStep(observation, *flags, zeros, zeros.astype(np.int64))

    with pytest.raises(ValueError, match=message):
        train(Config(num_actors=0), make_environments=lambda config, num_envs, seeds: Own())


def test_a_part_that_does_not_count_from_zero_is_refused_of_environments_of_ones_own():
    class Own:
        num_envs, action_space = 2, Discrete(2)
        observation_space = Dict(a=MultiDiscrete([2, 3], start=[0, 1]))
        reset = step = close = None

    with pytest.raises(ValueError, match=r"its observation_space\['a'\] is MultiDiscrete\(.*\): must count from 0"):
        train(Config(num_actors=0), make_environments=lambda config, num_envs, seeds: Own())


def make_two(config, num_envs, seeds):
    envs = SyncVectorEnv([Parts] * num_envs, autoreset_mode=AutoresetMode.NEXT_STEP)
    return VectorEnvironment(envs, seeds, life_loss_terminal=False)


def test_environments_and_a_network_from_python(tmp_path):
    settings = {name: value for name, value in SETTINGS.items() if name not in ("env", "network")}

    result = train(Config(**settings, savedir=str(tmp_path)), network=PartsNet, make_environments=make_two)

    assert result.state == "complete"


@pytest.mark.slow
def test_an_onnx_file_has_an_input_for_every_part(tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime runs the file; it is in the extra test")
    pytest.importorskip("onnxscript", reason="onnxscript writes the file; it is in the extra onnx")
    space = make_parts().observation_space
    network = make_network(space, ACTIONS, use_lstm=True)

    onnx_file.write(tmp_path / "network.onnx", network, Spaces(space, ACTIONS), {})

    session = onnxruntime.InferenceSession(tmp_path / "network.onnx", providers=["CPUExecutionProvider"])
    names = [each.name for each in session.get_inputs()]
    assert names == [*NAMES, "is_first", "last_action", "last_reward", "hidden", "cell"]
    inputs, state = make_inputs(space, network.distribution, num_steps=1), network.initial_state(2)
    with torch.no_grad():
        expected = network(inputs, state)
    given = dict(zip(names, (tensor.numpy() for tensor in (*trees.leaves(tuple(inputs)), *state)), strict=True))
    found = [torch.from_numpy(output) for output in session.run(None, given)]
    wanted = [expected.policy_params, expected.baseline, *expected.core_state]
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)  # another order of the same sums, in float32


def test_a_dict_of_one_part_is_seen_as_that_part_alone():
    """Vector layers see the parts one after the other, so a Dict of one is that one."""
    alone = make_network(Box(-1, 1, (3,)), ACTIONS)
    within = make_network(Dict(only=Box(-1, 1, (3,))), ACTIONS)
    within.load_state_dict(alone.state_dict())
    inputs = make_inputs(Box(-1, 1, (3,)), alone.distribution, num_steps=4)

    with torch.no_grad():
        one, other = alone(inputs, ()), within(inputs._replace(observation={"only": inputs.observation}), ())

    assert torch.equal(one.policy_params, other.policy_params) and torch.equal(one.baseline, other.baseline)

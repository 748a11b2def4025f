"""--normalize_observations: of one version, actors and learner see alike, by statistics of all that was seen."""

import copy
import json

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete
from random_rollouts import weigh
from stub_networks import Plain

from monobeast import environments, evaluator, player, trees
from monobeast.__main__ import run_command
from monobeast.actor import Actor
from monobeast.config import Config
from monobeast.environments import Spaces
from monobeast.inline_actor import InlineActor
from monobeast.learner import Learner
from monobeast.makers import Makers
from monobeast.moments import Moments
from monobeast.networks import AgentInput, Normalizer, make_network
from monobeast.policy import LocalPolicy
from monobeast.rollouts import allocate
from monobeast.runs import checkpoint
from monobeast.training import train
from monobeast.weights import SharedWeights, WeightsReader, flatten, name_weights, unflatten, weights_of

BOX = Box(-np.inf, np.inf, (2,))
BOX_OF_STUBS = Box(-np.inf, np.inf, (3,))
ACTIONS = Discrete(2)
PARTS = {"a": Box(-9, 9, (), np.float64), "b": Discrete(3), "c": Box(0, 255, (2,), np.uint8)}
PARTS = Dict(PARTS | {"d": Box(-9, 9, (1, 2), np.float16)})
TAKEN = torch.tensor(True)
SETTINGS = {
    **{"env": "stub_environments:RandStart-v0", "env_kwargs": '{"n": 4}', "normalize_observations": True, "seed": 1},
    **{"num_actors": 0, "envs_per_actor": 2, "batch_size": 2, "unroll_length": 5, "num_learner_threads": 1},
    **{"xpid": "run", "total_steps": 120, "learning_rate": 0.05},
}


def begin(tmp_path, **settings):
    return train(Config(**SETTINGS | {"savedir": str(tmp_path)} | settings))


def test_each_element_is_less_its_mean_by_its_deviation_and_clipped():
    normalizer = Normalizer(BOX)
    normalizer.update(torch.tensor([[[1.0, 100.0]], [[3.0, 300.0]]]), TAKEN)

    found = normalizer(torch.tensor([[[2.0, 200.0], [3.0, 250.0], [1e9, -1e9]]]))

    assert found.dtype == torch.float32
    torch.testing.assert_close(found, torch.tensor([[[0.0, 0.0], [1.0, 0.5], [10.0, -10.0]]]))


def test_before_anything_was_seen_observations_are_only_clipped():
    assert Normalizer(BOX)(torch.tensor([-3.5, 11.0])).tolist() == [-3.5, 10.0]


def test_a_constant_becomes_zero():
    normalizer, constant = Normalizer(BOX), torch.full((5, 3, 2), 1e6 + 0.25)
    for _ in range(4):
        normalizer.update(constant, TAKEN)

    assert not normalizer(constant).any()


def test_far_from_zero_differences_stay():
    space, generator = Box(-np.inf, np.inf, (), np.float64), torch.Generator().manual_seed(0)
    normalizer, numbers = Normalizer(space), torch.randn(1000, 5, generator=generator, dtype=torch.float64)
    for rows in numbers.split(100):
        normalizer.update(1e6 + rows, TAKEN)

    found = normalizer(1e6 + numbers)

    wanted = ((numbers - numbers.mean()) / numbers.std(correction=0)).float()
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-7)


def test_parts_of_floats_are_normalized_and_the_others_stay_as_they_are():
    normalizer = Normalizer(PARTS)
    observation = {
        "a": torch.tensor([[1.0], [3.0]], dtype=torch.float64),
        "b": torch.tensor([[1], [2]]),
        "c": torch.tensor([[[7, 9]], [[0, 1]]], dtype=torch.uint8),
        "d": torch.tensor([[[[0.0, 8.0]]], [[[4.0, 8.0]]]], dtype=torch.float16),
    }
    before = trees.map_leaves(torch.clone, observation)

    normalizer.update(observation, TAKEN)
    found = normalizer(observation)

    assert normalizer.mean.tolist() == [2, 2, 8] and normalizer.moments.variance.tolist() == [1, 4, 0]
    assert found["b"] is observation["b"] and found["c"] is observation["c"]
    torch.testing.assert_close(found["a"], torch.tensor([[-1.0], [1.0]]))
    torch.testing.assert_close(found["d"], torch.tensor([[[[-1.0, 0.0]]], [[[1.0, 0.0]]]]))
    assert trees.leaves(trees.map_leaves(torch.equal, observation, before)) == [True] * 4


@pytest.mark.parametrize("space", [Discrete(3), Box(0, 255, (3,), np.uint8), Box(0, 1, (40, 40)), Dict(a=Discrete(2))])
def test_where_nothing_is_to_be_normalized_it_is_refused(space):
    with pytest.raises(ValueError, match="--normalize_observations: observation space .* has no floats outside of im"):
        make_network(space, ACTIONS, normalize_observations=True)


def test_images_among_the_parts_are_left_out_unless_they_are_for_the_vector_layers():
    space = Dict(camera=Box(0, 1, (40, 40)), place=Box(-1, 1, (2,)))

    networks = [make_network(space, ACTIONS, kind, normalize_observations=True) for kind in ("auto", "mlp")]

    assert [network.normalizer.sizes for network in networks] == [[2], [1600, 2]]


def make_pair(use_lstm=False, precision="float32"):
    """A learner and an actor with a network of its own, which takes what the learner publishes."""
    settings = {"preset": "classic", "reward_clipping": "none", "learning_rate": 0.05, "total_steps": 10**6}
    config = Config(**SETTINGS | settings | {"use_lstm": use_lstm, "precision": precision, "device": "cpu"})
    environment = environments.make(config, 2, [0, 1])
    spaces = Spaces(environment.observation_space, environment.action_space)
    learner = Learner(Makers().make_network(config, spaces), config)
    torch.nn.init.orthogonal_(learner.network.policy.weight)  # else all policies are nearly uniform
    shared = SharedWeights(weights_of(learner.network))
    policy = LocalPolicy(Makers().make_network(config, spaces), shared, seed=0)
    return learner, shared, Actor(environment, policy, index=0), policy, config


def collect(actor, policy, unroll_length=5):
    slot = allocate(unroll_length, 2, BOX_OF_STUBS, ACTIONS, policy.initial_state(1))
    actor.unroll(slot)
    return slot


@pytest.mark.parametrize(("use_lstm", "precision"), [(False, "float32"), (True, "float32"), (False, "bfloat16")])
def test_actor_and_learner_of_one_version_normalize_alike_so_that_on_policy_ratios_are_one(use_lstm, precision):
    learner, shared, actor, policy, _ = make_pair(use_lstm, precision)
    tolerance = 1e-5 if precision == "float32" else 0.1  # bfloat16 keeps 8 bits, and sums in other orders
    for version in range(6):
        slot = collect(actor, policy)
        assert (slot.policy_version == version).all()
        for acting in (policy._network, policy._acting):
            assert all(map(torch.equal, acting.normalizer.moments, learner.network.normalizer.moments))
        inputs = AgentInput(slot.observation, slot.is_first, slot.last_action, slot.last_reward)
        with torch.no_grad():
            log_rhos, _ = weigh(slot, learner.network(inputs, slot.core_state).policy_params[:-1])
        assert log_rhos[~slot.is_reset].abs().max() < tolerance

        statistics = learner.update(slot)
        shared.publish(weights_of(learner.network))
        assert statistics["sum_of_kl"].abs() < tolerance and statistics["policy_lag_max"] == 0
        assert learner.network.normalizer.count == 10 * (version + 1)


def test_the_statistics_are_of_every_observation_once_final_ones_and_first_ones_too():
    learner, shared, actor, policy, _ = make_pair()
    slots = [collect(actor, policy) for _ in range(7)]
    for slot in slots:
        learner.update(slot)

    seen = torch.cat([slot.observation[:-1] for slot in slots]).flatten(0, 1).double().numpy()
    moments = learner.network.normalizer.moments
    assert moments.count == len(seen) == 70
    np.testing.assert_allclose(moments.mean, seen.mean(0), rtol=1e-12)
    np.testing.assert_allclose(moments.variance, seen.var(0), rtol=1e-12)


@pytest.mark.parametrize("quantity", ["observation", "reward"])
def test_an_update_that_is_left_out_leaves_the_statistics(quantity):
    learner, _, actor, policy, _ = make_pair()
    learner.update(collect(actor, policy))
    before, bad = copy.deepcopy(learner.network.state_dict()), collect(actor, policy)
    getattr(bad, quantity)[2, 1] = torch.nan

    assert not learner.update(bad)["is_good"]

    torch.testing.assert_close(learner.network.state_dict(), before, rtol=0, atol=0)


def test_a_version_holds_parameters_and_statistics_bit_by_bit():
    learner, shared, actor, policy, config = make_pair()
    learner.network.normalizer.mean.copy_(torch.tensor([1 / 3, 1e300, -5e-324], dtype=torch.float64))
    shared.publish(weights_of(learner.network))
    network = Makers().make_network(config, Spaces(BOX_OF_STUBS, ACTIONS))

    WeightsReader(shared, network).refresh()

    torch.testing.assert_close(network.state_dict(), learner.network.state_dict(), rtol=0, atol=0)
    learner.network.normalizer.mean.zero_()
    assert network.normalizer.mean[0] == 1 / 3  # a copy of its own


def test_float64_numbers_are_found_again_wherever_they_lie():
    tensors = [torch.randn(n, dtype=dtype) for n in (3, 1, 2) for dtype in (torch.float32, torch.float64)]

    vector = flatten(tensors)

    assert vector.dtype == torch.float32 and vector.numel() == 6 + 2 * 6
    assert all(map(torch.equal, unflatten(vector, tensors), tensors))


def test_flat_weights_by_name_hold_the_statistics_of_their_version():
    learner, _, actor, policy, _ = make_pair()
    learner.update(collect(actor, policy))
    vector, expected = flatten(weights_of(learner.network)), copy.deepcopy(learner.network.state_dict())

    learner.update(collect(actor, policy))

    torch.testing.assert_close(name_weights(vector, learner.network), expected, rtol=0, atol=0)


def statistics_of(content):
    return Moments(*(content["learner"]["network"][f"normalizer.{name}"] for name in Moments._fields))


@pytest.mark.parametrize("num_actors", [0, 1])
def test_a_run_keeps_them_in_its_checkpoints_and_plays_by_them(tmp_path, capfd, monkeypatch, num_actors):
    result = begin(tmp_path, num_actors=num_actors, evaluate_every=60, evaluate_episodes=1)

    assert result.state == "complete"
    moments = statistics_of(checkpoint.load(result.folder))
    assert moments.count == 120 and moments.mean.dtype == torch.float64 and (moments.mean > 0.1).all()
    best = statistics_of(checkpoint.read(result.folder / checkpoint.BEST_FILE_NAME))
    assert 60 <= best.count <= 120 and best.count % 10 == 0
    played = []
    intact = player.load_network
    monkeypatch.setattr(player, "load_network", lambda *them: played.append(intact(*them)) or played[-1])
    named = ["--env", SETTINGS["env"], "--savedir", str(tmp_path), "--num_episodes", "1"]
    assert run_command(["test", *named]) == 0
    assert all(map(torch.equal, played[0].normalizer.moments, moments))


def test_the_evaluator_plays_each_version_by_its_own_statistics(tmp_path, monkeypatch):
    learner, _, actor, policy, config = make_pair()
    seen = []

    class Queue:
        requests = [1, 2]

        def get(self):
            learner.update(collect(actor, policy))
            weights.copy_(flatten(weights_of(learner.network)))
            return self.requests.pop(0) if self.requests else None

        def has_message(self):
            return False

        def put(self, message):
            pass

    def play(config, network, version, watch, makers):
        seen.append(copy.deepcopy(network.normalizer.moments))
        assert all(map(torch.equal, weights_of(network), weights_of(learner.network)))
        return []

    weights = torch.zeros_like(flatten(weights_of(learner.network)))
    monkeypatch.setattr(evaluator, "play_version", play)
    evaluator.run_evaluator(evaluator.EvaluatorTask(config, Spaces(BOX_OF_STUBS, ACTIONS), weights), Queue(), Queue())

    assert [int(moments.count) for moments in seen] == [10, 20]


@pytest.mark.parametrize("settings", [{}, {"normalize_rewards": True}], ids=["observations", "rewards too"])
def test_a_stopped_run_goes_on_bit_by_bit(tmp_path, monkeypatch, settings):
    settings |= {"exact_resume": True, "env": "CartPole-v1", "env_kwargs": "{}"}
    begin(tmp_path, xpid="whole", **settings)
    intact, calls = InlineActor.get_batch, []

    def fail(self, timeout_s):
        calls.append(1)
        if len(calls) == 6:
            raise RuntimeError("no more")
        return intact(self, timeout_s)

    with monkeypatch.context() as patch:
        patch.setattr(InlineActor, "get_batch", fail)
        assert begin(tmp_path, xpid="stopped", checkpoint_interval_s=1e-9, **settings).state == "failed"
    assert checkpoint.load(tmp_path / "stopped")["learner"]["num_updates"] == 5
    assert train(Config(resume=True, xpid="stopped", savedir=str(tmp_path))).state == "complete"

    whole, stopped = (checkpoint.load(tmp_path / xpid)["learner"] for xpid in ("whole", "stopped"))
    assert ("rewards" in whole) == ("normalize_rewards" in settings)
    torch.testing.assert_close(whole, stopped, rtol=0, atol=0)


@pytest.mark.parametrize("name", ["normalize_observations", "normalize_rewards"])
def test_it_cannot_be_turned_on_or_off_on_the_way(tmp_path, capsys, name):
    begin(tmp_path, **{name: True})

    where = ["--xpid", "run", "--savedir", str(tmp_path), "--env", SETTINGS["env"]]
    assert run_command(["train", "--resume", *where, f"--no_{name}"]) == 2

    assert f"--{name} False: cannot change on --resume; the run began with True\n" in capsys.readouterr().err


class NormalizedPlain(Plain):
    """A network of one's own with a normalizer in it."""

    def __init__(self, observation_space, num_actions):
        super().__init__(observation_space, num_actions)
        self.normalizer = Normalizer(observation_space)

    def look(self, observation):
        return super().look(self.normalizer(observation))


def test_a_network_of_ones_own_may_have_one_in_it(tmp_path):
    settings = {name: value for name, value in SETTINGS.items() if name != "normalize_observations"}
    config = Config(**settings, savedir=str(tmp_path), evaluate_every=60, evaluate_episodes=1)

    result = train(config, network=NormalizedPlain)

    assert result.state == "complete"
    assert statistics_of(checkpoint.load(result.folder)).count == 120
    assert json.loads((result.folder / "meta.json").read_text())["config"]["normalize_observations"] is False


def test_a_network_of_ones_own_is_not_normalized_from_outside(capsys):
    flags = ["--normalize_observations", "--network", "stub_networks:Plain"]

    assert run_command(["train", *flags]) == 2

    wanted = f"{' '.join(flags)}: exclude each other; a monobeast.networks.Normalizer in the network does that\n"
    assert wanted in capsys.readouterr().err


@pytest.mark.slow
def test_an_onnx_file_normalizes_as_the_network_does(tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime runs the file; it is in the extra test")
    pytest.importorskip("onnxscript", reason="onnxscript writes the file; it is in the extra onnx")
    begin(tmp_path)
    file, named = tmp_path / "network.onnx", ["--env", SETTINGS["env"], "--savedir", str(tmp_path)]

    assert run_command(["export", "run", *named, "--onnx", str(file)]) == 0

    content = checkpoint.load(tmp_path / "run")
    config = checkpoint.read_config(content, tmp_path)
    network = player.load_network(content, tmp_path, config, Spaces(BOX_OF_STUBS, ACTIONS))
    ones = torch.ones(1, 1)
    inputs = AgentInput(torch.tensor([[[0.5, 4.0, -30.0]]]), ones.bool(), ones.long(), ones)
    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    given = dict(zip([each.name for each in session.get_inputs()], (tensor.numpy() for tensor in inputs), strict=True))
    logits, baseline = (torch.from_numpy(output) for output in session.run(None, given))
    with torch.no_grad():
        expected = network(inputs, ())
    torch.testing.assert_close((logits, baseline), expected[:2], rtol=1e-4, atol=1e-5)

"""MultiDiscrete and Box actions through the whole of a run: recorded, learned from, played, gone on with, exported."""

import dataclasses
import json
import math

import numpy as np
import pytest
import torch
from command_lines import run
from csv_rows import rows_of
from gymnasium.spaces import Box, Discrete, MultiDiscrete
from network_inputs import seen_by
from random_rollouts import TableNetwork, make_rollout
from saved_runs import save_run
from stub_environments import Acts, stub_config
from torch import nn

from monobeast import corrections, environments, learner, vtrace
from monobeast.__main__ import run_command
from monobeast.actor import Actor
from monobeast.config import Config
from monobeast.distributions import DiagonalGaussian, MultiCategorical, for_space
from monobeast.inline_actor import InlineActor
from monobeast.makers import Makers
from monobeast.networks import AgentInput, AgentNetwork, make_network
from monobeast.networks.contract import make_inputs
from monobeast.networks.heads import GaussianHead, make_policy_head
from monobeast.player import load_player, play
from monobeast.policy import LocalPolicy
from monobeast.resources import footprint
from monobeast.rollouts import allocate
from monobeast.runs import checkpoint
from monobeast.training import train

ENV = "stub_environments:Acts-v0"
TESTED = ("two", "table", "numbers", "number", "matrix")
ENDS = [{2: "terminated"}, {1: "truncated", 4: "truncated"}, {-1: "terminated"}]
T, B = 6, 3
CONFIG = Config(preset="atari", discounting=0.9, reward_clipping="none", entropy_cost=0.3, baseline_cost=0.7)
CONFIG = dataclasses.replace(CONFIG, clip_rho_threshold=0.8, clip_pg_rho_threshold=1.2, clip_c_threshold=0.9)
SETTINGS = {"num_actors": 0, "num_learner_threads": 1, "seed": 1, "xpid": "run", "total_steps": 400}
SETTINGS |= {"preset": "classic", "reward_clipping": "none"}


def begin(tmp_path, space, **settings):
    return train(stub_config("Acts-v0", space=space, savedir=str(tmp_path), **SETTINGS | settings))


def collect(space, unroll_length, num_envs=2, use_lstm=False):
    """A rollout, its network, and what the environments got of the actions."""
    environment = environments.make(stub_config("Acts-v0", space=space), num_envs, range(num_envs))
    network = make_network(environment.observation_space, environment.action_space, "mlp", use_lstm)
    policy = LocalPolicy(network, None, seed=1)
    core_state = network.initial_state(1)
    spaces = environment.observation_space, environment.action_space
    slot = allocate(unroll_length, num_envs, *spaces, core_state)
    Actor(environment, policy, index=0).unroll(slot)
    return slot, network


@pytest.mark.parametrize("unroll_length", [1, 7])
@pytest.mark.parametrize("num_envs", [1, 2])
@pytest.mark.parametrize("space", TESTED)
def test_actions_are_recorded_as_drawn_beside_the_parameters_of_their_distribution(space, unroll_length, num_envs):
    slot, network = collect(space, unroll_length, num_envs)
    distribution = network.distribution

    shape = (unroll_length, num_envs)
    assert slot.action.shape == (*shape, *distribution.action_shape) and slot.action.dtype == distribution.action_dtype
    assert slot.behavior_params.shape == (*shape, distribution.num_params)
    assert distribution.log_prob(slot.behavior_params, slot.action).isfinite().all()
    assert torch.equal(slot.last_action[1:], slot.action)
    assert not slot.last_action[0].any()


def test_the_environment_gets_what_is_recorded_cut_off_at_its_bounds():
    slot, _ = collect("numbers", unroll_length=40)
    action, got = slot.action, slot.observation[1:]
    counts = ~slot.is_reset

    assert (action[..., :2].abs() > 1).any() and (action[..., :2].abs() < 1).any()  # to both sides of the bounds
    scaled = action[..., :2].double().clamp(-1, 1) * torch.tensor([2.0, 5.0]) + torch.tensor([0.0, 5.0])
    torch.testing.assert_close(got[..., :2][counts], scaled[counts])
    assert torch.equal(got[..., 2][counts].float(), action[..., 2][counts])


@pytest.mark.parametrize("space", TESTED)
def test_steps_are_counted_once_whatever_an_action_is(space):
    slot, network = collect(space, unroll_length=7)
    one = learner.Learner(network.requires_grad_(True), Config(preset="classic", reward_clipping="none"))

    one.update(slot)

    assert one.step == slot.num_steps == 14


def test_a_step_t_of_1_and_a_column_alone_are_learned_from():
    slot, network = collect("numbers", unroll_length=1, num_envs=1)

    before = [parameter.clone() for parameter in network.requires_grad_(True).parameters()]
    config = Config(preset="classic", reward_clipping="none")
    statistics = learner.Learner(network, config).update(slot)

    assert statistics["is_good"]
    assert any(not torch.equal(one, other) for one, other in zip(before, network.parameters(), strict=True))


def make(distribution):
    """A table, and a rollout of another policy."""
    generator = torch.Generator().manual_seed(2)
    behavior = 0.5 * torch.randn(T, B, distribution.num_params, generator=generator, dtype=torch.float64)
    actions = distribution.sample(behavior.flatten(0, 1), generator).unflatten(0, (T, B))
    rollout = make_rollout(ENDS, behavior)._replace(action=actions.to(distribution.action_dtype))
    return TableNetwork(T, B, distribution, seed=1, deviation=0.5), rollout


def targets_of(network, rollout):
    """V-trace's, by `vtrace.from_action_log_probs`, with the learner's code left out."""
    log_prob = network.distribution.log_prob
    behavior, target = log_prob(rollout.behavior_params, rollout.action), log_prob(network.params[:-1], rollout.action)
    return vtrace.from_action_log_probs(
        behavior,
        target.masked_fill(rollout.is_reset, -torch.inf),
        discounts=0.9 * (~rollout.terminal).double(),
        rewards=rollout.reward.double(),
        values=network.values[:-1],
        bootstrap_value=network.values[-1],
        **{name: getattr(CONFIG, name) for name in ("clip_rho_threshold", "clip_pg_rho_threshold", "clip_c_threshold")},
    )


def gradient_of(network, rollout):
    return torch.autograd.grad(learner.compute_loss(network, rollout, CONFIG).total_loss, network.params)[0]


def test_the_gradient_of_a_gaussian_is_the_one_derived_by_hand():
    """-advantage d log N, with (a - m) / s^2 for the mean m and ((a - m) / s)^2 - 1 for log s; entropy is log s + C."""
    network, rollout = make(DiagonalGaussian([True, True]))
    advantages = targets_of(network, rollout).pg_advantages[..., None]
    mean, log_std = network.params.detach()[:-1].chunk(2, dim=-1)
    distance = (rollout.action - mean) / log_std.exp()
    of_mean = -advantages * distance / log_std.exp()
    of_log_std = -advantages * (distance**2 - 1) - CONFIG.entropy_cost * (~rollout.is_reset)[..., None].double()

    found = gradient_of(network, rollout)

    expected = torch.cat([of_mean, of_log_std], dim=-1)
    torch.testing.assert_close(found[:-1], expected, rtol=1e-10, atol=1e-10)
    assert not found[-1].any() and not found[:-1][rollout.is_reset].any() and advantages.abs().max() > 0.1


def test_the_gradient_of_several_choices_is_the_one_derived_by_hand():
    """Of each choice: (pi - one-hot) advantage, and entropy_cost pi (log pi - sum pi log pi)."""
    network, rollout = make(MultiCategorical([3, 2]))
    advantages = targets_of(network, rollout).pg_advantages[..., None]
    counts = (~rollout.is_reset)[..., None]
    parts = []
    for logits, action in zip(network.params.detach()[:-1].split([3, 2], -1), rollout.action.unbind(-1), strict=True):
        probs, log_probs = logits.softmax(-1), logits.log_softmax(-1)
        one_hot = nn.functional.one_hot(action, logits.shape[-1])
        of_entropy = probs * (log_probs - (probs * log_probs).sum(-1, keepdim=True)) * counts
        parts.append((probs - one_hot) * advantages + CONFIG.entropy_cost * of_entropy)

    found = gradient_of(network, rollout)

    torch.testing.assert_close(found[:-1], torch.cat(parts, dim=-1), rtol=1e-10, atol=1e-10)
    assert not found[-1].any() and not found[:-1][rollout.is_reset].any()


@pytest.mark.parametrize("correction", ["none", "one_step", "epsilon"])
@pytest.mark.parametrize("distribution", [DiagonalGaussian([True] * 2), MultiCategorical([3, 2])], ids=["box", "multi"])
def test_the_other_corrections_take_joint_probabilities_too(distribution, correction):
    network, rollout = make(distribution)
    log_prob = distribution.log_prob
    target = log_prob(network.params.detach()[:-1], rollout.action)
    log_rhos = target - log_prob(rollout.behavior_params, rollout.action)
    steps = {
        **{"discounts": 0.9 * (~rollout.terminal).double(), "rewards": rollout.reward.double()},
        **{"values": network.values.detach()[:-1], "bootstrap_value": network.values.detach()[-1]},
        "is_reset": rollout.is_reset,
    }
    expected = {
        "none": corrections.uncorrected(**steps),
        "one_step": corrections.one_step(log_rhos, **steps, clip_pg_rho_threshold=1.2),
        "epsilon": corrections.epsilon_corrected(target, **steps),
    }[correction]

    result = learner.compute_loss(network, rollout, dataclasses.replace(CONFIG, correction=correction))

    pg_loss = -(target * expected.pg_advantages).sum()
    torch.testing.assert_close(result.statistics["pg_loss"], pg_loss, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("space", TESTED)
def test_a_run_is_logged_saved_resumed_and_played(tmp_path, capfd, space):
    begin(tmp_path, space, use_lstm=space == "matrix", envs_per_actor=2, batch_size=2)
    resumed = begin(tmp_path, space, use_lstm=space == "matrix", resume=True, total_steps=600)

    assert resumed.state == "complete"
    row = rows_of(resumed.folder / "logs.csv")[-1]
    assert row["bad_updates"] == "0" and row["step"] in ("600", "640")
    for column in ("entropy", "kl", "effective_sample_size", "rho_clipped", "logits_std", "feature_std"):
        assert math.isfinite(float(row[column])), column
    capfd.readouterr()
    where = ["--savedir", tmp_path, "--xpid", "run", "--num_episodes", 2, "--env", ENV]
    exit_code, output, errors = run(capfd, "test", *where, "--greedy")
    assert (exit_code, errors) == (0, "")
    assert "the most probable action" in output and "return over 2 episodes: mean 5.00" in output


@pytest.mark.parametrize("space", ["two", "matrix"])
def test_actors_and_the_evaluator_act_in_processes_of_their_own(tmp_path, space):
    settings = {"num_actors": 1, "evaluate_every": 200, "evaluate_episodes": 1}
    result = begin(tmp_path, space, **settings)

    assert result.state == "complete"
    assert (result.folder / "evaluations.csv").read_text().count("\n") > 1


@pytest.mark.parametrize("space", ["table", "matrix"])
def test_a_run_that_was_resumed_exactly_is_as_one_that_was_not(tmp_path, space):
    settings = {"exact_resume": True, "envs_per_actor": 2, "batch_size": 2, "unroll_length": 7}
    settings |= {"learning_rate_schedule": "constant", "entropy_cost_end": 0.01}  # nothing hangs on --total_steps
    whole = begin(tmp_path / "whole", space, **settings)
    begin(tmp_path / "parts", space, **settings | {"total_steps": 200})
    parts = begin(tmp_path / "parts", space, **settings | {"resume": True, "total_steps": 400})

    one, other = (checkpoint.load(each.folder)["learner"]["network"] for each in (whole, parts))
    assert all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize("space", ["two", "numbers"])
def test_a_greedy_player_takes_the_mode(tmp_path, space):
    save_run(tmp_path, env=ENV, env_kwargs=json.dumps({"space": space}))
    player = load_player({"savedir": str(tmp_path), "xpid": "example", "greedy": True, "env": ENV})
    seen = []
    intact = player.policy.act
    player.policy.act = lambda *arguments: seen.append(intact(*arguments)) or seen[-1]

    list(play(player._replace(config=dataclasses.replace(player.config, num_episodes=1))))

    distribution = player.policy._network.distribution
    assert seen and all(torch.equal(each.action, distribution.mode(each.params)) for each in seen)


@pytest.mark.parametrize("space", ["two", "matrix"])
def test_a_bad_update_is_named_kept_and_repeated(tmp_path, capfd, monkeypatch, space):
    intact = InlineActor.get_batch

    def spoil(self, timeout_s):
        batch = intact(self, timeout_s)
        batch.behavior_params[2, 1, 0] = math.nan
        return batch

    monkeypatch.setattr(InlineActor, "get_batch", spoil)
    result = begin(tmp_path, space, max_bad_updates=2, envs_per_actor=2, batch_size=2)
    capfd.readouterr()

    exit_code, output, _ = run(capfd, "replay-update", result.folder / "bad_batch.pt", "--env", ENV)
    assert (result.state, exit_code) == ("failed", 1)
    assert "first: behavior_params is not finite, first in actor 0, environment 1, t = 2" in output


@pytest.mark.parametrize("space", TESTED)
def test_the_bytes_of_a_rollout_are_those_that_are_counted(space):
    config = environments.resolve(stub_config("Acts-v0", space=space, preset="classic"))
    spaces = environments.check(config)
    network = make_network(*spaces, "mlp")
    real = allocate(13, 6, *spaces, network.initial_state(1))

    counted = footprint.rollout_bytes(footprint.measure(config, spaces, network), 13, 6)

    fields = {name: tensor.nbytes for name, tensor in real._asdict().items() if name != "core_state"}
    assert {name: counted[name] for name in fields} == fields


class Known(nn.Module):
    """A network of one's own for any action space: it is made of the number of parameters."""

    def __init__(self, observation_space, num_params):
        super().__init__()
        self.body = nn.Linear(math.prod(observation_space.shape), num_params + 1)

    def initial_state(self, batch_size):
        return ()

    def forward(self, inputs, core_state):
        output = self.body(inputs.observation.float())
        return output[..., :-1], output[..., -1], ()


class Narrow(Known):
    def __init__(self, observation_space, num_params):
        super().__init__(observation_space, num_params - 1)


@pytest.mark.parametrize("space", TESTED)
def test_a_network_of_ones_own_is_made_of_the_number_of_parameters(tmp_path, space):
    config = stub_config("Acts-v0", space=space, savedir=str(tmp_path), **SETTINGS)

    assert train(config, network=Known).state == "complete"


@pytest.mark.parametrize(
    ("space", "message"),
    [
        ("two", r"forward's policy_logits is float32 \[1, 2, 4\]: must be float32 \[1, 2, 5\], \[T, B, P\]"),
        ("numbers", r"forward's policy_params is float32 \[1, 2, 5\]: must be float32 \[1, 2, 6\], \[T, B, P\]"),
    ],
)
def test_one_of_another_width_is_refused(space, message):
    spaces = environments.check(stub_config("Acts-v0", space=space))

    with pytest.raises(ValueError, match=f"network=.*Narrow: with T = 1, B = 2, {message}"):
        make_network(*spaces, Narrow)


def test_a_call_that_fails_is_named_with_what_it_was_given():
    spaces = environments.check(stub_config("Acts-v0", space="numbers"))

    with pytest.raises(ValueError, match=r"its call with \(observation_space, num_params\) failed with TypeError"):
        make_network(*spaces, lambda: None)


@pytest.mark.parametrize("action_space", [MultiDiscrete([3, 2]), Box(-1, 1, (2,))], ids=str)
def test_torchbeasts_layers_are_for_discrete_actions_alone(action_space):
    image = Box(0, 255, (4, 84, 84), np.uint8)

    with pytest.raises(ValueError, match="--network torchbeast: action space .*: TorchBeast's has Discrete actions"):
        make_network(image, action_space, "torchbeast")


@pytest.mark.parametrize("space", [MultiDiscrete([3, 2]), Box(-1, 1, (2,))], ids=str)
def test_the_network_is_told_of_the_last_action_but_not_at_an_episodes_first_step(space):
    network = make_network(Box(-1, 1, (3,)), space)
    inputs = make_inputs(Box(-1, 1, (3,)), network.distribution, num_steps=4)  # the first step opens an episode
    garbage = torch.full_like(inputs.last_action, -(2**31) if inputs.last_action.dtype == torch.int64 else math.nan)
    is_first = inputs.is_first.unsqueeze(-1)
    as_written = inputs._replace(last_action=torch.where(is_first, garbage, inputs.last_action))
    other = inputs._replace(last_action=torch.where(is_first, inputs.last_action, torch.ones_like(inputs.last_action)))

    expected, found, changed = (network(AgentInput(*each), ()).policy_params for each in (inputs, as_written, other))

    assert torch.equal(found, expected)
    assert torch.equal(changed[0], expected[0]) and not torch.equal(changed[1:], expected[1:])


def test_before_an_episodes_first_step_no_choice_was_made():
    network = make_network(Box(-1, 1, (3,)), MultiDiscrete([3, 2]))
    inputs = make_inputs(Box(-1, 1, (3,)), network.distribution, num_steps=4)  # the first step opens an episode

    choices = seen_by(network.policy, network, inputs)[..., -6:-1]  # the last reward comes after them

    assert not choices[0].any() and (choices[1:].sum(-1) == 2).all()


def test_a_gaussian_starts_in_the_middle_with_a_standard_deviation_of_1_that_all_steps_share():
    network = make_network(Box(-1, 1, (3,)), Box(-1, 1, (2,)))
    inputs = make_inputs(Box(-1, 1, (3,)), network.distribution, num_steps=5)

    mean, log_std = network(inputs, ()).policy_params.chunk(2, dim=-1)

    assert mean.abs().max() < 0.1 and mean.std() > 1e-6
    assert not log_std.any()
    assert isinstance(network, AgentNetwork) and isinstance(network.policy, GaussianHead)


def test_means_stay_within_two_bounds_and_go_anywhere_without():
    space = Box(np.array([-1, -np.inf, 0], np.float32), np.array([1, np.inf, np.inf], np.float32))
    head = make_policy_head(for_space(space), num_features=4)
    nn.init.constant_(head.mean.weight, 3.0)

    means = head(torch.ones(5, 4))[..., :3]

    assert means.tolist() == [[1.0, 12.0, 12.0]] * 5
    assert "is_bounded" not in head.state_dict()


@pytest.mark.slow
@pytest.mark.parametrize(("space", "name"), [("two", "policy_logits"), ("matrix", "policy_params")])
@pytest.mark.parametrize("use_lstm", [False, True])
def test_an_onnx_file_gives_the_same_parameters(tmp_path, space, name, use_lstm):
    onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime runs the file; it is in the extra test")
    pytest.importorskip("onnxscript", reason="onnxscript writes the file; it is in the extra onnx")
    folder = save_run(tmp_path, env=ENV, env_kwargs=json.dumps({"space": space}), use_lstm=use_lstm)
    assert run_command(["export", str(folder), "--env", ENV, "--onnx", str(tmp_path / "network.onnx")]) == 0

    session = onnxruntime.InferenceSession(tmp_path / "network.onnx", providers=["CPUExecutionProvider"])
    network = load_player({"savedir": str(tmp_path), "xpid": "example", "env": ENV}).policy._network
    observation_space = environments.check(stub_config("Acts-v0", space=space)).observation
    inputs = AgentInput(*(each[:1] for each in make_inputs(observation_space, network.distribution, 1)))
    state = network.initial_state(2)
    given = (tensor.numpy() for tensor in (*inputs, *state))
    names = [each.name for each in session.get_inputs()]
    found = session.run([name, "baseline"], dict(zip(names, given, strict=True)))
    expected = network(inputs, state)
    for one, other in zip(found, expected, strict=False):
        torch.testing.assert_close(torch.from_numpy(one), other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("space", Acts.ACTIONS)
def test_an_environment_made_from_python_is_seen_as_any_other(space):
    config = stub_config("Acts-v0", space=space)

    assert Makers(environments=environments.make).check_environments(config) == environments.check(config)


class Unseen:
    """What has the attributes of a `VectorEnvironment`, but an action space that agents do not see."""

    def __init__(self, environment, action_space):
        self.environment, self.action_space = environment, action_space

    def __getattr__(self, name):
        return getattr(self.environment, name)


@pytest.mark.parametrize(
    ("action_space", "message"),
    [
        (Box(-2, 2, (3,)), r"Box\(-2.0, 2.0, \(3,\), float32\): must be as agents see it, Box\(-1.0, 1.0"),
        (Box(-1, 1, ()), r"must be as agents see it, Box\(-1.0, 1.0, \(1,\), float32\)"),
        (MultiDiscrete([[3, 2]]), r"must be as agents see it, MultiDiscrete\(\[3 2\]\)"),
        (MultiDiscrete([3, 2], start=[0, 1]), "must count from 0"),
        (Discrete(3, start=1), "must count from 0"),
    ],
    ids=str,
)
def test_one_whose_space_is_not_as_agents_see_it_is_refused(tmp_path, action_space, message):
    def make_environments(config, num_envs, seeds):
        return Unseen(environments.make(stub_config("Acts-v0"), num_envs, seeds), action_space)

    with pytest.raises(ValueError, match=f"make_environments=.*its action_space is .*{message}"):
        train(Config(savedir=str(tmp_path), **SETTINGS), make_environments=make_environments)

"""--normalize_rewards: by the deviation of discounted returns that a loop over single steps finds."""

import copy
import dataclasses

import numpy as np
import pytest
import torch
from gymnasium import Env, spaces
from gymnasium.wrappers import NormalizeReward
from small_learner import make_batch, make_learner

from monobeast.__main__ import run_command
from monobeast.config import Config
from monobeast.inline_actor import InlineActor
from monobeast.reward_normalizer import RewardNormalizer
from monobeast.rollouts import allocate
from monobeast.runs import bad_batch, checkpoint
from monobeast.training import train

GAMMA = 0.9
CONFIG = Config(
    **{"preset": "classic", "reward_clipping": "none", "discounting": GAMMA, "normalize_rewards": True},
    **{"num_actors": 2, "envs_per_actor": 2, "batch_size": 4, "unroll_length": 3, "device": "cpu"},
)
TAKEN = torch.tensor(True)
TOLERANCE = 1e-10  # relative, of a few hundred float64 terms


class Stream:
    """What one environment answers, step by step: rewards, terminals (lives, too) and ends drawn at random."""

    def __init__(self, seed, offset=0.0):
        self.random, self.offset = np.random.default_rng(seed), offset
        self.was_done = False
        self.is_first, self.returns, self.last = True, [], 0.0  # of x_t; R of all steps that count; the last R

    def next(self):
        """(x_t opens an episode, reward, terminal, done) of one step; does what the normalizer should have done."""
        is_first, is_reset = self.is_first, self.was_done
        reward = 0.0 if is_reset else float(np.float32(self.offset + self.random.normal()))
        is_end = not is_reset and self.random.random() < 0.2
        terminal = is_end and self.random.random() < 0.5 or not is_reset and self.random.random() < 0.1
        if not is_reset:
            self.last = reward + (0.0 if is_first else GAMMA * self.last)
            self.returns.append(self.last)
        if terminal:
            self.last = 0.0
        self.is_first, self.was_done = is_reset, is_end
        return is_first, reward, terminal, is_end


def fill(rollout, streams):
    """A rollout of the next steps of `streams`, keyed by (actor, environment), a column each."""
    T = len(rollout.action)
    rollout.map(torch.Tensor.zero_)
    for column, (key, stream) in enumerate(streams):
        rollout.actor[0, column], rollout.env[0, column] = key
        for t in range(T):
            is_first, reward, terminal, done = stream.next()
            rollout.is_first[t, column], rollout.reward[t, column] = is_first, reward
            rollout.terminal[t, column], rollout.done[t, column] = terminal, done
        rollout.is_first[T, column] = stream.is_first
    return rollout


def make_rollout(num_columns, unroll_length=3):
    return allocate(unroll_length, num_columns, spaces.Discrete(2), spaces.Discrete(2))


def deviation_of(streams):
    returns = np.concatenate([stream.returns for stream in streams])
    return np.sqrt(returns.var() + 1e-8)


@pytest.mark.parametrize("offset", [0.0, 1000.0])
@pytest.mark.parametrize("unroll_length", [1, 3, 7])
@pytest.mark.parametrize("order", [[0, 0], [0, 1], [1, 1, 0]], ids=["one actor twice", "both", "a slot and a half"])
def test_the_deviation_is_that_of_the_discounted_returns_of_all_columns_in_order(order, unroll_length, offset):
    normalizer = RewardNormalizer(CONFIG, torch.device("cpu"))
    streams = {(actor, env): Stream(2 * actor + env, offset) for actor in (0, 1) for env in (0, 1)}
    for _ in range(20):
        batch = make_rollout(2 * len(order), unroll_length)
        for slot, actor in enumerate(order):  # a slot after the other, as they are gathered
            keys = [(actor, 0), (actor, 1)]
            fill(batch.columns(2 * slot, 2 * slot + 2), [(key, streams[key]) for key in keys])
        deviation, seen = normalizer.look(batch)
        normalizer.take(seen, TAKEN)

        assert float(deviation) == float(normalizer.deviation)
        assert float(deviation) == pytest.approx(deviation_of(streams.values()), rel=TOLERANCE)


def test_a_batch_that_is_part_of_a_slot_goes_on_as_the_slot_would():
    config = dataclasses.replace(CONFIG, batch_size=1)
    normalizer, streams = RewardNormalizer(config, torch.device("cpu")), [((1, env), Stream(env)) for env in (0, 1)]
    for _ in range(20):
        slot = fill(make_rollout(2), streams)
        for column in (0, 1):
            _, seen = normalizer.look(slot.columns(column, column + 1))
            normalizer.take(seen, TAKEN)

    expected = deviation_of([stream for _, stream in streams])
    assert float(normalizer.deviation) == pytest.approx(expected, rel=TOLERANCE)


def test_an_actor_that_is_replaced_opens_episodes_of_its_own():
    normalizer, all_streams = RewardNormalizer(CONFIG, torch.device("cpu")), []
    for generation in range(20):  # each is replaced in the middle of an episode
        streams = [Stream(10 * generation + env, offset=5.0) for env in (0, 1)]
        all_streams += streams
        normalizer.take(normalizer.look(fill(make_rollout(2), [((0, i), s) for i, s in enumerate(streams)]))[1], TAKEN)

    assert float(normalizer.deviation) == pytest.approx(deviation_of(all_streams), rel=TOLERANCE)


def test_it_is_gymnasiums_own_but_for_what_that_begins_with():
    rewards = np.random.default_rng(0).normal(2, 3, 2000).astype(np.float32)

    class Rewarding(Env):
        observation_space = action_space = spaces.Discrete(1)
        remaining = iter(rewards)

        def reset(self, **_):
            return 0, {}

        def step(self, action):
            return 0, float(next(self.remaining)), False, False, {}

    wrapped, normalizer = NormalizeReward(Rewarding(), gamma=GAMMA), RewardNormalizer(CONFIG, torch.device("cpu"))
    wrapped.reset()
    for i, part in enumerate(np.split(rewards, 400)):
        rollout = make_rollout(1, unroll_length=len(part)).map(torch.Tensor.zero_)
        rollout.is_first[0] = i == 0
        rollout.reward[:, 0] = torch.from_numpy(part)
        normalizer.take(normalizer.look(rollout)[1], TAKEN)
    for _ in rewards:
        normalized = wrapped.step(0)[1]

    # It starts as if a ten-thousandth of a return of variance 1 had been seen.
    assert float(normalizer.deviation) == pytest.approx(np.sqrt(wrapped.return_rms.var), rel=1e-4)
    assert rewards[-1] / float(normalizer.deviation) == pytest.approx(normalized, rel=1e-4)


def test_before_any_reward_was_seen_it_is_one_and_of_no_reward_at_all_no_division_by_zero():
    normalizer = RewardNormalizer(CONFIG, torch.device("cpu"))
    assert float(normalizer.deviation) == pytest.approx(1.0)

    deviation, seen = normalizer.look(make_rollout(2).map(torch.Tensor.zero_))
    normalizer.take(seen, TAKEN)

    assert float(deviation) == pytest.approx(1e-4)


def test_rewards_are_clipped_first():
    config = dataclasses.replace(CONFIG, reward_clipping="abs_one")
    clipped, plain = RewardNormalizer(config, torch.device("cpu")), RewardNormalizer(CONFIG, torch.device("cpu"))
    rollout = fill(make_rollout(2), [((0, env), Stream(env, offset=2.0)) for env in (0, 1)])

    found, _ = clipped.look(rollout)

    expected, _ = plain.look(rollout._replace(reward=rollout.reward.clamp(-1, 1)))
    assert torch.equal(found, expected) and not torch.equal(found, plain.look(rollout)[0])


@pytest.mark.parametrize("value", [torch.nan, torch.inf, 1e30])
def test_a_batch_that_is_not_taken_leaves_no_trace(value):
    first, second = (RewardNormalizer(CONFIG, torch.device("cpu")) for _ in range(2))
    bad = fill(make_rollout(2), [((0, env), Stream(9)) for env in (0, 1)])
    bad.reward[1, 1] = value
    batches = [fill(make_rollout(2), [((0, env), Stream(env + 2 * i)) for env in (0, 1)]) for i in range(3)]

    for i, batch in enumerate(batches):
        if i == 2:
            first.take(first.look(bad)[1], torch.tensor(False))
        for normalizer in (first, second):
            normalizer.take(normalizer.look(batch)[1], TAKEN)

    torch.testing.assert_close(first.state_dict(), second.state_dict(), rtol=0, atol=0)


def test_with_another_number_of_actors_it_goes_on_from_the_beginning_of_episodes():
    one = RewardNormalizer(CONFIG, torch.device("cpu"))
    one.take(one.look(fill(make_rollout(2), [((0, env), Stream(env)) for env in (0, 1)]))[1], TAKEN)
    same, other = (
        RewardNormalizer(dataclasses.replace(CONFIG, num_actors=number), torch.device("cpu")) for number in (2, 3)
    )

    for normalizer in (same, other):
        normalizer.load_state_dict(one.state_dict())

    assert float(same.deviation) == float(other.deviation) == float(one.deviation)
    torch.testing.assert_close(same.state_dict(), one.state_dict(), rtol=0, atol=0)
    assert not other.state_dict()["returns"].any() and len(other.state_dict()["returns"]) == 6


def make_normalizing(**settings):
    return make_learner(normalize_rewards=True, num_actors=5, envs_per_actor=8, total_steps=10**12, **settings)


@pytest.mark.parametrize("correction", ["vtrace", "none", "one_step", "epsilon"])
@pytest.mark.parametrize("scale", [1.0, 0.5])
def test_an_update_is_that_of_rewards_which_were_normalized_by_hand(scale, correction):
    learner = make_normalizing(reward_scale=scale, correction=correction)
    other = make_learner(total_steps=10**12, correction=correction)
    batch = make_batch()
    batch.reward.copy_(torch.arange(6.0).view(3, 2) - 4)
    batch.is_first[0] = True
    discounting, rewards = 0.99, batch.reward.double().numpy()
    returns = [rewards[0], rewards[1] + discounting * rewards[0]]
    returns.append(rewards[2] + discounting * returns[1])
    deviation = np.sqrt(np.var(returns) + 1e-8)

    learner.update(batch)
    by_hand = batch._replace(reward=(batch.reward / deviation).clamp(-10, 10).float() * scale)
    other.update(by_hand)

    torch.testing.assert_close(learner.network.state_dict(), other.network.state_dict(), rtol=1e-5, atol=1e-7)
    assert learner.reward_deviation == pytest.approx(deviation, rel=1e-12)


@pytest.mark.parametrize("quantity", ["reward", "behavior_params"])
def test_an_update_that_is_left_out_leaves_the_deviation(quantity):
    learner, bad = make_normalizing(), make_batch()
    learner.update(make_batch())
    before = copy.deepcopy(learner.state_dict()["rewards"])
    bad.reward.fill_(7.0)
    getattr(bad, quantity)[1, 1] = torch.nan

    assert not learner.update(bad)["is_good"]

    torch.testing.assert_close(learner.state_dict()["rewards"], before, rtol=0, atol=0)
    assert learner.update(make_batch())["is_good"]


def test_a_learner_goes_on_from_its_state_as_if_it_had_never_stopped():
    one, other = make_normalizing(), make_normalizing()
    one.update(make_batch())
    other.load_state_dict(copy.deepcopy(one.state_dict()))

    for learner in (one, other):
        learner.update(make_batch())

    torch.testing.assert_close(one.state_dict(), other.state_dict(), rtol=0, atol=0)


SETTINGS = {
    **{"env": "stub_environments:Fixed-v0", "env_kwargs": '{"n": 7, "reward": 1000.0}', "normalize_rewards": True},
    **{"num_actors": 0, "num_learner_threads": 1, "seed": 1, "xpid": "run", "total_steps": 400},
}


@pytest.mark.parametrize("num_actors", [0, 1])
def test_a_run_keeps_it_in_its_checkpoint_and_reports_the_games_own_returns(tmp_path, num_actors):
    result = train(Config(**SETTINGS | {"savedir": str(tmp_path), "num_actors": num_actors}))

    assert (result.state, result.mean_episode_return) == ("complete", 7000.0)
    kept = checkpoint.load(result.folder)["learner"]["rewards"]
    assert 1000 < (kept["squares"] / kept["count"]).sqrt() < 2500  # R goes from 1000 to 6800 in every episode


def test_a_bad_update_is_repeated_with_the_deviation_that_it_had(tmp_path, capsys, monkeypatch):
    intact, num_good = InlineActor.get_batch, iter([True, True])

    def spoil(self, timeout_s):
        batch = intact(self, timeout_s)
        if not next(num_good, False):
            batch.behavior_params[2, 1] = torch.nan
        return batch

    monkeypatch.setattr(InlineActor, "get_batch", spoil)
    assert train(Config(**SETTINGS | {"savedir": str(tmp_path), "max_bad_updates": 2})).state == "failed"
    capsys.readouterr()
    path = tmp_path / "run" / bad_batch.FILE_NAME
    kept = bad_batch.load(path, SETTINGS["env"])
    assert 1000 < kept.reward_deviation < 2500

    assert run_command(["replay-update", str(path), "--env", SETTINGS["env"]]) == 1
    assert "first: behavior_params is not finite" in capsys.readouterr().out

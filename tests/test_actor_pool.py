"""Actor processes: nothing lost, nothing learned twice, and dead ones replaced."""

import json
import os
import random
import re
import signal
import time
from multiprocessing.process import BaseProcess

import pytest
import torch
from process_tree import wait_until

from monobeast import environments
from monobeast.actor_pool import ActorPool, ActorsFailed
from monobeast.config import Config
from monobeast.inline_actor import InlineActor
from monobeast.main_script import NO_GUARD_EXIT_CODE
from monobeast.networks import make_network
from monobeast.weights import SharedWeights


def make_pool(kind=ActorPool, env="Counter-v0", env_kwargs='{"terminate_at": 7}', out_log=None, **settings):
    """A pool over a stub environment, not yet entered, and the weights its actors take."""
    defaults = dict(num_actors=2, envs_per_actor=2, batch_size=4, unroll_length=5, num_buffers=5, seed=1)
    config = Config(env=f"stub_environments:{env}", env_kwargs=env_kwargs, network="mlp", **(defaults | settings))
    config = environments.resolve(config)
    # A check would not survive the environments that are to fail in an actor; they have the spaces of Fixed5.
    sound = env if env == "Counter-v0" else "Fixed5-v0"
    spaces = environments.check(Config(env=f"stub_environments:{sound}"))
    torch.manual_seed(0)
    network = make_network(spaces.observation, spaces.action, "mlp", config.use_lstm)
    weights = SharedWeights(network.parameters())
    files = {"out_log": out_log} if kind is ActorPool else {}
    return kind(config, spaces, network.initial_state(1), weights, **files), weights, network


def next_batch(pool, timeout_s=60):
    batch = pool.get_batch(timeout_s)
    assert batch is not None, "no batch came"
    return batch


def turns_until(is_so, limit_s=300):
    """One turn after the other until something is so; whoever waits for ever is found out."""
    deadline = time.monotonic() + limit_s
    while not is_so():
        assert time.monotonic() < deadline, f"not so after {limit_s} s"
        yield


def assert_every_slot_is_in_one_place(pool):
    numbers, num_actors = list(range(pool._config.num_buffers)), pool._config.num_actors
    assert pool.slots == [numbers[actor::num_actors] for actor in range(num_actors)]


class Streams:
    """Follows each environment's rollouts through the batches, and finds what is lost, doubled or mixed up."""

    def __init__(self):
        self.last_rows = {}
        self.num_rollouts = 0
        self.num_restarts = 0

    def follow(self, batch):
        for column in range(batch.num_columns):
            key = int(batch.actor[0, column]), int(batch.env[0, column])
            first = self._row(batch, 0, column)
            assert not batch.behavior_params[:, column].isnan().any()
            is_fresh = first == (0.0, True, 0, 0.0)
            if key in self.last_rows and first != self.last_rows[key]:
                assert is_fresh, f"{key}: {self.last_rows[key]} was followed by {first}"
                self.num_restarts += 1
            observed = batch.observation[:, column, 0]
            steps = observed[1:] - observed[:-1]
            assert (steps[~batch.is_reset[:, column]] == 1).all()
            assert (observed[1:][batch.is_reset[:, column]] == 0).all()
            self.last_rows[key] = self._row(batch, -1, column)
            self.num_rollouts += 1

    @staticmethod
    def _row(batch, t, column):
        return (
            float(batch.observation[t, column, 0]),
            bool(batch.is_first[t, column]),
            int(batch.last_action[t, column]),
            float(batch.last_reward[t, column]),
        )


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"num_actors": 1, "num_buffers": 1, "batch_size": 1, "envs_per_actor": 1},
        {"num_buffers": 2},  # a slot an actor
        {"batch_size": 2, "envs_per_actor": 4},  # the columns of a slot go to two batches
        {"batch_size": 8, "envs_per_actor": 1, "num_buffers": 2},  # a batch holds more slots than there are
        {"num_buffers": 200},  # far more than are under way in a pipe
        {"use_lstm": True},
        pytest.param({"start_method": "spawn", "use_lstm": True}, marks=pytest.mark.slow),
    ],
)
def test_batches_continue_each_environments_stream(settings):
    pool, _, _ = make_pool(**settings)
    streams = Streams()
    with pool:
        for _ in range(40):
            streams.follow(next_batch(pool))
            assert_every_slot_is_in_one_place(pool)

    assert streams.num_restarts == pool.num_restarts == 0
    assert streams.num_rollouts == 40 * pool._config.batch_size
    assert len(streams.last_rows) <= pool._config.num_actors * pool._config.envs_per_actor


def test_rewards_summed_over_all_batches_are_the_rewards_given():
    """Episodes of 7 steps, unrolls of 5: a lost or doubled rollout would show in the sum of the game it belongs to."""
    pool, _, _ = make_pool(env="Fixed-v0", env_kwargs='{"n": 7, "reward": 2.5}')
    sums, num_episodes = {}, 0
    with pool:
        for _ in range(60):
            batch = next_batch(pool)
            for column in range(batch.num_columns):
                key = int(batch.actor[0, column]), int(batch.env[0, column])
                for reward, done, told in zip(
                    batch.reward[:, column], batch.done[:, column], batch.episode_return[:, column], strict=True
                ):
                    sums[key] = sums.get(key, 0.0) + float(reward)
                    if done:
                        assert sums.pop(key) == float(told) == 7 * 2.5
                        num_episodes += 1

    assert num_episodes > 60 * 4 * 5 / 8 - 8  # all but the unfinished ones


def test_rollouts_name_the_version_that_acted():
    pool, weights, network = make_pool(num_buffers=2)
    newest = []
    with pool:
        for _ in range(20):
            batch = next_batch(pool)
            assert (batch.policy_version <= weights.version).all()
            # One slot an actor: a rollout begun after a publication carries that version or a later one.
            newest.append(int(batch.policy_version.max()))
            weights.publish(network.parameters())

    assert newest == sorted(newest) and newest[-1] >= 15


def test_a_slow_learner_takes_from_all_actors_alike():
    pool, weights, network = make_pool(num_actors=3, num_buffers=6, batch_size=2)
    taken, lags = [], []
    with pool:
        for _ in range(30):
            assert wait_until(lambda: all(seat.child.has_reply() for seat in pool._seats))
            batch = next_batch(pool)
            taken.append(int(batch.actor[0, 0]))
            lags.append(weights.version - int(batch.policy_version[0, 0]))
            weights.publish(network.parameters())

    assert {actor: taken.count(actor) for actor in range(3)} == {0: 10, 1: 10, 2: 10}
    assert max(lags[6:]) <= 6  # no rollout is older than the slots there are


def test_a_slow_learner_sees_that_an_actor_hangs(clock):
    """The others always have a batch ready, so it never waits."""
    pool, _, _ = make_pool(num_actors=3, num_buffers=6, batch_size=2, actor_timeout_s=30.0)
    with pool:
        next_batch(pool)
        hung, *lively = pool._seats
        os.kill(hung.child.pid, signal.SIGSTOP)
        for _ in turns_until(lambda: pool.num_restarts == 1):
            assert wait_until(lambda: all(seat.child.has_reply() for seat in lively))
            next_batch(pool)
            clock.tick(2)

        assert hung.child.pid in pool.pids and pool.num_restarts == 1


def test_the_inline_actor_gives_the_same_batches_every_time():
    def collect():
        pool, _, _ = make_pool(InlineActor, num_actors=0)
        with pool:
            return [next_batch(pool).map(torch.clone) for _ in range(5)]

    streams = Streams()
    for one, other in zip(collect(), collect(), strict=True):
        streams.follow(one)
        assert one.core_state == other.core_state == ()
        for name in set(one._fields) - {"core_state"}:
            assert torch.equal(getattr(one, name), getattr(other, name)), name


def test_an_actors_first_batch_depends_on_the_seed_alone():
    def collect(kind, num_actors):
        pool, _, _ = make_pool(kind, num_actors=num_actors, env="RandStart-v0", env_kwargs="{}", batch_size=2)
        with pool:
            return next_batch(pool).map(torch.clone)

    inline, in_a_process = collect(InlineActor, 0), collect(ActorPool, 1)
    for name in set(inline._fields) - {"core_state"}:
        assert torch.equal(getattr(inline, name), getattr(in_a_process, name)), name


def test_an_actor_has_one_thread_of_torch():
    pool, _, _ = make_pool(env="Torch-v0", env_kwargs='{"what": "threads"}')
    with pool:
        batch = next_batch(pool)

    assert (batch.reward[~batch.is_reset] == 1).all()


@pytest.mark.skipif(not hasattr(os, "getpriority"), reason="the system knows no niceness")
@pytest.mark.parametrize("start_method", ["forkserver", pytest.param("spawn", marks=pytest.mark.slow)])
def test_actors_leave_the_cores_to_the_learner(start_method):
    pool, _, _ = make_pool(start_method=start_method)
    learner = os.getpriority(os.PRIO_PROCESS, 0)
    with pool:
        assert wait_until(lambda: all(seat.child.has_reply() for seat in pool._seats))  # each has begun
        niceness = [os.getpriority(os.PRIO_PROCESS, pid) for pid in pool.pids]

    assert niceness == [min(learner + 5, 19)] * 2 and os.getpriority(os.PRIO_PROCESS, 0) == learner


@pytest.mark.skipif(not os.path.isdir("/dev/shm"), reason="no folder shows names of shared memory")
def test_shared_memory_has_no_name_that_could_outlive_the_run():
    pool, weights, _ = make_pool()

    assert pool._store.action.is_shared() and weights._buffers.is_shared()
    assert not [name for name in os.listdir("/dev/shm") if str(os.getpid()) in name]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV])
def test_an_actor_may_die_before_its_first_rollout_and_while_it_waits_for_a_slot(number):
    pool, _, _ = make_pool(num_actors=1, num_buffers=1, batch_size=2)
    streams = Streams()
    with pool:
        os.kill(pool.pids[0], number)
        streams.follow(next_batch(pool))
        assert pool.num_restarts == 1
        time.sleep(0.1)  # it has filled its slot again, and waits
        os.kill(pool.pids[0], number)
        for _ in turns_until(lambda: pool.num_restarts >= 2):
            streams.follow(next_batch(pool))
        streams.follow(next_batch(pool))
        assert_every_slot_is_in_one_place(pool)

    assert streams.num_restarts == 2  # of two environments, once: before its first rollout nothing was seen of it


def test_a_killed_actor_is_replaced_and_no_step_of_the_others_is_lost(caplog):
    pool, _, _ = make_pool(max_actor_restarts=100)
    streams = Streams()
    rng = random.Random(0)
    with pool:
        for kill in range(10):
            for _ in range(rng.randrange(8)):
                streams.follow(next_batch(pool))
            os.kill(pool.pids[rng.randrange(2)], signal.SIGKILL)
            for _ in turns_until(lambda kill=kill: pool.num_restarts > kill):
                streams.follow(next_batch(pool))
            assert_every_slot_is_in_one_place(pool)
        for _ in range(10):
            streams.follow(next_batch(pool))

    assert pool.num_restarts == 10
    assert "killed by SIGKILL" in caplog.messages[0]


def test_a_start_that_fails_is_tried_again(caplog, monkeypatch):
    intact, failures = BaseProcess.start, iter([EOFError("unexpected EOF"), OSError("too many open files")])

    def fail_twice(process):
        for failure in failures:
            raise failure
        intact(process)

    monkeypatch.setattr(BaseProcess, "start", fail_twice)
    pool, _, _ = make_pool()
    with pool:
        next_batch(pool)
        assert_every_slot_is_in_one_place(pool)

    assert pool.num_restarts == 2
    assert "could not be started: EOFError('unexpected EOF')" in caplog.messages[0]


def test_a_failing_environment_is_named_and_replaced_until_the_limit(caplog):
    pool, _, _ = make_pool(env="Boom-v0", env_kwargs='{"k": 12}', max_actor_restarts=3)
    with pool, pytest.raises(ActorsFailed) as failure:
        for _ in turns_until(lambda: False):
            next_batch(pool)

    assert pool.num_restarts == 3
    for text in (*caplog.messages, str(failure.value)):
        assert text.startswith("actor ") and "stub_environments:Boom-v0" in text
        assert "RuntimeError: boom in step 12" in text and "stub_environments.py" in text
    assert "--max_actor_restarts 3" in str(failure.value)
    summary = r"actor \d \(stub_environments:Boom-v0\) ended with an exception: RuntimeError: boom in step 12"
    assert re.fullmatch(summary, failure.value.summary)  # not its cause, whose traceback comes first


@pytest.mark.parametrize("code", [0, 3, NO_GUARD_EXIT_CODE])
def test_an_environment_that_ends_its_process_is_named_with_the_code_and_replaced(caplog, code):
    pool, _, _ = make_pool(env="Vanish-v0", env_kwargs=f'{{"k": 12, "code": {code}}}', num_actors=1, batch_size=2)
    with pool:
        for _ in turns_until(lambda: pool.num_restarts >= 1):
            next_batch(pool)
            assert_every_slot_is_in_one_place(pool)

    assert f"actor 0 (stub_environments:Vanish-v0) exited with code {code}\n" in caplog.messages[0]


@pytest.mark.parametrize(("k", "message"), [(-1, "boom in the constructor"), (0, "boom in reset")])
def test_an_environment_that_cannot_be_made_ends_the_run_at_once(k, message):
    pool, _, _ = make_pool(env="Boom-v0", env_kwargs=f'{{"k": {k}}}')
    with pool, pytest.raises(ActorsFailed, match=message):
        next_batch(pool)

    assert pool.num_restarts == 0


@pytest.mark.parametrize("hold_gil", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_an_environment_that_never_returns_is_replaced_and_its_stack_kept(tmp_path, caplog, clock, hold_gil):
    hung = tmp_path / "hung"
    hung.mkdir()
    env_kwargs = json.dumps({"k": 12, "hold_gil": hold_gil, "hung": str(hung)})
    pool, _, _ = make_pool(env="Hang-v0", env_kwargs=env_kwargs, out_log=tmp_path / "out.log", actor_timeout_s=30.0)
    with pool:
        for _ in turns_until(lambda: pool.num_restarts >= 2):
            pool.get_batch(0.05)
            assert_every_slot_is_in_one_place(pool)
            if all((hung / str(pid)).exists() for pid in pool.pids):
                clock.tick(2)

    assert f"did not answer for 30 s; its stacks are in {tmp_path / 'out.log'}" in caplog.messages[0]
    assert re.search(r'File ".*stub_environments.py", line \d+ in step', (tmp_path / "out.log").read_text())


# 1e39 is one for the environment, and none for the buffers, which are of float32.
@pytest.mark.parametrize(("value", "found"), [("nan", "nan"), ("inf", "inf"), ("1e39", "inf")])
def test_a_number_that_is_not_finite_never_reaches_the_learner(caplog, value, found):
    env_kwargs = f'{{"k": 12, "value": "{value}"}}'
    pool, _, _ = make_pool(env="NaNReward-v0", env_kwargs=env_kwargs, max_actor_restarts=2)
    message = f"environment 0, step 12 of its episode: reward {found} is not finite"
    with pool, pytest.raises(ActorsFailed, match=message):
        for _ in turns_until(lambda: False):
            assert next_batch(pool).reward.isfinite().all()


def test_a_late_look_is_not_held_against_the_actors(clock):
    pool, _, _ = make_pool(actor_timeout_s=60.0)
    with pool:
        next_batch(pool)
        clock.tick(3600)  # as after Ctrl-Z, an hour's pause, and fg
        for _ in range(20):
            next_batch(pool)

    assert pool.num_restarts == 0


@pytest.mark.parametrize("env_kwargs", ['{"k": 12, "hold_gil": true}', '{"k": 100000}'])
def test_no_actor_outlives_the_pool(env_kwargs):
    pool, _, _ = make_pool(env="Hang-v0", env_kwargs=env_kwargs)
    with pool:
        next_batch(pool)
        pids = pool.pids
        time.sleep(0.2)

    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_nothing_comes_in_no_time():
    pool, _, _ = make_pool()
    with pool:
        assert pool.get_batch(0.0) is None
        next_batch(pool)

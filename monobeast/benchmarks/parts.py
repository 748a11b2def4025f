"""What each part of training costs, measured alone: nothing else of the run goes on meanwhile."""

import copy
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from monobeast import seeding, trees
from monobeast.actor import Actor
from monobeast.actor_pool import make_staging
from monobeast.config import Config
from monobeast.environments import VectorEnvironment
from monobeast.learner import Learner, compute_log_rhos, compute_loss, compute_returns, make_optimizer
from monobeast.networks import AgentInput
from monobeast.policy import LocalPolicy
from monobeast.preparation import Run
from monobeast.rollouts import Rollout, allocate
from monobeast.weights import SharedWeights, weights_of

_WARM_UP_CALLS = 3  # the first choose kernels and allocate


class Part(NamedTuple):
    """One part of training, as it is when nothing else runs."""

    name: str
    seconds_per_step: float  # of wall time, for one agent step of one environment
    place: str  # who has the work: "actors", "learner" (its cores) or "GPU"


class Parts(NamedTuple):
    """All that a step costs."""

    summed: list[Part]  # each piece of work once
    update: Part  # an update as a whole, what lies between its parts included; not to be added to them


def measure(run: Run, seconds: float) -> Parts:
    """Measures every part with real environments and a real batch; starts no process.

    Args:
        run: Prepared; its network stays as it is.
        seconds: For each part.
    """
    config = run.config
    weights = SharedWeights(weights_of(run.network))
    # Without actor processes the learner's own has all the work, and all its threads for it.
    actor_threads = 1 if config.num_actors else config.num_learner_threads
    with _threads(actor_threads), _acting(run, weights) as (environment, policy, slot, batch):
        parts = _measure_actor(run, seconds, environment, policy, slot)
        parts.append(_measure_taking(run, seconds, weights, policy))
    with _threads(config.num_learner_threads):
        parts += _measure_learner(run, seconds, batch, slot, weights)
        return Parts(parts, _measure_update(run, seconds, batch))


class Stopwatch:
    """Times calls one by one; on a GPU, until their work there is done.

    Args:
        device: Where the calls compute.
        seconds: That the timed calls may take together; at least one is made.
    """

    def __init__(self, device: str, seconds: float) -> None:
        self._seconds = seconds
        self._synchronize = torch.cuda.synchronize if device != "cpu" else lambda: None

    def time(self, call: Callable[[Any], Any], prepare: Callable[[], Any] = lambda: None) -> list[float]:
        """Seconds of each call of `call(prepare())`, without those of `prepare` and of the first few calls."""
        for _ in range(_WARM_UP_CALLS):
            call(prepare())
        times: list[float] = []
        deadline = time.perf_counter() + self._seconds
        while not times or time.perf_counter() < deadline:
            prepared = prepare()
            self._synchronize()
            start = time.perf_counter()
            call(prepared)
            self._synchronize()
            times.append(time.perf_counter() - start)
        return times

    def median(self, call: Callable[[Any], Any], prepare: Callable[[], Any] = lambda: None) -> float:
        """The median of `time`: a call during which another program had the core does not move it."""
        return statistics.median(self.time(call, prepare))


@contextmanager
def _threads(number: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def _acting(run: Run, weights: SharedWeights) -> Iterator[tuple[VectorEnvironment, LocalPolicy, Rollout, Rollout]]:
    """What one actor has, a slot that it filled, and a batch that is made of such slots."""
    config, spaces = run.config, run.spaces
    seeds = seeding.environment_seeds(config.seed, 0, 0, config.envs_per_actor)
    environment = run.makers.make_environments(config, config.envs_per_actor, seeds)
    try:
        network = copy.deepcopy(run.network).cpu()
        core_state = network.initial_state(1)
        policy = LocalPolicy(network, weights, seeding.sampling_seed(config.seed, 0, 0))
        actor = Actor(environment, policy, index=0)
        sizes = (config.unroll_length, config.envs_per_actor, spaces.observation, spaces.num_actions, core_state)
        slot, staging = allocate(*sizes, is_shared=True), make_staging(config, spaces, core_state)
        while (batch := staging.pop()) is None:
            actor.unroll(slot)
            staging.next_place().copy_(slot)
            staging.commit()
        yield environment, policy, slot, batch
    finally:
        environment.close()


def _measure_actor(
    run: Run, seconds: float, environment: VectorEnvironment, policy: LocalPolicy, slot: Rollout
) -> list[Part]:
    stopwatch, num_envs = Stopwatch("cpu", seconds), run.config.envs_per_actor
    random, num_actions = np.random.default_rng(0), run.spaces.num_actions
    known = slot.observation, slot.is_first, slot.last_action, slot.last_reward
    inputs = AgentInput(*trees.map_leaves(lambda tensor: tensor[:1], known))
    times = stopwatch.time(environment.step, lambda: random.integers(num_actions, size=num_envs))
    act = stopwatch.median(lambda _: policy.act(inputs, slot.core_state))
    return [
        # The mean: a reset is rare and long, and has its share in every step.
        Part("environment", statistics.mean(times) / num_envs, "actors"),
        Part(f"inference, {num_envs} a forward pass", act / num_envs, "actors"),
    ]


def _measure_taking(run: Run, seconds: float, weights: SharedWeights, policy: LocalPolicy) -> Part:
    """At the start of every rollout, if there is a newer version, as there mostly is."""
    config, newest = run.config, weights_of(run.network)
    take = Stopwatch("cpu", seconds).median(lambda _: policy.refresh(), lambda: weights.publish(newest))
    return Part("taking weights", take / (config.unroll_length * config.envs_per_actor), "actors")


def _measure_learner(
    run: Run, seconds: float, batch: Rollout, slot: Rollout, weights: SharedWeights
) -> list[Part]:
    config, device = run.config, run.config.device
    stopwatch = Stopwatch(device, seconds)
    network = copy.deepcopy(run.network)
    optimizer = make_optimizer(list(network.parameters()), config)
    for group in optimizer.param_groups:
        group["lr"] = 0.0  # the same work, and the weights stay as they are
    staging = make_staging(config, run.spaces, network.initial_state(1)).next_place()

    def transfer(_: None) -> Rollout:
        return batch.map(lambda tensor: tensor.to(device))

    there = transfer(None)
    inputs = AgentInput(there.observation, there.is_first, there.last_action, there.last_reward)
    output = network(inputs, there.core_state)
    logits, baseline = output.policy_logits[:-1].detach(), output.baseline.detach()

    def correct(_: None) -> object:
        return compute_returns(there, compute_log_rhos(there, logits), baseline, config)

    def step(_: None) -> None:
        nn.utils.clip_grad_norm_(network.parameters(), config.grad_norm_clipping)
        optimizer.step()

    def make_loss() -> Tensor:
        optimizer.zero_grad()
        return compute_loss(network, there, config).total_loss

    samples, slot_samples = batch.action.numel(), slot.action.numel()
    where = _place_of_update(config)
    update_parts = [
        ("forward", stopwatch.median(lambda _: network(inputs, there.core_state))),
        ("V-trace", stopwatch.median(correct)),
        ("backward", stopwatch.median(lambda loss: loss.backward(), make_loss)),
        ("optimizer", stopwatch.median(step)),
    ]
    assembly = stopwatch.median(lambda _: staging.copy_(slot))
    publishing = stopwatch.median(lambda _: weights.publish(weights_of(network)))
    return [
        Part("batch assembly", assembly / slot_samples, "learner"),
        # On the CPU the batch is where it is needed.
        Part("transfer", stopwatch.median(transfer) / samples if where == "GPU" else 0.0, where),
        *(Part(name, time_of_batch / samples, where) for name, time_of_batch in update_parts),
        Part("publishing weights", publishing / samples, "learner"),
    ]


def _measure_update(run: Run, seconds: float, batch: Rollout) -> Part:
    learner = Learner(copy.deepcopy(run.network), run.config)
    time_of_batch = Stopwatch(run.config.device, seconds).median(lambda _: learner.update(batch))
    return Part("an update as a whole", time_of_batch / batch.action.numel(), _place_of_update(run.config))


def _place_of_update(config: Config) -> str:
    return "learner" if config.device == "cpu" else "GPU"

"""Measures the cost of each part of training alone, with no other part running."""

import copy
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from gymnasium.vector.utils import batch_space
from torch import Tensor, nn

from monobeast import allocator, seeding, trees
from monobeast.actor import Actor
from monobeast.rollout_source import make_staging
from monobeast.config import Config
from monobeast.environments import Spaces, VectorEnvironment
from monobeast.learner import Learner, compute_log_rhos, compute_loss, compute_returns
from monobeast.makers import Makers
from monobeast.networks import AgentInput, Network
from monobeast.optimizers import make_optimizer
from monobeast.policy import LocalPolicy
from monobeast.publisher import make_publisher
from monobeast.rollouts import Rollout, allocate
from monobeast.weights import SharedWeights, weights_of

_WARM_UP_CALLS = 3  # the first choose kernels and allocate


class Subject(NamedTuple):
    """What to measure."""

    config: Config  # resolved
    spaces: Spaces
    network: Network  # on the learner's device; stays as it is
    makers: Makers


class Part(NamedTuple):
    """One part of training, measured alone."""

    name: str
    seconds_per_step: float  # of wall time, for one agent step of one environment
    place: str  # who has the work: "actors", "learner" (its cores), "GPU", or "copies" to the GPU, beside its updates


class Parts(NamedTuple):
    """All costs of a step."""

    summed: list[Part]  # each piece of work once
    update: Part  # an update as a whole: the sum of its pieces, not to be added to them


def measure(subject: Subject, seconds: float) -> Parts:
    """Measures every part with real environments and a real batch; starts no process.

    Args:
        subject: What to measure.
        seconds: For each part.
    """
    config = subject.config
    allocator.keep_freed_memory()  # as a run does
    weights = SharedWeights(weights_of(subject.network))
    # Without actor processes the learner's own has all the work, and all its threads for it.
    actor_threads = 1 if config.num_actors else config.num_learner_threads
    with _threads(actor_threads), _acting(subject, weights) as (environment, policy, slot, batch):
        parts = _measure_actor(subject, seconds, environment, policy, slot)
        parts.append(_measure_taking(subject, seconds, weights, policy))
    with _threads(config.num_learner_threads):
        parts += _measure_learner(subject, seconds, slot)
        pieces, update = _measure_pieces(subject, seconds, batch), _measure_update(subject, seconds, batch)
        if config.device != "cpu":
            parts.append(_measure_launch(subject, seconds, batch))
    left = update.seconds_per_step - sum(piece.seconds_per_step for piece in pieces)
    rest = "forward, losses, backward, checks" if config.compile else "losses, checks, statistics"
    parts += [*pieces, Part(rest, max(0.0, left), update.place)]
    return Parts(parts, update)


def measure_actor(subject: Subject, seconds: float) -> tuple[float, Rollout]:
    """An actor's cost per agent step, in seconds of one core, and a batch that it collected.

    Args:
        subject: What to measure.
        seconds: For the environments, and again for the forward passes.
    """
    weights = SharedWeights(weights_of(subject.network))
    with _threads(1), _acting(subject, weights) as (environment, policy, slot, batch):
        parts = _measure_actor(subject, seconds, environment, policy, slot)
    return sum(part.seconds_per_step for part in parts), batch


def measure_update(subject: Subject, seconds: float, batch: Rollout) -> tuple[float, float]:
    """An update's cost per agent step: seconds of wall time on its device, and of the learner's core to publish.

    Args:
        subject: What to measure.
        seconds: For updates, and for publishing.
        batch: Of `measure_actor`.
    """
    allocator.keep_freed_memory()
    with _threads(subject.config.num_learner_threads):
        update = _measure_update(subject, seconds, batch).seconds_per_step
    return update, _measure_publishing(subject, seconds) / batch.num_steps


class Stopwatch:
    """Times single calls; on a GPU, until their work there is done.

    Args:
        device: Where the calls compute.
        seconds: Total time for the timed calls; at least one is made.
        until_done: If False, work is only launched on the idle GPU, and its end is not waited for.
    """

    def __init__(self, device: str, seconds: float, until_done: bool = True) -> None:
        self._seconds = seconds
        self._until_done = until_done
        self._synchronize = (lambda: torch.cuda.synchronize(device)) if device != "cpu" else lambda: None

    def time(self, call: Callable[[Any], Any], prepare: Callable[[], Any] = lambda: None) -> list[float]:
        """Seconds of each `call(prepare())`, without the time of `prepare` and the first few calls."""
        for _ in range(_WARM_UP_CALLS):
            call(prepare())
        times: list[float] = []
        deadline = time.perf_counter() + self._seconds
        while not times or time.perf_counter() < deadline:
            prepared = prepare()
            self._synchronize()
            start = time.perf_counter()
            call(prepared)
            if self._until_done:
                self._synchronize()
            times.append(time.perf_counter() - start)
        return times

    def median(self, call: Callable[[Any], Any], prepare: Callable[[], Any] = lambda: None) -> float:
        """The median of `time`, which ignores calls during which another program had the core."""
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
def _acting(
    subject: Subject, weights: SharedWeights
) -> Iterator[tuple[VectorEnvironment, LocalPolicy, Rollout, Rollout]]:
    """One actor's parts, a slot that it filled, and a batch made of such slots."""
    config, spaces = subject.config, subject.spaces
    seeds = seeding.environment_seeds(config.seed, 0, 0, config.envs_per_actor)
    environment = subject.makers.make_environments(config, config.envs_per_actor, seeds)
    try:
        network = copy.deepcopy(subject.network).cpu()
        core_state = network.initial_state(1)
        policy = LocalPolicy(network, weights, seeding.sampling_seed(config.seed, 0, 0))
        actor = Actor(environment, policy, index=0)
        sizes = (config.unroll_length, config.envs_per_actor, spaces.observation, spaces.action, core_state)
        slot, staging = allocate(*sizes, is_shared=True), make_staging(config, spaces, core_state)
        while (batch := staging.pop()) is None:
            actor.unroll(slot)
            staging.put(slot)
        yield environment, policy, slot, batch
    finally:
        environment.close()


def _measure_actor(
    subject: Subject, seconds: float, environment: VectorEnvironment, policy: LocalPolicy, slot: Rollout
) -> list[Part]:
    stopwatch, num_envs = Stopwatch("cpu", seconds), subject.config.envs_per_actor
    actions = batch_space(subject.spaces.action, num_envs)
    actions.seed(0)
    inputs = AgentInput(*trees.map_leaves(lambda tensor: tensor[:1], slot.inputs))
    times = stopwatch.time(environment.step, actions.sample)
    act = stopwatch.median(lambda _: policy.act(inputs, slot.core_state))
    return [
        # The mean: a reset is rare and long, and has its share in every step.
        Part("environment", statistics.mean(times) / num_envs, "actors"),
        Part(f"inference, {num_envs} a forward pass", act / num_envs, "actors"),
    ]


def _measure_taking(subject: Subject, seconds: float, weights: SharedWeights, policy: LocalPolicy) -> Part:
    """Copying the weights, at the start of each rollout with a newer version; usually there is one."""
    config, newest = subject.config, weights_of(subject.network)
    take = Stopwatch("cpu", seconds).median(lambda _: policy.refresh(), lambda: weights.publish(newest))
    return Part("taking weights", take / (config.unroll_length * config.envs_per_actor), "actors")


def _measure_learner(subject: Subject, seconds: float, slot: Rollout) -> list[Part]:
    """The work of the learner's process around an update."""
    staging = make_staging(subject.config, subject.spaces, subject.network.initial_state(1))

    def assemble() -> None:
        staging.put(slot)
        while staging.pop() is not None:
            pass

    assembly = Stopwatch("cpu", seconds).median(lambda _: assemble())
    publishing = _measure_publishing(subject, seconds)
    samples = subject.config.batch_size * subject.config.unroll_length
    return [
        Part("batch assembly", assembly / slot.num_steps, "learner"),
        Part("publishing weights", publishing / samples, "learner"),
    ]


def _measure_publishing(subject: Subject, seconds: float) -> float:
    """Seconds of the learner's core per version; does not wait for a GPU that copies by itself."""
    newest = weights_of(subject.network)
    publisher = make_publisher(SharedWeights(newest), subject.config)
    return Stopwatch("cpu", seconds).median(lambda _: publisher.publish(newest))


def _measure_pieces(subject: Subject, seconds: float, batch: Rollout) -> list[Part]:
    """The large pieces of an update; compiled, forward pass and loss are one program, which has none."""
    config, device = subject.config, subject.config.device
    stopwatch = Stopwatch(device, seconds)
    network = copy.deepcopy(subject.network)
    optimizer = make_optimizer(list(network.parameters()), config)
    for group in optimizer.param_groups:
        group["lr"] = 0.0  # the same work, and the weights stay as they are

    def transfer(_: None) -> Rollout:
        return batch.map(lambda tensor: tensor.to(device))

    there = transfer(None)
    output = network(there.inputs, there.core_state)
    params, baseline = output.policy_params[:-1].detach(), output.baseline.detach()
    log_prob = network.distribution.log_prob

    def correct(_: None) -> object:
        behavior, target = log_prob(there.behavior_params, there.action), log_prob(params, there.action)
        return compute_returns(there, compute_log_rhos(there, behavior, target), target, baseline, config)

    def step(_: None) -> None:
        nn.utils.clip_grad_norm_(network.parameters(), config.grad_norm_clipping)
        optimizer.step()

    def make_loss() -> Tensor:
        optimizer.zero_grad()
        return compute_loss(network, there, config).total_loss

    make_loss().backward()  # for the optimizer's step
    # On the CPU the batch is where it is needed.
    times = {"transfer": 0.0 if device == "cpu" else stopwatch.median(transfer)}
    if not config.compile:
        times |= {
            "forward": stopwatch.median(lambda _: network(there.inputs, there.core_state)),
            "V-trace": stopwatch.median(correct),
            "backward": stopwatch.median(lambda loss: loss.backward(), make_loss),
        }
    times["optimizer"] = stopwatch.median(step)
    where = dict.fromkeys(times, _place_of_update(config)) | {"transfer": "learner" if device == "cpu" else "copies"}
    return [Part(name, time_of_batch / batch.num_steps, where[name]) for name, time_of_batch in times.items()]


def _measure_launch(subject: Subject, seconds: float, batch: Rollout) -> Part:
    """The learner core's time to launch an update on its GPU."""
    learner = Learner(copy.deepcopy(subject.network), subject.config)
    stopwatch = Stopwatch(subject.config.device, seconds, until_done=False)
    return Part("launching an update", stopwatch.median(lambda _: learner.update(batch)) / batch.num_steps, "learner")


def _measure_update(subject: Subject, seconds: float, batch: Rollout) -> Part:
    learner = Learner(copy.deepcopy(subject.network), subject.config)
    time_of_batch = Stopwatch(subject.config.device, seconds).median(lambda _: learner.update(batch))
    return Part("an update as a whole", time_of_batch / batch.num_steps, _place_of_update(subject.config))


def _place_of_update(config: Config) -> str:
    return "learner" if config.device == "cpu" else "GPU"

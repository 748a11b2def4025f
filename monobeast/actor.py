"""One actor: take the newest weights, unroll T steps into a slot, send its number, repeat."""

import pickle
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from monobeast import child_setup, seeding, trees
from monobeast.config import Config
from monobeast.environments import EnvStep, Spaces, VectorEnvironment
from monobeast.makers import Makers
from monobeast.networks import AgentInput
from monobeast.policy import LocalPolicy
from monobeast.queues import FilledSlot, MessageQueue, last_words
from monobeast.rollouts import Rollout
from monobeast.weights import SharedWeights

# Where cores are short the learner comes first: on two, up to 17 % more steps a second (docs/performance.md).
_NICENESS = 5


class Actor:
    """Steps E environments with a policy, and records every step.

    Args:
        environment: E environments, not reset yet.
        policy: Chooses the actions.
        index: This actor's number, recorded in every rollout.
    """

    def __init__(self, environment: VectorEnvironment, policy: LocalPolicy, index: int) -> None:
        self._environment = environment
        self._policy = policy
        self._index = index
        num_envs = environment.num_envs
        # x_t and what led to it: the last row of one rollout, kept to open the next.
        self._last_step: EnvStep = environment.reset()
        action_space = environment.action_space
        self._last_action = np.zeros((num_envs, *action_space.shape), action_space.dtype)
        self._core_state = policy.initial_state(num_envs)

    def unroll(self, slot: Rollout) -> None:
        """Fills a slot of E columns with the next T transitions, all under one version of the weights."""
        rows = slot.map(Tensor.numpy)  # the same memory; NumPy's assignments cost a fraction of torch's
        rows.policy_version[0] = self._policy.refresh()
        rows.actor[0] = self._index
        rows.env[0] = np.arange(self._environment.num_envs)
        for kept, state in zip(slot.core_state, self._core_state, strict=True):
            kept.copy_(state)
        unroll_length = slot.action.shape[0]
        for t in range(unroll_length):
            self._record_input(rows, t)
            decision = self._policy.act(_input_at(slot, t), self._core_state)
            self._core_state = decision.core_state
            self._last_action = rows.action[t] = decision.action.numpy()
            rows.behavior_params[t] = decision.params.numpy()
            self._last_step = self._environment.step(self._last_action)
            self._record_answer(rows, t)
        self._record_input(rows, unroll_length)  # x_T, which only bootstraps

    def get_state(self) -> dict[str, Any]:
        """The state between two unrolls, for `set_state`: arrays, tensors and plain values, not copied."""
        return {
            "environment": self._environment.get_state(),
            "last_step": self._last_step._asdict(),
            "last_action": self._last_action,
            "core_state": self._core_state,
            "policy": self._policy.get_state(),
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Restores the `get_state` of an actor with the same settings."""
        self._environment.set_state(state["environment"])
        self._last_step = EnvStep(**state["last_step"])
        self._last_action, self._core_state = state["last_action"], state["core_state"]
        self._policy.set_state(state["policy"])

    def close(self) -> None:
        """Closes the environments."""
        self._environment.close()

    def _record_input(self, rows: Rollout, t: int) -> None:
        trees.map_leaves(lambda kept, seen: kept.__setitem__(t, seen), rows.observation, self._last_step.observation)
        rows.is_first[t] = self._last_step.is_first
        rows.last_action[t] = self._last_action
        rows.last_reward[t] = self._last_step.reward

    def _record_answer(self, rows: Rollout, t: int) -> None:
        rows.reward[t] = self._last_step.reward
        rows.terminal[t] = self._last_step.terminal
        rows.done[t] = self._last_step.done
        rows.episode_return[t] = self._last_step.episode_return
        rows.episode_length[t] = self._last_step.episode_length


def _input_at(slot: Rollout, t: int) -> AgentInput:
    """The network's input for x_t, [1, E, ...]: views of the slot, so that each observation is copied only once."""
    now = slice(t, t + 1)
    observation = trees.map_leaves(lambda part: part[now], slot.observation)
    return AgentInput(observation, slot.is_first[now], slot.last_action[now], slot.last_reward[now])


class ActorTask(NamedTuple):
    """Everything an actor process needs; pickled on the way there, with tensors as shared memory."""

    config: Config
    spaces: Spaces
    index: int
    generation: int  # how many actors of this index came before; a replacement gets seeds of its own
    weights: SharedWeights
    out_log: Path | None = None  # where the actor's stacks go when asked for
    makers: bytes | Makers = Makers()  # pickled by themselves for a process, which can then say what is amiss with them


def make_actor(task: ActorTask) -> Actor:
    """Makes one actor, with its environments, network and policy, each with its own seed."""
    makers = pickle.loads(task.makers) if isinstance(task.makers, bytes) else task.makers
    config, seed = task.config, task.config.seed
    seeds = seeding.environment_seeds(seed, task.index, task.generation, config.envs_per_actor)
    with ExitStack() as undone:
        environment = makers.make_environments(config, config.envs_per_actor, seeds)
        undone.callback(environment.close)
        network = makers.make_network(config, task.spaces)
        sampling_seed = seeding.sampling_seed(seed, task.index, task.generation)
        actor = Actor(environment, LocalPolicy(network, task.weights, sampling_seed), task.index)
        undone.pop_all()  # its own `close` closes them from here on
        return actor


def run_actor(task: ActorTask, store: Rollout, free_queue: MessageQueue, full_queue: MessageQueue) -> None:
    """Entry point of an actor process: fills slots of `store` until the learner closes the free queue."""
    if task.out_log is not None:
        child_setup.write_stacks_when_asked(task.out_log)
    # Else networks that draw numbers would draw the same in all actors.
    torch.manual_seed(seeding.actor_seed(task.config.seed, task.index, task.generation))
    torch.set_num_threads(1)  # actors share the cores; a thread pool each would be many times slower
    child_setup.let_others_go_first(_NICENESS)
    actor = None
    try:
        actor = make_actor(task)
        columns = task.config.envs_per_actor
        asked_at = time.perf_counter()
        while isinstance(slot := free_queue.get(), int):
            began_at = time.perf_counter()
            actor.unroll(store.columns(slot * columns, (slot + 1) * columns))
            ended_at = time.perf_counter()
            if not full_queue.put(FilledSlot(slot, asked_at, began_at, ended_at)):
                break
            asked_at = ended_at
    except BaseException:  # an environment may also call sys.exit
        full_queue.put(last_words(was_ready=actor is not None))
        raise SystemExit(1) from None
    finally:
        if actor is not None:
            actor.close()

"""The record that actors write and the learner reads; one type serves as shared store, slot and batch."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import torch
from torch import Tensor

from monobeast import trees
from monobeast.distributions import for_space
from monobeast.networks import AgentInput
from monobeast.trees import Tree


class Rollout(NamedTuple):
    """T transitions of B trajectories, and the T+1 observations around them.

    Trajectories are axis 1 in every field, so that `columns` selects a slot of the store as well as its place in a
    batch; time, if any, is axis 0. x_T only bootstraps, and is x_0 of the same actor's next rollout.
    """

    observation: Tree  # [T+1, B, ...], the space's dtype: x_t; of a Dict or Tuple space, a tree of such tensors
    is_first: Tensor  # bool [T+1, B]: x_t opens an episode
    last_action: Tensor  # as action, [T+1, B, ...]: what led to x_t
    last_reward: Tensor  # float32 [T+1, B]: what led to x_t, unclipped
    action: Tensor  # int64 [T, B], int64 [T, B, K] or float32 [T, B, D]: a_t, drawn from mu(.|x_t)
    behavior_params: Tensor  # float32 [T, B, P]: the very parameters of the distribution that a_t was drawn from
    reward: Tensor  # float32 [T, B]: r_t, the answer to a_t, unclipped
    terminal: Tensor  # bool [T, B]: nothing after a_t has value
    done: Tensor  # bool [T, B]: a_t ended the episode, by termination or by truncation
    episode_return: Tensor  # float64 [T, B]: of the game, unclipped; read only where done
    episode_length: Tensor  # int64 [T, B]: agent steps of the game; read only where done
    core_state: tuple[Tensor, ...]  # float32, each [L, B, H]: recurrent state before x_0
    policy_version: Tensor  # int64 [1, B]: version of the weights that acted
    actor: Tensor  # int64 [1, B]: which actor wrote this column
    env: Tensor  # int64 [1, B]: in which of its environments

    @property
    def num_columns(self) -> int:
        """Number of trajectories, B."""
        return self.action.shape[1]

    @property
    def num_steps(self) -> int:
        """Number of steps, T * B."""
        return self.reward.numel()

    @property
    def inputs(self) -> AgentInput:
        """The agent's inputs at x_0 .. x_T."""
        return AgentInput(self.observation, self.is_first, self.last_action, self.last_reward)

    @property
    def is_reset(self) -> Tensor:
        """bool [T, B]: the environment ignored a_t and returned the first observation of an episode.

        Unlike in the paper, rollouts include these steps (Gymnasium's next-step autoreset); nothing may be learned from
        their actions.
        """
        return self.is_first[1:]  # x_1 .. x_T: what a_0 .. a_{T-1} led to

    def map(self, function: Callable[[Tensor], Tensor]) -> "Rollout":
        """A rollout of `function(tensor)` for every tensor, including those of `observation` and `core_state`."""
        return Rollout(*trees.map_leaves(function, tuple(self)))

    def named_tensors(self) -> dict[str, Tensor]:
        """Every tensor by the name of its field, with an index if the field has several: `core_state[0]`."""
        return trees.name_fields(self)

    def columns(self, start: int, stop: int) -> "Rollout":
        """A view of the trajectories from `start` to `stop`, exclusive."""
        return self.map(lambda tensor: tensor[:, start:stop])

    def copy_(self, source: "Rollout") -> None:
        """Copies every tensor of `source` into this rollout's.

        Raises:
            ValueError: a tensor's shape differs; nothing broadcasts.
        """

        def copy(target: Tensor, origin: Tensor) -> None:
            if target.shape != origin.shape:
                name = next(name for name, tensor in self.named_tensors().items() if tensor is target)
                raise ValueError(f"{name}: expected shape {tuple(target.shape)}, found {tuple(origin.shape)}")
            target.copy_(origin)

        trees.map_leaves(copy, tuple(self), tuple(source))


def allocate(
    unroll_length: int,
    num_columns: int,
    observation_space: gymnasium.Space,
    action_space: gymnasium.Space,
    core_state: tuple[Tensor, ...] = (),
    is_shared: bool = False,
    is_pinned: bool = False,
) -> Rollout:
    """Allocates memory for `num_columns` trajectories of `unroll_length` steps.

    Floats are filled with NaN and signed integers with their minimum, so that reads of unwritten memory show.

    Args:
        unroll_length: T.
        num_columns: B.
        observation_space: Of one environment; gives shape and dtype of the observation or its parts.
        action_space: As seen by agents; gives the action's shape and dtype, and P.
        core_state: With any number of columns; gives L and H.
        is_shared: Whether processes started later can share the memory.
        is_pinned: Whether the memory is pinned, so that a GPU can copy it by itself.
    """
    T, B = unroll_length, num_columns
    parts, distribution = trees.of_space(observation_space), for_space(action_space)
    action_shape, action_dtype = distribution.action_shape, distribution.action_dtype
    rollout = Rollout(
        observation=trees.map_leaves(lambda part: torch.empty(T + 1, B, *part.shape, dtype=_torch_dtype(part)), parts),
        is_first=torch.empty(T + 1, B, dtype=torch.bool),
        last_action=torch.empty(T + 1, B, *action_shape, dtype=action_dtype),
        last_reward=torch.empty(T + 1, B),
        action=torch.empty(T, B, *action_shape, dtype=action_dtype),
        behavior_params=torch.empty(T, B, distribution.num_params),
        reward=torch.empty(T, B),
        terminal=torch.empty(T, B, dtype=torch.bool),
        done=torch.empty(T, B, dtype=torch.bool),
        episode_return=torch.empty(T, B, dtype=torch.float64),
        episode_length=torch.empty(T, B, dtype=torch.int64),
        core_state=tuple(torch.empty(state.shape[0], B, state.shape[2]) for state in core_state),
        policy_version=torch.empty(1, B, dtype=torch.int64),
        actor=torch.empty(1, B, dtype=torch.int64),
        env=torch.empty(1, B, dtype=torch.int64),
    )
    if is_shared:  # before it is filled: what nobody has written to takes no room while it moves
        rollout = rollout.map(Tensor.share_memory_)
    if is_pinned:
        rollout = rollout.map(Tensor.pin_memory)
    return rollout.map(_fill_conspicuously)


def _torch_dtype(space: gymnasium.Space) -> torch.dtype:
    """The torch dtype of the same size for a space's NumPy dtype."""
    return torch.from_numpy(np.empty(0, dtype=space.dtype)).dtype


def _fill_conspicuously(tensor: Tensor) -> Tensor:
    if tensor.dtype.is_floating_point:
        return tensor.fill_(float("nan"))
    if tensor.dtype.is_signed:
        return tensor.fill_(torch.iinfo(tensor.dtype).min)
    return tensor.zero_()


class BatchStaging:
    """Gathers slots of E columns into batches of B; E divides B or B divides E.

    A slot is copied to its place in one or several batches as soon as it arrives, so it need not wait for others.
    Batches are contiguous, as a GPU needs to copy them by itself. The memory is not shared: only the learner's process
    uses it.
    """

    def __init__(self, batches: list[Rollout]) -> None:
        """Takes memory for batches, to be filled in turn, with at least E columns in all."""
        self._batches = batches
        self._batch_size = batches[0].num_columns
        self._filled = 0  # columns written, since the first
        self._taken = 0  # columns given out in batches

    def put(self, slot: Rollout) -> None:
        """Copies a slot; invalidates earlier batches in the same memory."""
        assert not self.is_whole, "a batch was to be taken before the next slot"
        end = self._filled + slot.num_columns
        self._write(self._filled, end, slot)
        self._filled = end  # once all of it is there: a stop may come amid a copy

    @property
    def is_whole(self) -> bool:
        """Whether `pop` has a complete batch."""
        return self._filled - self._taken >= self._batch_size

    def pop(self) -> Rollout | None:
        """The next complete batch, valid until its memory is filled again; None if there is none."""
        if not self.is_whole:
            return None
        (batch,) = self._views(self._taken, self._taken + self._batch_size)
        self._taken += self._batch_size
        return batch

    def get_state(self) -> dict[str, Any]:
        """The columns not yet given out, as plain values and tensors, for `set_state`."""
        laps = self._taken // (self._batch_size * len(self._batches))  # which do not matter any more
        taken, filled = (count - laps * self._batch_size * len(self._batches) for count in (self._taken, self._filled))
        views = [self._batches[0].columns(0, 0), *self._views(taken, filled)]
        waiting = Rollout(*trees.map_leaves(lambda *parts: torch.cat(parts, dim=1), *map(tuple, views)))
        return {"taken": taken, "filled": filled, "waiting": waiting._asdict()}

    def set_state(self, state: dict[str, Any]) -> None:
        """Restores the `get_state` of a staging of the same sizes."""
        self._taken, self._filled = state["taken"], state["filled"]
        self._write(self._taken, self._filled, Rollout(**state["waiting"]))

    def _write(self, start: int, end: int, source: Rollout) -> None:
        """Copies `source` to the columns from `start` to `end`."""
        done = 0
        for view in self._views(start, end):
            view.copy_(source.columns(done, done + view.num_columns))
            done += view.num_columns

    def _views(self, start: int, end: int) -> Iterator[Rollout]:
        """The parts of batches in which the columns from `start` to `end` lie."""
        while start < end:
            number, first = divmod(start, self._batch_size)
            last = min(first + end - start, self._batch_size)
            yield self._batches[number % len(self._batches)].columns(first, last)
            start += last - first

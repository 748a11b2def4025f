"""Finds numbers that are not finite, on the device and before they reach the weights, and names them."""

from typing import NamedTuple

import torch
from torch import Tensor

from monobeast import trees
from monobeast.networks import AgentOutput
from monobeast.rollouts import Rollout
from monobeast.trees import Tree

# In the order in which one leads to the next. Observations and rewards are checked by the actor as well.
_PER_STEP = ("reward", "behavior_params", "policy_params", "baseline")  # after the observation's parts
_OF_THE_UPDATE = ("total_loss", "grad_norm")
_NO_FAULT = -1


class Fault(NamedTuple):
    """The first quantity of an update that is not finite."""

    quantity: str
    actor: int | None  # None for a quantity of the whole batch
    env: int | None
    t: int | None  # step within the rollout

    def __str__(self) -> str:
        if self.actor is None:
            return f"{self.quantity} is not finite"
        return f"{self.quantity} is not finite, first in actor {self.actor}, environment {self.env}, t = {self.t}"


class FaultRecord:
    """What was found in the updates so far; it stays on the device, so that keeping it waits for nothing.

    Args:
        device: That of the updates.
    """

    def __init__(self, device: torch.device) -> None:
        self._num_bad = torch.zeros((), dtype=torch.int64, device=device)
        self._in_a_row = torch.zeros_like(self._num_bad)
        self._longest_row = torch.zeros_like(self._num_bad)  # since the last `pop`
        self._last = torch.full((4,), _NO_FAULT, dtype=torch.int64, device=device)
        self._last_bad_update = torch.zeros_like(self._num_bad)
        self._names = quantities()  # of the last batch

    def add(self, update: int, fault: Tensor, observation: Tree) -> None:
        """Counts an update, of this number from 1, of which `locate` found `fault`."""
        is_bad = fault[0] != _NO_FAULT
        self._num_bad += is_bad
        self._in_a_row = torch.where(is_bad, self._in_a_row + 1, 0)
        self._longest_row = torch.maximum(self._longest_row, self._in_a_row)
        self._last = torch.where(is_bad, fault, self._last)
        self._last_bad_update = torch.where(is_bad, update, self._last_bad_update)
        self._names = quantities(observation)

    @property
    def num_bad(self) -> int:
        """Updates with a fault. Waits for the device."""
        return int(self._num_bad)

    @property
    def last_bad_update(self) -> int:
        """Number of the last update with a fault, from 1; 0 before the first. Waits for the device."""
        return int(self._last_bad_update)

    @property
    def num_in_a_row(self) -> int:
        """Updates with a fault since the last without. Waits for the device."""
        return int(self._in_a_row)

    def pop(self) -> tuple[Fault | None, int]:
        """The last fault since the last call, and how many updates in a row had one at most. Waits for the device."""
        fault, longest_row = describe(self._last, self._names), int(self._longest_row)
        self._last = torch.full_like(self._last, _NO_FAULT)
        self._longest_row = self._in_a_row
        return fault, longest_row

    def restore(self, num_bad: int | None = None, num_in_a_row: int | None = None) -> None:
        """Goes on from these counts."""
        for count, value in ((self._num_bad, num_bad), (self._in_a_row, num_in_a_row)):
            if value is not None:
                count.fill_(value)


def quantities(observation: Tree = None) -> tuple[str, ...]:
    """Names of the quantities that `locate` checks, for these observation parts; without an argument, for one part."""
    return (*trees.name_leaves(observation, "observation"), *_PER_STEP, *_OF_THE_UPDATE)


def locate(rollout: Rollout, output: AgentOutput, total_loss: Tensor, grad_norm: Tensor) -> Tensor:
    """Locates the first number of an update that is not finite, without waiting for the device.

    Args:
        rollout: The batch, on the device.
        output: The network's output for it.
        total_loss: float32 [].
        grad_norm: float32 [].

    Returns:
        int64 [4]: index of the quantity, or -1 if all are finite; actor; environment; t. Read it with `describe`.
    """
    values = [*trees.leaves(rollout.observation), rollout.reward, rollout.behavior_params]
    values += [output.policy_params, output.baseline]
    places = [_first(value, rollout) for value in values if value.is_floating_point()]
    numbers = [i for i, value in enumerate(values) if value.is_floating_point()]
    nowhere = torch.full_like(places[0][1], -1)
    places += [(~value.isfinite(), nowhere) for value in (total_loss, grad_norm)]
    numbers += range(len(values), len(values) + len(_OF_THE_UPDATE))
    fault = torch.cat([nowhere.new_full((1,), _NO_FAULT), nowhere])
    for number, (is_bad, place) in reversed(list(zip(numbers, places, strict=True))):
        found = torch.cat([nowhere.new_full((1,), number), place])
        fault = torch.where(is_bad, found, fault)
    return fault


def describe(fault: Tensor, names: tuple[str, ...] = quantities()) -> Fault | None:
    """Reads the result of `locate`; None if all numbers are finite. Waits for the device.

    Args:
        fault: The result of `locate`.
        names: The result of `quantities`, for such observations.
    """
    number, *place = fault.tolist()
    if number == _NO_FAULT:
        return None
    actor, env, t = (None if part < 0 else part for part in place)
    return Fault(names[number], actor, env, t)


def _first(value: Tensor, rollout: Rollout) -> tuple[Tensor, Tensor]:
    """Whether any of [T or T+1, B, ...] is not finite, bool []; actor, environment and t of the first, int64 [3]."""
    is_bad = ~value.isfinite()
    while is_bad.dim() > 2:
        is_bad = is_bad.any(-1)
    flat = is_bad.flatten()  # the earliest step first
    index = flat.byte().argmax()
    num_columns = rollout.num_columns
    column = (index % num_columns).reshape(1)  # a tensor as an index into another would be waited for
    who = [rollout.actor[0].index_select(0, column), rollout.env[0].index_select(0, column)]
    return flat.any(), torch.cat([*who, (index // num_columns).reshape(1)])

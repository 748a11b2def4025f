"""Checks the user's own network with one step and one unroll, before anything starts.

Every fault is a ValueError that says what was found and what is expected.
"""

import copy
from typing import Any

import numpy as np
import torch
from gymnasium.spaces import Space
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from monobeast import trees
from monobeast.distributions import Categorical, Distribution
from monobeast.networks.agent import AgentInput
from monobeast.networks.own import OwnNetwork
from monobeast.user_code import attempt, kind_of

_B = 2
_STEP, _UNROLL = 1, 3  # T, as an actor has it and as the learner has it; neither is B
_LARGEST = 1e3  # of an observation that is made up: a space may go to 3e38, a game does not


def check(network: OwnNetwork, observation_space: Space) -> None:
    """Runs the network for one step, as an actor does, and for one unroll, as the learner does.

    Raises:
        ValueError: it is not a torch module, lacks a method or raises in one; a shape or dtype is wrong, or a number is
            not finite; it has no trainable parameters, or state that would not reach the actors.
    """
    module = network.module
    if not isinstance(module, nn.Module):
        raise ValueError(f"gave {kind_of(module)}: must be a torch.nn.Module")
    _check_weights(module)
    initial_state = _check_initial_state(module)
    buffers = {name: buffer.clone() for name, buffer in module.named_buffers()}
    with torch.no_grad():  # not inference_mode, whose tensors could not be learned with, should the module keep any
        inputs = make_inputs(observation_space, network.distribution, _STEP)
        _check_output(network, inputs, initial_state)
    inputs = make_inputs(observation_space, network.distribution, _UNROLL)
    policy_params, *_ = _check_output(network, inputs, initial_state)
    if not policy_params.requires_grad:
        raise ValueError(f"{network.distribution.params_name} carry no gradient: nothing could be learned")
    _check_buffers(module, buffers)


def make_inputs(observation_space: Space, distribution: Distribution, num_steps: int) -> AgentInput:
    """Made-up inputs for `num_steps` steps of two columns, always the same; the first step opens an episode."""
    space = copy.deepcopy(observation_space)
    space.seed(0)
    samples = [space.sample() for _ in range(num_steps * _B)]
    shape = num_steps, _B
    stacked = trees.map_leaves(_stack, trees.of_space(space), *samples)
    return AgentInput(
        observation=trees.map_leaves(lambda part: part.unflatten(0, shape), stacked),
        is_first=torch.arange(num_steps).eq(0).unsqueeze(1).expand(shape).clone(),
        last_action=_sample_actions(distribution, num_steps * _B).unflatten(0, shape),
        last_reward=torch.ones(shape),
    )


def _sample_actions(distribution: Distribution, number: int) -> Tensor:
    return distribution.sample(torch.zeros(number, distribution.num_params), torch.Generator().manual_seed(0))


def _stack(space: Space, *samples: Any) -> Tensor:
    """Samples of one part as [N, ...], of the space's dtype."""
    stacked = np.stack([np.asarray(sample, space.dtype) for sample in samples])
    return torch.from_numpy(stacked.clip(-_LARGEST, _LARGEST) if stacked.dtype.kind == "f" else stacked)


def _check_weights(module: nn.Module) -> None:
    if not any(parameter.requires_grad for parameter in module.parameters()):
        raise ValueError("has no parameters that learn")
    for name, parameter in module.named_parameters():
        if is_lazy(parameter):
            raise ValueError(f"parameter {name} is of a lazy layer: must have its shape from the start")
        if parameter.dtype != torch.float32 or parameter.device.type != "cpu":
            found = f"{_dtype(parameter)} on {parameter.device}"
            raise ValueError(f"parameter {name} is {found}: must be float32 on cpu, from where the learner takes it")
        if not parameter.isfinite().all():
            raise ValueError(f"parameter {name} is not finite")
    for name, value in module.state_dict().items():
        if not isinstance(value, Tensor):
            raise ValueError(f"its state_dict has {kind_of(value)} as {name}: must hold tensors alone")


def _check_buffers(module: nn.Module, before: dict[str, Tensor]) -> None:
    for name, buffer in module.named_buffers():
        if name not in before or not torch.equal(buffer, before[name]):
            reason = "actors get the parameters alone, and theirs would stay as it was"
            raise ValueError(f"forward changes the buffer {name}: {reason}; LayerNorm has none, where BatchNorm does")


def _check_initial_state(module: nn.Module) -> tuple[Tensor, ...]:
    if not callable(getattr(module, "initial_state", None)):
        raise ValueError("has no method initial_state(batch_size)")
    call = f"initial_state({_B})"
    state = attempt(call, lambda: module.initial_state(_B))
    if not isinstance(state, tuple):
        raise ValueError(f"{call} gave {kind_of(state)}: must be a tuple of tensors, empty without a state")
    for i, part in enumerate(state):
        if not isinstance(part, Tensor) or part.dtype != torch.float32 or part.ndim != 3 or part.shape[1] != _B:
            raise ValueError(f"{call}[{i}] is {_describe(part)}: must be float32 [L, {_B}, H]")
    return state


def _check_output(network: OwnNetwork, inputs: AgentInput, initial_state: tuple[Tensor, ...]) -> tuple[Any, ...]:
    """Calls `forward`, checks the output and returns it."""
    num_steps = len(inputs.is_first)
    forward = f"with T = {num_steps}, B = {_B}, forward"
    output = attempt(forward, lambda: network.unroll(inputs, initial_state))
    name, num_params = network.distribution.params_name, network.distribution.num_params
    _check_parts(output, len(initial_state), name)
    policy_params, baseline, core_state = output
    dtypes = {torch.float32} | ({torch.bfloat16} if network.precision == "bfloat16" else set())
    legend = "[T, B, A]" if isinstance(network.distribution, Categorical) else "[T, B, P]"
    _check_tensor(f"{forward}'s {name}", policy_params, dtypes, (num_steps, _B, num_params), legend)
    _check_tensor(f"{forward}'s baseline", baseline, dtypes, (num_steps, _B), "[T, B]")
    for i, (part, before) in enumerate(zip(core_state, initial_state, strict=True)):
        _check_tensor(f"{forward}'s core_state[{i}]", part, dtypes, tuple(before.shape), "as initial_state gives it")
    return output


def _check_parts(output: Any, num_states: int, name: str) -> None:
    if not isinstance(output, tuple) or len(output) != 3 or not isinstance(output[2], tuple):
        found = f"({', '.join(map(kind_of, output))})" if isinstance(output, tuple) else kind_of(output)
        raise ValueError(f"forward gave {found}: must be ({name}, baseline, core_state), the last a tuple")
    if len(output[2]) != num_states:
        raise ValueError(f"forward's core_state has length {len(output[2])}: must be {num_states}, as initial_state's")


def _check_tensor(what: str, value: Any, dtypes: set[torch.dtype], shape: tuple[int, ...], legend: str) -> None:
    if not isinstance(value, Tensor) or value.dtype not in dtypes or value.shape != shape:
        raise ValueError(f"{what} is {_describe(value)}: must be float32 {list(shape)}, {legend}")
    if not value.isfinite().all():
        raise ValueError(f"{what} is not finite")


def _describe(value: Any) -> str:
    return f"{_dtype(value)} {list(value.shape)}" if isinstance(value, Tensor) else kind_of(value)


def _dtype(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")

"""PyTorch's optimizers with state from the start, and without importing PyTorch's compiler."""

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from monobeast.config import Config


def make_optimizer(parameters: list[nn.Parameter], config: Config) -> Optimizer:
    """An optimizer whose state exists from the start, so that even the first update can be undone."""
    return {"adam": _make_adam, "rmsprop": _make_rmsprop}[config.optimizer](parameters, config)


def _make_adam(parameters: list[nn.Parameter], config: Config) -> Optimizer:
    make, on_device = _uncompiled(torch.optim.Adam), _counts_on_device(parameters)
    optimizer = make(parameters, lr=config.learning_rate, eps=config.epsilon, capturable=on_device)
    for parameter in parameters:
        moments = {name: torch.zeros_like(parameter) for name in ("exp_avg", "exp_avg_sq")}
        optimizer.state[parameter] = {"step": _zero(parameter), **moments}  # as torch would make it at the first step
    return optimizer


def _make_rmsprop(parameters: list[nn.Parameter], config: Config) -> Optimizer:
    """RMSProp in PyTorch's form, whose average of squared gradients starts at `rmsprop_start`.

    Starting at 0, the first steps are up to 1 / sqrt(1 - alpha) times the learning rate, ten times by default, and may
    destroy features before they are used. Starting at 1, as in TensorFlow and so in the paper, steps are small at first
    and grow while the average falls to the size of the gradients.
    """
    make, on_device = _uncompiled(torch.optim.RMSprop), _counts_on_device(parameters)
    rates = {"lr": config.learning_rate, "alpha": config.alpha, "momentum": config.momentum, "eps": config.epsilon}
    optimizer = make(parameters, **rates, capturable=on_device)
    for parameter in parameters:
        state = {"step": _zero(parameter), "square_avg": torch.full_like(parameter, config.rmsprop_start)}
        if config.momentum > 0:
            state["momentum_buffer"] = torch.zeros_like(parameter)
        optimizer.state[parameter] = state  # as torch would make it at the first step
    return optimizer


def load(optimizer: Optimizer, state: dict[str, Any]) -> None:
    """Goes on from the moments of a state, which may be of another device; rates and the like stay the optimizer's."""
    groups = [
        present | {"params": saved["params"]}
        for saved, present in zip(state["param_groups"], optimizer.param_groups, strict=True)
    ]
    optimizer.load_state_dict(state | {"param_groups": groups})


def _counts_on_device(parameters: list[nn.Parameter]) -> bool:
    """Whether step counts are on the parameters' device: needed on a GPU to undo a step without waiting for it."""
    return parameters[0].device.type != "cpu"


def _zero(parameter: nn.Parameter) -> Tensor:
    return torch.zeros((), device=parameter.device)


def _uncompiled(kind: type[Optimizer]) -> Callable[..., Optimizer]:
    """Makes optimizers that do not import PyTorch's compiler, which takes a second and 60 MB."""
    methods = inspect.getmembers(kind, inspect.isfunction)
    bare = {name: inspect.unwrap(method) for name, method in methods if hasattr(method, "__wrapped__")}
    return type(kind.__name__, (kind,), bare | {"step": torch.no_grad()(inspect.unwrap(kind.step))})

"""Plain values: the types that a checkpoint may hold so that it opens without running code."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

_ARRAY = "__array__"  # the only key of a dict that stands for an array or a scalar of NumPy's


def pack(value: Any, name: str = "state") -> Any:
    """A copy of `value` made only of plain values and tensors, sharing no memory with it.

    Args:
        value: None, bool, int, float, str, NumPy arrays and scalars, tensors, and lists, tuples and dicts of those.
        name: Its name in messages.

    Raises:
        ValueError: it contains something else; the message says where and what.
    """
    if value is None or type(value) in (bool, int, float, str):
        return value
    if isinstance(value, Tensor):
        return value.detach().cpu().clone()
    if isinstance(value, (np.ndarray, np.generic)):
        return {_ARRAY: _to_tensor(value, name)}
    if type(value) in (list, tuple):
        return type(value)(pack(each, f"{name}[{i}]") for i, each in enumerate(value))
    if type(value) is dict and all(type(key) in (int, str) for key in value):
        return {key: pack(each, f"{name}[{key!r}]") for key, each in value.items()}
    wanted = "None, bool, int, float, str, an array, a tensor, or a list, tuple or dict of those"
    raise ValueError(f"{name} is of type {type(value).__name__}: must be {wanted}")


def unpack(value: Any) -> Any:
    """Restores a copy of what `pack` packed, with arrays as arrays and tensors as tensors on the CPU."""
    if isinstance(value, Tensor):
        return value.clone()
    if type(value) is dict:
        if list(value) == [_ARRAY]:
            return value[_ARRAY].numpy().copy()[()]  # a scalar where there is no axis
        return {key: unpack(each) for key, each in value.items()}
    if type(value) in (list, tuple):
        return type(value)(unpack(each) for each in value)
    return value


def _to_tensor(value: Any, name: str) -> Tensor:
    try:
        return torch.from_numpy(np.array(value))  # np.array copies
    except TypeError:
        raise ValueError(f"{name} is an array of {value.dtype}: torch has no such type") from None

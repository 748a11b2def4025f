"""One-hot encoding of several choices at once."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F


def encode(choices: Tensor, sizes: Sequence[int]) -> Tensor:
    """Each choice one-hot, one after the other: int64 [..., K], the k-th from 0 to sizes[k] - 1, to [..., sum(sizes)].

    Raises:
        ValueError: the number of sizes is not K.
    """
    columns = zip(choices.unbind(-1), sizes, strict=True)
    return torch.cat([F.one_hot(column, size) for column, size in columns], dim=-1)

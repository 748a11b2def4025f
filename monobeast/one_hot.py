"""One-hot encoding of several choices at once."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F


def encode(choices: Tensor, sizes: Sequence[int]) -> Tensor:
    """Concatenated one-hot vectors of K choices: int64 [..., K], choice k in 0..sizes[k]-1, to [..., sum(sizes)].

    Raises:
        ValueError: the number of sizes is not K.
    """
    columns = zip(choices.unbind(-1), sizes, strict=True)
    return torch.cat([F.one_hot(column, size) for column, size in columns], dim=-1)

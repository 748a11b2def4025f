"""Running count, mean and variance of numbers that arrive in batches."""

from typing import NamedTuple, Self

import torch
from torch import Tensor


class Moments(NamedTuple):
    """The moments of all numbers so far, float64.

    Sums of squares lose all precision for numbers far from zero: the squares of 1e6 and its neighbors differ only in
    their last digits. So these are squared deviations from the mean, and batches are merged as in Chan, Golub and
    LeVeque, "Updating Formulae and a Pairwise Algorithm for Computing Sample Variances" (1979).
    """

    count: Tensor  # []
    mean: Tensor  # [...]
    squares: Tensor  # [...]: sum of the squared deviations from the mean

    @classmethod
    def of_nothing(cls, *shape: int, device: torch.device | str = "cpu") -> Self:
        """Moments of no numbers, for numbers of this shape; the mean is 0."""
        zeros = torch.zeros(shape, dtype=torch.float64, device=device)
        return cls(torch.zeros((), dtype=torch.float64, device=device), zeros, zeros.clone())

    @property
    def variance(self) -> Tensor:
        """float64 [...]: the mean squared deviation; 1 without numbers."""
        return torch.where(self.count > 0, self.squares / self.count.clamp(min=1), 1.0)

    def merged(self, values: Tensor, mask: Tensor | None = None) -> Self:
        """Moments of these numbers and `values` together; does not wait for the device.

        Args:
            values: [N, ...], of any dtype.
            mask: bool [N]: True where a row counts; None: all count.
        """
        values = values.double()
        weights = values.new_ones(len(values)) if mask is None else mask.double()
        count = weights.sum()
        columns = weights.reshape(-1, *[1] * (values.ndim - 1))  # [N, 1, ...]
        values = values.masked_fill(columns == 0, 0.0)  # NaN where it does not count does no harm
        mean = values.sum(0) / count.clamp(min=1)
        squares = ((values - mean).square() * columns).sum(0)
        total, difference = self.count + count, mean - self.mean
        share = count / total.clamp(min=1)
        new_mean = self.mean + difference * share
        return type(self)(total, new_mean, self.squares + squares + difference.square() * self.count * share)

    def or_else(self, other: "Moments", is_taken: Tensor | bool) -> "Moments":
        """These if `is_taken`, bool [], is true and all numbers are finite, else `other`. Does not wait for the
        device."""
        is_sound = is_taken & self.mean.isfinite().all() & self.squares.isfinite().all()
        return Moments(*(torch.where(is_sound, new, old) for new, old in zip(self, other, strict=True)))

"""Moments of batches, against NumPy's of all numbers at once, in float64."""

import numpy as np
import pytest
import torch

from monobeast.moments import Moments

TOLERANCE = {"rtol": 1e-12, "atol": 0.0}  # of a few thousand float64 terms; the largest error seen was 4e-15 relative
SIZES = (1, 7, 100, 1, 999)


def merge_all(batches, masks=None):
    moments = Moments.of_nothing(*batches[0].shape[1:])
    for i, batch in enumerate(batches):
        moments = moments.merged(batch, None if masks is None else masks[i])
    return moments


def make_batches(offset, spread, dtype=torch.float64):
    generator = torch.Generator().manual_seed(0)
    return [(offset + spread * torch.randn(n, 3, generator=generator, dtype=torch.float64)).to(dtype) for n in SIZES]


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
@pytest.mark.parametrize(("offset", "spread"), [(0.0, 1.0), (-3.0, 1e-3), (100.0, 50.0)])
def test_moments_of_batches_are_those_of_all_numbers(offset, spread, dtype):
    batches = make_batches(offset, spread, dtype)

    moments = merge_all(batches)

    together = torch.cat(batches).double().numpy()
    assert moments.count == sum(SIZES)
    np.testing.assert_allclose(moments.mean, together.mean(0), **TOLERANCE | {"atol": 1e-12})
    np.testing.assert_allclose(moments.variance, together.var(0), **TOLERANCE)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_far_from_zero_nothing_is_lost(dtype):
    batches = make_batches(1e6, 1.0, dtype)

    moments = merge_all(batches)

    together = torch.cat(batches).double().numpy()
    np.testing.assert_allclose(moments.variance, together.var(0), rtol=1e-9)
    np.testing.assert_allclose(moments.mean, together.mean(0), rtol=1e-14)


@pytest.mark.parametrize("value", [0.0, 0.1, 1e6 + 0.1, -1e100])
def test_a_constant_has_no_variance(value):
    moments = merge_all([torch.full((n, 2), value, dtype=torch.float64) for n in SIZES])

    np.testing.assert_allclose(moments.mean, value, rtol=1e-14)
    np.testing.assert_allclose(moments.variance.sqrt(), 0, atol=abs(value) * 1e-14)


def test_rows_that_do_not_count_have_no_part_whatever_they_hold():
    batches = make_batches(2.0, 1.0)
    masks = [torch.arange(n) % 3 != 1 for n in SIZES]
    counted = torch.cat([batch[mask] for batch, mask in zip(batches, masks, strict=True)]).numpy()
    for batch, mask in zip(batches, masks, strict=True):
        batch[~mask] = torch.nan

    moments = merge_all(batches, masks)

    assert moments.count == len(counted)
    np.testing.assert_allclose(moments.mean, counted.mean(0), **TOLERANCE)
    np.testing.assert_allclose(moments.variance, counted.var(0), **TOLERANCE)


def test_of_nothing_the_variance_is_one_and_a_batch_of_nothing_changes_nothing():
    nothing, some = Moments.of_nothing(2), Moments.of_nothing(2).merged(torch.tensor([[1.0, 2.0], [3.0, 2.0]]))

    assert nothing.mean.tolist() == [0, 0] and nothing.variance.tolist() == [1, 1]
    for moments in (nothing, some):
        again = moments.merged(torch.ones(3, 2), torch.zeros(3, dtype=torch.bool))
        assert all(map(torch.equal, again, moments))


def test_everything_is_float64():
    assert {tensor.dtype for tensor in Moments.of_nothing(3).merged(torch.ones(2, 3))} == {torch.float64}


@pytest.mark.parametrize(
    ("value", "is_taken", "changes"),
    [(1.0, True, True), (1.0, False, False), (np.nan, True, False), (1e200, True, False)],
)
def test_numbers_that_are_not_taken_or_not_finite_leave_what_was(value, is_taken, changes):
    before = Moments.of_nothing(1).merged(torch.tensor([[0.5]]))
    after = before.merged(torch.tensor([[value]], dtype=torch.float64)).or_else(before, torch.tensor(is_taken))

    assert (after.count == 2) == changes and (after.mean == before.mean).all() != changes

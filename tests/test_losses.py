"""Each loss by value and by a gradient derived by hand; float64, within rounding (1e-12)."""

import math
import re
from functools import partial

import pytest
import torch

from monobeast import losses
from monobeast.distributions import Categorical

INFINITY = float("inf")

tensor64 = partial(torch.tensor, dtype=torch.float64)
assert_close = partial(torch.testing.assert_close, rtol=1e-12, atol=1e-12)


def random_logits(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64).requires_grad_()


def policy_gradient_loss(logits, actions, advantages):
    return losses.compute_policy_gradient_loss(Categorical(logits.shape[-1]).log_prob(logits, actions), advantages)


def entropy_loss(logits, mask=None):
    return losses.compute_entropy_loss(Categorical(logits.shape[-1]).entropy(logits), mask)


def gradient(loss, of):
    return torch.autograd.grad(loss, of)[0]


def test_policy_gradient_loss_weighs_negative_log_probs():
    logits = tensor64([[[0.25, 0.75], [0.5, 0.5]]]).log()  # [1, 2, 2]
    loss = policy_gradient_loss(logits, torch.tensor([[0, 1]]), tensor64([[3.0, -2.0]]))
    assert_close(loss, tensor64(3 * math.log(4) - 2 * math.log(2)))


def test_policy_gradient_is_softmax_minus_one_hot_times_advantage():
    """Section 4.2."""
    logits, advantages = random_logits(3, 2, 4), random_logits(3, 2, seed=1)
    actions = torch.tensor([[0, 1], [2, 3], [3, 0]])
    loss = policy_gradient_loss(logits, actions, advantages)
    # d/dz_i of -log softmax(z)_a = softmax(z)_i - [i = a]
    one_hot = torch.nn.functional.one_hot(actions, 4)
    assert_close(gradient(loss, logits), (logits.softmax(-1) - one_hot) * advantages.detach()[..., None])


def test_no_gradient_flows_into_the_advantages():
    logits, advantages = random_logits(3, 2, 4), random_logits(3, 2, seed=1)
    policy_gradient_loss(logits, torch.zeros(3, 2, dtype=torch.int64), advantages).backward()
    assert logits.grad is not None and advantages.grad is None


def test_baseline_loss_is_half_the_sum_of_squares():
    baseline, vs = tensor64([[1.0, 2.0], [3.0, 4.0]]).requires_grad_(), tensor64([[0.0, 4.0], [3.0, 1.0]])
    loss = losses.compute_baseline_loss(vs - baseline)
    assert_close(loss, tensor64((1 + 4 + 0 + 9) / 2))
    assert_close(gradient(loss, baseline), (baseline - vs).detach())  # the factor 1/2 cancels the 2


@pytest.mark.parametrize(
    "logits, loss",
    [
        ([0.0, 0.0, 0.0, 0.0], -math.log(4)),
        ([1e4, 0.0, 0.0, 0.0], 0.0),
        ([0.0, 0.0, -INFINITY, -INFINITY], -math.log(2)),
        ([math.log(3), 0.0], 0.75 * math.log(0.75) + 0.25 * math.log(0.25)),
        ([7.0], 0.0),
    ],
)
def test_entropy_loss_is_the_negative_entropy(logits, loss):
    assert_close(entropy_loss(tensor64(logits)), tensor64(loss))


def test_entropy_gradient():
    logits = random_logits(3, 2, 4)
    loss = entropy_loss(logits)
    # d/dz_i of sum_j p_j log p_j = p_i (log p_i - sum_j p_j log p_j)
    probs, log_probs = logits.softmax(-1), logits.log_softmax(-1)
    negative_entropies = (probs * log_probs).sum(-1, keepdim=True)
    assert_close(gradient(loss, logits), probs * (log_probs - negative_entropies))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_logit_of_minus_infinity_leaves_the_entropy_of_the_others(dtype):
    some = torch.tensor([0.3, -1.2, 2.0], dtype=dtype, requires_grad=True)
    with_one_more = torch.cat([some.detach(), torch.tensor([-INFINITY], dtype=dtype)]).requires_grad_()
    loss, loss_with_one_more = entropy_loss(some), entropy_loss(with_one_more)
    torch.testing.assert_close(loss_with_one_more, loss)
    expected = torch.cat([gradient(loss, some), torch.zeros(1, dtype=dtype)])
    torch.testing.assert_close(gradient(loss_with_one_more, with_one_more), expected)


def test_masked_elements_have_no_part_in_the_entropy():
    logits = random_logits(3, 2, 4)
    mask = torch.tensor([[True, False], [True, True], [False, False]])
    loss = entropy_loss(logits, mask)
    assert_close(loss, entropy_loss(logits[mask]))
    of_all = gradient(entropy_loss(logits), logits)
    assert_close(gradient(loss, logits), of_all * mask[..., None])


@pytest.mark.parametrize("shape", [(), (6,), (3, 2), (1, 3, 2)])
def test_losses_are_sums_over_any_leading_shape(shape):
    """Appendix D.1."""
    size = math.prod(shape)
    logits, advantages, actions = random_logits(6, 4)[:size], random_logits(6, seed=1)[:size], torch.arange(size) % 4
    shaped = logits.reshape(*shape, 4), actions.reshape(shape), advantages.reshape(shape)
    one_by_one = sum(map(policy_gradient_loss, logits, actions, advantages))
    assert_close(policy_gradient_loss(*shaped), one_by_one)
    assert_close(losses.compute_baseline_loss(shaped[2]), sum(map(losses.compute_baseline_loss, advantages)))
    assert_close(entropy_loss(shaped[0]), sum(map(entropy_loss, logits)))


@pytest.mark.parametrize("shape", [(5, 1), (), (3, 5)])
def test_policy_gradient_loss_refuses_what_does_not_fit(shape):
    message = rf"advantages: expected shape \[5, 3\] for these action_log_probs, found {re.escape(str(list(shape)))}"
    with pytest.raises(ValueError, match=message):
        losses.compute_policy_gradient_loss(torch.zeros(5, 3), torch.zeros(shape))


@pytest.mark.parametrize(
    "mask, message",
    [
        (torch.ones(3, 5, dtype=torch.bool), r"mask: expected shape \[5, 3\] .*, found \[3, 5\]"),
        (torch.ones(5, 3), "mask: expected dtype torch.bool, found torch.float32"),
    ],
)
def test_entropy_loss_refuses_a_mask_that_does_not_fit(mask, message):
    with pytest.raises(ValueError, match=message):
        losses.compute_entropy_loss(torch.zeros(5, 3), mask)

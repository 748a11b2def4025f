"""What policies' parameters stand for, against torch.distributions and against sums over all actions."""

import math

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete, MultiBinary, MultiDiscrete
from torch import distributions as reference

from monobeast.distributions import LOG_STD_RANGE, Categorical, DiagonalGaussian, MultiCategorical, for_space

# In float64: sums of a few terms of size 1.
TOLERANCE = {"rtol": 1e-12, "atol": 1e-12}
SIZES = [3, 1, 2]
KINDS = {
    "categorical": (Categorical(4), lambda params: reference.Categorical(logits=params)),
    "gaussian": (
        DiagonalGaussian([True, True]),
        lambda params: reference.Independent(reference.Normal(params[..., :2], params[..., 2:].exp()), 1),
    ),
}
GAUSSIAN = DiagonalGaussian([True, True])
DISTRIBUTIONS = [Categorical(4), Categorical(1), MultiCategorical(SIZES), MultiCategorical([2]), GAUSSIAN]
everywhere = pytest.mark.parametrize("distribution", DISTRIBUTIONS, ids=lambda each: type(each).__name__)


def draw(distribution, *shape, seed=1, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, distribution.num_params, generator=generator, dtype=dtype)


def actions_for(distribution, *shape):
    return distribution.sample(draw(distribution, math.prod(shape), dtype=torch.float32)).unflatten(0, shape)


@everywhere
@pytest.mark.parametrize("shape", [(1, 1), (5, 3)])
def test_shapes_and_dtypes_are_those_that_are_said(distribution, shape):
    params, action = draw(distribution, *shape, dtype=torch.float32), actions_for(distribution, *shape)

    for each in (action, distribution.mode(params)):
        assert each.shape == (*shape, *distribution.action_shape) and each.dtype == distribution.action_dtype
    assert distribution.encode(action).shape == (*shape, distribution.num_features)
    for each in (
        distribution.log_prob(params, action),
        distribution.entropy(params),
        distribution.kl_divergence(params, draw(distribution, *shape, seed=2, dtype=torch.float32)),
    ):
        assert each.shape == shape and each.dtype == torch.float32
    assert distribution.center(params).shape[:-1] == shape


@pytest.mark.parametrize("name", KINDS)
def test_it_is_that_of_torch(name):
    distribution, make = KINDS[name]
    params, others = (draw(distribution, 5, 3, seed=seed).tanh() for seed in (1, 2))
    action = actions_for(distribution, 5, 3)
    one, other = make(params), make(others)

    torch.testing.assert_close(distribution.log_prob(params, action), one.log_prob(action), **TOLERANCE)
    torch.testing.assert_close(distribution.entropy(params), one.entropy(), **TOLERANCE)
    divergence = reference.kl_divergence(one, other)
    torch.testing.assert_close(distribution.kl_divergence(params, others), divergence, **TOLERANCE)


def test_several_choices_are_one_choice_of_all_their_combinations():
    distribution = MultiCategorical([2, 3])
    params, others, action = (draw(distribution, 5, 3, seed=seed) for seed in (1, 2, 3))
    action = distribution.sample(action.flatten(0, 1)).unflatten(0, (5, 3))
    joint, of_others = ((each[..., :2, None] + each[..., None, 2:]).flatten(-2) for each in (params, others))
    one, index = Categorical(6), 3 * action[..., 0] + action[..., 1]

    torch.testing.assert_close(distribution.log_prob(params, action), one.log_prob(joint, index), **TOLERANCE)
    torch.testing.assert_close(distribution.entropy(params), one.entropy(joint), **TOLERANCE)
    divergence = one.kl_divergence(joint, of_others)
    torch.testing.assert_close(distribution.kl_divergence(params, others), divergence, **TOLERANCE)
    mode = distribution.mode(params)
    assert torch.equal(3 * mode[..., 0] + mode[..., 1], joint.argmax(-1))


@everywhere
def test_a_policy_has_no_distance_from_itself_and_some_from_another(distribution):
    params, others = draw(distribution, 7), draw(distribution, 7, seed=2)
    divergence = distribution.kl_divergence(params, others)

    assert distribution.kl_divergence(params, params).abs().max() < 1e-12
    assert (divergence > 1e-3).all() or distribution.num_params == 1


@everywhere
def test_log_probabilities_are_of_the_samples(distribution):
    """By the law of large numbers: -log pi of samples is the entropy on average, within five standard errors."""
    params = draw(distribution, 1).expand(20_000, -1)
    samples = distribution.sample(params, torch.Generator().manual_seed(5)).to(distribution.action_dtype)
    surprises = -distribution.log_prob(params, samples)

    tolerance = 5 * (surprises.std() / math.sqrt(len(surprises))).item() + 1e-12
    torch.testing.assert_close(surprises.mean(), distribution.entropy(params[0]), rtol=0, atol=tolerance)


@everywhere
def test_the_same_seed_draws_the_same_and_another_another(distribution):
    params = draw(distribution, 50)
    first, again, other = (distribution.sample(params, torch.Generator().manual_seed(seed)) for seed in (1, 1, 2))

    assert torch.equal(first, again)
    assert not torch.equal(first, other) or distribution.num_params == 1


def test_a_categorical_draws_what_it_always_drew():
    logits = draw(Categorical(4), 50, dtype=torch.float32)
    expected = torch.multinomial(logits.softmax(-1), 1, generator=torch.Generator().manual_seed(1)).squeeze(-1)

    assert torch.equal(Categorical(4).sample(logits, torch.Generator().manual_seed(1)), expected)


@everywhere
def test_the_gradient_of_the_log_probability_is_that_of_finite_differences(distribution):
    params = draw(distribution, 2, 3).requires_grad_()
    action = actions_for(distribution, 2, 3)

    assert torch.autograd.gradcheck(lambda params: distribution.log_prob(params, action), params)
    assert torch.autograd.gradcheck(distribution.entropy, params)


def test_the_score_of_a_gaussian_is_the_one_derived_by_hand():
    """d log N / d mean = (a - mean) / std^2, and d log N / d log std = ((a - mean) / std)^2 - 1."""
    params = torch.tensor([0.5, math.log(2.0)], dtype=torch.float64, requires_grad=True)

    DiagonalGaussian([True]).log_prob(params, torch.tensor([3.5])).backward()

    torch.testing.assert_close(params.grad, torch.tensor([3 / 4, (3 / 2) ** 2 - 1], dtype=torch.float64), **TOLERANCE)


def test_a_standard_deviation_counts_as_the_nearest_in_its_range():
    distribution, (low, high) = DiagonalGaussian([True]), LOG_STD_RANGE
    params = torch.tensor([[0.0, low - 3], [0.0, high + 3]], dtype=torch.float64, requires_grad=True)
    expected = distribution.entropy(torch.tensor([[0.0, low], [0.0, high]], dtype=torch.float64))

    entropies = distribution.entropy(params)
    entropies.sum().backward()

    torch.testing.assert_close(entropies, expected, **TOLERANCE)
    assert not params.grad.any()
    samples = distribution.sample(params.detach()[:1].expand(1000, -1), torch.Generator().manual_seed(1))
    assert math.exp(low) / 2 < samples.std() < 2 * math.exp(low)


def test_an_action_that_is_not_allowed_has_no_share_in_entropy_and_gradient():
    params = torch.tensor([0.0, 0.0, -math.inf, 1.0, 2.0], dtype=torch.float64, requires_grad=True)
    distribution = MultiCategorical([3, 2])

    entropy = distribution.entropy(params)
    entropy.backward()

    expected = math.log(2) + Categorical(2).entropy(params[3:]).item()
    assert entropy.item() == pytest.approx(expected, abs=1e-12)
    assert params.grad.isfinite().all() and params.grad[2] == 0


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@everywhere
def test_parameters_of_16_bits_are_computed_in_float32(distribution, dtype):
    params, action = draw(distribution, 5, dtype=dtype), actions_for(distribution, 5)

    for found, expected in (
        (distribution.log_prob(params, action), distribution.log_prob(params.float(), action)),
        (distribution.entropy(params), distribution.entropy(params.float())),
        (distribution.kl_divergence(params, -params), distribution.kl_divergence(params.float(), -params.float())),
    ):
        assert found.dtype == torch.float32 and torch.equal(found, expected)


def test_a_network_is_told_of_choices_one_by_one_and_of_numbers_up_to_a_size():
    assert MultiCategorical([3, 2]).encode(torch.tensor([2, 0])).tolist() == [0, 0, 1, 1, 0]
    assert DiagonalGaussian([True, True, True]).encode(torch.tensor([0.5, -70.0, 70.0])).tolist() == [0.5, -5.0, 5.0]


def test_a_gaussian_knows_which_of_its_numbers_have_two_bounds():
    low, high = np.array([-1, -np.inf, 0], np.float32), np.array([1, np.inf, np.inf], np.float32)

    assert for_space(Box(low, high)).is_bounded == [True, False, False]


def test_the_center_ignores_a_shift_of_all_logits_and_the_deviations():
    choices, numbers = MultiCategorical([2, 3]), DiagonalGaussian([True, True])
    params = draw(choices, 4)
    shifted = params + torch.tensor([1.0, 1.0, -2.0, -2.0, -2.0])

    torch.testing.assert_close(choices.center(shifted), choices.center(params), **TOLERANCE)
    assert torch.equal(numbers.center(draw(numbers, 4)), draw(numbers, 4)[:, :2])


@pytest.mark.parametrize(
    ("space", "kind", "num_params", "action_shape"),
    [
        (Discrete(4), Categorical, 4, ()),
        (MultiDiscrete([3, 2]), MultiCategorical, 5, (2,)),
        (MultiDiscrete([7]), MultiCategorical, 7, (1,)),
        (Box(-1, 1, (3,), np.float32), DiagonalGaussian, 6, (3,)),
    ],
    ids=str,
)
def test_a_space_has_its_distribution(space, kind, num_params, action_shape):
    distribution = for_space(space)

    assert type(distribution) is kind
    assert (distribution.num_params, distribution.action_shape) == (num_params, action_shape)
    assert torch.from_numpy(np.asarray(space.sample())).dtype == distribution.action_dtype


@pytest.mark.parametrize(
    "space",
    [
        *(Discrete(4, start=1), MultiDiscrete([[3, 2]]), MultiDiscrete([3, 2], start=[1, 0]), MultiBinary(3)),
        *(Box(-1, 1, ()), Box(-1, 1, (2, 2)), Box(-1, 1, (3,), np.float64), Box(0, 9, (3,), np.int64)),
    ],
    ids=str,
)
def test_a_space_that_agents_do_not_see_is_refused(space):
    with pytest.raises(ValueError, match="action space .*: must be Discrete or MultiDiscrete of one axis"):
        for_space(space)


@pytest.mark.parametrize(
    ("params", "action", "message"),
    [
        (torch.zeros(5, 3, 4), torch.zeros(5, 3, 2), "action: expected dtype torch.int64, found torch.float32"),
        (torch.zeros(5, 3, 4), torch.zeros(5, 3, 2).long(), r"params: expected shape \[..., 5\], found \[5, 3, 4\]"),
        (torch.zeros(5, 3, 5), torch.zeros(5, 1, 2).long(), r"action: expected shape \[5, 3, 2\] .*found \[5, 1, 2\]"),
        (torch.zeros(5, 3, 5), torch.zeros(5, 3).long(), r"action: expected shape \[5, 3, 2\] .*found \[5, 3\]"),
        (torch.zeros(()), torch.zeros(2).long(), r"params: expected shape \[..., 5\], found \[\]"),
    ],
)
def test_shapes_that_do_not_fit_are_refused_and_nothing_broadcasts(params, action, message):
    with pytest.raises(ValueError, match=message):
        MultiCategorical([3, 2]).log_prob(params, action)

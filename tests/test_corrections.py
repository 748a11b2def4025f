"""The paper's table 2: each correction by numbers done by hand, across episode ends, and in the learner."""

import dataclasses
import math
from functools import partial

import pytest
import torch
from random_rollouts import TableNetwork, make_rollout, weigh

from monobeast import corrections, vtrace
from monobeast.config import Config
from monobeast.distributions import Categorical
from monobeast.learner import compute_loss, compute_returns

tensor64 = partial(torch.tensor, dtype=torch.float64)
# float64: sums of at most 100 terms of size 1; the factor pi / (pi + 1e-6) of the epsilon-correction has its own.
assert_close = partial(torch.testing.assert_close, rtol=1e-10, atol=1e-10)
NAMES = ["vtrace", "one_step", "epsilon", "none"]
T, B, A = 7, 3, 4
ENDS = [{2: "terminated"}, {1: "truncated", 4: "truncated"}, {-1: "terminated"}]
CONFIG = Config(preset="atari", discounting=0.9, reward_clipping="none")

# One column, no end: discounts 0.9, ratios 4 and 0.5.
STEPS = {
    "discounts": tensor64([[0.9], [0.9]]),
    "rewards": tensor64([[1.0], [2.0]]),
    "values": tensor64([[0.5], [1.0]]),
    "bootstrap_value": tensor64([2.0]),
    "is_reset": torch.zeros(2, 1, dtype=torch.bool),
}
LOG_RHOS = tensor64([[4.0], [0.5]]).log()
N_STEP_RETURNS = [1 + 0.9 * (2 + 0.9 * 2), 2 + 0.9 * 2]
ADVANTAGES = [N_STEP_RETURNS[0] - 0.5, N_STEP_RETURNS[1] - 1]


def with_correction(name):
    return dataclasses.replace(CONFIG, correction=name)


def make(lag):
    """A network, and a rollout of a policy whose logits are `lag` away from the network's."""
    network = TableNetwork(T, B, Categorical(A))
    noise = torch.randn(T, B, A, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    return network, make_rollout(ENDS, network.params.detach()[:-1] + lag * noise)


def returns_of(network, rollout, name):
    ratios = weigh(rollout, network.params.detach()[:-1])
    return compute_returns(rollout, *ratios, network.values.detach(), with_correction(name))


def gradients(network, rollout, name):
    total_loss = compute_loss(network, rollout, with_correction(name)).total_loss
    return torch.cat([g.flatten() for g in torch.autograd.grad(total_loss, [network.params, network.values])])


def test_without_correction_targets_are_n_step_returns():
    """Table 2."""
    vs, advantages = corrections.uncorrected(**STEPS)

    assert_close(vs[:, 0], tensor64(N_STEP_RETURNS))
    assert_close(advantages[:, 0], tensor64(ADVANTAGES))


@pytest.mark.parametrize(("clip", "weights"), [(1.0, (1, 0.5)), (2.0, (2, 0.5)), (None, (4, 0.5)), (0.2, (0.2, 0.2))])
def test_one_step_weighs_each_advantage_by_its_own_ratio(clip, weights):
    """Table 2."""
    vs, advantages = corrections.one_step(LOG_RHOS, **STEPS, clip_pg_rho_threshold=clip)

    assert_close(vs[:, 0], tensor64(N_STEP_RETURNS))
    assert_close(advantages[:, 0], tensor64(weights) * tensor64(ADVANTAGES))


def test_epsilon_gives_the_gradient_of_the_log_of_pi_plus_epsilon():
    """Table 2."""
    logits = tensor64([[[0.0, 9.0, -12.0]], [[1.0, 0.0, 2.0]]]).requires_grad_()
    log_probs = logits.log_softmax(-1)
    plain = corrections.uncorrected(**STEPS).pg_advantages
    taken = log_probs[..., 2]
    loss = -((taken.exp() + corrections.EPSILON).log() * plain).sum()
    expected = torch.autograd.grad(loss, logits, retain_graph=True)

    advantages = corrections.epsilon_corrected(taken.detach(), **STEPS).pg_advantages
    found = torch.autograd.grad(-(taken * advantages).sum(), logits)

    assert_close(found, expected)
    assert advantages[0] / plain[0] < 0.1 and advantages[1] / plain[1] > 0.999  # pi is 8e-10 there


@pytest.mark.parametrize("name", ["uncorrected", "one_step", "epsilon_corrected"])
def test_lambda_is_that_of_remark_2(name):
    first = {"uncorrected": (), "one_step": (LOG_RHOS,), "epsilon_corrected": (LOG_RHOS,)}[name]
    vs, _ = getattr(corrections, name)(*first, **STEPS, lambda_=0.5)

    assert_close(vs[0, 0], tensor64(1 + 0.9 * (0.5 * 1 + 0.5 * N_STEP_RETURNS[1])))


@pytest.mark.parametrize("name", NAMES)
def test_at_zero_lag_all_give_the_same_gradient(name):
    network, rollout = make(lag=0.0)
    expected = gradients(network, rollout, "vtrace")
    epsilon = {"rtol": 1e-4, "atol": 1e-4} if name == "epsilon" else {"rtol": 1e-10, "atol": 1e-10}

    torch.testing.assert_close(gradients(network, rollout, name), expected, **epsilon)
    assert expected.abs().max() > 0.1


def test_with_a_lag_they_differ():
    network, rollout = make(lag=1.0)
    found = [gradients(network, rollout, name) for name in NAMES]

    for i, one in enumerate(found):
        for other in found[:i]:
            assert (one - other).abs().max() > 1e-7


@pytest.mark.parametrize("name", NAMES)
def test_at_a_reset_step_the_target_is_v_and_the_advantage_0(name):
    network, rollout = make(lag=1.0)
    vs, advantages = returns_of(network, rollout, name)

    assert rollout.is_reset.sum() == 4
    assert torch.equal(vs[rollout.is_reset], network.values.detach()[:-1][rollout.is_reset])
    assert not advantages[rollout.is_reset].any() and advantages[~rollout.is_reset].all()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("end", ["terminated", "truncated"])
def test_nothing_leaks_from_the_next_episode_into_the_last(name, end):
    network, other = TableNetwork(T, 1, Categorical(A)), TableNetwork(T, 1, Categorical(A), seed=1)
    rollout = make_rollout([{2: end}], TableNetwork(T, 1, Categorical(A), seed=2).params.detach()[:-1])
    with torch.no_grad():  # x_3 is the final observation, x_4 opens the next episode
        other.params[:4], other.values[:4] = network.params[:4], network.values[:4]
    later = torch.arange(T)[:, None] >= 4
    actions = torch.where(later, 3 - rollout.action, rollout.action)
    changed = rollout._replace(reward=rollout.reward + later, action=actions)

    before, after = returns_of(network, rollout, name), returns_of(other, changed, name)

    for one, two in zip(before, after, strict=True):
        assert torch.equal(one[:4], two[:4])
        assert (one[4:] - two[4:]).abs().min() > 1e-3


@pytest.mark.parametrize("name", ["one_step", "epsilon"])
def test_the_ratio_of_a_reset_step_is_not_read(name):
    compute = {"one_step": corrections.one_step, "epsilon": corrections.epsilon_corrected}[name]
    steps = STEPS | {"is_reset": torch.tensor([[False], [True]])}

    for value in (math.nan, math.inf):
        vs, advantages = compute(tensor64([[-0.1], [value]]), **steps)
        assert advantages[1] == 0 and vs[1] == 1.0 and vs.isfinite().all() and advantages.isfinite().all()


@pytest.mark.parametrize("name", NAMES)
def test_returns_carry_no_gradient(name):
    network, rollout = make(lag=1.0)
    log_rhos, log_probs = weigh(rollout, network.params[:-1])

    returns = compute_returns(rollout, log_rhos, log_probs, network.values, with_correction(name))
    assert not any(one.requires_grad for one in returns)


def test_the_learner_gives_each_correction_its_settings():
    network, rollout = make(lag=1.0)
    log_rhos, _ = weigh(rollout, network.params.detach()[:-1])
    values = network.values.detach()
    config = dataclasses.replace(CONFIG, clip_pg_rho_threshold=0.7, vtrace_lambda=0.6)
    steps = {
        "discounts": 0.9 * (~rollout.terminal).double(),
        "rewards": rollout.reward,
        "values": values[:-1],
        "bootstrap_value": values[-1],
        "is_reset": rollout.is_reset,
        "lambda_": 0.6,
    }
    log_probs = vtrace.action_log_probs(network.params[:-1], rollout.action)
    expected = {
        "none": corrections.uncorrected(**steps),
        "one_step": corrections.one_step(log_rhos, **steps, clip_pg_rho_threshold=0.7),
        "epsilon": corrections.epsilon_corrected(log_probs, **steps),
    }

    for name, wanted in expected.items():
        found = compute_returns(rollout, log_rhos, log_probs, values, dataclasses.replace(config, correction=name))
        for one, other in zip(found, wanted, strict=True):
            assert_close(one, other)


@pytest.mark.parametrize(
    ("is_reset", "found"),
    [(torch.zeros(1, 2).bool(), r"\[1, 2\] of torch.bool"), (torch.zeros(2, 1), r"\[2, 1\] of torch.float32")],
)
def test_reset_steps_that_do_not_fit_are_refused(is_reset, found):
    with pytest.raises(ValueError, match=rf"is_reset: expected shape \[2, 1\] of torch.bool, found {found}"):
        corrections.uncorrected(**STEPS | {"is_reset": is_reset})


@pytest.mark.parametrize("name", ["one_step", "epsilon_corrected"])
@pytest.mark.parametrize("shape", [(2, 3), (1, 1), (2,)])
def test_ratios_that_do_not_fit_are_refused(name, shape):
    with pytest.raises(ValueError, match=r"(log_rhos|target_action_log_probs): expected shape \[2, 1\], found \["):
        getattr(corrections, name)(torch.zeros(shape), **STEPS)


@pytest.mark.parametrize("name", ["discounts", "rewards"])
def test_steps_that_would_broadcast_are_refused(name):
    with pytest.raises(ValueError, match=rf"{name}: expected shape \[2, 1\], found \[2, 3\]"):
        corrections.uncorrected(**STEPS | {name: torch.zeros(2, 3, dtype=torch.float64)})


@pytest.mark.parametrize("name", ["values", "is_reset", "rewards"])
def test_a_list_in_place_of_a_tensor_is_refused(name):
    with pytest.raises(TypeError, match=f"{name}: expected a tensor, found a list"):
        corrections.uncorrected(**STEPS | {name: [[1.0], [2.0]]})


@pytest.mark.parametrize("epsilon", [0.0, -1e-6, math.nan, math.inf])
def test_an_epsilon_that_is_none_is_refused(epsilon):
    with pytest.raises(ValueError, match=f"epsilon: expected a finite number above 0, found {epsilon}"):
        corrections.epsilon_corrected(LOG_RHOS, **STEPS, epsilon=epsilon)


@pytest.mark.parametrize("name", ["one_step", "epsilon_corrected"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_the_exponential_is_not_taken_in_less_than_float32(name, dtype):
    log_probs = tensor64([[-0.3], [-7.1]]).to(dtype)

    found = getattr(corrections, name)(log_probs, **STEPS).pg_advantages

    assert torch.equal(found, getattr(corrections, name)(log_probs.float(), **STEPS).pg_advantages)


def test_an_unknown_correction_is_refused():
    with pytest.raises(ValueError, match="--correction retrace: must be one of vtrace, one_step, epsilon, none"):
        with_correction("retrace")

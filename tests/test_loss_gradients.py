"""Gradients of the whole loss: derived by hand, and by finite differences with the targets held fixed."""

import dataclasses
from functools import partial

import pytest
import torch
from random_rollouts import TableNetwork, make_rollout, weigh

from monobeast import learner
from monobeast.config import Config
from monobeast.distributions import Categorical

# float64: sums of at most 100 terms of size 1.
assert_close = partial(torch.testing.assert_close, rtol=1e-10, atol=1e-10)
T, B, A = 6, 3, 4
ENDS = [{2: "terminated"}, {1: "truncated", 4: "truncated"}, {-1: "terminated"}]
CONFIG = Config(preset="atari", discounting=0.9, reward_clipping="none", entropy_cost=0.3, baseline_cost=0.7)
CONFIG = dataclasses.replace(CONFIG, clip_rho_threshold=0.8, clip_pg_rho_threshold=1.2, clip_c_threshold=0.9)


def make():
    behavior_logits = torch.randn(T, B, A, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    return TableNetwork(T, B, Categorical(A)), make_rollout(ENDS, behavior_logits)


def gradients(network, rollout):
    total_loss = learner.compute_loss(network, rollout, CONFIG).total_loss
    return torch.autograd.grad(total_loss, [network.params, network.values])


def targets(network, rollout):
    ratios = weigh(rollout, network.params[:-1].detach())
    return learner.compute_returns(rollout, *ratios, network.values.detach(), CONFIG)


def test_the_gradient_is_the_one_derived_by_hand():
    """Section 4.2."""
    network, rollout = make()
    vs, advantages = targets(network, rollout)
    probs, log_probs = network.params[:-1].softmax(-1), network.params[:-1].log_softmax(-1)
    one_hot = torch.nn.functional.one_hot(rollout.action, A)
    counts = (~rollout.is_reset)[..., None]
    # Of -advantage log pi(a), and of entropy_cost sum p log p; x_T has no action.
    of_entropy = probs * (log_probs - (probs * log_probs).sum(-1, keepdim=True)) * counts
    of_logits = (probs - one_hot) * advantages[..., None] + CONFIG.entropy_cost * of_entropy
    of_values = CONFIG.baseline_cost * (network.values[:-1] - vs)  # of baseline_cost (vs - V)^2 / 2, vs a constant

    found = gradients(network, rollout)

    assert_close(found[0], torch.cat([of_logits, torch.zeros(1, B, A)]).detach())
    assert_close(found[1], torch.cat([of_values, torch.zeros(1, B)]).detach())  # x_T only bootstraps


def test_the_gradient_is_that_of_finite_differences_with_the_targets_held_fixed(monkeypatch):
    network, rollout = make()
    fixed = targets(network, rollout)
    found = gradients(network, rollout)
    monkeypatch.setattr(learner, "compute_returns", lambda *_: fixed)

    step = 1e-5
    for parameter, gradient in zip([network.params, network.values], found, strict=True):
        flat = parameter.detach().view(-1)
        for i in range(0, len(flat), 3):
            losses = []
            for sign in (1, -1):
                flat[i] += sign * step
                losses.append(learner.compute_loss(network, rollout, CONFIG).total_loss.item())
                flat[i] -= sign * step
            difference = (losses[0] - losses[1]) / (2 * step)
            assert difference == pytest.approx(gradient.view(-1)[i].item(), abs=1e-7)  # the third derivative is left


def test_with_the_targets_let_go_the_gradient_would_be_another():
    """Targets do depend on V: what the two tests above say is not so by itself."""
    network, rollout = make()
    before = targets(network, rollout)
    with torch.no_grad():
        network.values += 0.01
    after = targets(network, rollout)

    assert (after.vs - before.vs).abs().min() > 1e-6 and not after.vs.requires_grad


def test_a_reset_step_has_no_gradient():
    network, rollout = make()

    of_logits, of_values = gradients(network, rollout)

    is_reset = rollout.is_reset
    assert is_reset.sum() == 4
    assert not of_logits[:-1][is_reset].any() and not of_values[:-1][is_reset].any()
    assert of_logits[:-1][~is_reset].any(-1).all() and of_values[:-1][~is_reset].all()

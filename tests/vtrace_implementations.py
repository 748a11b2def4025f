"""V-trace as others may write it, rightly and with one mistake: what a checker has to accept and to refuse."""

from typing import NamedTuple

import numpy as np
import torch


def right(
    log_rhos,
    discounts,
    rewards,
    values,
    bootstrap_value,
    clip_rho_threshold=1.0,
    clip_pg_rho_threshold=1.0,
    clip_c_threshold=1.0,
    lambda_=1.0,
):
    return wrong(**locals(), mistake=None)


def wrong(
    log_rhos,
    discounts,
    rewards,
    values,
    bootstrap_value,
    clip_rho_threshold=1.0,
    clip_pg_rho_threshold=1.0,
    clip_c_threshold=1.0,
    lambda_=1.0,
    mistake=None,
):
    """In NumPy, from the last step to the first; `mistake` is the name of one."""
    with np.errstate(over="ignore", invalid="ignore"):
        ratio = np.exp(-log_rhos if mistake == "pi and mu swapped" else log_rhos)
    cut = log_rhos == -np.inf
    if mistake == "a reset step counts":
        ratio = np.where(cut, 1.0, ratio)
    rho, pg_rho = np.minimum(ratio, clip_rho_threshold), np.minimum(ratio, clip_pg_rho_threshold)
    c = lambda_ * np.minimum(ratio, clip_c_threshold)
    if mistake == "rho for c":
        c = lambda_ * ratio
    elif mistake == "clipped rho for c":
        c = lambda_ * rho
    elif mistake == "c clipped at 1":
        c = lambda_ * np.minimum(ratio, 1.0)
    elif mistake == "no lambda":
        c = np.minimum(ratio, clip_c_threshold)
    elif mistake == "the trace crosses a reset step":
        c = np.where(cut, lambda_, c)
    if mistake == "the next step's discount":
        discounts = np.concatenate([discounts[1:], discounts[-1:]])
    elif mistake == "the discount of the step before":
        discounts = np.concatenate([discounts[:1], discounts[:-1]])
    elif mistake == "a truncation terminates":
        discounts = np.where(np.concatenate([cut[1:], np.zeros_like(cut[:1])]), 0.0, discounts)
    if mistake == "no weight":
        pg_rho = np.ones_like(pg_rho)
    elif mistake == "one clip for both":
        pg_rho = rho
    if mistake == "no bootstrap":
        bootstrap_value = np.zeros_like(bootstrap_value)
    elif mistake == "bootstrap in the last reward":
        rewards = np.concatenate([rewards[:-1], rewards[-1:] + discounts[-1:] * bootstrap_value])
    later_value, later_target = bootstrap_value, bootstrap_value
    error = bootstrap_value if mistake == "bootstrap starts the sum" else 0.0
    vs, advantages = [], []
    for t in reversed(range(len(rewards))):
        error = rho[t] * (rewards[t] + discounts[t] * later_value - values[t]) + discounts[t] * c[t] * error
        after = later_value if mistake == "one-step advantage" else later_target
        advantages.append(pg_rho[t] * (rewards[t] + discounts[t] * after - values[t]))
        later_value, later_target = values[t], values[t] + error
        vs.append(later_target)
    return np.stack(vs[::-1]), np.stack(advantages[::-1])


MISTAKES = {
    "pi and mu swapped": "pi and mu swapped",
    "rho for c": "rho used for c",
    "clipped rho for c": "c-bar not separate",
    "c clipped at 1": "c-bar not separate",
    "no lambda": "lambda left out",
    "bootstrap in the last reward": "bootstrap value counted twice",
    "bootstrap starts the sum": "bootstrap value counted twice",
    "no bootstrap": "bootstrap value left out",
    "the next step's discount": "discount shifted by one",
    "the discount of the step before": "discount shifted by one",
    "a reset step counts": "next episode's value leaking past a cut",
    "the trace crosses a reset step": "next episode's value leaking past a cut",
    "a truncation terminates": "truncation taken for a termination",
    "one-step advantage": "V(x_{s+1}) in the advantage",
    "no weight": "advantage without a weight",
    "one clip for both": "one clip for both rhos",
}


class Named(NamedTuple):
    extra: object
    pg_advantages: object
    vs: object


class Plain:
    def __init__(self, v_s, advantage):
        self.v_s, self.advantage = v_s, advantage


def in_torch(log_rhos, discounts, rewards, values, bootstrap_value):
    assert all(isinstance(tensor, torch.Tensor) for tensor in (log_rhos, discounts, rewards, values, bootstrap_value))
    vs, advantages = right(*(x.numpy() for x in (log_rhos, discounts, rewards, values, bootstrap_value)))
    return torch.from_numpy(vs).requires_grad_(), torch.from_numpy(advantages)


def in_float32(log_rhos, discounts, rewards, values, bootstrap_value):
    return right(*(x.astype(np.float32) for x in (log_rhos, discounts, rewards, values, bootstrap_value)))


def errors_of_transitions(v_tm1, v_t, r_t, discount_t, rho_tm1, lam, rho_bar, pg_rho_bar, *, debug=False):
    """Of ratios and V(x_{t+1}), by position; v_s - V(x_s) for vs."""
    with np.errstate(divide="ignore"):
        log_rhos = np.log(rho_tm1)
    vs, advantages = right(log_rhos, discount_t, r_t, v_tm1, v_t[-1], rho_bar, pg_rho_bar, 1.0, lam)
    return {"errors": vs - v_tm1, "pg_advantage": advantages}


def of_log_probs(*, target_action_log_probs, behaviour_action_log_probs, discounts, rewards, values, bootstrap_values):
    vs, advantages = right(
        target_action_log_probs - behaviour_action_log_probs, discounts, rewards, values, bootstrap_values
    )
    return Named(None, advantages, vs)


def of_logits(behavior_logits, target_logits, actions, discounts, rewards, values, bootstrap_value, /):
    def log_probs(logits):
        normalized = logits - np.logaddexp(logits[..., :1], logits[..., 1:])
        return np.take_along_axis(normalized, actions[..., None], axis=-1)[..., 0]

    log_rhos = log_probs(target_logits) - log_probs(behavior_logits)
    return Plain(*right(log_rhos, discounts, rewards, values, bootstrap_value))


def anything(*arguments):
    return right(*arguments)


def three_outputs(log_rhos, discounts, rewards, values, bootstrap_value):
    return values, values, values


def transposed(log_rhos, discounts, rewards, values, bootstrap_value):
    return values.swapaxes(0, 1), values.swapaxes(0, 1)


def not_a_number(log_rhos, discounts, rewards, values, bootstrap_value):
    return np.full_like(values, np.nan), values


def raising(log_rhos, discounts, rewards, values, bootstrap_value):
    raise KeyError("no such thing")


def of_gamma(log_rhos, gamma, rewards, values, bootstrap_value):
    return values, values


def without_values(log_rhos, discounts, rewards):
    return rewards, rewards


not_a_function = 3

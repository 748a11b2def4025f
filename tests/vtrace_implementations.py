"""V-trace as others may write it, rightly and with one mistake: what a checker has to accept and to refuse.

Equation (1) is summed forwards here, term by term, in the dtype that is given: not as the checker itself does it.
"""

import functools
import sys
import time
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import torch


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
    """In NumPy; `mistake` changes the parts of the sums."""
    log_rhos, gamma, r, values = np.broadcast_arrays(log_rhos, discounts, rewards, values)
    clips = {"rho_bar": clip_rho_threshold, "pg_rho_bar": clip_pg_rho_threshold, "c_bar": clip_c_threshold}
    parts = SimpleNamespace(log_rhos=log_rhos, cut=log_rhos == -np.inf, lambda_=lambda_, **clips)
    parts.gamma, parts.r, parts.V, parts.end = gamma.copy(), r.copy(), values, np.zeros_like(values[0])
    parts.bootstrap = np.broadcast_to(bootstrap_value, values.shape[1:])
    with np.errstate(all="ignore"):
        parts.ratio = np.exp(log_rhos)
        (mistake or nothing)("ratio", parts)
        parts.rho, parts.pg_rho = np.minimum(parts.ratio, parts.rho_bar), np.minimum(parts.ratio, parts.pg_rho_bar)
        parts.c = lambda_ * np.minimum(parts.ratio, parts.c_bar)
        parts.next_V = np.concatenate([parts.V[1:], parts.bootstrap[None]])
        parts.trace = parts.gamma * parts.c
        parts.last, parts.delta_gamma = parts.bootstrap, parts.gamma
        (mistake or nothing)("sum", parts)
        delta = parts.rho * (parts.r + parts.delta_gamma * parts.next_V - parts.V)
        parts.vs, parts.after = np.stack([sum_forwards(parts, delta, s) for s in range(len(delta))]), None
        (mistake or nothing)("advantage", parts)
        after = np.concatenate([parts.vs[1:], parts.last[None]]) if parts.after is None else parts.after
        parts.advantages = parts.pg_rho * (parts.r + parts.gamma * after - parts.V)
        (mistake or nothing)("outputs", parts)
    return parts.vs, parts.advantages


def sum_forwards(parts, delta, s):
    total, product = parts.V[s].copy(), np.ones_like(delta[0])
    for t in range(s, len(delta)):
        total += product * delta[t]
        product = product * parts.trace[t]
    return total + product * parts.end


def nothing(when, parts):
    """No mistake."""


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
    """From the last step to the first: the sums of `wrong` would take long where T is 512."""
    with np.errstate(over="ignore"):
        ratio = np.exp(log_rhos)
    rho, pg_rho = np.minimum(ratio, clip_rho_threshold), np.minimum(ratio, clip_pg_rho_threshold)
    trace = discounts * lambda_ * np.minimum(ratio, clip_c_threshold)
    V, v, error, rows = bootstrap_value, bootstrap_value, 0.0, []
    for t in reversed(range(len(rewards))):
        error = rho[t] * (rewards[t] + discounts[t] * V - values[t]) + trace[t] * error
        advantage = pg_rho[t] * (rewards[t] + discounts[t] * v - values[t])
        V, v = values[t], values[t] + error
        rows.append((v, advantage))
    vs, advantages = zip(*reversed(rows))
    return np.stack(vs), np.stack(advantages)


MISTAKES = {}


def mistake(when, fault):
    """Registers a change to the parts, made at that point, and the name that the checker should find."""

    def register(change):
        MISTAKES[change.__name__] = (lambda now, parts: change(parts) if now == when else None, fault)
        return change

    return register


@mistake("ratio", "pi and mu swapped")
def mu_over_pi(parts):
    parts.ratio = 1 / parts.ratio


@mistake("ratio", "pi and mu swapped")
def mu_over_pi_but_reset_steps(parts):
    parts.ratio = np.where(parts.cut, 0, 1 / parts.ratio).astype(parts.ratio.dtype)


@mistake("sum", "pi and mu swapped")
def mu_over_pi_in_vs(parts):
    parts.rho = np.minimum(1 / parts.ratio, parts.rho_bar)
    parts.trace = parts.gamma * parts.lambda_ * np.minimum(1 / parts.ratio, parts.c_bar)


@mistake("sum", "pi and mu swapped")
def mu_over_pi_in_the_advantages(parts):
    parts.pg_rho = np.minimum(1 / parts.ratio, parts.pg_rho_bar)


@mistake("sum", "no rho in delta")
def delta_without_rho(parts):
    parts.rho = np.ones_like(parts.rho)


@mistake("sum", "rho-bar ignored")
def ratio_in_delta(parts):
    parts.rho = parts.ratio


@mistake("sum", "rho-bar ignored")
def rho_clipped_at_1(parts):
    parts.rho = parts.ratio.clip(max=1)


@mistake("sum", "clips left out")
def ratio_everywhere(parts):
    parts.rho = parts.pg_rho = parts.ratio
    parts.trace = parts.gamma * parts.lambda_ * parts.ratio


@mistake("sum", "c-bar used for rho")
def rho_clipped_at_c_bar(parts):
    parts.rho = np.minimum(parts.ratio, parts.c_bar)


@mistake("sum", "lambda in rho")
def lambda_times_rho(parts):
    parts.rho = parts.lambda_ * parts.rho


@mistake("sum", "lambda in rho")
def lambda_times_both_rhos(parts):
    parts.rho, parts.pg_rho = parts.lambda_ * parts.rho, parts.lambda_ * parts.pg_rho


@mistake("sum", "rho used for c")
def ratio_for_c(parts):
    parts.trace = parts.gamma * parts.lambda_ * parts.ratio


@mistake("sum", "rho used for c")
def clipped_rho_for_lambda_c(parts):
    parts.trace = parts.gamma * parts.rho


@mistake("sum", "rho used for c")
def clipped_rho_clipped_again(parts):
    parts.trace = parts.gamma * parts.lambda_ * np.minimum(parts.rho, parts.c_bar)


@mistake("sum", "c-bar not separate")
def weight_of_the_advantage_for_c(parts):
    parts.trace = parts.gamma * parts.lambda_ * parts.pg_rho


@mistake("sum", "c-bar not separate")
def c_clipped_at_1_as_well(parts):
    parts.trace = parts.gamma * parts.c.clip(max=parts.lambda_)


@mistake("sum", "lambda within the clip")
def lambda_before_the_clip(parts):
    parts.trace = parts.gamma * np.minimum(parts.lambda_ * parts.ratio, parts.c_bar)


@mistake("sum", "lambda counted twice")
def lambda_twice(parts):
    parts.trace = parts.trace * parts.lambda_


@mistake("sum", "lambda in the discount")
def lambda_times_gamma(parts):
    parts.gamma = parts.delta_gamma = parts.lambda_ * parts.gamma


@mistake("sum", "c-bar not separate")
def clipped_rho_for_c(parts):
    parts.trace = parts.gamma * parts.lambda_ * parts.rho


@mistake("sum", "c-bar not separate")
def c_clipped_at_1(parts):
    parts.trace = parts.gamma * parts.lambda_ * parts.ratio.clip(max=1)


@mistake("sum", "every c is 1")
def discounts_for_traces(parts):
    parts.trace = parts.gamma


@mistake("sum", "every c is 1")
def discounts_and_lambda_for_traces(parts):
    parts.trace = parts.lambda_ * parts.gamma


@mistake("sum", "c without the discount")
def traces_without_discount(parts):
    parts.trace = parts.c


@mistake("sum", "c shifted by one")
def c_of_the_next_step(parts):
    for t in range(len(parts.c) - 1):
        parts.trace[t] = parts.gamma[t] * parts.c[t + 1]


@mistake("sum", "c shifted by one")
def c_of_the_step_before(parts):
    parts.trace = parts.gamma * np.concatenate([np.ones_like(parts.c[:1]), parts.c[:-1]])


@mistake("sum", "lambda left out")
def no_lambda(parts):
    parts.trace = parts.gamma * np.minimum(parts.ratio, parts.c_bar)


@mistake("ratio", "bootstrap value counted twice")
def bootstrap_in_the_last_reward(parts):
    parts.r[-1] += parts.gamma[-1] * parts.bootstrap


@mistake("ratio", "bootstrap value counted twice")
def undiscounted_bootstrap_in_the_last_reward(parts):
    parts.r[-1] += parts.bootstrap


@mistake("advantage", "bootstrap value counted twice")
def bootstrap_in_the_last_target(parts):
    parts.vs[-1] += parts.bootstrap


@mistake("outputs", "bootstrap value counted twice")
def bootstrap_in_the_last_target_that_is_returned(parts):
    parts.vs[-1] += parts.bootstrap


@mistake("sum", "bootstrap value counted twice")
def bootstrap_ends_the_sum(parts):
    parts.end = parts.bootstrap


@mistake("ratio", "bootstrap value left out")
def no_bootstrap(parts):
    parts.bootstrap = np.zeros_like(parts.bootstrap)


@mistake("ratio", "bootstrap value left out")
def first_value_rolled_to_the_end(parts):
    parts.bootstrap = parts.V[0]


@mistake("sum", "bootstrap value left out of delta")
def no_bootstrap_in_delta(parts):
    parts.next_V[-1] = 0


@mistake("advantage", "wrong v_T in the last advantage")
def last_target_twice(parts):
    parts.last = parts.vs[-1]


@mistake("advantage", "wrong v_T in the last advantage")
def nothing_after_the_last_target(parts):
    parts.last = 0 * parts.last


@mistake("ratio", "discount shifted by one")
def discount_of_the_next_step(parts):
    parts.gamma = np.concatenate([parts.gamma[1:], np.zeros_like(parts.gamma[:1])])


@mistake("ratio", "discount shifted by one")
def discount_of_the_step_before(parts):
    parts.gamma = np.concatenate([np.ones_like(parts.gamma[:1]), parts.gamma[:-1]])


@mistake("sum", "discount shifted by one")
def discount_of_the_next_step_in_the_trace(parts):
    parts.trace = np.concatenate([parts.gamma[1:], parts.gamma[-1:]]) * parts.c


@mistake("sum", "discount shifted by one")
def discount_of_the_next_step_in_delta(parts):
    parts.delta_gamma = np.concatenate([parts.gamma[1:], parts.gamma[-1:]])


@mistake("advantage", "discount shifted by one")
def discount_of_the_next_step_in_the_advantage(parts):
    parts.gamma = np.concatenate([parts.gamma[1:], parts.gamma[-1:]])


@mistake("ratio", "reward shifted by one")
def reward_of_the_next_step(parts):
    parts.r = np.concatenate([parts.r[1:], np.zeros_like(parts.r[:1])])


@mistake("ratio", "ratio shifted by one")
def ratio_of_the_next_step(parts):
    parts.ratio = np.concatenate([parts.ratio[1:], parts.ratio[-1:]])


@mistake("ratio", "next episode's value leaking past a cut")
def reset_steps_count(parts):
    parts.ratio = np.where(parts.cut, 1, parts.ratio).astype(parts.ratio.dtype)


@mistake("sum", "next episode's value leaking past a cut")
def traces_cross_reset_steps(parts):
    parts.trace = np.where(parts.cut, parts.gamma * parts.lambda_, parts.trace).astype(parts.trace.dtype)


@mistake("ratio", "truncation taken for a termination")
def truncations_terminate(parts):
    parts.gamma[:-1][parts.cut[1:]] = 0


@mistake("sum", "truncation bootstraps from the next episode")
def next_episodes_first_state_in_delta(parts):
    states = np.concatenate([parts.V, parts.bootstrap[None]])
    for t, *rest in np.argwhere(parts.cut[1:]):
        parts.next_V[t, *rest] = states[t + 2, *rest]


@mistake("outputs", "truncation bootstraps from the next episode")
def next_episodes_first_state_in_the_advantage(parts):
    states = np.concatenate([parts.V, parts.bootstrap[None]])
    for t, *rest in np.argwhere(parts.cut[1:]):
        there = (t, *rest)
        q = parts.r[there] + parts.gamma[there] * states[t + 2, *rest]
        parts.advantages[there] = parts.pg_rho[there] * (q - parts.V[there])


@mistake("advantage", "V(x_{s+1}) in the advantage")
def one_step_advantage(parts):
    parts.after = parts.next_V


@mistake("advantage", "lambda in the advantage")
def mixed_as_in_rlax(parts):
    target = parts.r + parts.gamma * np.concatenate([parts.vs[1:], parts.bootstrap[None]])
    one_step = parts.r + parts.gamma * parts.next_V
    target = parts.lambda_ * target + (1 - parts.lambda_) * one_step
    parts.r, parts.after = target, np.zeros_like(target)


@mistake("outputs", "vs - V as the advantage")
def error_for_advantage(parts):
    parts.advantages = parts.vs - parts.V


@mistake("outputs", "vs - V as the advantage")
def weighted_error_for_advantage(parts):
    parts.advantages = parts.pg_rho * (parts.vs - parts.V)


@mistake("sum", "advantage without a weight")
def no_weight(parts):
    parts.pg_rho = np.ones_like(parts.pg_rho)


@mistake("sum", "rho not clipped in the advantage")
def ratio_in_the_advantage(parts):
    parts.pg_rho = parts.ratio


@mistake("sum", "one clip for both rhos")
def one_clip_for_both(parts):
    parts.pg_rho = parts.rho


@mistake("outputs", "vs - V returned for vs")
def error_for_target(parts):
    parts.vs = parts.vs - parts.V


@mistake("outputs", "outputs swapped")
def advantages_first(parts):
    parts.vs, parts.advantages = parts.advantages, parts.vs


def terminating_where_done(log_rhos, discounts, rewards, values, bootstrap_value, done):
    """Whatever ended the episode, and in the last row as well."""
    done = done.reshape(done.shape + (1,) * (values.ndim - done.ndim))
    return right(log_rhos, discounts * (1 - done), rewards, values, bootstrap_value)


def crossing_resets(log_pi, log_mu, discounts, rewards, values, bootstrap_value, is_reset):
    """The reset steps have a ratio as any other step."""
    is_reset = is_reset.reshape(is_reset.shape + (1,) * (values.ndim - is_reset.ndim))
    log_rhos = np.where(is_reset, 0.0, log_pi - log_mu)
    return right(log_rhos, discounts, rewards, values, bootstrap_value)


def along_axis_1(log_rhos, discounts, rewards, values, bootstrap_value):
    """Time and batch swapped throughout: raises unless T = B."""
    turned = [np.swapaxes(x, 0, 1) for x in (log_rhos, discounts, rewards, values)]
    np.broadcast_to(bootstrap_value, turned[0][0].shape)
    return tuple(np.swapaxes(x, 0, 1) for x in right(*turned, bootstrap_value))


class Named(NamedTuple):
    extra: object
    pg_advantages: object
    vs: object


class Plain:
    def __init__(self, v_s, advantage):
        self.v_s, self.advantage = v_s, advantage


def in_torch(log_rhos, discounts, rewards, values, bootstrap_value):
    vs, advantages = right(*(x.detach().numpy() for x in (log_rhos, discounts, rewards, values, bootstrap_value)))
    return torch.from_numpy(vs).requires_grad_(), torch.from_numpy(advantages)


def in_precision(dtype, log_rhos, discounts, rewards, values, bootstrap_value):
    """All in another dtype; "then float64" hides it."""
    inputs = (x.astype(dtype.split()[0]) for x in (log_rhos, discounts, rewards, values, bootstrap_value))
    return tuple(x.astype("float64") if "then" in dtype else x for x in right(*inputs))


in_float32 = functools.partial(in_precision, "float32")


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


def normalize(logits, axis=-1):
    return logits - np.log(np.exp(logits).sum(axis=axis, keepdims=True))


def pick(logits, actions):
    return sum(np.where(actions == action, logits[..., action], 0.0) for action in range(logits.shape[-1]))


def of_logits(behavior_logits, target_logits, actions, discounts, rewards, values, bootstrap_value, /, read=None):
    read = read or (lambda logits, actions: pick(normalize(logits), actions))
    with np.errstate(all="ignore"):
        log_rhos = read(target_logits, actions) - read(behavior_logits, actions)
    return Plain(*right(log_rhos, discounts, rewards, values, bootstrap_value))


def take_along(logits, actions):
    return np.take_along_axis(logits, actions[..., None], axis=-1)[..., 0]


READINGS = {
    "raw logits": (take_along, "logits not normalized"),
    "softmax over the batch": (lambda x, a: take_along(normalize(x, 1), a), "logits not normalized"),
    "always action 0": (lambda x, a: normalize(x)[..., 0], "probability of another action"),
    "actions transposed": (
        lambda x, a: take_along(normalize(x), a.T.reshape(a.shape)),
        "probability of another action",
    ),
    "two actions": (lambda x, a: take_along(normalize(x[..., :2]), np.minimum(a, 1)), None),
}


def anything(*arguments):
    return right(*arguments)


def torchrl_names(log_pi, log_mu, state_value, next_state_value, reward, discount, rho_thresh=1.0, c_thresh=1.0):
    return right(log_pi - log_mu, discount, reward, state_value, next_state_value[-1], rho_thresh, 1.0, c_thresh)


def with_steps(function):
    """As `jax.vmap` with `in_axes=1`: what is named is mapped over axis 0."""

    @functools.wraps(function)
    def mapped(*arguments, **named):
        return function(*arguments, **{name: np.swapaxes(value, 0, 1) for name, value in named.items()})

    return mapped


def two_axes(log_rhos, discounts, rewards, values, bootstrap_value):
    T, B = values.shape
    return right(log_rhos, discounts, rewards, values, bootstrap_value)


def clamped(log_rhos, discounts, rewards, values, bootstrap_value, rho_bar=1.0, pg_rho_bar=1.0, c_bar=1.0, largest=20):
    return right(log_rhos.clip(max=largest), discounts, rewards, values, bootstrap_value, rho_bar, pg_rho_bar, c_bar)


def zeros_where_large(log_rhos, discounts, rewards, values, bootstrap_value, rho_bar=1.0, pg_rho_bar=1.0, c_bar=1.0):
    outputs = right(log_rhos, discounts, rewards, values, bootstrap_value, rho_bar, pg_rho_bar, c_bar)
    return [0.0 * array for array in outputs] if np.abs(outputs[0]).max() > 1e10 else outputs


def changing(log_rhos, discounts, rewards, values, bootstrap_value):
    rewards += 1.0
    discounts *= 0.5
    return values, values


def slightly_wrong(log_rhos, discounts, rewards, values, bootstrap_value):
    """In the first column alone, by as much as the last would hide."""
    vs, advantages = right(log_rhos, discounts, rewards, values, bootstrap_value)
    vs[:, :1] += 1e-7
    return vs, advantages


def of_gamma(log_rhos, gamma, rewards, values, bootstrap_value):
    return values, values


def without_values(log_rhos, discounts, rewards):
    return rewards, rewards


def without_mu(log_pi, discounts, rewards, values, bootstrap_value):
    return values, values


def values_twice(log_rhos, discounts, rewards, values, baseline, bootstrap_value):
    return values, values


def optional_first(log_rhos, discounts, rewards, values, bootstrap_value, debug=None, lambda_=1.0, baseline=None, /):
    """lambda_ stands after something unknown, so that no case can reach it."""
    assert debug is None and lambda_ == 1.0 and baseline is None
    return right(log_rhos, discounts, rewards, values, bootstrap_value)


def giving(result):
    """A function that returns, or does, whatever it is given for."""

    def function(log_rhos, discounts, rewards, values, bootstrap_value):
        return result(values) if callable(result) else result

    return function


def raising(error):
    def function(log_rhos, discounts, rewards, values, bootstrap_value):
        raise error

    return function


def exiting(log_rhos, discounts, rewards, values, bootstrap_value):
    sys.exit(0)


def hanging(log_rhos, discounts, rewards, values, bootstrap_value):
    time.sleep(0.05)
    return right(log_rhos, discounts, rewards, values, bootstrap_value)


not_a_function = 3

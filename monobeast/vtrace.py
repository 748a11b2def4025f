"""V-trace targets and policy-gradient advantages, as pure functions of tensors (arXiv 1802.01561, section 4).

Names and meanings are those of TorchBeast's `core/vtrace.py`. Time is axis 0 and batch is axis 1; `T`, `B` and `A` are
the numbers of steps, trajectories and actions, and "..." stands for further axes, which broadcast.

Unlike in TorchBeast, c has its own threshold and a lambda, shapes are checked before anything broadcasts, and the log
probabilities carry no gradient.
"""

from collections.abc import Callable
from typing import NamedTuple, SupportsFloat

import torch
from torch import Tensor

Threshold = float | Tensor | None


class VTraceReturns(NamedTuple):
    vs: Tensor  # [T, B, ...]: v_s, the target for V(x_s)
    pg_advantages: Tensor  # [T, B, ...]: what weighs grad log pi(a_s|x_s)


class VTraceFromLogProbsReturns(NamedTuple):
    vs: Tensor  # [T, B, ...]
    pg_advantages: Tensor  # [T, B, ...]
    log_rhos: Tensor  # [T, B, ...]: log(pi/mu), not clipped


class VTraceFromLogitsReturns(NamedTuple):
    vs: Tensor  # [T, B]
    pg_advantages: Tensor  # [T, B]
    log_rhos: Tensor  # [T, B]: log(pi/mu), not clipped
    behavior_action_log_probs: Tensor  # [T, B]: log mu(a_s|x_s)
    target_action_log_probs: Tensor  # [T, B]: log pi(a_s|x_s)


@torch.no_grad()
def action_log_probs(policy_logits: Tensor, actions: Tensor) -> Tensor:
    """Log probability of each action under the softmax of its logits.

    Args:
        policy_logits: float [..., A]: logits of a policy.
        actions: int64 [...]: actions taken, 0 to A - 1.

    Returns:
        float [...]: log pi(a|x), without gradient; float32 for 16-bit logits.

    Raises:
        TypeError: an argument is not a tensor.
        ValueError: the logits are not floats, or `actions` is not int64, does not have their leading shape, or is not
            in 0..A-1. The range is only checked on the CPU: a check would wait for other devices, which fail by
            themselves.
    """
    _check_actions("policy_logits", policy_logits, actions)
    return _take_log_probs(policy_logits, actions)


def _take_log_probs(policy_logits: Tensor, actions: Tensor) -> Tensor:
    return widen(policy_logits).log_softmax(dim=-1).gather(-1, actions.unsqueeze(-1)).squeeze(-1)


@torch.no_grad()
def from_logits(
    behavior_policy_logits: Tensor,
    target_policy_logits: Tensor,
    actions: Tensor,
    discounts: Tensor,
    rewards: Tensor,
    values: Tensor,
    bootstrap_value: Tensor,
    clip_rho_threshold: Threshold = 1.0,
    clip_pg_rho_threshold: Threshold = 1.0,
    clip_c_threshold: Threshold = 1.0,
    lambda_: float | Tensor = 1.0,
) -> VTraceFromLogitsReturns:
    """V-trace for softmax policies: log_rhos from both policies' logits, then `from_importance_weights`.

    Args:
        behavior_policy_logits: float [T, B, A]: logits of mu, from which the actions were drawn.
        target_policy_logits: float [T, B, A]: logits of pi, the policy being learned.
        actions: int64 [T, B]: a_t, 0 to A - 1.
        discounts: as in `from_importance_weights`, like all later arguments.

    Returns:
        `VTraceFromLogitsReturns`, without gradient. The log_rho of an action with logit minus infinity in both
        policies, which cannot have been taken, is NaN.

    Raises:
        TypeError, ValueError: as in `action_log_probs` and `from_importance_weights`; the message names the argument
            and what was expected and found.
    """
    _check_actions("behavior_policy_logits", behavior_policy_logits, actions)
    _check_actions("target_policy_logits", target_policy_logits, actions)
    if behavior_policy_logits.shape != target_policy_logits.shape:
        expected, found = list(behavior_policy_logits.shape), list(target_policy_logits.shape)
        raise ValueError(f"target_policy_logits: expected shape {expected}, found {found}")
    behavior_action_log_probs = _take_log_probs(behavior_policy_logits, actions)
    target_action_log_probs = _take_log_probs(target_policy_logits, actions)
    targets = from_action_log_probs(
        behavior_action_log_probs,
        target_action_log_probs,
        discounts,
        rewards,
        values,
        bootstrap_value,
        clip_rho_threshold=clip_rho_threshold,
        clip_pg_rho_threshold=clip_pg_rho_threshold,
        clip_c_threshold=clip_c_threshold,
        lambda_=lambda_,
    )
    return VTraceFromLogitsReturns(*targets, behavior_action_log_probs, target_action_log_probs)


@torch.no_grad()
def from_action_log_probs(
    behavior_action_log_probs: Tensor,
    target_action_log_probs: Tensor,
    discounts: Tensor,
    rewards: Tensor,
    values: Tensor,
    bootstrap_value: Tensor,
    clip_rho_threshold: Threshold = 1.0,
    clip_pg_rho_threshold: Threshold = 1.0,
    clip_c_threshold: Threshold = 1.0,
    lambda_: float | Tensor = 1.0,
) -> VTraceFromLogProbsReturns:
    """V-trace for policies of any kind: log_rhos from both policies' log probabilities, then `from_importance_weights`.

    An action of several parts has one ratio, that of the joint probabilities, so add up the log probabilities of
    independent parts first. For real numbers, use log densities.

    Args:
        behavior_action_log_probs: float [T, B, ...]: log mu(a_t|x_t), of the policy from which the actions were drawn.
        target_action_log_probs: float [T, B, ...]: log pi(a_t|x_t), of the policy being learned; minus infinity
            excludes the step.
        discounts: as in `from_importance_weights`, like all later arguments.

    Returns:
        `VTraceFromLogProbsReturns`, without gradient. If both are minus infinity, the log_rho is NaN.

    Raises:
        TypeError, ValueError: as in `from_importance_weights`; the two do not broadcast against each other.
    """
    both = {
        "behavior_action_log_probs": behavior_action_log_probs,
        "target_action_log_probs": target_action_log_probs,
    }
    over_time = both | {"discounts": discounts, "rewards": rewards, "values": values}
    check_floats(**over_time, bootstrap_value=bootstrap_value)
    _broadcast_shape(bootstrap_value, over_time)
    if behavior_action_log_probs.shape != target_action_log_probs.shape:
        expected, found = (list(log_probs.shape) for log_probs in both.values())
        raise ValueError(f"target_action_log_probs: expected shape {expected}, found {found}")
    log_rhos = widen(target_action_log_probs) - widen(behavior_action_log_probs)
    targets = from_importance_weights(
        log_rhos,
        discounts,
        rewards,
        values,
        bootstrap_value,
        clip_rho_threshold=clip_rho_threshold,
        clip_pg_rho_threshold=clip_pg_rho_threshold,
        clip_c_threshold=clip_c_threshold,
        lambda_=lambda_,
    )
    return VTraceFromLogProbsReturns(*targets, log_rhos)


@torch.no_grad()
def from_importance_weights(
    log_rhos: Tensor,
    discounts: Tensor,
    rewards: Tensor,
    values: Tensor,
    bootstrap_value: Tensor,
    clip_rho_threshold: Threshold = 1.0,
    clip_pg_rho_threshold: Threshold = 1.0,
    clip_c_threshold: Threshold = 1.0,
    lambda_: float | Tensor = 1.0,
) -> VTraceReturns:
    """V-trace targets and advantages from log importance weights.

    Computed in the arguments' dtype, except float16 and bfloat16, which are computed in float32: otherwise a sum over
    time would have only three digits.

    Equation (1), with one discount per step and n = T - s:

        v_s = V(x_s) + ∑ₜ (∏ᵢ γᵢ cᵢ) δₜV    over s ≤ t < T and s ≤ i < t
        δₜV = ρₜ (rₜ + γₜ V(xₜ₊₁) - V(xₜ)),  ρₜ = min(ρ̄, π/μ),  cᵢ = λ min(c̄, π/μ)

    and the factor of grad log pi in equation (4): ρ_s (r_s + γ_s v_{s+1} - V(x_s)), with v_T = V(x_T).

    On-policy and with lambda 1 the targets are n-step returns, equation (2). Repeated updates converge to the value of
    a policy between mu and pi that depends on rho-bar, equation (3); c-bar only changes how fast (theorem 1).

    A log_rho of minus infinity excludes a step: its target is V(x_s), its advantage is 0, and no trace crosses it. Its
    reward and V are multiplied by 0, not masked, so they must be finite.

    Args:
        log_rhos: float [T, B, ...]: log(pi(a_t|x_t) / mu(a_t|x_t)).
        discounts: float [T, B, ...]: gamma_t, 0 if the episode terminates after a_t.
        rewards: float [T, B, ...]: r_t, the reward for a_t.
        values: float [T, B, ...]: V(x_t) under the policy being learned.
        bootstrap_value: float [B, ...]: V(x_T).
        clip_rho_threshold: rho-bar, the upper limit of the weights in delta: at least 0, a 0-dim tensor (whose value is
            not checked, since reading it would wait for the GPU), or None for no limit. Without a limit, a log_rho
            above 88 (float32; 709 in float64) gives an infinite weight.
        clip_pg_rho_threshold: the same for the weights of the advantages.
        clip_c_threshold: c-bar, the same for the weights in the traces. Above 1 / gamma, or with None, traces may grow
            from step to step, and become infinite if (gamma c-bar)^T exceeds the dtype.
        lambda_: 0 to 1, or a 0-dim tensor, also not checked; multiplies every c (remark 2).

    Returns:
        `VTraceReturns`, without gradient, with the shape that all arguments broadcast to.

    Raises:
        TypeError: an argument is not a tensor; a threshold or lambda_ is neither tensor nor number.
        ValueError: a dtype is not floating point; devices, T, B or the number of axes differ; T is 0; axes after B do
            not broadcast; a threshold is negative, NaN or a tensor with axes; or lambda_ is out of range.
    """
    over_time = {"log_rhos": log_rhos, "discounts": discounts, "rewards": rewards, "values": values}
    check_floats(**over_time, bootstrap_value=bootstrap_value)
    shape = _broadcast_shape(bootstrap_value, over_time)
    lambda_ = _check_lambda(lambda_, log_rhos.device)
    log_rhos, discounts, rewards = widen(log_rhos), widen(discounts), widen(rewards)
    values, bootstrap_value = widen(values).expand(shape), widen(bootstrap_value).expand(shape[1:])

    rhos = log_rhos.exp()
    clipped_rhos = clip_rhos(rhos, "clip_rho_threshold", clip_rho_threshold)
    clipped_pg_rhos = clip_rhos(rhos, "clip_pg_rho_threshold", clip_pg_rho_threshold)
    cs = lambda_ * clip_rhos(rhos, "clip_c_threshold", clip_c_threshold)
    return from_clipped_weights(clipped_rhos, clipped_pg_rhos, cs, discounts, rewards, values, bootstrap_value)


@torch.no_grad()
def from_clipped_weights(
    clipped_rhos: Tensor,
    clipped_pg_rhos: Tensor,
    cs: Tensor,
    discounts: Tensor,
    rewards: Tensor,
    values: Tensor,
    bootstrap_value: Tensor,
    accumulate: Callable[[Tensor, Tensor], Tensor] | None = None,
) -> VTraceReturns:
    """The two equations of `from_importance_weights`, unchecked: `cs` include lambda, `values` have the full shape.

    `accumulate` is `accumulate_backward` or an equivalent; `monobeast.benchmarks.vtrace` compares several. On a CPU the
    loop is best: no other form makes an update faster by more than a few percent (docs/performance.md).
    """
    values_t_plus_1 = torch.cat([values[1:], bootstrap_value.unsqueeze(0)])
    deltas = clipped_rhos * (rewards + discounts * values_t_plus_1 - values)
    vs = values + (accumulate or accumulate_backward)(deltas, discounts * cs)
    vs_t_plus_1 = torch.cat([vs[1:], bootstrap_value.unsqueeze(0)])
    pg_advantages = clipped_pg_rhos * (rewards + discounts * vs_t_plus_1 - values)
    return VTraceReturns(vs=vs, pg_advantages=pg_advantages)


def accumulate_backward(deltas: Tensor, factors: Tensor) -> Tensor:
    """v_s - V(x_s) by remark 1: δ_sV + γ_s c_s (v_{s+1} - V(x_{s+1})), backward from the last step, which is only δ.

    Args:
        deltas: float [T, B, ...]: δV; overwritten by the result.
        factors: float [T, B, ...], or a shape that broadcasts to it: γ c; the last is not used.
    """
    steps, factor_of_step = deltas.unbind(), factors.unbind()
    for t in reversed(range(len(steps) - 1)):
        steps[t].addcmul_(factor_of_step[t], steps[t + 1])
    return deltas


def widen(tensor: Tensor) -> Tensor:
    """The tensor, as float32 if its dtype is float16 or bfloat16."""
    return tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor


def clip_rhos(rhos: Tensor, name: str, threshold: Threshold) -> Tensor:
    """`rhos`, none above `threshold`; raises TypeError or ValueError, with the given name, for an invalid threshold."""
    if threshold is None:
        return rhos
    if isinstance(threshold, Tensor):
        return rhos.clamp(max=_check_scalar(name, threshold, rhos.device))
    if not _is_number(threshold):
        raise TypeError(f"{name}: expected None, a number or a tensor, found a {type(threshold).__name__}")
    if not float(threshold) >= 0:  # also true of NaN
        raise ValueError(f"{name}: expected None or a number of at least 0, found {threshold}")
    return rhos.clamp(max=float(threshold))


def check_floats(**tensors: Tensor) -> None:
    """Raises TypeError for an argument that is not a tensor, ValueError for a wrong dtype or device, with its name."""
    devices = [tensor.device for tensor in tensors.values() if isinstance(tensor, Tensor)]
    for name, tensor in tensors.items():
        if not isinstance(tensor, Tensor):
            raise TypeError(f"{name}: expected a tensor, found a {type(tensor).__name__}")
        if not tensor.is_floating_point():
            raise ValueError(f"{name}: expected a dtype of floats, found {tensor.dtype}")
        if tensor.device != (usual := max(devices, key=devices.count)):
            raise ValueError(f"{name}: expected a tensor on {usual}, as the others, found one on {tensor.device}")


def _is_number(value: object) -> bool:
    return isinstance(value, SupportsFloat) and not hasattr(value, "__len__")  # as an array of NumPy has


def _check_scalar(name: str, tensor: Tensor, device: torch.device) -> Tensor:
    """The 0-dim tensor, on the device; its value is not checked, since reading it would wait for the device."""
    if tensor.dim() != 0:
        raise ValueError(f"{name}: expected a tensor of shape [], found {list(tensor.shape)}")
    return tensor.to(device)


def _check_lambda(lambda_: float | Tensor, device: torch.device) -> float | Tensor:
    if isinstance(lambda_, Tensor):
        return _check_scalar("lambda_", lambda_, device)
    if not _is_number(lambda_):
        raise TypeError(f"lambda_: expected a number or a tensor, found a {type(lambda_).__name__}")
    if not 0 <= float(lambda_) <= 1:
        raise ValueError(f"lambda_: expected a number from 0 to 1, found {lambda_}")
    return float(lambda_)


def _check_actions(name: str, policy_logits: Tensor, actions: Tensor) -> None:
    """Raises TypeError or ValueError unless `actions` are int64, one for each row of `policy_logits`, 0 to A - 1."""
    check_floats(**{name: policy_logits})
    if not isinstance(actions, Tensor):
        raise TypeError(f"actions: expected a tensor, found a {type(actions).__name__}")
    if actions.dtype != torch.int64:
        raise ValueError(f"actions: expected dtype torch.int64, found {actions.dtype}")
    if policy_logits.dim() == 0 or policy_logits.shape[:-1] != actions.shape:
        expected = ", ".join([*map(str, actions.shape), "A"])
        raise ValueError(f"{name}: expected shape [{expected}] for these actions, found {list(policy_logits.shape)}")
    if actions.device != policy_logits.device:
        raise ValueError(f"actions: expected a tensor on {policy_logits.device}, found one on {actions.device}")
    if actions.device.type == "cpu" and actions.numel():
        least, largest = actions.aminmax()
        if least < 0 or largest >= policy_logits.shape[-1]:
            found = f"{int(least)} to {int(largest)}"
            raise ValueError(f"actions: expected 0 to {policy_logits.shape[-1] - 1}, as {name} has, found {found}")


def _broadcast_shape(bootstrap_value: Tensor, over_time: dict[str, Tensor]) -> torch.Size:
    """The shape [T, B, ...] that all arguments broadcast to; raises ValueError naming one that differs from most."""
    shapes = [tensor.shape for tensor in over_time.values()]
    shape = max(shapes, key=shapes.count)
    if len(shape) < 2 or shape[0] == 0:
        raise ValueError(f"{next(iter(over_time))}: expected shape [T, B, ...] with T at least 1, found {list(shape)}")
    for name, tensor in over_time.items():
        shape = _broadcast(name, tensor.shape, shape, fixed_axes=2)
    return shape[:1] + _broadcast("bootstrap_value", bootstrap_value.shape, shape[1:], fixed_axes=1)


def _broadcast(name: str, found: torch.Size, shape: torch.Size, fixed_axes: int) -> torch.Size:
    """`torch.broadcast_shapes` for shapes with equally many axes, of which the first `fixed_axes` must be equal.

    PyTorch's own loads a part of its compiler: 35 MB and 0.3 s.
    """
    further = zip(found[fixed_axes:], shape[fixed_axes:])
    same = len(found) == len(shape) and found[:fixed_axes] == shape[:fixed_axes]
    if not same or not all(size == other or 1 in (size, other) for size, other in further):
        expected = f"{list(shape)}" + (f" up to broadcasting after {fixed_axes} axes" if shape[fixed_axes:] else "")
        raise ValueError(f"{name}: expected shape {expected}, found {list(found)}")
    return torch.Size(other if size == 1 else size for size, other in zip(shape, found))

"""Health of training: importance ratios, explained variance of the baseline, dead units.

Reset steps, whose actions are ignored, do not count, except for dead units: these are of all observations of a batch.
"""

import math

import torch
from torch import Tensor, nn

from monobeast.config import Config
from monobeast.networks import AgentNetwork, Network
from monobeast.rollouts import Rollout
from monobeast.vtrace import VTraceReturns

VTRACE_COLUMNS = (
    "rho_clipped",
    "c_clipped",
    "pg_rho_clipped",
    "effective_sample_size",
    "kl",
    "explained_variance",
)
FEATURE_COLUMNS = ("feature_std", "logits_std")  # and dead_units_columns


@torch.no_grad()
def sum_vtrace(
    rollout: Rollout, log_rhos: Tensor, kl: Tensor, values: Tensor, returns: VTraceReturns, config: Config
) -> dict[str, Tensor]:
    """The sums for `summarize`, but for the entropy's: unlike ratios, they can be added over many updates.

    Args:
        rollout: B trajectories of T steps.
        log_rhos: float32 [T, B]: log(pi / mu) of the actions taken, minus infinity at reset steps.
        kl: float64 [T, B]: KL(mu || pi).
        values: float32 [T, B]: V(x_0) .. V(x_{T-1}).
        returns: V-trace's targets for them.
        config: The clips.

    Returns:
        float64 [] each, without gradient.
    """
    counts = (~rollout.is_reset).double()
    rhos = log_rhos.double().exp()  # 0 at reset steps
    vs, errors = returns.vs.double(), (returns.vs - values).double()
    thresholds = {
        "rho_clipped": config.clip_rho_threshold,
        "c_clipped": config.clip_c_threshold,
        "pg_rho_clipped": config.clip_pg_rho_threshold,
    }
    sums = {name: (rhos > (math.inf if bar is None else bar)).double() for name, bar in thresholds.items()}
    sums |= {"count": counts, "rho": rhos, "rho_squared": rhos**2, "kl": kl * counts}
    sums |= {"vs": vs * counts, "vs_squared": vs**2 * counts}
    sums |= {"error": errors * counts, "error_squared": errors**2 * counts}
    return {f"sum_of_{name}": value.sum() for name, value in sums.items()}


def summarize(sums: dict[str, float]) -> dict[str, float | None]:
    """The entropy and the values of `VTRACE_COLUMNS` from sums over steps, or means of these over the same updates.

    * `entropy`: mean over the steps, in nats.
    * `rho_clipped`, `c_clipped`, `pg_rho_clipped`: share of the steps whose ratio pi / mu is above the clip.
    * `effective_sample_size`: (sum rho)^2 / (n sum rho^2), the number of equally weighted steps with the same variance
      as a share of n: 1 on-policy, 1 / n if one step has all the weight.
    * `kl`: mean KL(mu || pi) in nats.
    * `explained_variance`: 1 - Var(vs - V) / Var(vs).

    None where the denominator is 0.
    """
    total = {name.removeprefix("sum_of_"): value for name, value in sums.items()}
    n = total["count"]
    means = {name: _ratio(value, n) for name, value in total.items()}
    columns = {name: means[name] for name in ("entropy", *VTRACE_COLUMNS) if name in means}
    columns["effective_sample_size"] = _ratio(total["rho"] ** 2, n * total["rho_squared"])
    if n:
        variance, left = (means[f"{name}_squared"] - means[name] ** 2 for name in ("vs", "error"))
        # In float64, less than this is rounding: the targets are one number.
        share_left = _ratio(left, variance) if variance > 1e-12 * means["vs_squared"] else None
        columns["explained_variance"] = None if share_left is None else 1 - share_left
    return columns


def dead_units_columns(network: nn.Module) -> tuple[str, ...]:
    """Names of the columns that `measure_features` adds for this network: `dead_units_K` for its K-th ReLU, from 1."""
    return tuple(f"dead_units_{k}" for k in range(1, len(_relus(network)) + 1))


def measure_features(network: Network, rollout: Rollout) -> dict[str, float | None]:
    """Health of the hidden layers, measured by one more forward pass over a batch on the network's device.

    * `dead_units_K`: share of the units of the K-th ReLU that are 0 on every step of the batch. A unit of a convolution
      is a channel, dead if it is 0 everywhere in the image. None without units.
    * `feature_std`: standard deviation over the batch of a unit of the last hidden layer, mean over the units. Not for
      the user's own network, whose last hidden layer is unknown.
    * `logits_std`: the same for the policy's logits, minus their mean over the actions, which has no effect; or for a
      Gaussian's means.
    """
    params, outputs = _look_inside(network, rollout)
    counts = ~rollout.is_reset
    measured: dict[str, float | None] = {
        "logits_std": _spread(network.distribution.center(params)[:-1][counts]),  # x_0 .. x_{T-1}, as the loss
    }
    if isinstance(network, AgentNetwork):
        features = outputs.pop(network.policy)
        if network.lstm is None:
            features = features[..., : network.torso.num_features]  # without the last action and reward
        measured["feature_std"] = _spread(features[:-1][counts])
    for column, relu in zip(dead_units_columns(network), _relus(network), strict=True):
        if relu in outputs:  # it was called
            measured[column] = _share_dead(outputs[relu], rollout.is_first.shape)
    return measured


def _look_inside(network: Network, rollout: Rollout) -> tuple[Tensor, dict[nn.Module, Tensor]]:
    """The policy's parameters, and what each ReLU that was called gave; under the policy's head, its input."""
    outputs: dict[nn.Module, Tensor] = {}
    hooks = [relu.register_forward_hook(lambda relu, _, out: outputs.update({relu: out})) for relu in _relus(network)]
    if isinstance(network, AgentNetwork):
        hooks.append(network.policy.register_forward_pre_hook(lambda head, inputs: outputs.update({head: inputs[0]})))
    # A network that draws numbers would draw others afterwards, depending on when rows are written.
    device = rollout.is_first.device
    own_randomness = torch.random.fork_rng([] if device.type == "cpu" else [device])
    try:
        with torch.no_grad(), own_randomness:
            return network(rollout.inputs, rollout.core_state).policy_params, outputs
    finally:
        for hook in hooks:
            hook.remove()


def _relus(network: nn.Module) -> list[nn.Module]:
    return [module for module in network.modules() if isinstance(module, nn.ReLU)]


def _share_dead(activations: Tensor, steps: torch.Size) -> float | None:
    """Share of the units of [N, units, ...], or [T+1, B, units, ...], that are 0 everywhere; None with fewer axes.

    Args:
        activations: Of one layer.
        steps: T+1 and B.
    """
    if activations.ndim > 2 and activations.shape[:2] == steps:
        activations = activations.flatten(0, 1)
    if activations.ndim < 2:
        return None
    units = activations.movedim(1, 0).flatten(1)
    return units.eq(0).all(dim=1).double().mean().item()


def _spread(values: Tensor) -> float | None:
    """Standard deviation over the rows of [N, units], mean over the units; None without rows."""
    return None if not len(values) else values.double().std(0, correction=0).mean().item()


def _ratio(numerator: float, denominator: float) -> float | None:
    return numerator / denominator if denominator else None

"""One update: from a batch of rollouts to new weights."""

import time
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from monobeast import corrections, faults, health, losses, optimizers, trees, vtrace
from monobeast.config import Config
from monobeast.networks import AgentOutput, Network, find_normalizers
from monobeast.reward_normalizer import RewardNormalizer
from monobeast.rewards import shape_rewards
from monobeast.rollouts import Rollout
from monobeast.transfer import Transfer


class LossResult(NamedTuple):
    """What `compute_loss` found. Statistics carry no gradient and leave out reset steps."""

    total_loss: Tensor  # float32 []: what is minimized, summed over time and batch
    output: AgentOutput  # of the network: [T+1, B, ...]
    statistics: dict[str, Tensor]  # [] each; the names are columns of logs.csv, or sums that `health` makes columns of


def compute_loss(
    network: Network,
    rollout: Rollout,
    config: Config,
    entropy_cost: float | Tensor | None = None,
    reward_deviation: Tensor | None = None,
) -> LossResult:
    """The IMPALA loss of a batch: policy gradient, baseline and entropy (section 4.2), summed (appendix D.1).

    Episode ends need no special case: a reset step has a log importance weight of minus infinity, so rho = c = 0, its
    target is V itself and its advantage 0; a truncated episode bootstraps from V of its real final observation.

    Args:
        network: Its gradient is what the loss is for; its `distribution` is that of the actions.
        rollout: A batch on the network's device.
        config: Discount, clips and weights of the losses; `reward_clipping` resolved.
        entropy_cost: In place of the one that the config starts with. As a tensor, [], it may change without this being
            compiled again.
        reward_deviation: float []: by which rewards are divided; None where they are not.
    """
    output = network(rollout.inputs, rollout.core_state)
    distribution = network.distribution
    target_params = output.policy_params[:-1]  # x_0 .. x_{T-1}; x_T has no action
    values = output.baseline[:-1]
    counts = ~rollout.is_reset
    target_log_probs = distribution.log_prob(target_params, rollout.action)
    behavior_log_probs = distribution.log_prob(rollout.behavior_params, rollout.action)
    log_rhos = compute_log_rhos(rollout, behavior_log_probs, target_log_probs.detach())
    baseline = output.baseline.detach()
    returns = compute_returns(rollout, log_rhos, target_log_probs.detach(), baseline, config, reward_deviation)
    pg_loss = losses.compute_policy_gradient_loss(target_log_probs, returns.pg_advantages)
    baseline_loss = config.baseline_cost * losses.compute_baseline_loss(returns.vs - values)
    raw_entropy_loss = losses.compute_entropy_loss(distribution.entropy(target_params), mask=counts)
    entropy_loss = (config.entropy_cost if entropy_cost is None else entropy_cost) * raw_entropy_loss
    total_loss = pg_loss + baseline_loss + entropy_loss
    statistics = {
        "total_loss": total_loss,
        "pg_loss": pg_loss,
        "baseline_loss": baseline_loss,
        "entropy_loss": entropy_loss,
        "sum_of_entropy": -raw_entropy_loss,
    }
    kl = distribution.kl_divergence(rollout.behavior_params.double(), target_params.detach().double())
    statistics |= health.sum_vtrace(rollout, log_rhos, kl, values, returns, config)
    return LossResult(total_loss, output, {name: value.detach() for name, value in statistics.items()})


def compute_returns(
    rollout: Rollout,
    log_rhos: Tensor,
    target_log_probs: Tensor,
    baseline: Tensor,
    config: Config,
    reward_deviation: Tensor | None = None,
) -> vtrace.VTraceReturns:
    """Targets and advantages for a batch whose episodes may end anywhere in it: V-trace's, or those of `--correction`.

    Args:
        rollout: B trajectories of T steps.
        log_rhos: float32 [T, B]: of `compute_log_rhos`.
        target_log_probs: float32 [T, B]: log pi(a_t|x_t).
        baseline: float32 [T+1, B]: V(x_0) .. V(x_T).
        config: Correction, discount, clips, lambda.
        reward_deviation: float []: by which rewards are divided; None where they are not.
    """
    rewards = shape_rewards(rollout.reward, config.reward_clipping, config.reward_scale, reward_deviation)
    steps: dict[str, Any] = {
        # A truncated episode had a future, so its discount stays; a terminated one had none.
        "discounts": config.discounting * (~rollout.terminal).to(baseline.dtype),
        "rewards": rewards,
        "values": baseline[:-1],
        "bootstrap_value": baseline[-1],
        "lambda_": config.vtrace_lambda,
    }
    pg_clip: dict[str, Any] = {"clip_pg_rho_threshold": config.clip_pg_rho_threshold}
    if config.correction == "vtrace":
        clips = pg_clip | {"clip_rho_threshold": config.clip_rho_threshold, "clip_c_threshold": config.clip_c_threshold}
        return vtrace.from_importance_weights(log_rhos, **steps, **clips)
    steps["is_reset"] = rollout.is_reset
    if config.correction == "one_step":
        return corrections.one_step(log_rhos, **steps, **pg_clip)
    if config.correction == "epsilon":
        return corrections.epsilon_corrected(target_log_probs, **steps)
    return corrections.uncorrected(**steps)


def compute_log_rhos(rollout: Rollout, behavior_log_probs: Tensor, target_log_probs: Tensor) -> Tensor:
    """log(pi(a_t|x_t) / mu(a_t|x_t)), float32 [T, B]; minus infinity where the environment ignored a_t."""
    return (target_log_probs - behavior_log_probs).masked_fill(rollout.is_reset, -torch.inf)


class Learner:
    """Holds network and optimizer; turns batches into updates. Takes a batch and nothing else.

    Args:
        network: Already on its device.
        config: Resolved.
    """

    def __init__(self, network: Network, config: Config) -> None:
        self.network = network
        self.num_updates = 0
        self.copying_s = 0.0  # this process's time to bring batches to the device
        self.step = 0  # rows given to updates, T * B each; reset steps are among them
        self._config = config
        self._device = next(network.parameters()).device
        self._transfer = Transfer(self._device)
        self._compute_loss = torch.compile(compute_loss, dynamic=False) if config.compile else compute_loss
        self._optimizer = optimizers.make_optimizer(list(network.parameters()), config)
        self._reward_normalizer = RewardNormalizer(config, self._device) if config.normalize_rewards else None
        self._reward_deviation: Tensor | None = None  # of the last update
        self.last_entropy_cost: float | None = None  # of the last update
        self.faults = faults.FaultRecord(self._device)  # of updates that were left out

    @property
    def reward_deviation(self) -> float | None:
        """The divisor of the last update's rewards, good or bad; None without `--normalize_rewards`."""
        return None if self._reward_deviation is None else float(self._reward_deviation)

    @property
    def learning_rate(self) -> float:
        """Of the next update: `--learning_rate`, or what is left of it as it falls linearly to 0 at `--total_steps`."""
        if self._config.learning_rate_schedule == "constant":
            return self._config.learning_rate
        return self._config.learning_rate * self._remaining

    @property
    def entropy_cost(self) -> float:
        """Of the next update: goes linearly from `--entropy_cost` to `--entropy_cost_end` at `--total_steps`."""
        start, end = self._config.entropy_cost, self._config.entropy_cost_end
        return start if end is None else end + (start - end) * self._remaining

    @property
    def _remaining(self) -> float:
        """What is left of the run: 1 at its start, 0 at its end and after."""
        return max(0.0, 1.0 - self.step / self._config.total_steps)

    def update(self, batch: Rollout) -> dict[str, Tensor]:
        """One optimizer step, or none where a number is not finite: weights and moments are then what they were.

        Returns:
            Statistics of the update, 0-dim tensors. On a GPU nothing here waits for this update, nor for the last one,
            but for the one before and for the last batch's copy.
        """
        self._transfer.wait()
        start = time.perf_counter()
        batch = self._transfer(batch)
        self.copying_s += time.perf_counter() - start
        lags = self.num_updates - batch.policy_version
        if self._reward_normalizer:
            self._reward_deviation, seen = self._reward_normalizer.look(batch)
        self.last_entropy_cost = self.entropy_cost
        entropy_cost = torch.full((), self.last_entropy_cost, device=self._device)
        result = self._compute_loss(self.network, batch, self._config, entropy_cost, self._reward_deviation)
        self._optimizer.zero_grad()
        result.total_loss.backward()
        grad_norm = nn.utils.clip_grad_norm_(self.network.parameters(), self._config.grad_norm_clipping)
        fault = faults.locate(batch, result.output, result.total_loss.detach(), grad_norm)
        is_good = fault[0] < 0
        self._step_if(is_good)
        self._update_normalizers(batch, is_good)
        if self._reward_normalizer:
            self._reward_normalizer.take(seen, is_good)
        self.num_updates += 1
        self.faults.add(self.num_updates, fault, batch.observation)
        self.step += batch.num_steps
        lag_statistics = {"policy_lag_mean": lags.double().mean(), "policy_lag_max": lags.max()}
        return result.statistics | {"grad_norm": grad_norm, "is_good": is_good} | lag_statistics

    def _step_if(self, is_good: Tensor) -> None:
        """Lets the optimizer step, unless `is_good` is False."""
        for group in self._optimizer.param_groups:
            group["lr"] = self.learning_rate
        if is_good.device.type != "cpu":
            self._step_and_undo_unless(is_good)
        elif is_good:  # the answer is there: nothing need be undone
            self._optimizer.step()

    def _update_normalizers(self, batch: Rollout, is_good: Tensor) -> None:
        """Lets normalizers take the batch into account, once its update is made by what they were before.

        x_0 .. x_{T-1}, so that none counts twice: x_T is the next rollout's x_0. Final observations are among them.
        """
        for normalizer in find_normalizers(self.network):
            normalizer.update(trees.map_leaves(lambda part: part[:-1], batch.observation), is_good)

    def _step_and_undo_unless(self, is_good: Tensor) -> None:
        """Steps, and takes the step back on the device, so that nobody has to wait for what `is_good` says."""
        state = [*self.network.parameters(), *self._moments()]
        before = [tensor.detach().clone() for tensor in state]
        self._optimizer.step()
        with torch.no_grad():
            for tensor, old in zip(state, before, strict=True):
                tensor.copy_(torch.where(is_good, tensor, old))

    def _moments(self) -> list[Tensor]:
        """Every tensor of the optimizer's state, its counts of steps included."""
        return [value for state in self._optimizer.state.values() for value in state.values() if torch.is_tensor(value)]

    def measure_features(self, batch: Rollout) -> dict[str, float | None]:
        """How alive the hidden layers are on a batch: `health.measure_features`. Waits for the device."""
        return health.measure_features(self.network, batch.map(lambda tensor: tensor.to(self._device)))

    def state_dict(self) -> dict[str, Any]:
        """Tensors (the learner's own, not copies) and plain values from which `load_state_dict` goes on."""
        return {
            "network": self.network.state_dict(),
            "optimizer": self._optimizer.state_dict(),
            "step": self.step,
            "num_updates": self.num_updates,
            "num_bad_updates": self.faults.num_bad,
            **({"rewards": self._reward_normalizer.state_dict()} if self._reward_normalizer else {}),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on from a state that `state_dict` gave."""
        self.network.load_state_dict(state["network"])
        optimizers.load(self._optimizer, state["optimizer"])
        self.step, self.num_updates = state["step"], state["num_updates"]
        self.faults.restore(num_bad=state["num_bad_updates"])
        if self._reward_normalizer:
            self._reward_normalizer.load_state_dict(state["rewards"])

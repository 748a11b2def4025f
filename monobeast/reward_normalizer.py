"""The divisor that brings returns to a common scale in every task: `--normalize_rewards`."""

import torch
from torch import Tensor

from monobeast.config import Config
from monobeast.moments import Moments
from monobeast.rewards import clip_rewards
from monobeast.rollouts import Rollout

_EPSILON = 1e-8  # added to the variance


class RewardNormalizer:
    """Tracks the standard deviation of R_t = r_t + gamma R_{t-1} over all steps that were learned from.

    As in OpenAI's baselines and Gymnasium's NormalizeReward, with r_t clipped by `--reward_clipping`. R starts at 0 in
    each episode, and after a lost life that counts as terminal. Reset steps do not count. Each rollout continues from
    the previous one of the same actor and environment.

    Args:
        config: Resolved; gives sizes, discount and clipping.
        device: Where batches are.
    """

    def __init__(self, config: Config, device: torch.device) -> None:
        self._num_envs, self._discounting = config.envs_per_actor, config.discounting
        self._clipping = config.reward_clipping
        self._moments = Moments.of_nothing(device=device)
        num_columns = max(1, config.num_actors) * config.envs_per_actor
        self._returns = torch.zeros(num_columns, dtype=torch.float64, device=device)  # R of each environment so far

    @property
    def deviation(self) -> Tensor:
        """float64 []: the standard deviation so far; 1 without data."""
        return _deviation_of(self._moments)

    def look(self, batch: Rollout) -> tuple[Tensor, tuple[Moments, Tensor]]:
        """The deviation including this batch, so that even the first is divided by its own; and the argument of
        `take`."""
        rewards = clip_rewards(batch.reward, self._clipping).double()
        returns, after = self._discount(batch, rewards)
        moments = self._moments.merged(returns.flatten(), ~batch.is_reset.flatten())
        return _deviation_of(moments.or_else(self._moments, True)), (moments, after)

    def take(self, seen: tuple[Moments, Tensor], is_taken: Tensor) -> None:
        """Keeps the result of `look`, unless `is_taken`, bool [], is False. Does not wait for the device."""
        moments, after = seen
        self._moments = moments.or_else(self._moments, is_taken)
        self._returns = torch.where(is_taken & after.isfinite().all(), after, self._returns)

    def _discount(self, batch: Rollout, rewards: Tensor) -> tuple[Tensor, Tensor]:
        """R of every step, float64 [T, B], and of every environment after the last step."""
        goes_on = (~batch.is_first[:-1]).double()  # x_0 .. x_{T-1}
        goes_on[1:] *= (~batch.terminal[:-1]).double()
        own, kept = torch.zeros_like(rewards), torch.ones_like(rewards)  # R = own + kept * R before the rollout
        last_own, last_kept = own[0], kept[0]
        for t, factor in enumerate(self._discounting * goes_on):
            last_own, last_kept = rewards[t] + factor * last_own, factor * last_kept
            own[t], kept[t] = last_own, last_kept
        before, after = torch.empty_like(last_own), self._returns.clone()
        places = batch.actor[0] * self._num_envs + batch.env[0]
        for start in range(0, len(places), self._num_envs):  # a slot: of no environment twice, unlike the batch
            columns = slice(start, start + self._num_envs)
            before[columns] = after[places[columns]]
            ends = last_own[columns] + last_kept[columns] * before[columns]
            after[places[columns]] = ends.masked_fill(batch.terminal[-1, columns], 0.0)
        return own + kept * before, after

    def state_dict(self) -> dict[str, Tensor]:
        """The state as tensors, for `load_state_dict`."""
        return {**self._moments._asdict(), "returns": self._returns}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Restores the state; with another number of environments, as if all their episodes began."""
        device, state = self._returns.device, dict(state)
        returns = state.pop("returns").to(device)
        self._moments = Moments(**{name: tensor.to(device) for name, tensor in state.items()})
        if returns.shape == self._returns.shape:
            self._returns = returns


def _deviation_of(moments: Moments) -> Tensor:
    return (moments.variance + _EPSILON).sqrt()

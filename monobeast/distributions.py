"""Policy distributions, one for each kind of action space.

Pure functions of tensors, over any leading axes "...", mostly [T, B]. P is the number of parameters, the width of the
policy's head. Results have the parameters' dtype, or float32 for 16-bit parameters.
"""

import math

import torch
from gymnasium.spaces import Box, Discrete, MultiDiscrete, Space
from torch import Tensor
from torch.nn import functional as F

from monobeast import one_hot
from monobeast.vtrace import widen

# Of the Gaussian's log standard deviation, where a bounded action is 2 wide. Below, float32 has few digits left for
# (a - mean) / std; above, all but one action in ten is cut off at a bound.
LOG_STD_RANGE = (-5.0, 2.0)
_LARGEST_ENCODED = 5.0  # a rare draw from a wide Gaussian would drown the features beside it


class Distribution:
    """The interface of all policy distributions.

    Attributes:
        num_params: P.
        params_name: Name of the parameters outside the package, as in ONNX files.
        action_shape: Of one action.
        action_dtype: Of actions, also in rollouts.
        num_features: F, the width of `encode`.
    """

    num_params: int
    params_name: str
    action_shape: tuple[int, ...]
    action_dtype: torch.dtype
    num_features: int

    def sample(self, params: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Draws an action for each row of float [N, P]: [N, *action_shape]."""
        raise NotImplementedError

    def mode(self, params: Tensor) -> Tensor:
        """The most probable action, [..., *action_shape]; the first of several."""
        raise NotImplementedError

    def log_prob(self, params: Tensor, action: Tensor) -> Tensor:
        """log pi(a|x), jointly for all parts of an action: float [..., P] and [..., *action_shape] to float [...].

        Raises:
            ValueError: the action has a different dtype, or the shapes do not fit each other.
        """
        self._check(params, action)
        return self._log_prob(widen(params), action)

    def entropy(self, params: Tensor) -> Tensor:
        """-E[log pi(a|x)] in nats, of the density if actions are real numbers: float [..., P] to float [...]."""
        raise NotImplementedError

    def kl_divergence(self, params: Tensor, other_params: Tensor) -> Tensor:
        """KL(p || q) = E_p[log p(a) - log q(a)] in nats, p's parameters first: float [..., P] each to float [...]."""
        raise NotImplementedError

    def encode(self, action: Tensor) -> Tensor:
        """The encoding of an action as a network's input: [..., *action_shape] to a number type, [..., F]."""
        raise NotImplementedError

    def center(self, params: Tensor) -> Tensor:
        """The distribution's location, without components that have no effect: float [..., P] to float [..., C]."""
        raise NotImplementedError

    def _log_prob(self, params: Tensor, action: Tensor) -> Tensor:
        raise NotImplementedError

    def _check(self, params: Tensor, action: Tensor) -> None:
        """Raises ValueError unless each row of parameters has one action; nothing broadcasts."""
        if action.dtype != self.action_dtype:
            raise ValueError(f"action: expected dtype {self.action_dtype}, found {action.dtype}")
        if params.dim() == 0 or params.shape[-1] != self.num_params:
            raise ValueError(f"params: expected shape [..., {self.num_params}], found {list(params.shape)}")
        expected = params.shape[:-1] + self.action_shape
        if action.shape != expected:
            raise ValueError(f"action: expected shape {list(expected)} for these params, found {list(action.shape)}")


class Categorical(Distribution):
    """One of A actions: pi(a|x) = softmax(logits)_a. P is A; the parameters are logits. Actions are int64 [...].

    A logit of minus infinity adds nothing to the entropy nor to its gradient. A network that rules an action out must
    give a finite logit all the same, -1e9 say: whatever else is not finite counts as a fault (`monobeast.faults`).
    """

    params_name = "policy_logits"
    action_shape = ()
    action_dtype = torch.int64

    def __init__(self, num_actions: int) -> None:
        self.num_params = self.num_features = num_actions

    def sample(self, params: Tensor, generator: torch.Generator | None = None) -> Tensor:
        return torch.multinomial(params.softmax(dim=-1), 1, generator=generator).squeeze(-1)

    def mode(self, params: Tensor) -> Tensor:
        return params.argmax(dim=-1)

    def entropy(self, params: Tensor) -> Tensor:
        log_probs = widen(params).log_softmax(dim=-1)
        probs = log_probs.exp()
        # 0 log 0 = 0, also for autograd, which meets 0 * -inf = NaN otherwise.
        return -(probs * log_probs.masked_fill(probs == 0, 0.0)).sum(dim=-1)

    def kl_divergence(self, params: Tensor, other_params: Tensor) -> Tensor:
        log_probs, others = (widen(each).log_softmax(dim=-1) for each in (params, other_params))
        return (log_probs.exp() * (log_probs - others)).sum(dim=-1)

    def encode(self, action: Tensor) -> Tensor:
        return F.one_hot(action, self.num_params)

    def center(self, params: Tensor) -> Tensor:
        return params - params.mean(dim=-1, keepdim=True)

    def _log_prob(self, params: Tensor, action: Tensor) -> Tensor:
        return params.log_softmax(dim=-1).gather(-1, action.unsqueeze(-1)).squeeze(-1)


class MultiCategorical(Distribution):
    """K choices at once, independent of each other given x: pi(a|x) = prod_k softmax(logits_k)_{a_k}.

    P is A_1 + ... + A_K; the parameters are the concatenated logits of the choices. Actions are int64 [..., K].
    """

    params_name = "policy_logits"
    action_dtype = torch.int64

    def __init__(self, nums_actions: list[int]) -> None:
        self._choices = [Categorical(num_actions) for num_actions in nums_actions]
        self._sizes = list(nums_actions)
        self.num_params = self.num_features = sum(nums_actions)
        self.action_shape = (len(nums_actions),)

    def sample(self, params: Tensor, generator: torch.Generator | None = None) -> Tensor:
        return torch.stack([choice.sample(part, generator) for choice, part in self._split(params)], dim=-1)

    def mode(self, params: Tensor) -> Tensor:
        return torch.stack([choice.mode(part) for choice, part in self._split(params)], dim=-1)

    def entropy(self, params: Tensor) -> Tensor:
        return _sum([choice.entropy(part) for choice, part in self._split(params)])

    def kl_divergence(self, params: Tensor, other_params: Tensor) -> Tensor:
        others = other_params.split(self._sizes, dim=-1)
        pairs = zip(self._split(params), others, strict=True)
        return _sum([choice.kl_divergence(part, other) for (choice, part), other in pairs])

    def encode(self, action: Tensor) -> Tensor:
        return one_hot.encode(action, self._sizes)

    def center(self, params: Tensor) -> Tensor:
        return torch.cat([choice.center(part) for choice, part in self._split(params)], dim=-1)

    def _log_prob(self, params: Tensor, action: Tensor) -> Tensor:
        parts = zip(self._split(params), action.unbind(-1), strict=True)
        return _sum([choice._log_prob(logits, part) for (choice, logits), part in parts])

    def _split(self, params: Tensor) -> list[tuple[Categorical, Tensor]]:
        return list(zip(self._choices, params.split(self._sizes, dim=-1), strict=True))


class DiagonalGaussian(Distribution):
    """D real numbers, independent of each other given x: pi(a|x) = prod_d N(a_d; mean_d, std_d).

    P is 2 D; the parameters are D means, then D log standard deviations, clipped to `LOG_STD_RANGE`, beyond which they
    get no gradient. Actions are float32 [..., D], as drawn: the environment clips them to its bounds, and the ratio of
    two policies is that of the densities before clipping.

    Args:
        is_bounded: For each dimension, whether actions are clipped to [-1, 1]. Not used here, but a network may keep
            its means within.
    """

    params_name = "policy_params"
    action_dtype = torch.float32

    def __init__(self, is_bounded: list[bool]) -> None:
        self.is_bounded = is_bounded
        self.num_features = len(is_bounded)
        self.num_params = 2 * self.num_features
        self.action_shape = (self.num_features,)

    def sample(self, params: Tensor, generator: torch.Generator | None = None) -> Tensor:
        mean, log_std = self._split(params)
        noise = torch.empty_like(mean).normal_(generator=generator)
        return mean + log_std.exp() * noise

    def mode(self, params: Tensor) -> Tensor:
        return self._split(params)[0]

    def entropy(self, params: Tensor) -> Tensor:
        _, log_std = self._split(widen(params))
        return (0.5 + 0.5 * math.log(2 * math.pi) + log_std).sum(dim=-1)

    def kl_divergence(self, params: Tensor, other_params: Tensor) -> Tensor:
        mean, log_std = self._split(widen(params))
        other_mean, other_log_std = self._split(widen(other_params))
        ratio, distance = log_std - other_log_std, (mean - other_mean) / other_log_std.exp()
        return (0.5 * ((2 * ratio).exp() + distance.square() - 1) - ratio).sum(dim=-1)

    def encode(self, action: Tensor) -> Tensor:
        return action.clamp(-_LARGEST_ENCODED, _LARGEST_ENCODED)

    def center(self, params: Tensor) -> Tensor:
        return self._split(params)[0]

    def _log_prob(self, params: Tensor, action: Tensor) -> Tensor:
        mean, log_std = self._split(params)
        distance = (action - mean) / log_std.exp()
        return (-0.5 * (distance.square() + math.log(2 * math.pi)) - log_std).sum(dim=-1)

    def _split(self, params: Tensor) -> tuple[Tensor, Tensor]:
        mean, log_std = params.chunk(2, dim=-1)
        return mean, log_std.clamp(*LOG_STD_RANGE)


def for_space(space: Space) -> Distribution:
    """The distribution for an action space as seen by agents; see `monobeast.environments.Spaces`.

    Raises:
        ValueError: the space is of another kind.
    """
    if isinstance(space, Discrete) and space.start == 0:
        return Categorical(int(space.n))
    if isinstance(space, MultiDiscrete) and len(space.shape) == 1 and not space.start.any():
        return MultiCategorical([int(n) for n in space.nvec])
    if isinstance(space, Box) and len(space.shape) == 1 and space.dtype == "float32":
        return DiagonalGaussian((space.bounded_below & space.bounded_above).tolist())
    raise ValueError(
        f"action space {space}: must be Discrete or MultiDiscrete of one axis, both from 0, or a Box of float32 of one "
        "axis"
    )


def _sum(parts: list[Tensor]) -> Tensor:
    return torch.stack(parts).sum(dim=0)

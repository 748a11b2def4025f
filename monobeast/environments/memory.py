"""Memory: a task that only a recurrent state can solve."""

from typing import Any

import gymnasium

_WAIT = 0


class Memory(gymnasium.Env):
    """The first observation shows one of N cues; after `delay` blank observations the last one asks for it.

    Like the T-maze or bsuite's memory_len, but remembering through actions has a cost. Observations are Discrete(N +
    2): a random cue in 0..N-1, then N while nothing is shown, and N + 1 for the question. Actions are Discrete(N).
    Before the question, action 0 waits with reward 0, and every other action costs 1 / (delay + 1). The action after
    the question is the answer and ends the episode at step `delay + 2`, with reward 1 for the cue and 0 otherwise.

    The maximum mean return is 1. The chance level is 1 / N: the return of every policy that waits and then guesses.
    Uniformly random actions give 2 / N - 1.

    No policy without memory exceeds the chance level, discounted or not, even if it sees its last action and last
    reward. If all actions before the question were free, it could: by repeating the cue's number from step to step. To
    tell m cues apart at the question, it has to act differently after each of them in every step before, so at least m
    - 1 of them have cost 1 by then. It is right after at most m cues: m / N - (m - 1) / N = 1 / N.

    Args:
        num_cues: N, at least 2.
        delay: blank observations between cue and question, at least 0. Gradients reach the cue from the question only
            in unrolls of at least `delay + 2` steps.

    Raises:
        ValueError: a keyword is out of range; the message names keyword, value and range.
    """

    metadata: dict[str, Any] = {"render_modes": []}

    def __init__(self, num_cues: int = 2, delay: int = 10):
        _require_at_least(2, "num_cues", num_cues)
        _require_at_least(0, "delay", delay)
        self.observation_space = gymnasium.spaces.Discrete(num_cues + 2)
        self.action_space = gymnasium.spaces.Discrete(num_cues)
        self._num_cues, self._delay = num_cues, delay
        self._cue = self._step_number = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[int, dict[str, Any]]:
        super().reset(seed=seed)
        self._cue, self._step_number = int(self.np_random.integers(self._num_cues)), 0
        return self._cue, {}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        is_answer = self._step_number > self._delay
        reward = float(action == self._cue) if is_answer else self._price(action)
        self._step_number += 1
        is_question = self._step_number > self._delay  # after the answer too, since an observation is due
        return self._num_cues + is_question, reward, is_answer, False, {}

    def get_state(self) -> dict[str, Any]:
        """The exact state as plain values, for `set_state`."""
        return {"cue": self._cue, "step_number": self._step_number, "np_random": self.np_random.bit_generator.state}

    def set_state(self, state: dict[str, Any]) -> None:
        """Restores the state of `get_state`."""
        self._cue, self._step_number = state["cue"], state["step_number"]
        self.np_random.bit_generator.state = state["np_random"]

    def _price(self, action: int) -> float:
        # A higher one would do as well against notes, but it teaches to wait so early and so firmly that the question
        # is answered by waiting, too, and other answers are no longer tried.
        return 0.0 if action == _WAIT else -1 / (self._delay + 1)


def _require_at_least(low: int, name: str, value: int) -> None:
    if type(value) is not int or value < low:
        raise ValueError(f"{name} {value!r}: must be an int of at least {low}")

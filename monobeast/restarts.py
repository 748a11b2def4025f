"""Limits restarts, so that a fault that recurs at every start ends the run."""

import time
from collections import deque

_WINDOW_S = 3600.0


class RestartLimit:
    """`--max_actor_restarts`: a maximum number of restarts within any hour; as a string, the limit that was reached.

    Args:
        number: The maximum.
    """

    def __init__(self, number: int) -> None:
        self._number = number
        self._times: deque[float] = deque()

    def __str__(self) -> str:
        return f"--max_actor_restarts {self._number} within an hour"

    def take(self) -> bool:
        """Counts one more restart if allowed; returns whether it is."""
        now = time.monotonic()
        while self._times and now - self._times[0] > _WINDOW_S:
            self._times.popleft()
        if len(self._times) >= self._number:
            return False
        self._times.append(now)
        return True

"""How often what has failed is started anew: a fault that comes back with every start must come to an end."""

import time
from collections import deque

_WINDOW_S = 3600.0


class RestartLimit:
    """`--max_actor_restarts`: at most so many restarts within any hour; as a string, what was reached.

    Args:
        number: How many.
    """

    def __init__(self, number: int) -> None:
        self._number = number
        self._times: deque[float] = deque()

    def __str__(self) -> str:
        return f"--max_actor_restarts {self._number} within an hour"

    def take(self) -> bool:
        """Whether there may be one more now, which then counts."""
        now = time.monotonic()
        while self._times and now - self._times[0] > _WINDOW_S:
            self._times.popleft()
        if len(self._times) >= self._number:
            return False
        self._times.append(now)
        return True

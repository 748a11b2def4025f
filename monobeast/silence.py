"""Measures how long a process has been silent, with a clock that stops while the observer does."""

import time
from collections.abc import Callable

_LONGEST_LOOK_S = 2.0  # between two looks that nothing has delayed


class Silence:
    """Counts the seconds since the last sign of life.

    If the observer itself was stopped (as by Ctrl-Z) or busy, that time does not count.

    Args:
        clock: Gives seconds that never go back.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.seconds = 0.0
        self._clock = clock
        self._last_look = clock()

    def end(self) -> None:
        """Resets the count after a sign of life."""
        self.seconds = 0.0

    def look(self) -> float:
        """Updates the count; returns the seconds."""
        now = self._clock()
        self.seconds += min(now - self._last_look, _LONGEST_LOOK_S)
        self._last_look = now
        return self.seconds

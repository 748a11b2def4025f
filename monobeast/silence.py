"""How long a process has given no sign of life, by a clock that stands still while nobody looks."""

import time
from collections.abc import Callable

_LONGEST_LOOK_S = 2.0  # between two looks that nothing has delayed


class Silence:
    """Counts the seconds since the last sign.

    Whoever looks late was stopped (by Ctrl-Z, say) or busy; what it waits for is not to blame for that.

    Args:
        clock: Gives seconds that never go back.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.seconds = 0.0
        self._clock = clock
        self._last_look = clock()

    def end(self) -> None:
        """A sign came."""
        self.seconds = 0.0

    def look(self) -> float:
        """Counts on to now; returns the seconds."""
        now = self._clock()
        self.seconds += min(now - self._last_look, _LONGEST_LOOK_S)
        self._last_look = now
        return self.seconds

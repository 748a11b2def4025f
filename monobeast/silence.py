"""How long a process has given no sign of life, by a clock that stands still while nobody looks."""

import time

_LONGEST_LOOK_S = 2.0  # between two looks that nothing has delayed


class Silence:
    """Counts the seconds since the last sign.

    Whoever looks late was stopped (by Ctrl-Z, say) or busy; what it waits for is not to blame for that.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self._last_look = time.monotonic()

    def end(self) -> None:
        """A sign came."""
        self.seconds = 0.0

    def look(self) -> float:
        """Counts on to now; returns the seconds."""
        now = time.monotonic()
        self.seconds += min(now - self._last_look, _LONGEST_LOOK_S)
        self._last_look = now
        return self.seconds

"""Time that passes when a test says so."""


class HandClock:
    """In the place of `time.monotonic`."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now

    def tick(self, seconds):
        """So much time passes."""
        self.now += seconds

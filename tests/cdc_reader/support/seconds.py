"""A clock that counts seconds and advances only when someone sleeps."""

from __future__ import annotations

from cdc_reader.cluster.throttle import Throttle


class Seconds:
    """A clock in seconds, and a function that sleeps by it."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        """Advance the clock."""
        assert seconds >= 0
        self.now += seconds


def throttle(clock: Seconds, limit: float | None = None) -> Throttle:
    """Return a throttle that waits by this clock."""
    return Throttle(limit, clock, clock.sleep)

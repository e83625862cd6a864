"""A clock that counts seconds and advances only during sleeps."""

from __future__ import annotations

from cdc_reader.cluster.throttle import Throttle
from cdc_reader.reading.retry import Stop


class Seconds:
    """A clock in seconds that advances only when `sleep` is called."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        """Advance the clock by `seconds`."""
        assert seconds >= 0
        self.now += seconds

    def wait(self, _stop: Stop, seconds: float) -> None:
        """Advance the clock by `seconds`, without a stop."""
        self.sleep(seconds)


def throttle(clock: Seconds, limit: float | None = None) -> Throttle:
    """Return a throttle that measures time and sleeps with `clock`."""
    return Throttle(limit, clock, clock.wait)

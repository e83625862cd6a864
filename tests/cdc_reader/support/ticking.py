"""A clock that advances on every read."""

from __future__ import annotations

from cdc_reader.testing import ManualClock


class Ticking:
    """A clock that advances by `step` µs each time it is read."""

    def __init__(self, clock: ManualClock, step: int) -> None:
        self.ticks = 0
        self._clock = clock
        self._step = step
        self.sleep = clock.sleep

    def now(self) -> int:
        """Return the time, in µs since 1970."""
        self.ticks += 1
        return self._clock.advance(self._step)

"""A machine's clock that differs from the cluster's."""

from __future__ import annotations

import threading
from collections.abc import Callable

from cdc_reader.testing import ManualClock


def _nothing() -> None:
    pass


class WrongClock:
    """A clock that is `ahead` µs ahead of `clock`. Each sleep calls `on_sleep`."""

    def __init__(
        self, clock: ManualClock, ahead: int, on_sleep: Callable[[], None] = _nothing
    ) -> None:
        self.ahead = ahead
        self.slept = 0
        """The total length of all sleeps, in µs."""
        self._clock = clock
        self._on_sleep = on_sleep

    def now(self) -> int:
        """Return the time, in µs since 1970."""
        return self._clock.now() + self.ahead

    def sleep(self, micros: int, wake: threading.Event) -> None:
        """Advance the clock by `micros`, unless `wake` is set, and then call `on_sleep`."""
        self.slept += micros
        self._clock.sleep(micros, wake)
        self._on_sleep()

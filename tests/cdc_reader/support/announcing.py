"""A clock that publishes a generation during a sleep."""

from __future__ import annotations

import threading

from cdc_reader.testing import EmbeddedScylla, ManualClock


class Announcing:
    """A clock that is slow by `behind` µs. Sleep number `after` completes a held publication."""

    def __init__(
        self, server: EmbeddedScylla, clock: ManualClock, after: int, behind: int = 0
    ) -> None:
        self.sleeps = 0
        self._server = server
        self._clock = clock
        self._after = after
        self._behind = behind

    def now(self) -> int:
        """Return the time, in µs since 1970."""
        return self._clock.now() - self._behind

    def sleep(self, micros: int, wake: threading.Event) -> None:
        """Advance the clock by `micros`, unless `wake` is set, and count the sleep."""
        self.sleeps += 1
        self._clock.sleep(micros, wake)
        if self.sleeps == self._after:
            self._server.complete_publication()

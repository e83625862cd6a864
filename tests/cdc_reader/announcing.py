"""A clock that publishes a generation while its user sleeps."""

from __future__ import annotations

import threading

from cdc_reader.testing import EmbeddedScylla, ManualClock


class Announcing:
    """A clock whose sleep number `after` completes the publications that `server` holds back."""

    def __init__(self, server: EmbeddedScylla, clock: ManualClock, after: int) -> None:
        self.sleeps = 0
        self.now = clock.now
        self._server = server
        self._clock = clock
        self._after = after

    def sleep(self, micros: int, wake: threading.Event) -> None:
        """Advance by `micros`."""
        self.sleeps += 1
        self._clock.sleep(micros, wake)
        if self.sleeps == self._after:
            self._server.complete_publication()

"""A manual clock, which stands still until a test advances it."""

from __future__ import annotations

import threading


class ManualClock:
    """A `Clock` for tests: only `advance` and `sleep` move its time.

    Sleeping advances the clock at once, so nothing under test ever waits. Thread-safe.
    """

    def __init__(self, now: int) -> None:
        self._now = now
        self._lock = threading.Lock()

    def now(self) -> int:
        """Return the time, in µs since 1970."""
        return self._now

    def advance(self, micros: int) -> int:
        """Advance by `micros` and return the new time; raise ValueError if `micros` is negative."""
        if micros < 0:
            raise ValueError(
                f"advance by {micros} µs: expected 0 or more; time does not run backwards"
            )
        with self._lock:
            self._now += micros
            return self._now

    def sleep(self, micros: int, wake: threading.Event) -> None:
        """Advance the clock by `micros` at once, unless `wake` is already set."""
        if not wake.is_set():
            self.advance(micros)

"""The system's clock."""

from __future__ import annotations

import threading
import time


class SystemClock:
    """The `Clock` of production: wall time in µs, and a sleep that can be woken."""

    def now(self) -> int:
        """µs since 1970."""
        return time.time_ns() // 1_000

    def sleep(self, micros: int, wake: threading.Event) -> None:
        """Return after `micros`, or as soon as `wake` is set."""
        wake.wait(micros / 1_000_000)

"""A manual clock that readers treat as the cluster's."""

from __future__ import annotations

from typing import Self

from cdc_reader.cluster import ClusterClock
from cdc_reader.reading.retry import Interruption
from cdc_reader.testing import ManualClock


class TrustedClock(ManualClock, ClusterClock):
    """A `ManualClock` that readers do not correct, whatever the clocks of servers show."""

    def __init__(self, now: int) -> None:
        ManualClock.__init__(self, now)

    def interrupted_by(self, _interruption: Interruption) -> Self:
        """Return this clock, which never waits for a node."""
        return self

    def estimate(self) -> int:
        """Return the time, in µs since 1970."""
        return self.now()

    def correction(self) -> int:
        """Return 0, because the clock is never corrected."""
        return 0

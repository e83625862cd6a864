"""Limits the rate of queries, and slows down while nodes report that they are overloaded.

The limit is a token bucket. For an overloaded cluster, the rate changes as TCP's does in a
congested network: it halves immediately, then rises again gradually (additive increase,
multiplicative decrease).
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable

from cdc_reader._log import get_logger
from cdc_reader.errors import StoppedError
from cdc_reader.reading.retry import Stop

log = get_logger(__name__)

SLOWEST = 10.0
"""Queries per second that are still sent to an overloaded cluster, unless the limit is lower."""
RECOVERY = 30.0
"""Seconds from the last fall of the rate until only the limit applies again."""
_HOLD = 1.0
"""Minimum seconds between two falls of the rate, so that the lower rate can take effect."""
_BURST = 0.1
"""Seconds' worth of tokens that may accumulate, so that a thread that wakes late loses none."""


class Throttle:
    """Admits queries at no more than `limit` per second; None means no limit. Thread-safe.

    In any span of s seconds, at most ``limit * s + max(1, limit / 10)`` queries are admitted.

    When a node reports that it is overloaded, the rate falls to half of the recent rate, but not
    below `SLOWEST`. Reports about queries that were sent earlier, or up to a second later, do not
    lower the rate again. The rate then rises to the previous rate within half of `RECOVERY`.
    `RECOVERY` seconds after the rate last fell, only the limit applies. The rate falls even if
    there is no limit.
    """

    def __init__(
        self,
        limit: float | None = None,
        clock: Callable[[], float] = time.monotonic,
        wait: Callable[[Stop, float], bool | None] = Stop.wait,
    ) -> None:
        self._limit = _unbounded(limit)
        self._clock = clock
        self._wait = wait
        self._lock = threading.Lock()
        self._now = clock()
        self._tokens = 1.0
        self._sent_lately = 0.0
        self._slowed_at = -math.inf
        self._slowed_to = self._gain = 0.0

    def admit(self, stop: Stop) -> float:
        """Wait until a query may be sent, and return the time on the clock.

        Raises StoppedError if `stop` is set before.
        """
        with self._lock:
            now = self._advance()
            self._tokens -= 1.0
            self._sent_lately += 1.0
            missing = max(0.0, -self._tokens) / self._rate(now)
        if not missing:
            return now
        if self._wait(stop, missing):
            raise StoppedError("stopped while waiting to send a query")
        return self._clock()

    def overloaded(self, sent: float) -> None:
        """Slow down, because a query admitted at `sent` reached an overloaded node."""
        with self._lock:
            if sent < self._slowed_at + _HOLD:
                return
            now = self._advance()
            is_first = now - self._slowed_at >= RECOVERY
            before = min(self._rate(now), max(self._sent_lately, SLOWEST))
            self._slowed_to = max(before / 2, min(SLOWEST, self._limit))
            self._gain = before / RECOVERY
            self._slowed_at = now
            self._tokens = min(self._tokens, 0.0)
        emit = log.warning if is_first else log.debug
        emit("cluster_overloaded", queries_per_second=round(self._slowed_to, 1))

    def set_limit(self, limit: float | None) -> None:
        """Replace the limit; a rate lowered by overloaded nodes stays lowered."""
        with self._lock:
            self._advance()
            self._limit = _unbounded(limit)

    @property
    def rate(self) -> float:
        """The queries per second that may be sent now; infinite without a limit."""
        with self._lock:
            return self._rate(self._advance())

    def _rate(self, now: float) -> float:
        since = now - self._slowed_at
        if since >= RECOVERY:
            return self._limit
        return min(self._limit, self._slowed_to + self._gain * since)

    def _advance(self) -> float:
        """Add the tokens earned since the last call; return the time."""
        now = self._clock()
        passed, self._now = now - self._now, now
        self._sent_lately *= math.exp(-passed)  # roughly the queries of the last second
        rate = self._rate(now)
        earned = passed * rate if passed else 0.0
        self._tokens = min(max(1.0, rate * _BURST), self._tokens + earned)
        return now


def _unbounded(limit: float | None) -> float:
    return math.inf if limit is None else float(limit)

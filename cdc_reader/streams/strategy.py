"""Chooses how to read the next window: by streams or by ranges of the ring.

Reading chunks of streams is nearly always faster. Reading ranges is faster if there are many
streams and nearly all of them are empty, because a range query skips streams without rows. `auto`
decides by measuring: if there are many streams and few have rows, it tries ranges from time to
time, and uses ranges as long as they are faster.
"""

from __future__ import annotations

from enum import StrEnum

_FEW_QUERIES = 8
"""If a window takes at most this many queries, ranges are not tried."""
_SPARSE = 0.05
"""Ranges are tried only if the fraction of streams with rows is below this."""
_EVERY = 20
"""The number of windows between two attempts at the other strategy."""
_WEIGHT = 0.3
"""Weight of the latest window in the moving average."""


class Strategy(StrEnum):
    """How to read a window: by streams, by token ranges, or by whichever is faster (``auto``)."""

    STREAMS = "streams"
    RANGES = "ranges"
    AUTO = "auto"


class StrategyChoice:
    """Chooses the strategy for each window.

    If `is_open` is True, the choice depends on the costs passed to `record`. If the windows cover
    different numbers of streams, callers must pass comparable costs, such as the time per stream.
    """

    def __init__(self, wanted: Strategy) -> None:
        self._wanted = wanted
        self._cost: dict[Strategy, float] = {}
        self._best = Strategy.RANGES if wanted is Strategy.RANGES else Strategy.STREAMS
        self._since_attempt = 0
        self._is_sparse = False

    @property
    def is_open(self) -> bool:
        """True if the choice depends on measurements. When False, callers need not measure."""
        return self._wanted is Strategy.AUTO

    def next(self) -> Strategy:
        """Return the strategy for the next window: `STREAMS` or `RANGES`."""
        if not self._is_sparse or self._since_attempt < _EVERY:
            return self._best
        return _other(self._best)

    def record(self, used: Strategy, cost: float, queries: int, share: float) -> None:
        """Record the cost of reading a window, and the fraction of its streams that had rows.

        `queries` is the number of queries that the read took; it is ignored for reads by ranges.
        """
        if not self.is_open:
            return
        if used is Strategy.STREAMS:
            self._is_sparse = queries > _FEW_QUERIES and share < _SPARSE
        elif share > _SPARSE:
            self._is_sparse, self._best = False, Strategy.STREAMS
        self._since_attempt = 0 if used is not self._best else self._since_attempt + 1
        before = self._cost.get(used, cost)
        self._cost[used] = before + _WEIGHT * (cost - before)
        other = _other(self._best)
        if self._is_sparse and len(self._cost) > 1 and self._cost[other] < self._cost[self._best]:
            self._best = other


def _other(strategy: Strategy) -> Strategy:
    return Strategy.STREAMS if strategy is Strategy.RANGES else Strategy.RANGES

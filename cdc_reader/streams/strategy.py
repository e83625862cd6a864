"""Chooses how to read the next window: by streams or by ranges of the ring.

Reading chunks of streams is nearly always faster. Reading ranges may be faster if there are many
streams and fewer than a twentieth of them have rows, because a range query skips streams without
rows. While that is the case, ranges are tried from time to time, and used as long as they are
faster. They are not used while nodes report that they are overloaded.
"""

from __future__ import annotations

from enum import Enum, auto

FEW_QUERIES = 8
"""If a window takes at most this many queries, ranges are not tried."""
_EVERY = 20
"""The number of windows between two attempts at the other strategy."""
_WEIGHT = 0.3
"""Weight of the latest window in the moving average."""


class Strategy(Enum):
    """How to read a window."""

    STREAMS = auto()
    RANGES = auto()


def few(streams: int) -> int:
    """Return the largest number that is less than a twentieth of `streams`, or 0."""
    return max(0, (streams - 1) // 20)


class StrategyChoice:
    """Chooses the strategy for each window from the costs of earlier windows.

    If the windows cover different numbers of streams, callers must pass comparable costs, such as
    the time per stream.
    """

    def __init__(self) -> None:
        self._cost: dict[Strategy, float] = {}
        self._best = Strategy.STREAMS
        self._since_attempt = 0
        self._is_sparse = False

    def next(self) -> Strategy:
        """Return the strategy for the next window."""
        if not self._is_sparse or self._since_attempt < _EVERY:
            return self._best
        return _other(self._best)

    def record(self, used: Strategy, cost: float, queries: int, *, is_sparse: bool) -> None:
        """Record the cost of reading a window.

        `is_sparse` is True if only a `few` of its streams had rows, and no node was overloaded.
        `queries` is the number of queries that the read took; it is ignored for reads by ranges.
        """
        if used is Strategy.STREAMS:
            self._is_sparse = is_sparse and queries > FEW_QUERIES
        elif not is_sparse:
            self._is_sparse = False
        if not self._is_sparse:
            self._best = Strategy.STREAMS
        self._since_attempt = 0 if used is not self._best else self._since_attempt + 1
        before = self._cost.get(used, cost)
        self._cost[used] = before + _WEIGHT * (cost - before)
        other = _other(self._best)
        if self._is_sparse and len(self._cost) > 1 and self._cost[other] < self._cost[self._best]:
            self._best = other


def _other(strategy: Strategy) -> Strategy:
    return Strategy.STREAMS if strategy is Strategy.RANGES else Strategy.RANGES

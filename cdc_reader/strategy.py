"""Which of the two ways to read the next window, by streams or by ranges of the ring.

Chunks of streams are the better way nearly everywhere. Ranges pay where streams are many and
nearly all of them hold nothing at all, for a range skips streams that do not exist. What
`auto` does follows from what windows took: only there it tries ranges, now and then, and
keeps to them while they are quicker.
"""

from __future__ import annotations

from enum import StrEnum


class Strategy(StrEnum):
    """A way to read a window; ``auto`` takes the one that measures better."""

    STREAMS = "streams"
    RANGES = "ranges"
    AUTO = "auto"


_FEW_QUERIES = 8
"""So many queries a window are not worth an attempt to save any."""
_SPARSE = 0.05
"""The share of streams with rows above which ranges are not tried."""
_EVERY = 20
"""Windows from one attempt at the other way to the next."""
_WEIGHT = 0.3
"""Of the newest window in the running mean."""


class StrategyChoice:
    """Chooses a way window by window; `measured` is told what each took, if it `is_open`.

    A reader whose windows differ in what they ask for tells costs that can be compared: what
    they took for each stream, say.
    """

    def __init__(self, wanted: Strategy) -> None:
        self._wanted = wanted
        self._cost: dict[Strategy, float] = {}
        self._best = Strategy.RANGES if wanted is Strategy.RANGES else Strategy.STREAMS
        self._since_attempt = 0
        self._worth = False

    @property
    def is_open(self) -> bool:
        """Whether it hangs on measures: if not, none need be taken."""
        return self._wanted is Strategy.AUTO

    def next(self) -> Strategy:
        """How to read the next window: `STREAMS` or `RANGES`."""
        if not self._worth or self._since_attempt < _EVERY:
            return self._best
        return _other(self._best)

    def measured(self, used: Strategy, cost: float, queries: int, share: float) -> None:
        """A window cost so much time, and so large a share of the streams had rows; it has so
        many `queries`, which matter only of one that was read by streams.
        """
        if not self.is_open:
            return
        if used is Strategy.STREAMS:
            self._worth = queries > _FEW_QUERIES and share < _SPARSE
        elif share > _SPARSE:
            self._worth, self._best = False, Strategy.STREAMS
        self._since_attempt = 0 if used is not self._best else self._since_attempt + 1
        before = self._cost.get(used, cost)
        self._cost[used] = before + _WEIGHT * (cost - before)
        other = _other(self._best)
        if self._worth and len(self._cost) > 1 and self._cost[other] < self._cost[self._best]:
            self._best = other


def _other(strategy: Strategy) -> Strategy:
    return Strategy.STREAMS if strategy is Strategy.RANGES else Strategy.RANGES

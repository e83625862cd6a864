"""Cuts spans of the ring into ranges, sized by the rows of earlier ranges."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence

from cdc_reader.streams.ring import TokenRange, TokenRanges

_FIRST_SHARE = 4_096
"""The size of the ring divided by the size of the first range.

The first range is small, because it may contain many rows.
"""
_GROWTH, _SHRINKING = 4.0, 1 / 16
"""Limits of the next range's size, as multiples of the last range's size."""


class RangeCutter:
    """Cuts `spans`, in ring order, into ranges of about `target` rows.

    Where possible, a range ends at one of `ends`: the tokens at which owners change, ascending.
    """

    def __init__(self, spans: TokenRanges, ends: Sequence[int], target: int) -> None:
        self._left = list(spans)[::-1]
        self._ends = ends
        self._target = target
        self._size = max(1, (1 << 64) // _FIRST_SHARE)

    def next(self) -> TokenRange | None:
        """Return the next range, or None at the end."""
        if not self._left:
            return None
        span = self._left.pop()
        end = self._end(span)
        if end < span.end:
            self._left.append(TokenRange(end, span.end))
        return TokenRange(span.start, end)

    def put_back(self, ranges: Iterable[TokenRange]) -> None:
        """Return ranges to the spans that are left to cut, which stay in ring order."""
        self._left = list(TokenRanges([*self._left, *ranges]))[::-1]

    def record(self, read: TokenRange, rows: int) -> None:
        """Record that a range contained this many rows."""
        wished = self._target / rows if rows else _GROWTH
        self._size = max(1, int(read.size * min(max(wished, _SHRINKING), _GROWTH)))

    def _end(self, span: TokenRange) -> int:
        end = min(span.start + self._size, span.end)
        last = bisect_right(self._ends, end) - 1
        if end < span.end and last >= 0 and self._ends[last] > span.start:
            return self._ends[last]
        return end

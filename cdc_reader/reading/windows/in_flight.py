"""Decides how many queries a reader has in flight."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa

from cdc_reader._stats import overloads, waited
from cdc_reader.reading import tuning

_LATE = 0.001
"""Seconds of waiting after which a page counts as late."""
_FADING = 0.9
"""How much of the largest page's size remains after a smaller page."""


class InFlight:
    """The number of queries of one reader that may be in flight.

    It starts at `FIRST_IN_FLIGHT`. Each late page raises it by one, up to `MOST_IN_FLIGHT`, and it
    is halved if a node reports that it is overloaded. A query has at most one page in memory, so
    pages of the recent size take at most `HELD_BYTES`, or one page.
    """

    def __init__(self) -> None:
        self._wanted = tuning.FIRST_IN_FLIGHT
        self._page = 1.0

    @property
    def limit(self) -> int:
        """The number of queries to have in flight now."""
        return max(1, min(self._wanted, int(tuning.HELD_BYTES / self._page)))

    def each(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the batches of a query, one per page, and adapt to their sizes and delays."""
        while True:
            with self.adapting():
                batch = next(batches, None)
            if batch is None:
                return
            self.note(batch)
            yield batch

    @contextmanager
    def adapting(self) -> Iterator[None]:
        """Adapt to the time that this context waits for a page."""
        was_waited, were_overloads = waited(), overloads()
        try:
            yield
        finally:
            is_late = waited() - was_waited > _LATE
            self._adapt(is_late=is_late, is_overloaded=overloads() > were_overloads)

    def note(self, batch: pa.RecordBatch) -> None:
        """Adapt to the size of a page."""
        self._page = max(1.0, batch.nbytes, _FADING * self._page)

    def _adapt(self, *, is_late: bool, is_overloaded: bool) -> None:
        if is_overloaded:
            self._wanted = max(1, self._wanted // 2)
        elif is_late:
            self._wanted = min(self._wanted + 1, tuning.MOST_IN_FLIGHT)

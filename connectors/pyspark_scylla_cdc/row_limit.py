"""How long a span of write time holds about so many rows: a sample tells."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice

from attrs import frozen

from cdc_reader.ports import LogSource
from cdc_reader.task import Task
from cdc_reader.window import Window
from pyspark_scylla_cdc.plan import Span
from pyspark_scylla_cdc.streams import Streams

SAMPLE = 64
"""Streams of a generation that are looked at: one query."""
PAGES = 8
"""Pages that are read of them at most; a window with more is cut before it is counted."""
_ROUNDS, _MOST_ROUNDS = 5, 40
"""Looks at what was cut; as many as that only while no rows are found, of which a micro-batch would
be made for nothing. Half of the rest is taken then, so 40 find a row in any window.
"""


@frozen
class Cut:
    """An end of a window, and about how many rows the window then has."""

    end: int
    rows: int


class RowLimit:
    """Cuts windows so that they hold about `limit` rows, and last `shortest` µs at least."""

    def __init__(
        self, source: LogSource, streams: Callable[[int], Streams], limit: int, shortest: int
    ) -> None:
        self._source = source
        self._streams = streams
        self._limit = limit
        self._shortest = shortest

    def end(self, window: Window, spans: Callable[[Window], list[Span]]) -> int:
        """Where to end a window that begins like this one; `spans` is what one is made of.

        What is found decides, not what was: rows lie unevenly in time, so a window that was
        cut is looked at again, until it holds about half of the limit or more.
        """
        low, high = Cut(window.start, 0), Cut(window.end, 0)
        end = window.end
        for number in range(_MOST_ROUNDS):
            found = Cut(end, self._rows(spans(Window(window.start, end))))
            if found.rows > self._limit:
                high = found
            elif found.end == window.end or 2 * found.rows >= self._limit:
                return found.end
            else:
                low = found
            if high.end - low.end <= self._shortest or (number >= _ROUNDS and low.rows):
                break
            end = low.end + self._step(low, high, is_first=number == 0)
        return low.end if low.rows else high.end

    def _step(self, low: Cut, high: Cut, *, is_first: bool) -> int:
        """How far from `low` to look next: as if rows lay evenly, but no less than half of the
        way if none were found before there.
        """
        gap = high.end - low.end
        even = gap * (self._limit - low.rows) // (high.rows - low.rows)
        least = gap // 2 if not (is_first or low.rows) else self._shortest
        return min(max(even, least, self._shortest), gap - 1)

    def _rows(self, spans: list[Span]) -> int:
        return sum(self._estimate(span) for span in spans)

    def _estimate(self, span: Span) -> int:
        """About how many rows a whole generation has in a window."""
        streams = self._streams(span.generation)
        sample = streams.sample(SAMPLE)
        (task,) = sample.tasks(span.window, SAMPLE)
        return self._count(task) * len(streams) // len(sample)

    def _count(self, task: Task) -> int:
        return sum(batch.num_rows for batch in islice(self._source.read(task), PAGES))

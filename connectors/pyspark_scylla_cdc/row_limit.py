"""How long a span of write time holds about so many rows: a sample tells."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import chain

from attrs import frozen

from cdc_reader.ports import LogSource
from cdc_reader.window import Window
from pyspark_scylla_cdc.plan import Span
from pyspark_scylla_cdc.streams import Streams

SAMPLE, AT_ONCE = 512, 64
"""Streams of a generation that are looked at, and how many of them by one query."""
_COUNTED, _TOO_MANY = 2, math.inf
"""Times the limit that rows are counted to; how many there are beyond that is left open."""
_ROUNDS, _MOST_ROUNDS = 5, 40
"""Looks at what was cut; as many as that only while no rows are found, of which a micro-batch would
be made for nothing. Half of the rest is taken then, so 40 find a row in any window.
"""


@frozen
class Cut:
    """An end of a window, and about how many rows the window then has."""

    end: int
    rows: float


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
            is_quiet = low.end > window.start and not low.rows
            end = low.end + self._step(low, high, is_quiet=is_quiet)
        return low.end if low.rows else high.end

    def _step(self, low: Cut, high: Cut, *, is_quiet: bool) -> int:
        """How far from `low` to look next: as if rows lay evenly, or a quarter of the way if there
        were too many to count; but half of it if there are none before `low`.
        """
        gap = high.end - low.end
        if high.rows == _TOO_MANY:
            step = gap // 4
        else:
            step = int(gap * (self._limit - low.rows) / (high.rows - low.rows))
        return min(max(step, gap // 2 if is_quiet else 0, self._shortest), gap - 1)

    def _rows(self, spans: list[Span]) -> float:
        """About how many rows there are, if they are not too many."""
        rows = 0.0
        for span in spans:
            streams = self._streams(span.generation)
            sample = streams.sample(SAMPLE)
            share = len(streams) / len(sample)
            tasks = sample.tasks(span.window, AT_ONCE)
            for batch in chain.from_iterable(map(self._source.read, tasks)):
                rows += batch.num_rows * share
                if rows > _COUNTED * self._limit:
                    return _TOO_MANY
        return rows

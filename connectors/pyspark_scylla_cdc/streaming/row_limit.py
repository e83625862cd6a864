"""Estimates, from a sample, the span of write time that holds a given number of rows."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import chain

from attrs import evolve, frozen

from cdc_reader._time import FOREVER, Micros, duration_micros
from cdc_reader.cql.schema import BATCH_SEQ_NO, LogSchema
from cdc_reader.reading.ports import LogSource
from cdc_reader.streams.window import Window
from pyspark_scylla_cdc.options.source_options import SourceOptions
from pyspark_scylla_cdc.planning.plan import StreamSpan, spans
from pyspark_scylla_cdc.planning.streams import Streams
from pyspark_scylla_cdc.sessions import source_of, streams_loader, timeline_of

SAMPLE, AT_ONCE = 512, 64
"""The number of streams sampled in a generation, and of streams per query."""
_COUNTED, _TOO_MANY = 2, math.inf
"""Rows are counted up to this multiple of the limit; beyond it the count is "too many"."""
_ROUNDS, _MOST_ROUNDS = 5, 40
"""Most samples of a cut window, and most while no rows are found.

A window without rows would make an empty micro-batch. Each sample then halves the rest, so 40 of
them find a row in any window.
"""


@frozen
class Cut:
    """A possible end of a window, and the estimated number of rows up to it."""

    end: int
    rows: float


class RowLimit:
    """Cuts windows to about `limit` rows, but at least `shortest` µs."""

    def __init__(
        self, source: LogSource, streams: Callable[[Micros], Streams], limit: int, shortest: int
    ) -> None:
        self._source = source
        self._streams = streams
        self._limit = limit
        self._shortest = shortest

    def end(self, window: Window, spans: Callable[[Window], list[StreamSpan]]) -> Micros:
        """The end for a window that begins like this one; `spans` gives the spans of a window.

        Rows are unevenly distributed in time, so a cut window is sampled again, until it holds
        about half of the limit or more.
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
        """Return the distance from `low` to the next cut.

        It assumes an even distribution, or takes a quarter of the way if there were too many rows
        to count, or half if there are none before `low`.
        """
        gap = high.end - low.end
        if high.rows == _TOO_MANY:
            step = gap // 4
        else:
            step = int(gap * (self._limit - low.rows) / (high.rows - low.rows))
        return min(max(step, gap // 2 if is_quiet else 0, self._shortest), gap - 1)

    def _rows(self, spans: list[StreamSpan]) -> float:
        """Return the estimated number of rows, or "too many"."""
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


def row_limit(options: SourceOptions, schema: LogSchema) -> Callable[[Window], Micros]:
    """Make the function that limits a window to the rows that a micro-batch may have."""
    columns = tuple(column for column in schema.columns if column.name == BATCH_SEQ_NO)
    source = source_of(options.connection(), options.read, evolve(schema, columns=columns))
    streams = streams_loader(options, schema.base)
    shortest = duration_micros(options.min_advance)
    limit = RowLimit(source, streams, options.max_rows or FOREVER, shortest)

    def end(window: Window) -> Micros:
        timeline = timeline_of(options)
        return limit.end(window, lambda part: spans(timeline, part, lambda g: len(streams(g))))

    return end

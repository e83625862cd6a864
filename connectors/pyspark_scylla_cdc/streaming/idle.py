"""Skips windows without rows, which are not worth a micro-batch.

Spark runs a micro-batch for each new offset, and `processAllAvailable` returns only when there are
no new offsets. Therefore, before the position moves, the driver reads at most one row of the window
from each chunk of streams. A window found empty has settled, so it is not checked again.

If the log stays empty, the position still advances from time to time, so that a restarted query
does not have to start far back in the log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from attrs import evolve

from cdc_reader._time import BEGINNING, Micros
from cdc_reader.cql.schema import BATCH_SEQ_NO, LogSchema
from cdc_reader.reading import tuning
from cdc_reader.reading.ports import LogSource
from cdc_reader.reading.windows.fetch import read_tasks
from cdc_reader.reading.windows.in_flight import InFlight
from cdc_reader.streams.generation import Timeline
from cdc_reader.streams.task import Task
from cdc_reader.streams.window import Window
from pyspark_scylla_cdc.options.source_options import SourceOptions
from pyspark_scylla_cdc.planning.plan import StreamSpan, spans
from pyspark_scylla_cdc.planning.streams import Streams
from pyspark_scylla_cdc.sessions import cluster_for, streams_loader

MOST_QUERIES = 64
"""The maximum number of queries of one check.

If the check of a window would take more queries, the driver does not check the window. The position
then advances in steps whose length is in proportion to the number of queries: `STEP` for each
`MOST_QUERIES`, but at most `longest`.
"""
STEP = 1_000_000


class EmptyWindows:
    """Decides whether a window is worth a micro-batch; times in µs.

    A window of `longest` or more is worth a micro-batch even without rows, but not directly after
    another such window. Without this exception, `processAllAvailable` would never return if the
    trigger interval had that length. While no rows are found, the driver checks again each time the
    window has grown by `step`.
    """

    def __init__(self, probe: Callable[[], RowProbe], step: int, longest: int) -> None:
        self._make_probe = probe
        self._probe: RowProbe | None = None  # created on first use, after the reader was pickled
        self._step = step
        self._longest = longest
        self._moved_to = BEGINNING
        self._timeline = Timeline(())
        self._has_rows = False
        self._begin(BEGINNING)

    def is_long(self, window: Window) -> bool:
        """Return whether the settled window is worth a micro-batch even without rows."""
        is_long = window.length >= self._longest and window.start != self._moved_to
        if is_long:
            self._moved_to = window.end
        return is_long

    def has_rows(self, window: Window, timeline: Timeline) -> bool:
        """Return whether the settled window has rows in the streams of these generations.

        New generations may have rows in windows that were checked.
        """
        if window.start != self._position or timeline != self._timeline:
            self._begin(window.start)
            self._timeline = timeline
        self._has_rows = self._has_rows or self._finds_rows(window)
        if not self._has_rows:
            self._moved_to = BEGINNING
        return self._has_rows

    def _begin(self, position: Micros) -> None:
        """Discard all findings about the log after this position."""
        self._position = self._empty_until = position
        self._has_rows = False

    def _finds_rows(self, window: Window) -> bool:
        if window.end - self._empty_until < self._step:
            return False
        unseen = Window(self._empty_until, window.end)
        probe = self._probe = self._probe or self._make_probe()
        parts = probe.spans(self._timeline, unseen)
        if (queries := probe.queries(parts)) > MOST_QUERIES:
            return window.length >= min(self._longest, STEP * queries // MOST_QUERIES)
        if probe.finds_row(parts):
            return True
        self._empty_until = window.end
        return False


class RowProbe:
    """Reads one row of each chunk of streams; `source` returns at most one row per task."""

    def __init__(
        self,
        source: LogSource,
        streams: Callable[[Micros], Streams],
    ) -> None:
        self._source = source
        self._streams = streams
        self._in_flight = InFlight()
        self._first = 0

    def spans(self, timeline: Timeline, window: Window) -> list[StreamSpan]:
        """Return the spans of the window."""
        return spans(timeline, window, lambda generation: len(self._streams(generation)))

    def queries(self, parts: Sequence[StreamSpan]) -> int:
        """Return the number of queries needed to establish that `parts` have no rows."""
        return sum(-(-part.streams // tuning.STREAMS_PER_QUERY) for part in parts)

    def finds_row(self, parts: Sequence[StreamSpan]) -> bool:
        """Return True if there are rows.

        The task that last found a row is tried first, because hot streams stay hot.
        """
        tasks = [task for part in parts for task in self._tasks(part)]
        first = self._first % max(1, len(tasks))
        ordered = tasks[first:] + tasks[:first]
        for number, _ in read_tasks(self._source, ordered, self._in_flight):
            self._first = first + number
            return True
        return False

    def _tasks(self, part: StreamSpan) -> Iterator[Task]:
        streams = self._streams(part.generation)
        return streams.tasks(part.window, tuning.STREAMS_PER_QUERY)


def row_probe(options: SourceOptions, schema: LogSchema) -> RowProbe:
    """Make the probe that checks a window for rows, at the cost of a few queries."""
    columns = tuple(column for column in schema.columns if column.name == BATCH_SEQ_NO)
    cluster = cluster_for(options)
    source = cluster.source(evolve(schema, columns=columns), limit=1)
    streams = streams_loader(options, schema.base)
    return RowProbe(source, streams)

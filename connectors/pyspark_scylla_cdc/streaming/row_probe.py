"""Checks a window for rows: reads at most one row of each chunk of streams."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from attrs import evolve

from cdc_reader._time import Micros
from cdc_reader.cql.schema import BATCH_SEQ_NO, LogSchema
from cdc_reader.reading import tuning
from cdc_reader.reading.fetch import read_tasks
from cdc_reader.reading.in_flight import InFlight
from cdc_reader.reading.ports import LogSource
from cdc_reader.streams.generation import Timeline
from cdc_reader.streams.task import Task
from cdc_reader.streams.window import Window
from pyspark_scylla_cdc.options.source_options import SourceOptions
from pyspark_scylla_cdc.planning.plan import StreamSpan, spans
from pyspark_scylla_cdc.planning.streams import Streams
from pyspark_scylla_cdc.sessions import cluster_for, streams_loader


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

"""Checks a window for rows: reads at most one row of each chunk of streams."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from attrs import evolve

from cdc_reader._time import Micros
from cdc_reader.cql.schema import BATCH_SEQ_NO, LogSchema
from cdc_reader.reading.fetch import read_tasks
from cdc_reader.reading.ports import LogSource
from cdc_reader.streams.generation import Timeline
from cdc_reader.streams.strategy import Strategy
from cdc_reader.streams.task import RangeTask, Task
from cdc_reader.streams.window import Window
from pyspark_scylla_cdc.options.source_options import SourceOptions
from pyspark_scylla_cdc.planning.plan import StreamSpan, spans
from pyspark_scylla_cdc.planning.streams import Streams
from pyspark_scylla_cdc.sessions import source_of, streams_loader


class RowProbe:
    """Reads one row of each chunk of streams; `source` returns at most one row per task."""

    def __init__(
        self,
        source: LogSource,
        streams: Callable[[Micros], Streams],
        strategy: Strategy,
        chunk: int,
        in_flight: int,
    ) -> None:
        self._source = source
        self._streams = streams
        self._strategy = strategy
        self._chunk = chunk
        self._in_flight = in_flight
        self._first = 0

    def spans(self, timeline: Timeline, window: Window) -> list[StreamSpan]:
        """Return the spans of the window."""
        return spans(timeline, window, lambda generation: len(self._streams(generation)))

    def queries(self, parts: Sequence[StreamSpan]) -> int:
        """Return the number of queries needed to establish that `parts` have no rows."""
        if self._strategy is Strategy.RANGES:
            return len(parts)
        return sum(-(-part.streams // self._chunk) for part in parts)

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

    def _tasks(self, part: StreamSpan) -> Iterator[Task | RangeTask]:
        streams = self._streams(part.generation)
        if self._strategy is Strategy.RANGES:
            yield streams.range_task(part.window)
        else:
            yield from streams.tasks(part.window, self._chunk)


def row_probe(options: SourceOptions, schema: LogSchema) -> RowProbe:
    """Make the probe that checks a window for rows, at the cost of a few queries."""
    columns = tuple(column for column in schema.columns if column.name == BATCH_SEQ_NO)
    read = options.read
    source = source_of(options.connection(), read, evolve(schema, columns=columns), limit=1)
    streams = streams_loader(options, schema.base)
    return RowProbe(source, streams, options.read_strategy, read.chunk_size, read.in_flight)

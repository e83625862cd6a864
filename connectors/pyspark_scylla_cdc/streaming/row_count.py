"""Estimates the number and size of a window's rows from a sample of its streams."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import chain

import pyarrow as pa
from attrs import evolve, frozen

from cdc_reader._time import Micros
from cdc_reader.cql.schema import BATCH_SEQ_NO, Column, LogSchema
from cdc_reader.reading.ports import LogSource
from cdc_reader.streams.window import Window
from pyspark_scylla_cdc.options.source_options import SourceOptions
from pyspark_scylla_cdc.planning.plan import StreamSpan, spans
from pyspark_scylla_cdc.planning.streams import Streams
from pyspark_scylla_cdc.sessions import row_format, source_of, streams_loader, timeline_of

SAMPLE, AT_ONCE = 512, 64
"""The number of streams sampled in a generation, and the number of streams per query."""
TOO_MANY = math.inf
"""The result if counting ended early because there are too many rows."""
_WEIGHED = 64
"""The maximum number of rows that each query reads to estimate the size of rows."""


@frozen
class RowCount:
    """Estimates the number of rows, and their size, from samples.

    The source `keys` reads a small column of every row. The source `some` reads a few whole rows
    per query, with the same columns as the streaming query.
    """

    keys: LogSource
    some: LogSource
    streams: Callable[[Micros], Streams]
    spans: Callable[[Window], Sequence[StreamSpan]]

    def rows(self, window: Window, most: float) -> float:
        """Return the estimated number of rows, or TOO_MANY if it is above `most`."""
        rows = 0.0
        for batch, share in self._sampled(self.keys, window):
            rows += batch.num_rows * share
            if rows > most:
                return TOO_MANY
        return rows

    def row_size(self, window: Window) -> float | None:
        """Return the estimated size of a row in Arrow format, in bytes, or None without rows."""
        batches = [batch for batch, _ in self._sampled(self.some, window)]
        rows = sum(batch.num_rows for batch in batches)
        return sum(batch.nbytes for batch in batches) / rows if rows else None

    def _sampled(self, source: LogSource, window: Window) -> Iterator[tuple[pa.RecordBatch, float]]:
        """Yield rows of a sample of streams, with the number of rows that each represents."""
        for span in self.spans(window):
            streams = self.streams(span.generation)
            sample = streams.sample(SAMPLE)
            share = len(streams) / len(sample)
            tasks = sample.tasks(span.window, AT_ONCE)
            for batch in chain.from_iterable(map(source.read, tasks)):
                yield batch, share


def row_count(options: SourceOptions, schema: LogSchema) -> RowCount:
    """Return a `RowCount` for the rows of a query."""
    keys = tuple(column for column in schema.columns if column.name == BATCH_SEQ_NO)
    output = row_format(options, schema)
    streams = streams_loader(options, schema.base)

    def source(columns: Sequence[Column], limit: int | None = None) -> LogSource:
        read = evolve(schema, columns=tuple(columns))
        return source_of(options.connection(), options.read, read, limit, tolerant=True)

    return RowCount(
        source(keys),
        source(output.log_columns(output.schema.names), _WEIGHED),
        streams,
        lambda window: spans(timeline_of(options), window, lambda g: len(streams(g))),
    )

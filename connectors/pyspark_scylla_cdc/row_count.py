"""Estimates the number and size of a window's rows from a sample of its streams."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, groupby

import pyarrow as pa
from attrs import evolve, frozen

from cdc_reader._time import Micros
from cdc_reader.cql.schema import BATCH_SEQ_NO, STREAM_ID, LogSchema
from cdc_reader.reading.ports import LogSource
from cdc_reader.streams.generation import Timeline
from cdc_reader.streams.window import Window
from pyspark_scylla_cdc.options.source_options import SourceOptions
from pyspark_scylla_cdc.planning.plan import StreamSpan, spans
from pyspark_scylla_cdc.planning.streams import Streams
from pyspark_scylla_cdc.sessions import cluster_for, row_format, streams_loader

SAMPLE, AT_ONCE = 512, 64
"""The number of streams sampled in a generation, and the number of streams per query."""
TOO_MANY = math.inf
"""The result if counting ended early because there are too many rows."""
_WEIGHED = 8
"""The maximum number of rows of a stream that are read to weigh a window."""
_HALVINGS = 2
"""How often a window is halved to weigh streams that have more rows than were read."""


@frozen
class RowCount:
    """Estimates the number of rows, and their size, from samples.

    The sources `keys` and `ids` read a small column of every row: `ids` reads the stream. The
    source `some` reads at most `_WEIGHED` whole rows of each stream, with the same columns as the
    streaming query.
    """

    keys: LogSource
    ids: LogSource
    some: LogSource
    streams: Callable[[Micros], Streams]
    sample: int
    spans: Callable[[Window], Sequence[StreamSpan]]

    def rows(self, window: Window, most: float) -> float:
        """Return the estimated number of rows, or TOO_MANY if it is above `most`."""
        rows = 0.0
        for sample, part, share in self._samples(window):
            for batch in self._read(self.keys, sample, part):
                rows += batch.num_rows * share
                if rows > most:
                    return TOO_MANY
        return rows

    def size(self, window: Window, most: float) -> float:
        """Return the estimated size of the rows in Arrow format, or TOO_MANY if it is above `most`.

        Sizes are in bytes. Every stream is weighed on its own, because the rows of a hot stream may
        be larger than those of other streams.
        """
        size = 0.0
        for sample, part, share in self._samples(window):
            for found in self._sizes(sample, part, most / share):
                size += found * share
                if size > most:
                    return TOO_MANY
        return size

    def _sizes(
        self, streams: Streams, window: Window, most: float, halvings: int = _HALVINGS
    ) -> Iterator[float]:
        """Yield estimates, in bytes, whose sum is the size of the rows of `streams` in `window`.

        Streams with few rows are read whole. Other streams are weighed in each half of the window,
        because their rows may grow or shrink as time passes. In the smallest windows, their rows
        are counted, and have the mean size of the rows that were read. Reading ends after about
        `most` bytes.
        """
        sizes, rows = Counter[bytes](), Counter[bytes]()
        for batch in self._read(self.some, streams, window):
            for stream, part in _by_stream(batch):
                sizes[stream] += part.nbytes
                rows[stream] += part.num_rows
            if sizes.total() > most:
                yield sizes.total()
                return
        hot = {stream for stream, count in rows.items() if count >= _WEIGHED}
        yield sum(size for stream, size in sizes.items() if stream not in hot)
        left = Streams(b"".join(stream for stream in streams if stream in hot))
        if not hot:
            return
        if halvings and window.length > 1:
            middle = window.start + window.length // 2
            for half in (Window(window.start, middle), Window(middle, window.end)):
                yield from self._sizes(left, half, most, halvings - 1)
            return
        for batch in self._read(self.ids, left, window):
            for found in batch.column(STREAM_ID).value_counts().to_pylist():
                stream, count = found["values"], found["counts"]
                yield sizes[stream] / rows[stream] * count

    def _samples(self, window: Window) -> Iterator[tuple[Streams, Window, float]]:
        """Yield each generation's sample of streams and its part of the window.

        The third value is the number of streams that each stream of the sample represents.
        """
        for span in self.spans(window):
            streams = self.streams(span.generation)
            sample = streams.sample(self.sample)
            yield sample, span.window, len(streams) / len(sample)

    @staticmethod
    def _read(source: LogSource, streams: Streams, window: Window) -> Iterator[pa.RecordBatch]:
        return chain.from_iterable(map(source.read, streams.tasks(window, AT_ONCE)))


def _by_stream(batch: pa.RecordBatch) -> Iterator[tuple[bytes, pa.RecordBatch]]:
    """Yield the id and the rows of each stream of a batch; a stream's rows are adjacent."""
    first = 0
    for stream, rows in groupby(batch.column(STREAM_ID).to_pylist()):
        count = len(list(rows))
        yield stream, batch.slice(first, count)
        first += count


def row_count(
    options: SourceOptions, schema: LogSchema, timeline: Timeline, *, sample: int = SAMPLE
) -> RowCount:
    """Return a `RowCount` for a query's rows, from `sample` streams of each generation."""
    cluster = cluster_for(options)
    streams = streams_loader(options, schema.base)
    output = row_format(options, schema)

    def column(name: str) -> LogSource:
        columns = tuple(column for column in schema.columns if column.name == name)
        return cluster.source(evolve(schema, columns=columns), tolerant=True)

    whole = evolve(schema, columns=tuple(output.log_columns(output.schema.names)))
    return RowCount(
        column(BATCH_SEQ_NO),
        column(STREAM_ID),
        cluster.source(whole, _WEIGHED, tolerant=True, per_stream=True),
        streams,
        sample,
        lambda window: spans(timeline, window, lambda g: len(streams(g))),
    )

"""Batch reading: one window of the log, planned when Spark plans the query."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from cdc_reader.clock import SystemClock
from cdc_reader.duration import micros
from cdc_reader.schema import LogSchema
from cdc_reader.window import FOREVER, Window
from pyspark_scylla_cdc.log import expected, oldest_alive, plan, read_partition, timeline_of
from pyspark_scylla_cdc.options import SourceOptions
from pyspark_scylla_cdc.refusal import told_plainly
from pyspark_scylla_cdc.snapshot import snapshot_partitions

AHEAD = 60_000_000
"""µs past now that are read when no end is given: the server takes writes of clocks up to
5 s ahead of its own, and Spark's clock may be behind the server's."""


class BatchReader(DataSourceReader):
    """Reads what the options bound; without bounds, all that is in the log now."""

    def __init__(self, options: SourceOptions, schema: LogSchema, names: tuple[str, ...]) -> None:
        self._options = options
        self._schema = schema
        self._names = names

    @told_plainly()
    def partitions(self) -> list[InputPartition]:
        timeline = timeline_of(self._options)
        now = SystemClock().now()
        oldest = oldest_alive(timeline, self._schema.base.cdc.ttl, now)
        asked = self._options.window(now)
        first: list[InputPartition] = []
        if self._options.snapshot:
            position = max(oldest, now - micros(self._options.confidence_window))
            first += snapshot_partitions(position, self._options.max_partitions)
            asked = Window(position, asked.end)
        end = now + AHEAD if asked.end == FOREVER else asked.end
        window = Window(max(asked.start, oldest), end)
        filled = expected(self._options, self._alive(asked, now))
        return [*first, *plan(self._options, self._schema.base, timeline, window, filled)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_partition(self._options, self._schema, self._names, partition)

    def _alive(self, asked: Window, now: int) -> Window:
        """Where nearly all rows are: but for some with times of their writers' own, none lives
        longer than the log's TTL, and none is of the future.
        """
        ttl = self._schema.base.cdc.ttl
        start = max(asked.start, now - ttl * 1_000_000) if ttl else asked.start
        return Window(start, now if asked.end == FOREVER else asked.end)

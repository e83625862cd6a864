"""Batch reading: one window of the log, planned when Spark plans the query."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from cdc_reader.clock import SystemClock
from cdc_reader.schema import LogSchema
from cdc_reader.window import FOREVER, Window
from pyspark_scylla_cdc.log import oldest_alive, planner_of, read_log
from pyspark_scylla_cdc.options import SourceOptions
from pyspark_scylla_cdc.partition import LogPartition, partitions

AHEAD = 60_000_000
"""µs past now that are read when no end is given: the server takes writes of clocks up to
5 s ahead of its own, and Spark's clock may be behind the server's."""


class BatchReader(DataSourceReader):
    """Reads what the options bound; without bounds, all that is in the log now."""

    def __init__(self, options: SourceOptions, schema: LogSchema) -> None:
        self._options = options
        self._schema = schema

    def partitions(self) -> list[InputPartition]:
        planner = planner_of(self._options)
        now = SystemClock().now()
        oldest = oldest_alive(planner, self._schema.base.cdc.ttl, now)
        asked = self._options.window(now)
        end = now + AHEAD if asked.end == FOREVER else asked.end
        tasks = planner.plan(Window(max(asked.start, oldest), end))
        return [*partitions(tasks, self._options.max_partitions)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        tasks = partition.tasks() if isinstance(partition, LogPartition) else iter(())
        return read_log(self._options, self._schema, tasks)

"""Reads the rows of any kind of partition, in the requested format."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from cdc_reader._time import Clock
from cdc_reader.cql.schema import LogSchema
from pyspark_scylla_cdc.executors.log import log_rows
from pyspark_scylla_cdc.executors.snapshot import marks, snapshot_rows
from pyspark_scylla_cdc.options.errors import hide_traceback, with_remedy
from pyspark_scylla_cdc.options.source_options import SourceOptions
from pyspark_scylla_cdc.planning.partition import LatePartition, LogPartition, SourcePartition
from pyspark_scylla_cdc.planning.snapshot import MarkPartition, SnapshotPartition
from pyspark_scylla_cdc.sessions import share_rate, still_there


def read_partition(
    options: SourceOptions,
    schema: LogSchema,
    names: Collection[str],
    partition: InputPartition,
    clock: Clock,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of any kind of partition of this source, with the columns `names`.

    Yields nothing for a partition of another source.
    """
    with hide_traceback(), with_remedy(), still_there(options, schema):
        if isinstance(partition, SourcePartition):
            share_rate(options, partition.tasks)
        match partition:
            case LogPartition() | LatePartition():
                yield from log_rows(options, schema, names, partition, clock)
            case MarkPartition():
                yield from marks(options, schema, names, partition)
            case SnapshotPartition():
                yield from snapshot_rows(options, schema, names, partition, clock)

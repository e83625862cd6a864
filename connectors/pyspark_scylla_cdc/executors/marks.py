"""Yields the rows of format `changes` that mark the beginning and the end of a snapshot."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import pyarrow as pa

from cdc_reader.changes.frames.changes import ChangesFormat
from cdc_reader.cql.schema import LogSchema
from pyspark_scylla_cdc.options.source_options import SourceOptions
from pyspark_scylla_cdc.planning.snapshot import MarkPartition
from pyspark_scylla_cdc.schema import part_of
from pyspark_scylla_cdc.sessions import snapshot_format


def marks(
    options: SourceOptions, schema: LogSchema, names: Collection[str], partition: MarkPartition
) -> Iterator[pa.RecordBatch]:
    """Yield the snapshot mark of the partition; yield nothing unless the format is `changes`."""
    output = snapshot_format(options, schema)
    if isinstance(output, ChangesFormat):
        yield output.mark(partition.kind, part_of(output.schema, names), partition.position)

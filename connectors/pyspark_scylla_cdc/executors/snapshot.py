"""Reads a partition of a snapshot: the base table's rows in a span of tokens."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import pyarrow as pa

from cdc_reader.changes.frames.table_rows import table_rows
from cdc_reader.cluster import CqlRowSource
from cdc_reader.cql.schema import LogSchema
from cdc_reader.reading.fetch import read_ahead
from pyspark_scylla_cdc.options.source_options import SourceOptions
from pyspark_scylla_cdc.planning.snapshot import SnapshotPartition
from pyspark_scylla_cdc.sessions import connection_of, part_of, snapshot_format


def snapshot_rows(
    options: SourceOptions, schema: LogSchema, names: Collection[str], partition: SnapshotPartition
) -> Iterator[pa.RecordBatch]:
    """Yield the base table's rows in the requested format, with the columns `names`."""
    output = snapshot_format(options, schema)
    connection = connection_of(options.connection(), options.read)
    source = CqlRowSource(connection, schema.base, tolerant=output.is_tolerant)
    found = read_ahead(source.read, partition.spans(), options.read.in_flight)
    typed = options.format.types.convert((batch for _, batch in found), schema.base.columns)
    rows = table_rows(typed, schema.base)
    return output.snapshot(rows, part_of(output.schema, names), partition.position)

"""Reads a partition of a snapshot: the base table's rows in a span of tokens."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from functools import partial

import pyarrow as pa

from cdc_reader.cluster import Query
from cdc_reader.cluster.wire import Queries
from cdc_reader.cql.names import quoted
from cdc_reader.cql.schema import LogSchema, TableSchema
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
    read = partial(_span_rows, connection, schema.base, tolerant=output.is_tolerant)
    found = read_ahead(read, partition.spans(), options.read.in_flight)
    typed = options.types.convert((batch for _, batch in found), schema.base.columns)
    return output.snapshot(typed, part_of(output.schema, names), partition.position)


def _span_rows(
    queries: Queries, base: TableSchema, span: tuple[int, int], *, tolerant: bool = False
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a span of tokens; the first page is requested now.

    If `tolerant`, cells that cannot be decoded are noted instead of raised.
    """
    key = ", ".join(quoted(column.name) for column in base.partition_key)
    columns = ", ".join(quoted(column.name) for column in base.columns)
    where = f"token({key}) > ? AND token({key}) <= ?"
    cql = f"SELECT {columns} FROM {base.name.cql} WHERE {where} BYPASS CACHE"  # noqa: S608 - quoted
    query = Query(cql, span, columns=base.columns, doing=f"reading {base.name}")
    return (batch for batch in queries.batches(query, tolerant=tolerant) if batch.num_rows)

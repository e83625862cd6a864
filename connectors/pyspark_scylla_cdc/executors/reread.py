"""Reads the partitions of late rows again, as they are in the table now.

A late row is older than rows that were delivered before it, and cannot be applied after them. The
table has already put all of them in order.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

import pyarrow as pa

from cdc_reader._time import Clock, Micros
from cdc_reader.cluster.values import token_of
from cdc_reader.cql.schema import BATCH_SEQ_NO, OPERATION, TIME, LogSchema, Operation, TableSchema
from cdc_reader.cql.timeuuid import bound
from cdc_reader.cql.values import converter
from cdc_reader.streams.ring import TokenRange
from pyspark_scylla_cdc.executors.snapshot import snapshot_rows
from pyspark_scylla_cdc.options.source_options import SourceOptions
from pyspark_scylla_cdc.planning.snapshot import SnapshotPartition
from pyspark_scylla_cdc.schema import part_of
from pyspark_scylla_cdc.sessions import row_format


def partitions_now(
    options: SourceOptions,
    schema: LogSchema,
    names: Collection[str],
    rows: Iterable[pa.RecordBatch],
    clock: Clock,
) -> Iterator[pa.RecordBatch]:
    """Yield for each partition of the late `rows` a delete, and then the rows that it has now.

    `rows` are rows of the log with the columns of the partition key. The delete and the rows have
    the present as their write time, so they count as newer than all settled changes.
    """
    base, output = schema.base, row_format(options, schema)
    found = part_of(output.schema, names)
    for token, row in _partitions(base, rows).items():
        now = clock.now()
        yield from output.convert([_deleted(base, row, now)], found)
        tokens = TokenRange(token - 1, token)
        partition = SnapshotPartition(now + 1, tokens, ())
        yield from snapshot_rows(options, schema, names, partition, clock)


def _partitions(base: TableSchema, rows: Iterable[pa.RecordBatch]) -> dict[int, pa.RecordBatch]:
    """Return one row of each partition, by the partition's token."""
    found: dict[int, pa.RecordBatch] = {}
    for batch in rows:
        cells = {it.name: converter(it.type)(batch.column(it.name)) for it in base.partition_key}
        for at in range(batch.num_rows):
            token = token_of(base, {name: values[at] for name, values in cells.items()})
            found.setdefault(token, batch.slice(at, 1))
    return found


def _deleted(base: TableSchema, row: pa.RecordBatch, now: Micros) -> pa.RecordBatch:
    """Return a row of the log that deletes the partition of `row` at this time (µs)."""
    key = {column.name for column in base.partition_key}
    own = {
        TIME: str(bound(now)),
        BATCH_SEQ_NO: 0,
        OPERATION: int(Operation.PARTITION_DELETE),
    }
    cells = [
        row.column(each.name) if each.name in key else pa.array([own.get(each.name)], each.type)
        for each in row.schema
    ]
    return pa.record_batch(cells, schema=row.schema)

"""Deletes of partitions and ranges: refused, left out, or told with their bounds."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from cdc_reader.errors import ConfigurationError
from cdc_reader.operation import Operation
from cdc_reader.schema import TableSchema
from cdc_reader.timestamp import format_timestamp
from pyspark_scylla_cdc.commit_time import commit_timestamps
from pyspark_scylla_cdc.formats.arrays import NONE, Indices, booleans, pick
from pyspark_scylla_cdc.formats.asked import RangeDelete
from pyspark_scylla_cdc.formats.records import TIME
from pyspark_scylla_cdc.formats.row_changes import OPERATION, RangeDeletes, clustering_of
from pyspark_scylla_cdc.formats.value_types import ValueTypes

_INCLUSIVE = pa.array([Operation.RANGE_START_INCLUSIVE, Operation.RANGE_END_INCLUSIVE], pa.int8())


def range_type(base: TableSchema, types: ValueTypes) -> pa.DataType:
    """The type of the bounds; a bound has the clustering columns as far as they were given."""
    bound = pa.struct(types.fields(clustering_of(base)))
    return pa.struct(
        [
            ("start", bound),
            ("start_inclusive", pa.bool_()),
            ("end", bound),
            ("end_inclusive", pa.bool_()),
        ]
    )


def bounds(batch: pa.RecordBatch, starts: Indices, ends: Indices, kind: pa.DataType) -> pa.Array:
    """The ranges from these rows to those, of type `kind`, null where there are none."""
    key = list(kind.field("start").type)
    parts = [
        _bound(batch, starts, key),
        _inclusive(batch, starts),
        _bound(batch, ends, key),
        _inclusive(batch, ends),
    ]
    return pa.StructArray.from_arrays(parts, fields=list(kind), mask=pa.array(starts == NONE))


def permitted(
    batch: pa.RecordBatch, ranges: RangeDeletes, base: TableSchema, policy: RangeDelete
) -> RangeDeletes:
    """The deletes to emit; raises ConfigurationError if there are some and none may be."""
    if policy is RangeDelete.EMIT or ranges.first == NONE:
        return ranges
    if policy is RangeDelete.SKIP:
        return RangeDeletes(ranges.partitions[:0], ranges.starts[:0], ranges.ends[:0])
    (micros,) = commit_timestamps(batch.column(TIME).slice(ranges.first, 1)).cast(pa.int64())
    raise ConfigurationError(
        "rangeDeletes",
        policy.value,
        f"at {format_timestamp(micros.as_py())} {base.name} lost a whole partition or a range of "
        "rows at once, which no single row tells: give 'emit' to get such deletes with their "
        "bounds (format 'changes'), or 'skip' to leave them out",
    )


def _bound(batch: pa.RecordBatch, rows: Indices, key: list[pa.Field]) -> pa.Array:
    cells = [pick(batch.column(column.name), rows) for column in key]
    return pa.StructArray.from_arrays(cells, fields=key)


def _inclusive(batch: pa.RecordBatch, rows: Indices) -> pa.Array:
    operations = pick(batch.column(OPERATION), rows)
    return pa.array(booleans(pc.is_in(operations, _INCLUSIVE)))

"""Rejects or skips partition and range deletes, or emits them with their bounds."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from attrs import frozen

from cdc_reader._arrow import booleans
from cdc_reader._time import format_timestamp
from cdc_reader.changes.arrays import NONE, Indices, pick
from cdc_reader.changes.frames.commit_time import commit_timestamps
from cdc_reader.changes.frames.value_types import ValueTypes
from cdc_reader.changes.records import (
    RANGE_ENDS,
    RANGE_STARTS,
    ChangeRows,
    Records,
    partition_deletes,
)
from cdc_reader.cql.schema import OPERATION, TIME, Operation, TableSchema
from cdc_reader.errors import ConfigurationError, DecodeError

_INCLUSIVE = (Operation.RANGE_START_INCLUSIVE, Operation.RANGE_END_INCLUSIVE)


@frozen(eq=False)
class RangeDeletes:
    """Partition and range deletes, given by the indices of their log rows."""

    partitions: Indices
    starts: Indices
    ends: Indices

    @property
    def first(self) -> int:
        """The log row of the first partition or range delete, or NONE."""
        return int(min([*self.partitions[:1], *self.starts[:1]], default=NONE))


def range_deletes(records: Records, rows: ChangeRows, base: TableSchema) -> RangeDeletes:
    """Return the partition and range deletes of the records.

    Raises DecodeError if a range lacks its start or its end.
    """

    def found(operations: Iterable[Operation]) -> Indices:
        return np.flatnonzero(rows.having(operations))

    starts, ends = found(RANGE_STARTS), found(RANGE_ENDS)
    if not np.array_equal(rows.changes[starts], rows.changes[ends]):
        raise DecodeError(
            f"found {len(starts)} starts and {len(ends)} ends of range deletes in "
            f"{records.batch.num_rows} log rows, expected an end after each start"
        )
    return RangeDeletes(found(partition_deletes(base)), starts, ends)


def range_type(base: TableSchema, types: ValueTypes) -> pa.DataType:
    """Return the type of a range's bounds. Clustering columns that a bound lacks are null."""
    bound = pa.struct(types.fields(base.clustering))
    return pa.struct(
        [
            ("start", bound),
            ("start_inclusive", pa.bool_()),
            ("end", bound),
            ("end_inclusive", pa.bool_()),
        ]
    )


def bounds(batch: pa.RecordBatch, starts: Indices, ends: Indices, kind: pa.DataType) -> pa.Array:
    """Return the ranges between the log rows `starts` and `ends`, as an array of type `kind`.

    A range is null if its start is NONE.
    """
    key = list(kind.field("start").type)
    parts = [
        _bound(batch, starts, key),
        _inclusive(batch, starts),
        _bound(batch, ends, key),
        _inclusive(batch, ends),
    ]
    return pa.StructArray.from_arrays(parts, fields=list(kind), mask=pa.array(starts == NONE))


def permitted(
    batch: pa.RecordBatch, ranges: RangeDeletes, base: TableSchema, policy: str
) -> RangeDeletes:
    """Return the deletes that are emitted under the given policy.

    Raises ConfigurationError if there is a delete and the policy is ``fail``.
    """
    if policy == "emit" or ranges.first == NONE:
        return ranges
    if policy == "skip":
        return RangeDeletes(ranges.partitions[:0], ranges.starts[:0], ranges.ends[:0])
    (micros,) = commit_timestamps(batch.column(TIME).slice(ranges.first, 1)).cast(pa.int64())
    raise ConfigurationError(
        "range_deletes",
        policy,
        f"at {format_timestamp(micros.as_py())} one delete removed a whole partition or a range "
        f"of rows from {base.name}, which row images cannot show: give 'emit' to get such deletes "
        "with their bounds (format 'changes'), or 'skip' to leave them out",
    )


def _bound(batch: pa.RecordBatch, rows: Indices, key: list[pa.Field]) -> pa.Array:
    cells = [pick(batch.column(column.name), rows) for column in key]
    return pa.StructArray.from_arrays(cells, fields=key)


def _inclusive(batch: pa.RecordBatch, rows: Indices) -> pa.Array:
    operations = pick(batch.column(OPERATION), rows)
    return pa.array(booleans(pc.is_in(operations, pa.array(_INCLUSIVE, operations.type))))

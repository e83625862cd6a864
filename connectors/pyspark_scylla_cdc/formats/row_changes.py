"""What whole records say about base rows: which rows of the log belong to one change.

A record may hold several base rows, each with a preimage, deltas and a postimage, and those
of different rows interleave: all preimages first, then the deltas, then all postimages. TTLs
split one change into several deltas. So rows are grouped by record and clustering key, a
column at a time, and a change is a set of row numbers.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from attrs import frozen

from cdc_reader.errors import DecodeError, UnsupportedTableError
from cdc_reader.operation import Operation
from cdc_reader.schema import Column, ColumnKind, TableSchema
from pyspark_scylla_cdc.formats import records
from pyspark_scylla_cdc.formats.arrays import (
    NONE,
    Indices,
    Mask,
    any_of_each,
    codes,
    combined,
    last_of_each,
    valid,
)

OPERATION = "cdc$operation"
SEQUENCE = "cdc$batch_seq_no"
_UPSERTS = (Operation.UPDATE, Operation.INSERT)
_ROW_DELETES = (Operation.ROW_DELETE, Operation.SERVER_ROW_DELETE)
_PARTITION_DELETES = (Operation.PARTITION_DELETE, Operation.SERVER_PARTITION_DELETE)
_RANGE_STARTS = (Operation.RANGE_START_INCLUSIVE, Operation.RANGE_START_EXCLUSIVE)
_RANGE_ENDS = (Operation.RANGE_END_INCLUSIVE, Operation.RANGE_END_EXCLUSIVE)


@frozen(eq=False)
class RowChanges:
    """The changes of single rows, one a group; row numbers are NONE where there is none."""

    groups: Indices
    """For each row of the log the group it is in."""
    preimage: Indices
    postimage: Indices
    delete: Indices
    delta: Indices
    """The last of the group's inserts and updates."""
    has_insert: Mask
    is_static: Mask
    upserts: Mask
    """Which rows of the log are inserts or updates."""
    lies_in_delete: Mask
    """Groups whose record deletes a partition or ranges too."""

    @property
    def count(self) -> int:
        return len(self.preimage)


@frozen(eq=False)
class RangeDeletes:
    """Deletes of many rows at once, by the rows of the log that tell of them."""

    partitions: Indices
    starts: Indices
    ends: Indices

    @property
    def first(self) -> int:
        """The first row that tells of one; NONE if there is none."""
        return int(min([*self.partitions[:1], *self.starts[:1]], default=NONE))


def read_changes(batch: pa.RecordBatch, base: TableSchema) -> tuple[RowChanges, RangeDeletes]:
    """The changes in whole records of the log of `base`."""
    operations = batch.column(OPERATION).to_numpy()
    _refuse_unknown(operations, base)
    clustering = clustering_of(base)
    ranges = _range_deletes(batch, operations, records.numbers(batch), clustering)
    return _row_changes(batch, operations, clustering), ranges


def _row_changes(batch: pa.RecordBatch, operations: Indices, key: list[Column]) -> RowChanges:
    numbers = records.numbers(batch)
    many = _deletes_many(operations, key)
    groups = numbers
    for column in key:
        groups = combined(groups, codes(batch.column(column.name)))
    groups = np.where(many, NONE, groups)
    count = int(groups.max(initial=NONE)) + 1
    upserts = np.isin(operations, _UPSERTS)
    deletes = np.isin(operations, _row_deletes(key))

    def last(wanted: Mask) -> Indices:
        return last_of_each(groups, wanted, count)

    delta = last(upserts)
    return RowChanges(
        groups=groups,
        preimage=last(operations == Operation.PREIMAGE),
        postimage=last(operations == Operation.POSTIMAGE),
        delete=last(deletes),
        delta=delta,
        has_insert=any_of_each(groups, operations == Operation.INSERT, count),
        is_static=_is_static(batch, groups, count, key),
        upserts=upserts,
        lies_in_delete=np.isin(numbers, numbers[many])[delta],
    )


def _range_deletes(
    batch: pa.RecordBatch, operations: Indices, numbers: Indices, key: list[Column]
) -> RangeDeletes:
    starts = np.flatnonzero(np.isin(operations, _RANGE_STARTS))
    ends = np.flatnonzero(np.isin(operations, _RANGE_ENDS))
    if len(starts) != len(ends) or np.any(numbers[ends] != numbers[starts]):
        raise DecodeError(
            f"{len(starts)} starts and {len(ends)} ends of range deletes in {batch.num_rows} rows "
            "of the log: expected an end behind each start"
        )
    partitions = np.isin(operations, _PARTITION_DELETES) if key else np.zeros(len(operations), bool)
    return RangeDeletes(np.flatnonzero(partitions), starts, ends)


def clustering_of(base: TableSchema) -> list[Column]:
    """The clustering key, in its order."""
    return [column for column in base.columns if column.kind is ColumnKind.CLUSTERING]


def _row_deletes(key: list[Column]) -> tuple[Operation, ...]:
    """Without a clustering key a partition is a row."""
    return _ROW_DELETES if key else (*_ROW_DELETES, *_PARTITION_DELETES)


def _deletes_many(operations: Indices, key: list[Column]) -> Mask:
    ranges = (*_RANGE_STARTS, *_RANGE_ENDS)
    return np.isin(operations, (*ranges, *_PARTITION_DELETES) if key else ranges)


def _is_static(batch: pa.RecordBatch, groups: Indices, count: int, key: list[Column]) -> Mask:
    """A static row has no clustering key, where the table has one."""
    if not key:
        return np.zeros(count, bool)
    return any_of_each(groups, ~valid(batch.column(key[0].name)), count)


def _refuse_unknown(operations: Indices, base: TableSchema) -> None:
    for code in np.unique(operations):
        if not Operation(int(code)).is_known:
            raise UnsupportedTableError(
                f"the log of {base.name} has rows with operation {code}, which this version does "
                "not know: read it with format 'log', or install a newer scylla-cdc"
            )

"""Records: which rows of the log belong to one change of a base row.

A record is all rows of one stream with the same ``cdc$time``, logged by one write. It may cover
several base rows, each with a preimage, deltas and a postimage. These interleave: all preimages
come first, then the deltas, then all postimages. Different TTLs split one change into several
deltas. Log rows are therefore grouped by record and clustering key, a column at a time, and a
change is a set of row numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from attrs import frozen

from cdc_reader.changes.frames.arrays import (
    NONE,
    Indices,
    Mask,
    any_of_each,
    booleans,
    codes,
    combined,
    last_of_each,
    valid,
)
from cdc_reader.cql.schema import Column, ColumnKind, Operation, TableSchema
from cdc_reader.errors import DecodeError, UnsupportedTableError

STREAM_ID = "cdc$stream_id"

TIME = "cdc$time"


def whole_records(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the same rows in batches that begin and end at record boundaries.

    If a page ends within a record, that record's rows are held until the rest arrives. This takes
    more memory than one page only if a record spans many pages.
    """
    held: list[pa.RecordBatch] = []
    for batch in batches:
        if held and _same_record(held[0], 0, batch, batch.num_rows - 1):
            held.append(batch)
            continue
        joined = pa.concat_batches([*held, batch])
        last = int(np.flatnonzero(starts(joined))[-1])
        if last:
            yield joined.slice(0, last)
        held = [joined.slice(last)]
    if held:
        yield pa.concat_batches(held)


def starts(batch: pa.RecordBatch) -> Mask:
    """Return which rows are the first of their record; `batch` has each stream's rows in order."""
    first = np.ones(batch.num_rows, bool)
    if batch.num_rows > 1:
        first[1:] = _changes(batch.column(TIME)) | _changes(batch.column(STREAM_ID))
    return first


def record_numbers(batch: pa.RecordBatch) -> Indices:
    """Return the number of each row's record, from 0."""
    return np.cumsum(starts(batch)) - 1


def _changes(column: pa.Array) -> Mask:
    return booleans(pc.not_equal(column[1:], column[:-1]))


def _same_record(one: pa.RecordBatch, at: int, other: pa.RecordBatch, there: int) -> bool:
    return all(one.column(name)[at] == other.column(name)[there] for name in (TIME, STREAM_ID))


OPERATION = "cdc$operation"

BATCH_SEQ_NO = "cdc$batch_seq_no"

_UPSERTS = (Operation.UPDATE, Operation.INSERT)

_ROW_DELETES = (Operation.ROW_DELETE, Operation.SERVER_ROW_DELETE)

_PARTITION_DELETES = (Operation.PARTITION_DELETE, Operation.SERVER_PARTITION_DELETE)

_RANGE_STARTS = (Operation.RANGE_START_INCLUSIVE, Operation.RANGE_START_EXCLUSIVE)

_RANGE_ENDS = (Operation.RANGE_END_INCLUSIVE, Operation.RANGE_END_EXCLUSIVE)


@frozen(eq=False)
class RowChanges:
    """The changes of single rows, one per group; row numbers are NONE if there is no such row."""

    groups: Indices
    """The group of each log row."""
    preimage: Indices
    postimage: Indices
    delete: Indices
    delta: Indices
    """The last of the group's inserts and updates."""
    has_insert: Mask
    is_static: Mask
    upserts: Mask
    """Which log rows are inserts or updates."""
    lies_in_delete: Mask
    """Which groups have a record that also deletes a partition or ranges."""

    @property
    def count(self) -> int:
        return len(self.preimage)


@frozen(eq=False)
class RangeDeletes:
    """Deletes of partitions and ranges, by the numbers of their log rows."""

    partitions: Indices
    starts: Indices
    ends: Indices

    @property
    def first(self) -> int:
        """The log row of the first such delete; NONE if there is none."""
        return int(min([*self.partitions[:1], *self.starts[:1]], default=NONE))


def read_changes(batch: pa.RecordBatch, base: TableSchema) -> tuple[RowChanges, RangeDeletes]:
    """Return the changes in whole records of the log of `base`."""
    operations = batch.column(OPERATION).to_numpy()
    _refuse_unknown(operations, base)
    clustering = clustering_of(base)
    ranges = _range_deletes(batch, operations, record_numbers(batch), clustering)
    return _row_changes(batch, operations, clustering), ranges


def _row_changes(batch: pa.RecordBatch, operations: Indices, key: list[Column]) -> RowChanges:
    numbers = record_numbers(batch)
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
    """Return the clustering columns, in key order."""
    return [column for column in base.columns if column.kind is ColumnKind.CLUSTERING]


def _row_deletes(key: list[Column]) -> tuple[Operation, ...]:
    """Return the operations that delete one row; without a clustering key, a partition is one."""
    return _ROW_DELETES if key else (*_ROW_DELETES, *_PARTITION_DELETES)


def _deletes_many(operations: Indices, key: list[Column]) -> Mask:
    ranges = (*_RANGE_STARTS, *_RANGE_ENDS)
    return np.isin(operations, (*ranges, *_PARTITION_DELETES) if key else ranges)


def _is_static(batch: pa.RecordBatch, groups: Indices, count: int, key: list[Column]) -> Mask:
    """Return which groups are static rows: those without a clustering key in a table with one."""
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

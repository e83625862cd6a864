"""Records of the log, and the rows that make up each change.

A record consists of all log rows with the same stream and ``cdc$time``: what one write did to one
partition. It may cover several base rows, each with a preimage, deltas and a postimage. The rows of
one base row are not adjacent: all preimages come first, then all deltas, then all postimages. A
change that writes cells with different TTLs has several deltas. A record's rows are therefore
grouped by clustering key, one column at a time, and a change is a set of row numbers. A range
delete is a change of two rows, its start and its end. Every other row, such as a partition delete,
is a separate change.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property

import numpy as np
import pyarrow as pa
from attrs import frozen

from cdc_reader._arrow import Mask, booleans, to_arrow, to_numpy
from cdc_reader.changes.arrays import (
    Indices,
    any_of_each,
    codes,
    combined,
    first_of_each,
    key_cells,
    last_of_each,
    repeats,
)
from cdc_reader.cql.schema import (
    END_OF_BATCH,
    OPERATION,
    STREAM_ID,
    TIME,
    Operation,
    TableSchema,
)

PREIMAGES = (Operation.PREIMAGE,)

POSTIMAGES = (Operation.POSTIMAGE,)

IMAGES = PREIMAGES + POSTIMAGES

AFTER = (*POSTIMAGES, Operation.SNAPSHOT)
"""The operations of log rows that show a base row after the change."""

UPSERTS = (Operation.UPDATE, Operation.INSERT)

RANGE_STARTS = (Operation.RANGE_START_INCLUSIVE, Operation.RANGE_START_EXCLUSIVE)

RANGE_ENDS = (Operation.RANGE_END_INCLUSIVE, Operation.RANGE_END_EXCLUSIVE)

RANGE_BOUNDS = RANGE_STARTS + RANGE_ENDS

_PARTITION_DELETES = (Operation.PARTITION_DELETE, Operation.SERVER_PARTITION_DELETE)

_ROW_DELETES = (Operation.ROW_DELETE, Operation.SERVER_ROW_DELETE)


def row_deletes(base: TableSchema) -> tuple[Operation, ...]:
    """Return the operations that delete one row.

    If the table has no clustering key, a partition has one row, so partition deletes are included.
    """
    return _ROW_DELETES if base.clustering else _ROW_DELETES + _PARTITION_DELETES


def partition_deletes(base: TableSchema) -> tuple[Operation, ...]:
    """Return the operations that delete a whole partition.

    If the table has no clustering key, there are none: partition deletes count as row deletes.
    """
    return _PARTITION_DELETES if base.clustering else ()


@frozen(eq=False)
class Records:
    """Whole records, and the first row of each."""

    batch: pa.RecordBatch
    starts: Indices

    @cached_property
    def lengths(self) -> Indices:
        """The number of rows of each record."""
        return np.diff(self.starts, append=self.batch.num_rows)

    @cached_property
    def numbers(self) -> Indices:
        """For each row, the index of the record that it belongs to."""
        return np.repeat(np.arange(len(self.starts)), self.lengths)

    @property
    def are_complete(self) -> Mask:
        """For each record, whether `cdc$end_of_batch` is set in its last row.

        Every record counts as complete if the log lacks this column, as logs before ScyllaDB 4.3
        do.
        """
        if END_OF_BATCH not in self.batch.schema.names:
            return np.ones(len(self.starts), bool)
        marks = booleans(self.batch.column(END_OF_BATCH))
        last: Mask = marks[self.starts + self.lengths - 1]
        return last


class RecordBuffer:
    """Turns batches, given in order, into whole records.

    A record that spans pages is held until the rest of it arrives. The buffer takes more memory
    than one page only if a record spans many pages.
    """

    def __init__(self) -> None:
        self._held: list[pa.RecordBatch] = []

    def feed(self, batch: pa.RecordBatch) -> Records | None:
        """Return the records that this batch completes; None if there are none.

        The last record of the batch is complete if its end is marked; otherwise it is held until
        another record begins.
        """
        if not batch.num_rows:
            return None
        ends = _ends_record(batch)
        if self._held and not ends and _is_middle(batch, self._held[0]):
            self._held.append(batch)
            return None
        if self._held:
            batch, self._held = pa.concat_batches([*self._held, batch]), []
        starts = _starts(batch)
        if not ends:
            last = int(starts[-1])
            self._held = [batch.slice(last)]
            batch, starts = batch.slice(0, last), starts[:-1]
        return Records(batch, starts) if len(starts) else None

    def finish(self) -> Records | None:
        """Return the record that is still held, or None; the buffer can then be used again.

        The end of this record has not been read.
        """
        if not self._held:
            return None
        batch, self._held = pa.concat_batches(self._held), []
        return Records(batch, np.zeros(1, np.int64))


def whole_records(batches: Iterable[pa.RecordBatch]) -> Iterator[Records]:
    """Yield all rows of the batches, as whole records."""
    buffer = RecordBuffer()
    for batch in batches:
        if (records := buffer.feed(batch)) is not None:
            yield records
    if (rest := buffer.finish()) is not None:
        yield rest


def _ends_record(batch: pa.RecordBatch) -> bool:
    """Return whether the batch's last row is marked as the end of its record."""
    return END_OF_BATCH in batch.schema.names and batch.column(END_OF_BATCH)[-1].as_py() is True


def _is_middle(batch: pa.RecordBatch, held: pa.RecordBatch) -> bool:
    """Return whether the batch contains only rows of the record that begins in `held`."""
    return all(batch.column(name)[-1] == held.column(name)[0] for name in (TIME, STREAM_ID))


def _starts(batch: pa.RecordBatch) -> Indices:
    """Return the first row of each record. The rows of each stream must be in order."""
    first = np.ones(batch.num_rows, bool)
    first[1:] = ~(repeats(batch.column(TIME)) & repeats(batch.column(STREAM_ID)))
    return np.flatnonzero(first)


class ChangeRows:
    """The changes of whole records, as sets of row numbers.

    Changes are numbered from 0, record by record. Within a record, their order is the order of
    their first rows that are not images. Where a change lacks a row, such as a preimage, the row
    number is NONE.
    """

    def __init__(
        self, operations: Indices, changes: Indices, are_last: Mask, are_complete: Mask
    ) -> None:
        self.operations = operations
        """The code of each row's operation."""
        self.changes = changes
        """For each row, the index of the change that it belongs to."""
        self.are_last = are_last
        """For each change, whether it is the last of its record."""
        self.are_complete = are_complete
        """For each change, whether its record was read to the end."""

    @classmethod
    def of(cls, records: Records, base: TableSchema) -> ChangeRows:
        """Find the changes in records of the log of `base`."""
        operations: Indices = to_numpy(records.batch.column(OPERATION))
        changes = _changes(records, operations, base)
        ends = np.maximum.reduceat(changes, records.starts)  # the last change of each record
        are_last = np.zeros(ends[-1] + 1, bool)
        are_last[ends] = True
        are_complete = np.repeat(records.are_complete, np.diff(ends, prepend=-1))
        return cls(operations, changes, are_last, are_complete)

    @classmethod
    def of_one(cls, operations: list[int], *, is_last: bool, is_complete: bool) -> ChangeRows:
        """Return a single change that consists of all the rows."""
        rows = np.array(operations, np.int64)
        return cls(rows, np.zeros_like(rows), np.array([is_last]), np.array([is_complete]))

    @classmethod
    def of_snapshot(cls, count: int) -> ChangeRows:
        """Return a change for each of `count` rows of a snapshot."""
        whole = np.ones(count, bool)
        operations = np.full(count, int(Operation.SNAPSHOT), np.int64)
        return cls(operations, np.arange(count), whole, whole)

    def part(self, numbers: range) -> tuple[Indices, ChangeRows]:
        """Return the rows of consecutive changes, and these changes, renumbered from 0."""
        rows = np.flatnonzero((self.changes >= numbers.start) & (self.changes < numbers.stop))
        changes = self.changes[rows] - numbers.start
        among = slice(numbers.start, numbers.stop)
        are_last, are_complete = self.are_last[among], self.are_complete[among]
        return rows, ChangeRows(self.operations[rows], changes, are_last, are_complete)

    @property
    def count(self) -> int:
        """The number of changes."""
        return len(self.are_last)

    @cached_property
    def are_single(self) -> bool:
        """Whether every row is a separate change, so that row numbers are change numbers."""
        return self.count == len(self.changes)

    @cached_property
    def are_snapshot(self) -> bool:
        """Whether the rows are those of a snapshot, which are never mixed with rows of a log."""
        return bool(self.having((Operation.SNAPSHOT,)).any())

    def having(self, operations: Iterable[Operation]) -> Mask:
        """Return a mask of the rows that have one of these operations."""
        return _among(self.operations, operations)

    def last(self, wanted: Mask) -> Indices:
        """Return the last wanted row of each change."""
        return last_of_each(self.changes, wanted, self.count)

    def any(self, wanted: Mask) -> Mask:
        """Return, for each change, whether any of its rows is wanted."""
        return any_of_each(self.changes, wanted, self.count)

    @cached_property
    def first(self) -> Indices:
        """The first row of each change."""
        if self.are_single:
            return np.arange(self.count)
        return first_of_each(self.changes, np.ones(len(self.changes), bool), self.count)

    @cached_property
    def main(self) -> Indices:
        """The row of each change that determines its operation.

        This row is a delete if there is one, else an insert, else an update. It is an image only if
        the change has no other rows.
        """
        if self.are_single:
            return np.arange(self.count)
        found = self.first.copy()
        updates, inserts = (self.having((kind,)) for kind in UPSERTS)
        for wanted in (updates, inserts, ~(updates | inserts | self.having(IMAGES))):
            rows = first_of_each(self.changes, wanted, self.count)
            found = np.where(rows >= 0, rows, found)
        return found

    @cached_property
    def upserts(self) -> Mask:
        """A mask of the rows that are inserts or updates."""
        return self.having(UPSERTS)

    @cached_property
    def preimage(self) -> Indices:
        """The preimage of each change."""
        return self.last(self.having(PREIMAGES))

    @cached_property
    def postimage(self) -> Indices:
        """The row of each change that shows the base row after the change."""
        return self.last(self.having(AFTER))

    @cached_property
    def are_split(self) -> Mask:
        """For each change, whether it has more than one row that is not an image."""
        deltas = self.changes[~self.having(IMAGES)]
        return np.bincount(deltas, minlength=self.count) > 1

    @cached_property
    def order(self) -> Indices:
        """The rows, grouped by change."""
        return np.argsort(self.changes, kind="stable")

    @cached_property
    def bounds(self) -> Indices:
        """The indices in `order` at which each change's rows begin, and the length of `order`."""
        return np.concatenate([[0], np.cumsum(np.bincount(self.changes, minlength=self.count))])


def _changes(records: Records, operations: Indices, base: TableSchema) -> Indices:
    """Return, for each row, the index of the change that it belongs to."""
    count = len(operations)
    if len(records.starts) == count:
        return np.arange(count)
    key = [key_cells(records.batch, column.name) for column in base.clustering]
    of_row = _among(operations, (*IMAGES, *UPSERTS, *row_deletes(base)))
    begins = _begins(operations, of_row, key)
    begins[records.starts] = True
    first, runs = np.flatnonzero(begins), np.cumsum(begins) - 1
    if len(first) == len(records.starts):
        return runs
    cells = [column.take(to_arrow(first)) for column in key]
    groups = _groups(records.numbers[first], of_row[first], cells)
    return _in_order(groups[runs], _among(operations, IMAGES))


def _begins(operations: Indices, of_row: Mask, key: list[pa.Array]) -> Mask:
    """Return a mask of the rows that begin a run.

    A run consists of adjacent rows that belong to the same base row, or to the same range.
    """
    goes_on = of_row[1:] & of_row[:-1]
    for cells in key:
        goes_on &= repeats(cells)
    goes_on |= _among(operations[1:], RANGE_ENDS) & _among(operations[:-1], RANGE_STARTS)
    return np.concatenate([[True], ~goes_on])


def _groups(records: Indices, of_row: Mask, key: list[pa.Array]) -> Indices:
    """Number the runs of rows; runs of the same record and base row get the same number."""
    groups = records
    for cells in key:
        groups = combined(groups, codes(cells))
    alone = np.cumsum(~of_row)  # numbers the runs that do not belong to one base row
    return combined(groups, np.where(of_row, 0, alone))


def _in_order(groups: Indices, are_images: Mask) -> Indices:
    """Number the groups in the order of their first rows, skipping images if possible."""
    count = int(groups.max()) + 1
    deltas = first_of_each(groups, ~are_images, count)
    rows = first_of_each(groups, np.ones(len(groups), bool), count)
    place = np.empty(count, np.int64)
    place[np.argsort(np.where(deltas >= 0, deltas, rows))] = np.arange(count)
    return place[groups]


def _among(operations: Indices, wanted: Iterable[Operation]) -> Mask:
    """Return a mask of the operation codes that are wanted."""
    found = np.zeros(len(operations), bool)
    for operation in wanted:
        found |= operations == int(operation)
    return found

"""Net changes: what a record did to each base row, with the row's preimage and postimage."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
from attrs import evolve, fields, frozen

from cdc_reader._arrow import Mask, booleans, cells, filled, valid
from cdc_reader._time import FOREVER, format_timestamp
from cdc_reader.changes.arrays import NONE, Indices, at_rows, faulty, is_given, pick
from cdc_reader.changes.frames.change_format import ChangeFormat
from cdc_reader.changes.frames.commit_time import commit_timestamps
from cdc_reader.changes.frames.range_deletes import RangeDeletes, permitted, range_deletes
from cdc_reader.changes.frames.table_rows import base_values, is_empty
from cdc_reader.changes.lifetimes import Lifetimes, expiry_of
from cdc_reader.changes.records import (
    RANGE_BOUNDS,
    ChangeRows,
    Records,
    partition_deletes,
    row_deletes,
    whole_records,
)
from cdc_reader.cql.schema import (
    DELETED_PREFIX,
    REMOVED_PREFIX,
    TIME,
    TTL,
    Column,
    ImageMode,
    Operation,
    TableSchema,
)
from cdc_reader.cql.types import is_multi_cell
from cdc_reader.errors import SchemaError, UnsupportedTableError

INSERT, UPDATE, DELETE = range(3)


def read_changes(
    batches: Iterable[pa.RecordBatch], base: TableSchema, wanted: ChangeFormat
) -> Iterator[tuple[NetChanges, RangeDeletes]]:
    """Yield the net changes of single rows, and the partition and range deletes to emit."""
    for records in whole_records(batches):
        rows = ChangeRows.of(records, base)
        _refuse_unknown(rows, base)
        ranges = range_deletes(records, rows, base)
        ranges = permitted(records.batch, ranges, base, wanted.range_deletes)
        yield net_changes(records, rows, base, is_tolerant=wanted.on_bad_record != "fail"), ranges


@frozen(eq=False)
class NetChanges:
    """One entry per base row and record, even if several statements changed the row.

    For each entry, `at` is the log row that represents the change, and `before` and `after` are the
    log rows of its preimage and postimage, or NONE if the image is missing. A row that is both
    written and deleted in one record counts as deleted. `number` is the index of the change in
    `rows`. Where `lacks_postimage` is True, `at` is a delta row.
    """

    batch: pa.RecordBatch
    rows: ChangeRows
    number: Indices
    kind: Indices
    at: Indices
    before: Indices
    after: Indices
    has_insert: Mask
    is_static: Mask
    lacks_postimage: Mask

    @property
    def in_order(self) -> NetChanges:
        """These net changes, sorted in the order of the log."""
        if np.all(self.at[1:] > self.at[:-1]):
            return self
        order = np.argsort(self.at, kind="stable")
        names = (field.name for field in fields(NetChanges) if field.name not in ("batch", "rows"))
        return evolve(self, **{name: getattr(self, name)[order] for name in names})

    def key(self, name: str) -> pa.Array:
        """Return the changes' cells of a key column."""
        return pick(self.batch.column(name), self.at)

    def values_before(self, column: Column) -> pa.Array:
        """Return the column's values before the changes; null if there is no preimage."""
        return base_values(pick(self.batch.column(column.name), self.before), column)

    def values_after(self, column: Column, *, postimages: bool) -> pa.Array:
        """Return the values after the changes; without `postimages`, the values that were set."""
        logged = self.batch.column(column.name)
        rows = self.after if postimages else self._last_delta(column)
        return base_values(pick(logged, rows), column)

    def faults_after(self, columns: Iterable[Column], *, postimages: bool) -> Mask:
        """Return a mask of the changes with a faulty key or new value, or a missing postimage."""
        found = at_rows(faulty(self.batch), self.at)
        for column in () if postimages else columns:
            if (faults := faulty(self.batch, column.name)).any():
                found |= at_rows(faults, self._last_delta(column)) & (self.kind != DELETE)
        return found | self.lacks_postimage

    def modified(self, column: Column) -> Mask:
        """Return a mask of the inserts and updates that touched the column."""
        touched = booleans(_is_touched(self.batch, column))
        return self._any_delta(touched)

    def set_to_null(self, column: Column) -> Mask:
        """Return a mask of the changes that set the column to null and added no elements."""
        deleted = booleans(self.batch.column(DELETED_PREFIX + column.name))
        logged = self.batch.column(column.name)
        given = valid(logged)
        if is_multi_cell(column.type):
            given &= ~booleans(is_empty(logged, column))
        given |= faulty(self.batch, column.name)
        return self._any_delta(deleted) & ~self._any_delta(given)

    def lifetimes(self, columns: Iterable[Column]) -> Lifetimes:
        """Return when what each change wrote into these columns expires, by its write time."""
        batch, rows = self.batch, self.rows
        times = cells(commit_timestamps(batch.column(TIME)).cast(pa.int64()))
        ttls = filled(batch.column(TTL), 0).astype(np.int64)
        expiries = np.where(ttls > 0, expiry_of(times, ttls), FOREVER)
        lives = rows.having((Operation.INSERT,))
        for column in columns:
            logged = batch.column(column.name)
            given = is_given(batch, column.name)
            if is_multi_cell(column.type):
                given &= ~booleans(is_empty(logged, column))
            lives = lives | given
        of_rows = Lifetimes.of_parts([expiries], [lives], batch.num_rows)
        wanted = rows.upserts & lives
        return of_rows.of_each(rows.changes, wanted, rows.count).at(self.number)

    def _last_delta(self, column: Column) -> Indices:
        given = is_given(self.batch, column.name)
        return self.rows.last(self.rows.upserts & given)[self.number]

    def _any_delta(self, wanted: Mask) -> Mask:
        return self.rows.any(self.rows.upserts & wanted)[self.number]


def net_changes(
    records: Records, rows: ChangeRows, base: TableSchema, *, is_tolerant: bool
) -> NetChanges:
    """Return the net changes of records.

    Raises SchemaError if a postimage is missing, unless `is_tolerant` is True.

    Rows covered by a delete of a partition or range in the same record have no postimage. They
    are omitted, because the delete represents them.
    """
    delete, upsert = rows.last(rows.having(row_deletes(base))), rows.last(rows.upserts)
    deleted, upserted = delete != NONE, upsert != NONE
    covered = lacking = np.zeros(rows.count, bool)
    if base.cdc.postimage:
        missing = upserted & ~deleted & (rows.postimage == NONE)
        covered = missing & _lie_in_delete(records, rows, base)
        lacking = missing & ~covered
        if not is_tolerant:
            _refuse_missing(records.batch, base, upsert[lacking])
    number = np.flatnonzero(deleted | (upserted & ~covered))
    shown = np.where(lacking, upsert, rows.postimage) if base.cdc.postimage else upsert
    has_insert = rows.any(rows.having((Operation.INSERT,)))
    is_static = _are_static(records.batch, rows, base)
    inserted = _are_inserts(rows, has_insert, is_static, base)
    return NetChanges(
        batch=records.batch,
        rows=rows,
        number=number,
        kind=np.where(deleted, DELETE, np.where(inserted, INSERT, UPDATE))[number],
        at=np.where(deleted, delete, shown)[number],
        before=rows.preimage[number],
        after=np.where(deleted, NONE, rows.postimage)[number],
        has_insert=has_insert[number],
        is_static=is_static[number],
        lacks_postimage=lacking[number],
    )


def _are_inserts(rows: ChangeRows, has_insert: Mask, is_static: Mask, base: TableSchema) -> Mask:
    """Return a mask of the changes that insert new rows.

    An INSERT may write to an existing row, and an UPDATE may create a row. Only preimages show
    whether the row existed. A static row exists as soon as its partition does.
    """
    may_insert = has_insert if base.cdc.preimage is ImageMode.OFF else np.ones(rows.count, bool)
    inserted: Mask = may_insert & (rows.preimage == NONE) & ~is_static
    return inserted


def _are_static(batch: pa.RecordBatch, rows: ChangeRows, base: TableSchema) -> Mask:
    """Return a mask of the changes to static rows, which lack the table's clustering key."""
    if not (key := base.clustering):
        return np.zeros(rows.count, bool)
    return ~is_given(batch, key[0].name)[rows.first]


def _lie_in_delete(records: Records, rows: ChangeRows, base: TableSchema) -> Mask:
    """Return a mask of the changes whose record also deletes a partition or ranges."""
    deletes = rows.having((*RANGE_BOUNDS, *partition_deletes(base)))
    found = np.zeros(len(records.starts), bool)
    found[records.numbers[deletes]] = True
    return found[records.numbers[rows.first]]


def _is_touched(batch: pa.RecordBatch, column: Column) -> pa.Array:
    """Return a mask of the log rows that set or delete the column, or remove elements from it."""
    touched = is_given(batch, column.name)
    touched |= booleans(batch.column(DELETED_PREFIX + column.name))
    if is_multi_cell(column.type):
        touched |= is_given(batch, REMOVED_PREFIX + column.name)
    return pa.array(touched)


def _refuse_missing(batch: pa.RecordBatch, base: TableSchema, rows: Indices) -> None:
    if not len(rows):
        return
    (micros,) = commit_timestamps(batch.column(TIME).take(pa.array(rows[-1:]))).cast(pa.int64())
    raise SchemaError(
        f"{base.name}: the change at {format_timestamp(micros.as_py())} has no postimage in the "
        "log, probably because it was made before the table's postimages were turned on: give a "
        "later start, or read with format 'log'"
    )


def _refuse_unknown(rows: ChangeRows, base: TableSchema) -> None:
    for code in np.unique(rows.operations):
        if not Operation(int(code)).is_known:
            raise UnsupportedTableError(
                f"the log of {base.name} has rows with operation {code}, which this version does "
                "not know: read it with format 'log', or install a newer scylla-cdc"
            )

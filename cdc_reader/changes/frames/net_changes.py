"""Net changes: what a record did to each base row, and its preimage and postimage."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from attrs import frozen

from cdc_reader._time import format_timestamp
from cdc_reader.changes.frames.arrays import (
    NONE,
    Indices,
    Mask,
    any_of_each,
    booleans,
    last_of_each,
    pick,
    valid,
)
from cdc_reader.changes.frames.columns import DELETED, DELETED_ELEMENTS
from cdc_reader.changes.frames.commit_time import commit_timestamps
from cdc_reader.changes.frames.records import TIME, RowChanges
from cdc_reader.changes.frames.table_rows import base_values, is_empty
from cdc_reader.cql.schema import Column, ImageMode, TableSchema
from cdc_reader.cql.types import is_multi_cell
from cdc_reader.errors import SchemaError

INSERT, UPDATE, DELETE = range(3)


@frozen(eq=False)
class NetChanges:
    """One entry per base row and record, even if several statements changed the row.

    `at` is the log row that represents the change, `before` the preimage and `after` the
    postimage, or NONE without one. A row written and deleted in one record counts as deleted.
    """

    batch: pa.RecordBatch
    rows: RowChanges
    group: Indices
    kind: Indices
    at: Indices
    before: Indices
    after: Indices

    def values_before(self, column: Column) -> pa.Array:
        """Return the column before the change; null without a preimage."""
        return base_values(pick(self.batch.column(column.name), self.before), column)

    def values_after(self, column: Column, *, postimages: bool) -> pa.Array:
        """Return the column after the change or, without `postimages`, the value that was set."""
        logged = self.batch.column(column.name)
        project = self.after if postimages else self._last_delta(logged)
        return base_values(pick(logged, project), column)

    def shown_before(self, column: Column) -> Mask:
        """Return where the preimage shows the column, even as null."""
        shown = pick(_is_touched(self.batch, column), self.before)
        return booleans(shown)

    def modified(self, column: Column) -> Mask:
        """Return where an insert or update touched the column."""
        touched = booleans(_is_touched(self.batch, column))
        return self._any_delta(touched)

    def set_to_null(self, column: Column) -> Mask:
        """Return where the change set the column to null and added no elements."""
        deleted = booleans(self.batch.column(DELETED + column.name))
        logged = self.batch.column(column.name)
        given = valid(logged)
        if is_multi_cell(column.type):
            given &= ~booleans(is_empty(logged, column))
        return self._any_delta(deleted) & ~self._any_delta(given)

    def _last_delta(self, logged: pa.Array) -> Indices:
        rows = self.rows
        return last_of_each(rows.groups, rows.upserts & valid(logged), rows.count)[self.group]

    def _any_delta(self, wanted: Mask) -> Mask:
        rows = self.rows
        return any_of_each(rows.groups, rows.upserts & wanted, rows.count)[self.group]


def net_changes(batch: pa.RecordBatch, rows: RowChanges, base: TableSchema) -> NetChanges:
    """Return the net changes of whole records; raise SchemaError if a postimage is missing.

    Rows covered by a delete of a partition or range in the same record have no postimage. They
    are omitted, because that delete represents them.
    """
    deleted, upserted = rows.delete != NONE, rows.delta != NONE
    covered = np.zeros(rows.count, bool)
    if base.cdc.postimage:
        missing = upserted & ~deleted & (rows.postimage == NONE)
        covered = missing & rows.lies_in_delete
        _refuse_missing(batch, base, rows.delta[missing & ~covered])
    group = np.flatnonzero(deleted | (upserted & ~covered))
    told = rows.postimage if base.cdc.postimage else rows.delta
    return NetChanges(
        batch=batch,
        rows=rows,
        group=group,
        kind=np.where(deleted, DELETE, np.where(_inserted(rows, base), INSERT, UPDATE))[group],
        at=np.where(deleted, rows.delete, told)[group],
        before=rows.preimage[group],
        after=np.where(deleted, NONE, rows.postimage)[group],
    )


def _inserted(rows: RowChanges, base: TableSchema) -> Mask:
    """Return which rows are new.

    An INSERT may hit an existing row, and an UPDATE a missing one; only preimages tell. A static
    row exists as soon as its partition does.
    """
    told = rows.has_insert if base.cdc.preimage is ImageMode.OFF else np.ones(rows.count, bool)
    inserted: Mask = told & (rows.preimage == NONE) & ~rows.is_static
    return inserted


def _is_touched(batch: pa.RecordBatch, column: Column) -> pa.Array:
    """Return which log rows show the column: a value, null, or removed elements."""
    touched = valid(batch.column(column.name))
    touched |= booleans(batch.column(DELETED + column.name))
    if is_multi_cell(column.type):
        touched |= valid(batch.column(DELETED_ELEMENTS + column.name))
    return pa.array(touched)


def _refuse_missing(batch: pa.RecordBatch, base: TableSchema, rows: Indices) -> None:
    if not len(rows):
        return
    (micros,) = commit_timestamps(batch.column(TIME).take(pa.array(rows[-1:]))).cast(pa.int64())
    raise SchemaError(
        f"{base.name}: a change of {format_timestamp(micros.as_py())} has no postimage in the "
        "log, as if it was made before the table's postimages were turned on: give a later "
        "startingTimestamp, or read with format 'log'"
    )

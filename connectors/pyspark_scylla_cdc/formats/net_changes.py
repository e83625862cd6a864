"""What became of each base row in its record, and where the log shows it before and after."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from attrs import frozen

from cdc_reader.cql_type import is_multi_cell
from cdc_reader.errors import SchemaError
from cdc_reader.schema import Column, ImageMode, TableSchema
from cdc_reader.timestamp import format_timestamp
from pyspark_scylla_cdc.commit_time import commit_timestamps
from pyspark_scylla_cdc.formats.arrays import (
    NONE,
    Indices,
    Mask,
    any_of_each,
    booleans,
    last_of_each,
    pick,
    valid,
)
from pyspark_scylla_cdc.formats.base_values import base_values, is_empty
from pyspark_scylla_cdc.formats.columns import DELETED, DELETED_ELEMENTS
from pyspark_scylla_cdc.formats.records import TIME
from pyspark_scylla_cdc.formats.row_changes import RowChanges

INSERT, UPDATE, DELETE = range(3)


@frozen(eq=False)
class NetChanges:
    """One entry a base row and record, whatever number of statements made it.

    `at` is the row of the log that tells of it, `before` the preimage, `after` the postimage;
    the latter two are NONE where there is none. A row written and deleted in one record is
    deleted.
    """

    batch: pa.RecordBatch
    rows: RowChanges
    group: Indices
    kind: Indices
    at: Indices
    before: Indices
    after: Indices

    def values_before(self, column: Column) -> pa.Array:
        """The column before the change; null where there is no preimage."""
        return base_values(pick(self.batch.column(column.name), self.before), column)

    def values_after(self, column: Column, *, postimages: bool) -> pa.Array:
        """The column after the change, or without `postimages` what the change set it to."""
        logged = self.batch.column(column.name)
        chosen = self.after if postimages else self._last_delta(logged)
        return base_values(pick(logged, chosen), column)

    def shown_before(self, column: Column) -> Mask:
        """Where the preimage shows the column, be it as null."""
        shown = pick(_is_touched(self.batch, column), self.before)
        return booleans(shown)

    def modified(self, column: Column) -> Mask:
        """Where an insert or update touched the column."""
        touched = booleans(_is_touched(self.batch, column))
        return self._any_delta(touched)

    def set_to_null(self, column: Column) -> Mask:
        """Where the change left the column null; a collection that got elements is not."""
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
    """The net changes in whole records; raises SchemaError if a postimage is missing.

    What a delete of a partition or a range in the same record covers has no postimage, and
    is left to that delete.
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
    """Whether the row is new. An INSERT may meet a row that exists, an UPDATE one that does not:
    only preimages tell. A static row is there as soon as its partition is.
    """
    told = rows.has_insert if base.cdc.preimage is ImageMode.OFF else np.ones(rows.count, bool)
    inserted: Mask = told & (rows.preimage == NONE) & ~rows.is_static
    return inserted


def _is_touched(batch: pa.RecordBatch, column: Column) -> pa.Array:
    """Rows of the log that show the column: with a value, as null, or as losing elements."""
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

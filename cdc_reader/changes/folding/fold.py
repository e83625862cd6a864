"""Folds changes into what they do to the rows of a copy: see `fold`.

The fold works on whole columns. Events, which are changes and rows of the copy, are sorted in the
order in which they take effect. For each row of the table, the last event of each kind decides: a
value is the one that was written last, unless a later delete covers it.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from cdc_reader._arrow import Mask, to_arrow, valid
from cdc_reader._time import FOREVER
from cdc_reader.changes.arrays import (
    NONE,
    Indices,
    any_of_each,
    at_rows,
    last_of_each,
    names_of,
    pick,
)
from cdc_reader.changes.folding.events import (
    OF_PARTITION,
    OF_RANGE,
    OF_ROW,
    WRITE,
    Events,
    distinct,
    events_of,
    has_static_rows,
    kinds_of,
    usable,
)
from cdc_reader.changes.folding.rows import TouchedRows
from cdc_reader.changes.frames import columns as names
from cdc_reader.changes.lifetimes import Lifetimes
from cdc_reader.cql.schema import ColumnKind, TableSchema

_RESULTS = UPSERT, REPLACE, DELETE = "upsert", "replace", "delete"
"""What a copy is to do with a row; see `row_updates`."""
_UPSERT, _REPLACE, _DELETE = range(3)


def needed_partitions(table: TableSchema, changes: pa.RecordBatch | pa.Table) -> pa.Table:
    """Return the keys of the partitions whose present rows `fold` needs, each key once.

    These are the partitions in which `changes` delete the partition or a range of rows and, in a
    table with static columns, all partitions that `changes` touch.
    """
    changes = usable(table, changes)
    keys = changes.select([column.name for column in table.partition_key])
    if not has_static_rows(table, changes):
        is_wide = np.isin(kinds_of(changes), (OF_PARTITION, OF_RANGE))
        keys = keys.filter(to_arrow(is_wide & bool(table.clustering)))
    return distinct(keys)


def fold(
    table: TableSchema,
    changes: pa.RecordBatch | pa.Table,
    rows: pa.RecordBatch | pa.Table | None = None,
) -> pa.Table:
    """Return the rows that remain after `changes` are applied to `rows`.

    `changes` have format ``changes``, read with ``include_delta``, in any order. `rows` are an
    earlier result, which may lack columns, and fields of types, that the table has gained; None
    stands for no rows. The result has the table's columns that `changes` have, and
    `_inserted`: true if an INSERT created the row, or if the row was in a snapshot. CQL keeps such
    rows when they lose their last value; other rows disappear. If the changes have the column
    `_expires`, the result has it too: values that have expired remain in it.

    Each value is the one with the newest write time. Of two writes in the same microsecond, a
    delete or a null counts as the last, as on the server; of two values, the one with the greater
    `_commit_version`. A static column is in each row of its partition; a
    partition without other rows has one for it, with a null clustering key. A ``snapshot_begin``
    removes all rows and earlier changes. Changes with a `_bad_record` are left out, except for
    deletes whose key is known.

    Raises SchemaError for a change without a whole key, and UnsupportedTableError for a deleted
    range of a type that this version cannot compare.
    """
    return _Fold(table, events_of(table, changes, rows)).rows()


def row_updates(
    table: TableSchema,
    changes: pa.RecordBatch | pa.Table,
    rows: pa.RecordBatch | pa.Table | None = None,
) -> pa.Table:
    """Return how to update a copy that is too large to `fold`: one row for each changed row.

    `rows` are the copy's rows in the partitions that `needed_partitions` returns, as `fold` returns
    them. The result has the columns that `fold` returns, `_modified_columns` and `_change_type`,
    which is one of:

    - ``upsert``: set the columns in `_modified_columns`, and insert the row if it is missing.
      Delete the row if it then has no value outside its key, unless `_inserted` is true in the copy
      or the result.
    - ``replace``: the row has exactly these values.
    - ``delete``: the table has no such row.

    If `changes` contain a ``snapshot_begin``, first remove all rows of the copy. Raises the errors
    of `fold`.
    """
    return _Fold(table, events_of(table, changes, rows)).updates()


class _Fold(TouchedRows):
    """Finds the last events of each row."""

    def __init__(self, table: TableSchema, events: Events) -> None:
        super().__init__(table, events)
        count = len(events.kind)
        deleted = self._last_deletes()
        lives = (events.kind == WRITE) & (np.arange(count) > deleted[self._of_row])
        self._last = self._last_writes(lives)
        self._inserted = self._any(lives & events.inserts)
        self._lifetimes = self._lifetimes_of_rows(lives)
        self._exists = self._inserted | self._any_value(is_static=False)
        self._is_deleted = deleted != NONE
        if self._has_static_rows:
            self._add_statics()
        else:
            # The key of a delete, or a static column that is not read or was dropped.
            self._exists &= ~self._is_static

    def rows(self) -> pa.Table:
        """Return the rows that exist."""
        return pa.table(self._shown(np.flatnonzero(self._exists)))

    def updates(self) -> pa.Table:
        """Return what the events do to each row that they touch."""
        events, is_deleted = self._events, self._is_deleted
        touched = is_deleted | self._any(~events.is_old & (events.kind <= OF_ROW))
        is_whole = is_deleted | self._any(events.is_old) | self._has_static_rows
        if self._has_static_rows:
            touched |= at_rows(touched, self._own_statics()) | self._is_static
        else:
            touched &= ~self._is_static
            touched |= self._is_static & self._any(events.is_old)
        rows = np.flatnonzero(touched)
        kind = np.where(is_whole, np.where(self._exists, _REPLACE, _DELETE), _UPSERT)[rows]
        found, is_there = self._shown(rows), kind != _DELETE
        sets = [(kind == _REPLACE) | (events[rows] != NONE) for events in self._last.values()]
        return pa.table(
            {
                **found,
                names.CHANGE_TYPE: pa.array(_RESULTS).take(to_arrow(kind)),
                names.MODIFIED: names_of(_beside(sets, len(rows)), [*self._last], is_there),
            }
        )

    def _last_writes(self, lives: Mask) -> dict[str, Indices]:
        """Return, for each column and row, the event that wrote the value that remains."""
        is_static = self._is_static[self._of_row]
        times = np.append(self._events.times, FOREVER)  # the last one is for the place NONE
        found = {}
        for number, column in enumerate(self._events.values):
            wanted = lives & self._events.sets[:, number]
            if self._has_static_rows:
                wanted &= is_static == (column.kind is ColumnKind.STATIC)
            last = last_of_each(self._of_row, wanted, self._count)
            nulls = wanted & ~valid(self._events.column(column.name))
            last_null = last_of_each(self._of_row, nulls, self._count)
            is_tie = times[last_null] == times[last]
            found[column.name] = np.where(is_tie & (last_null != NONE), last_null, last)
        return found

    def _lifetimes_of_rows(self, lives: Mask) -> Lifetimes | None:
        """Return when the values of each row expire, with those of its partition's static columns.

        A row expires as a whole even if static columns remain.
        """
        if self._events.lifetimes is None:
            return None
        found = self._events.lifetimes.of_each(self._of_row, lives, self._count)
        if not self._has_static_rows:
            return found
        own = self._own_statics()
        has_own = own != NONE
        first, last = found.first.copy(), found.last.copy()
        first[has_own] = np.minimum(first, found.first[own])[has_own]
        last[has_own] = np.maximum(last, found.last[own])[has_own]
        return Lifetimes(first, last, found.whole & ~self._is_static)

    def _add_statics(self) -> None:
        """Give all rows the static values; static columns are a row only if there is no other."""
        own = self._own_statics()
        for column in self._events.values:
            if column.kind is ColumnKind.STATIC:
                last = self._last[column.name]
                self._last[column.name] = np.where(own == NONE, NONE, last[own])
        is_row = self._exists & ~self._is_static
        has_rows = any_of_each(self._partition, is_row, self._partitions)
        is_alone = self._any_value(is_static=True) & ~has_rows[self._partition]
        self._exists = np.where(self._is_static, is_alone, self._exists)

    def _any_value(self, *, is_static: bool) -> Mask:
        """Return whether one of the row's values of this kind is not null."""
        found = np.zeros(self._count, bool)
        for column in self._events.values:
            if (self._has_static_rows and column.kind is ColumnKind.STATIC) == is_static:
                found |= at_rows(valid(self._events.column(column.name)), self._last[column.name])
        return found

    def _shown(self, rows: Indices) -> dict[str, pa.Array]:
        """Return columns of some of the rows: their keys, and the values of those that exist."""
        is_there = self._exists[rows] | ~self._is_deleted[rows]
        found = {}
        for name in self._events.cells.schema.names:
            if name in self._last:
                shown = np.where(is_there, self._last[name][rows], NONE)
            else:
                shown = self._first[rows]
            found[name] = pick(self._events.column(name), shown)
        found[names.INSERTED] = to_arrow(self._inserted[rows] & is_there)
        if self._lifetimes is not None:
            found[names.EXPIRES] = pick(self._lifetimes.column(), np.where(is_there, rows, NONE))
        return found

    def _last_deletes(self) -> Indices:
        """Return, for each row, the last delete that covers it, or NONE."""
        kind = self._events.kind
        of_row = last_of_each(self._of_row, kind == OF_ROW, self._count)
        of_all = last_of_each(self._of_partition, kind == OF_PARTITION, self._partitions)
        found = np.maximum(of_row, of_all[self._partition])
        for event, rows in self._range_deletes():
            found[rows] = np.maximum(found[rows], event)
        return found


def _beside(masks: list[Mask], count: int) -> Mask:
    """Return masks of `count` rows as the columns of one."""
    return np.column_stack(masks) if masks else np.zeros((count, 0), bool)

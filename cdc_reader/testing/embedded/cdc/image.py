"""Preimages and postimages: the rows that a write changes, before and after it.

The stored rows are read once, before the write. Each delta is then applied to these rows, so that
the second record of a batch sees the result of the first. The rows are not read again after the
write. As in ScyllaDB, a postimage therefore shows the written value even if newer data overrides
that value.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from attrs import define, field

from cdc_reader.cql.schema import DELETED_PREFIX, Operation
from cdc_reader.testing.embedded.cdc.change import (
    Change,
    PartitionDelete,
    RangeDelete,
    Record,
    RowDelete,
    RowKey,
    RowWrite,
)
from cdc_reader.testing.embedded.cdc.collection import encode
from cdc_reader.testing.embedded.cdc.delta import TRUE, LogRow
from cdc_reader.testing.embedded.profile import Profile
from cdc_reader.testing.embedded.schema.table import Column, Table
from cdc_reader.testing.embedded.storage.cell import Cell, MultiCell
from cdc_reader.testing.embedded.storage.partition import Partition
from cdc_reader.testing.embedded.storage.position import Position, position
from cdc_reader.testing.embedded.storage.row import LiveRow

Value = bytes | dict[bytes, bytes]
RowState = dict[str, Value]
"""Values by column; for a multi-cell column, its elements by key. Null columns are absent."""


@define
class ImageState:
    """The rows of one partition that a write changes, and their images.

    Without clustering columns, a partition is a single row. `deletes_only_row` is True if the write
    deletes such a partition and the server version logs a preimage of its row.
    """

    table: Table
    profile: Profile
    deletes_only_row: bool
    static: RowState = field(factory=dict)
    rows: dict[tuple[bytes, ...], RowState] = field(factory=dict)

    @classmethod
    def read(
        cls, mutation: Partition, stored: Partition | None, now: int, profile: Profile
    ) -> ImageState:
        """Read the stored rows that `mutation` will change."""
        table = mutation.table
        deletes_only_row = (
            profile.preimage_without_clustering
            and not table.clustering
            and mutation.deletion is not None
        )
        state = cls(table, profile, deletes_only_row)
        if stored is None:
            return state
        if mutation.static.cells:
            read = _columns_read(table, table.statics, set(mutation.static.cells))
            state.static = _row_state(stored.live_static(now), read)
        touched = state.all_regulars() if deletes_only_row else _regulars_touched(mutation)
        read = _columns_read(table, table.regulars, touched)
        for key in [()] if deletes_only_row else [row.key for row in mutation.rows.values()]:
            if row := stored.live_row(key, now):
                state.rows[key] = _row_state(row, read)
        return state

    def all_regulars(self) -> set[str]:
        return {column.name for column in self.table.regulars}

    def preimages(self, record: Record) -> Iterator[LogRow]:
        """Yield the preimages for `record`: the static row first, then rows in clustering order."""
        touched = dict(record.touched(self.all_regulars()))
        if self.deletes_only_row and PartitionDelete() in record.changes:
            touched[()] = self.all_regulars()
        if touched.get(None):
            yield from self._image(Operation.PREIMAGE, None, touched[None])
        for key in self._in_order(touched):
            yield from self._image(Operation.PREIMAGE, key, touched[key])

    def postimages(self, record: Record) -> Iterator[LogRow]:
        """Yield `record`'s postimages, with all columns; rows that the record deletes have none."""
        touched = record.touched(set())
        if touched.get(None):
            yield from self._image(Operation.POSTIMAGE, None, None)
        for key in self._in_order(touched):
            yield from self._image(Operation.POSTIMAGE, key, None)

    def apply(self, change: Change) -> None:
        """Apply a change to the state."""
        match change:
            case RowWrite(None, _, cells):
                self._write(self.static, cells)
            case RowWrite(tuple() as key, _, cells):
                self._write(self.rows.setdefault(key, {}), cells)
            case RowDelete(key):
                self.rows.pop(key, None)
            case RangeDelete(tombstone):
                sort_keys = self.table.clustering_sort_keys
                start = tombstone.start.position(sort_keys)
                end = tombstone.end.position(sort_keys)
                for key in [k for k in self.rows if start < self._position(k) < end]:
                    del self.rows[key]
            case PartitionDelete():
                self.rows.clear()

    def _image(
        self, operation: Operation, key: RowKey, touched: set[str] | None
    ) -> Iterator[LogRow]:
        state = self.static if key is None else self.rows.get(key)
        if state is None or (operation is Operation.PREIMAGE and key is None and not state):
            return
        columns = self.table.statics if key is None else self.table.regulars
        if touched is not None and self.table.cdc.preimage != "full":
            columns = tuple(c for c in columns if c.name in touched)
        yield LogRow(operation, key, self._cells(operation, state, columns))

    def _cells(
        self, operation: Operation, state: RowState, columns: Iterable[Column]
    ) -> dict[str, bytes]:
        cells: dict[str, bytes] = {}
        for column in columns:
            value = state.get(column.name)
            if value is None:
                # A preimage must distinguish a null from a column that is not logged.
                if operation is Operation.PREIMAGE and self.profile.marks_nulls:
                    cells[DELETED_PREFIX + column.name] = TRUE
            elif isinstance(value, dict):
                cells[column.name] = encode(column.type, value)
            else:
                cells[column.name] = value
        return cells

    def _write(self, state: RowState, cells: dict[str, Cell | MultiCell]) -> None:
        for name, value in cells.items():
            after = (
                value.value
                if isinstance(value, Cell)
                else _merge(self.table.by_name[name], state.get(name), value)
            )
            if after is None:
                state.pop(name, None)
            else:
                state[name] = after

    def _in_order(self, keys: Iterable[RowKey]) -> list[tuple[bytes, ...]]:
        return sorted((k for k in keys if k is not None), key=self._position)

    def _position(self, key: tuple[bytes, ...]) -> Position:
        return position(self.table.clustering_sort_keys, key)


def _merge(column: Column, before: Value | None, change: MultiCell) -> Value | None:
    """Return a collection after a change; None if the change replaces it with an empty one."""
    added = {key: cell.value for key, cell in change.cells.items() if cell.value is not None}
    removed = [key for key, cell in change.cells.items() if cell.value is None]
    if change.deletion is not None:
        return added if added or column.is_user_type else None
    if not added and not column.is_user_type and not (removed and isinstance(before, dict)):
        return None
    after = {**before, **added} if isinstance(before, dict) else dict(added)
    for key in removed:
        after.pop(key, None)
    return after


def _regulars_touched(mutation: Partition) -> set[str]:
    """Return the regular columns to read for ``preimage: true``, as in ScyllaDB.

    These are the columns written in the mutation's first row, or all columns if the
    mutation deletes a row.
    """
    rows = mutation.rows.values()
    if any(row.deletion is not None for row in rows):
        return {column.name for column in mutation.table.regulars}
    return set(rows[0].cells) if rows else set()


def _columns_read(table: Table, columns: tuple[Column, ...], touched: set[str]) -> set[str]:
    if table.cdc.postimage or table.cdc.preimage == "full":
        return {column.name for column in columns}
    return touched


def _row_state(row: LiveRow, columns: set[str]) -> RowState:
    state: RowState = {}
    for name, value in row.cells.items():
        if name not in columns:
            continue
        if isinstance(value, Cell):
            if value.value is not None:
                state[name] = value.value
        else:
            state[name] = {k: c.value for k, c in value.items() if c.value is not None}
    return state

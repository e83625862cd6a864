"""The statements that write a change's cells to a table of the same columns, each cell exactly.

What makes a copy exact: the write's own timestamp and TTLs; a row marker where there was an
INSERT, none where there was not; null where a column was set to null, and nothing where it was
left alone; the elements of a list by their ids. An overwritten collection is a tombstone 1 µs
before its elements, as an assignment makes it, and an assignment makes it here too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from attrs import frozen

from cdc_reader.change import Change, Part
from cdc_reader.cql_type import (
    CqlType,
    ListType,
    MapType,
    Native,
    SetType,
    UserType,
    freeze,
)
from cdc_reader.delta import CollectionDelta, Deleted, Delta, Set
from cdc_reader.ids import TableName, quoted
from cdc_reader.operation import Operation
from cdc_reader.row_ranges import Slice, slices
from cdc_reader.schema import Column, ColumnKind, TableSchema
from cdc_reader.statement import UNSET, Statement

_BIGINT, _INT = Native("bigint"), Native("int")
_USING = "USING TIMESTAMP ? AND TTL ?"
_USING_TYPES = (_BIGINT, _INT)
_LIST_ID = Native("uuid")


@frozen
class _Row:
    """A row of the target: the condition that names it, and when and for how long to write."""

    columns: tuple[Column, ...]
    key: tuple[Any, ...]
    timestamp: int
    ttl: int | None

    @property
    def where(self) -> str:
        return " AND ".join(f"{quoted(column.name)} = ?" for column in self.columns)

    @property
    def key_types(self) -> tuple[CqlType, ...]:
        return tuple(column.type for column in self.columns)

    @property
    def using(self) -> tuple[int, int]:
        """A TTL of 0 is none, whatever the default of the table."""
        return self.timestamp, self.ttl or 0


class TableWrites:
    """Makes the statements for one table; the text of each is one of a few."""

    def __init__(self, schema: TableSchema, target: TableName) -> None:
        self.schema = schema
        self._target = target.cql
        self._columns = {column.name: column for column in schema.columns}
        self._key = _of_kind(schema, ColumnKind.PARTITION_KEY)
        self._clustering = _of_kind(schema, ColumnKind.CLUSTERING)
        self._statics = _of_kind(schema, ColumnKind.STATIC)
        self._regulars = _of_kind(schema, ColumnKind.REGULAR)

    def of_part(self, change: Change, part: Part, ttl: int | None) -> Iterator[Statement]:
        """What a part of an INSERT or UPDATE wrote to its row, to live for `ttl` seconds."""
        row = self._row(change, ttl)
        columns = self._statics if change.is_static else self._regulars
        whole = dict(self._whole(part.deltas))
        if part.operation is Operation.INSERT:
            yield self._insert(row, columns, whole)
        elif whole:
            yield self._update(row, columns, whole)
        for name, delta in part.deltas.items():
            if isinstance(delta, CollectionDelta):
                yield from self._elements(row, self._columns[name], delta)

    def row_delete(self, change: Change) -> Statement:
        """The deletion of a row, or of a partition, by its key."""
        row = self._row(change, None)
        cql = f"DELETE FROM {self._target} USING TIMESTAMP ? WHERE {row.where}"  # noqa: S608 - quoted
        return Statement(cql, (_BIGINT, *row.key_types), (row.timestamp, *row.key))

    def range_delete(self, change: Change) -> Iterator[Statement]:
        """The deletion of a range of rows; ValueError if the change lacks one of its ends."""
        if change.range is None:
            raise ValueError(f"{change}: expected the deletion of a range")
        for rows in slices(change.range):
            yield self._slice_delete(change, rows)

    def _row(self, change: Change, ttl: int | None) -> _Row:
        columns = (*self._key, *self._clustering)
        known = tuple(column for column in columns if column.name in change.key)
        return _Row(known, tuple(change.key.values()), change.timestamp, ttl)

    def _insert(
        self, row: _Row, columns: tuple[Column, ...], whole: Mapping[str, Any]
    ) -> Statement:
        named = (*row.columns, *columns)
        names = ", ".join(quoted(column.name) for column in named)
        marks = ", ".join("?" for _ in named)
        return Statement(
            f"INSERT INTO {self._target} ({names}) VALUES ({marks}) {_USING}",  # noqa: S608 - quoted
            (*(column.type for column in named), *_USING_TYPES),
            (*row.key, *_values(columns, whole), *row.using),
        )

    def _update(
        self, row: _Row, columns: tuple[Column, ...], whole: Mapping[str, Any]
    ) -> Statement:
        assigned = ", ".join(f"{quoted(column.name)} = ?" for column in columns)
        types = tuple(column.type for column in columns)
        return self._set(row, assigned, types, _values(columns, whole))

    def _set(
        self, row: _Row, assigned: str, types: tuple[CqlType, ...], values: tuple[Any, ...]
    ) -> Statement:
        return Statement(
            f"UPDATE {self._target} {_USING} SET {assigned} WHERE {row.where}",  # noqa: S608 - quoted
            (*_USING_TYPES, *types, *row.key_types),
            (*row.using, *values, *row.key),
        )

    def _whole(self, deltas: Mapping[str, Delta]) -> Iterator[tuple[str, Any]]:
        """The values of columns that were set or overwritten; a list's elements come after it."""
        for name, delta in deltas.items():
            match delta:
                case Set(value):
                    yield name, value
                case Deleted():
                    yield name, None
                case CollectionDelta(overwritten=True, added=added):
                    is_list = isinstance(self._columns[name].type, ListType)
                    yield name, None if is_list else added or None

    def _elements(self, row: _Row, column: Column, delta: CollectionDelta) -> Iterator[Statement]:
        """The elements that were added to what was there, and those that were removed."""
        name, added = quoted(column.name), delta.added
        if delta.overwritten and not isinstance(column.type, ListType):
            added = {}  # the assignment has them
        match column.type:
            case ListType(element):
                assigned = f"{name}[SCYLLA_TIMEUUID_LIST_INDEX(?)] = ?"
                for cell in _cells(added, delta.removed):
                    yield self._set(row, assigned, (_LIST_ID, freeze(element)), cell)
            case UserType():
                for field, value in _cells(added, delta.removed):
                    assigned = f"{name}.{quoted(field)} = ?"
                    yield self._set(row, assigned, (_type_of(column, field),), (value,))
            case _:
                if added:
                    yield self._set(row, f"{name} = {name} + ?", (column.type,), (added,))
                if delta.removed:
                    keys = _keys(column.type)
                    yield self._set(row, f"{name} = {name} - ?", (keys,), (delta.removed,))

    def _slice_delete(self, change: Change, rows: Slice) -> Statement:
        fixed = self._clustering[: len(rows.fixed)]
        conditions = [f"{quoted(column.name)} = ?" for column in (*self._key, *fixed)]
        types = [column.type for column in (*self._key, *fixed)]
        values = [*change.partition_key.values(), *rows.fixed]
        for condition, cql_type, value in self._edges(rows):
            conditions.append(condition)
            types.append(cql_type)
            values.append(value)
        where = " AND ".join(conditions)
        cql = f"DELETE FROM {self._target} USING TIMESTAMP ? WHERE {where}"  # noqa: S608 - quoted
        return Statement(cql, (_BIGINT, *types), (change.timestamp, *values))

    def _edges(self, rows: Slice) -> Iterator[tuple[str, CqlType, Any]]:
        """Conditions on the column after the fixed ones; what descends starts at its greatest."""
        for edge, is_start in ((rows.start, True), (rows.end, False)):
            if edge is not None:
                column = self._clustering[len(rows.fixed)]
                sign = ">" if is_start is not column.descending else "<"
                condition = f"{quoted(column.name)} {sign}{'=' * edge.inclusive} ?"
                yield condition, column.type, edge.value


def _of_kind(schema: TableSchema, kind: ColumnKind) -> tuple[Column, ...]:
    return tuple(column for column in schema.columns if column.kind is kind)


def _values(columns: Iterable[Column], whole: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(whole.get(column.name, UNSET) for column in columns)


def _cells(added: Any, removed: Iterable[Any]) -> Iterator[tuple[Any, Any]]:
    """Elements by key, those removed as null."""
    yield from added.items()
    yield from ((key, None) for key in removed)


def _keys(cql_type: CqlType) -> CqlType:
    """The type of what is taken from a set or map."""
    return SetType(cql_type.key) if isinstance(cql_type, MapType) else cql_type


def _type_of(column: Column, field: str) -> CqlType:
    fields = dict(column.type.fields) if isinstance(column.type, UserType) else {}
    if field not in fields:
        raise ValueError(f"column {column.name}: its type has no field {field}")
    return freeze(fields[field])

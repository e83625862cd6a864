"""The statements that apply a change to a table with the same columns, cell by cell.

An exact copy needs

* the write's timestamp and TTLs,
* a row marker only where there was an INSERT,
* null where a column was set to null, but no value where the column was left unchanged, and
* list elements with their ids.

In the log, an overwritten collection appears as a tombstone, followed 1 µs later by the new
elements. An assignment creates the same sequence, so the copy uses an assignment too.

A row of a snapshot is written as it was read. A SELECT returns the write times and TTLs of single
cells, and the copy uses them. A SELECT returns neither for collections or for the row marker. The
row marker is written with the cell that lasts longest. Collections, and the row marker of a row
without other cells, are written 1 µs before the position of the snapshot, so that every later
change wins, even the tombstone of an assignment at that position. Their TTL is the table's default
TTL, counted from the copy: without it, rows that expire in the table would stay in the copy. A
SELECT does not return the ids of a list's elements either. Lists are therefore written with new ids
and the oldest possible timestamp. The images of the first change to single elements show the whole
list with its ids. This list replaces the copied one, with a timestamp that is 1 µs newer.

The ends of a range delete are clustering prefixes. They are in clustering order, in which each
column ascends or descends. CQL has no single condition for every range between two prefixes, but
the rows of a range form a few slices. In each slice, some columns are fixed, and the next column is
between two values. All slices are deleted at one timestamp, which has the same effect as deleting
the range.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from attrs import frozen

from cdc_reader._time import Micros
from cdc_reader.changes.change import Bound, Change, RowRange
from cdc_reader.changes.delta import Assigned, CollectionDelta, Deleted, Delta
from cdc_reader.changes.part import Part
from cdc_reader.cql.names import TableName, quoted
from cdc_reader.cql.order import is_same
from cdc_reader.cql.schema import Column, ColumnKind, Operation, TableSchema
from cdc_reader.cql.statement import UNSET, Statement
from cdc_reader.cql.types import (
    CqlType,
    ListType,
    MapType,
    Native,
    SetType,
    UserType,
    freeze,
    is_multi_cell,
)

Values = tuple[Any, ...]


@frozen
class Edge:
    """One end of a slice: a value of the column after the fixed ones, inclusive or exclusive."""

    value: Any
    inclusive: bool


@frozen
class Slice:
    """The rows whose first clustering columns are `fixed`, with the next column between two edges.

    The edges are in clustering order. Without edges, the next column may have any value.
    """

    fixed: Values
    start: Edge | None = None
    end: Edge | None = None


def slices(bounds: RowRange) -> Iterator[Slice]:
    """Yield the slices that make up the range; raise ValueError unless both ends are known."""
    if bounds.start is None or bounds.end is None:
        raise ValueError(f"range {bounds}: expected both ends")
    start, end = _bound_values(bounds.start), _bound_values(bounds.end)
    fixed = start[: _shared(start, end)]
    after, before = start[len(fixed) :], end[len(fixed) :]
    if not (after or bounds.start.inclusive) or not (before or bounds.end.inclusive):
        return  # one end excludes every row that the other end includes
    yield from _after(fixed, after, inclusive=bounds.start.inclusive)
    yield Slice(fixed, _edge(after, bounds.start), _edge(before, bounds.end))
    yield from _before(fixed, before, inclusive=bounds.end.inclusive)


def _bound_values(bound: Bound) -> Values:
    return tuple(bound.prefix.values())


def _shared(start: Values, end: Values) -> int:
    """Return the length of the common prefix."""
    pairs = enumerate(zip(start, end, strict=False))
    return next((at for at, (a, b) in pairs if not is_same(a, b)), min(len(start), len(end)))


def _edge(tail: Values, bound: Bound) -> Edge | None:
    """Return the edge at the first value of `tail`, the bound's values that are not fixed.

    Returns None if `tail` is empty. If it has several values, the edge is exclusive, because other
    slices contain the rows with the first value.
    """
    return Edge(tail[0], bound.inclusive and len(tail) == 1) if tail else None


def _after(fixed: Values, tail: Values, *, inclusive: bool) -> Iterator[Slice]:
    """Yield slices for the rows that share the first value of `tail` and are after `tail`.

    `tail` contains a bound's values after the `fixed` ones. If `inclusive` is True, the rows whose
    key begins with the `fixed` values and `tail` are included.
    """
    for length in range(len(tail) - 1, 0, -1):
        is_last = length == len(tail) - 1
        yield Slice(fixed + tail[:length], start=Edge(tail[length], inclusive and is_last))


def _before(fixed: Values, tail: Values, *, inclusive: bool) -> Iterator[Slice]:
    """Yield slices for the rows that share the first value of `tail` and are before `tail`.

    `tail` contains a bound's values after the `fixed` ones. If `inclusive` is True, the rows whose
    key begins with the `fixed` values and `tail` are included.
    """
    for length in range(1, len(tail)):
        is_last = length == len(tail) - 1
        yield Slice(fixed + tail[:length], end=Edge(tail[length], inclusive and is_last))


_BIGINT, _INT = Native("bigint"), Native("int")

_USING = "USING TIMESTAMP ? AND TTL ?"

_USING_TYPES = (_BIGINT, _INT)

_LIST_ID = Native("uuid")

_Text = tuple[str, tuple[CqlType, ...]]
"""The CQL of a statement, and the types of its values."""

_LISTS_READ, _LISTS_SHOWN = 1, 3
"""Write timestamps of lists that are read by a snapshot, and of lists that images show.

An assignment writes a tombstone 1 µs earlier, so the second list replaces the first, whichever is
applied first.
"""


@frozen
class _Key:
    """The columns that identify a row or a partition, with their condition and their types."""

    columns: tuple[Column, ...]
    where: str
    types: tuple[CqlType, ...]

    @classmethod
    def of(cls, columns: tuple[Column, ...]) -> _Key:
        where = " AND ".join(f"{quoted(column.name)} = ?" for column in columns)
        return cls(columns, where, tuple(column.type for column in columns))


@frozen
class _Row:
    """A row of the target: its key, and the timestamp and TTL to write."""

    key: _Key
    values: tuple[Any, ...]
    timestamp: Micros
    ttl: int | None

    @property
    def using(self) -> tuple[int, int]:
        """The timestamp and TTL; a TTL of 0 means no TTL, regardless of the table's default."""
        return self.timestamp, self.ttl or 0


class TableWrites:
    """Creates the statements for one table, from a small number of CQL texts."""

    def __init__(self, schema: TableSchema, target: TableName) -> None:
        self.schema = schema
        self._target = target.cql
        self._columns = {column.name: column for column in schema.columns}
        self._key = schema.partition_key
        self._clustering = schema.clustering
        self._statics = schema.of_kind(ColumnKind.STATIC)
        self._regulars = schema.of_kind(ColumnKind.REGULAR)
        self._keys: dict[tuple[str, ...], _Key] = {}
        self._inserts: dict[tuple[str, bool], _Text] = {}
        self._updates: dict[tuple[str, bool], _Text] = {}

    def of_part(self, change: Change, part: Part, ttl: int | None) -> Iterator[Statement]:
        """Yield the writes of a part of an INSERT or UPDATE, with a TTL of `ttl` seconds."""
        row = self._row(change, change.timestamp, ttl)
        yield from self._written(row, part.operation, part.deltas, is_static=change.is_static)
        for name, delta in part.deltas.items():
            if self._is_list(name) and isinstance(delta, CollectionDelta) and not delta.overwritten:
                yield from self._list(change, name, _shown(change, name), _LISTS_SHOWN)

    def of_snapshot(self, change: Change, part: Part) -> Iterator[Statement]:
        """Yield the writes of one part of a snapshot row."""
        if part.timestamp is None:  # a SELECT shows neither its write time nor its TTL
            row = self._row(change, change.timestamp - 1, self.schema.default_ttl)
        else:
            row = self._row(change, part.timestamp, part.ttl)
        deltas = {name: it for name, it in part.deltas.items() if not self._is_list(name)}
        yield from self._written(row, part.operation, deltas, is_static=change.is_static)
        for name, delta in part.deltas.items():
            if self._is_list(name) and isinstance(delta, CollectionDelta):
                yield from self._list(change, name, delta.added, _LISTS_READ)

    def _written(
        self, row: _Row, operation: Operation, deltas: Mapping[str, Delta], *, is_static: bool
    ) -> Iterator[Statement]:
        columns = self._statics if is_static else self._regulars
        whole = dict(self._whole(deltas))
        if operation is Operation.INSERT:
            yield self._insert(row, columns, whole)
        elif whole:
            yield self._update(row, columns, whole)
        for name, delta in deltas.items():
            if isinstance(delta, CollectionDelta):
                yield from self._elements(row, self._columns[name], delta)

    def _list(
        self, change: Change, name: str, elements: Any, timestamp: Micros
    ) -> Iterator[Statement]:
        """Yield the writes that replace a list's older elements, or none if `elements` is None."""
        if elements is not None:
            row = self._row(change, timestamp, self.schema.default_ttl)
            delta = CollectionDelta(True, elements)
            written = self._written(
                row, Operation.UPDATE, {name: delta}, is_static=change.is_static
            )
            yield from written

    def _is_list(self, name: str) -> bool:
        column = self._columns[name]
        return isinstance(column.type, ListType) and is_multi_cell(column.type)

    def row_delete(self, change: Change) -> Statement:
        """Return the delete of a row, or of a partition, by its key."""
        row = self._row(change, change.timestamp, None)
        cql = f"DELETE FROM {self._target} USING TIMESTAMP ? WHERE {row.key.where}"  # noqa: S608 - quoted
        return Statement(cql, (_BIGINT, *row.key.types), (row.timestamp, *row.values))

    def range_delete(self, change: Change) -> Iterator[Statement]:
        """Yield the deletes of a range of rows; raise ValueError if the range lacks an end."""
        if change.range is None:
            raise ValueError(f"{change}: expected the deletion of a range")
        for rows in slices(change.range):
            yield self._slice_delete(change, rows)

    def _row(self, change: Change, timestamp: Micros, ttl: int | None) -> _Row:
        key = change.key
        names = tuple(key)
        known = self._keys.get(names)
        if known is None:
            columns = (*self._key, *self._clustering)
            known = _Key.of(tuple(column for column in columns if column.name in key))
            self._keys[names] = known
        return _Row(known, tuple(key.values()), timestamp, ttl)

    def _insert(
        self, row: _Row, columns: tuple[Column, ...], whole: Mapping[str, Any]
    ) -> Statement:
        place = row.key.where, columns is self._statics
        text = self._inserts.get(place)
        if text is None:
            text = self._inserts[place] = self._insert_text((*row.key.columns, *columns))
        return Statement(*text, (*row.values, *_values(columns, whole), *row.using))

    def _insert_text(self, columns: tuple[Column, ...]) -> _Text:
        names = ", ".join(quoted(column.name) for column in columns)
        marks = ", ".join("?" for _ in columns)
        return (
            f"INSERT INTO {self._target} ({names}) VALUES ({marks}) {_USING}",  # noqa: S608 - quoted
            (*(column.type for column in columns), *_USING_TYPES),
        )

    def _update(
        self, row: _Row, columns: tuple[Column, ...], whole: Mapping[str, Any]
    ) -> Statement:
        place = row.key.where, columns is self._statics
        text = self._updates.get(place)
        if text is None:
            assigned = ", ".join(f"{quoted(column.name)} = ?" for column in columns)
            types = tuple(column.type for column in columns)
            text = self._updates[place] = self._set_text(row.key, assigned, types)
        return Statement(*text, (*row.using, *_values(columns, whole), *row.values))

    def _set(
        self, row: _Row, assigned: str, types: tuple[CqlType, ...], values: tuple[Any, ...]
    ) -> Statement:
        text = self._set_text(row.key, assigned, types)
        return Statement(*text, (*row.using, *values, *row.values))

    def _set_text(self, key: _Key, assigned: str, types: tuple[CqlType, ...]) -> _Text:
        return (
            f"UPDATE {self._target} {_USING} SET {assigned} WHERE {key.where}",  # noqa: S608 - quoted
            (*_USING_TYPES, *types, *key.types),
        )

    def _whole(self, deltas: Mapping[str, Delta]) -> Iterator[tuple[str, Any]]:
        """Yield the values of columns that were set or overwritten.

        The elements of an overwritten list are written separately, by `_elements`.
        """
        for name, delta in deltas.items():
            match delta:
                case Assigned(value):
                    yield name, value
                case Deleted():
                    yield name, None
                case CollectionDelta(overwritten=True, added=added):
                    is_list = isinstance(self._columns[name].type, ListType)
                    yield name, None if is_list else added or None

    def _elements(self, row: _Row, column: Column, delta: CollectionDelta) -> Iterator[Statement]:
        """Yield the writes of the elements that were added to a collection or removed from it."""
        name, added = quoted(column.name), delta.added
        if delta.overwritten and not isinstance(column.type, ListType):
            added = {}  # the assignment already contains them
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
        """Yield the bounds of the clustering column after the fixed ones, in the column's order."""
        for edge, is_start in ((rows.start, True), (rows.end, False)):
            if edge is not None:
                column = self._clustering[len(rows.fixed)]
                sign = ">" if is_start is not column.descending else "<"
                condition = f"{quoted(column.name)} {sign}{'=' * edge.inclusive} ?"
                yield condition, column.type, edge.value


def _shown(change: Change, name: str) -> Any:
    """Return a list's elements by id from an image, or None if no image shows the list."""
    images = (image for image in (change.before, change.after) if image is not None)
    return next((image[name] for image in images if image.get(name)), None)


def _values(columns: Iterable[Column], whole: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(whole.get(column.name, UNSET) for column in columns)


def _cells(added: Any, removed: Iterable[Any]) -> Iterator[tuple[Any, Any]]:
    """Yield each element with its key; removed elements are None."""
    yield from added.items()
    yield from ((key, None) for key in removed)


def _keys(cql_type: CqlType) -> CqlType:
    """Return the type of the elements removed from a set or map."""
    return SetType(cql_type.key) if isinstance(cql_type, MapType) else cql_type


def _type_of(column: Column, field: str) -> CqlType:
    fields = dict(column.type.fields) if isinstance(column.type, UserType) else {}
    if field not in fields:
        raise ValueError(f"column {column.name}: its type has no field {field}")
    return freeze(fields[field])

"""Compiles the operations by which INSERT, UPDATE and DELETE write one column of a row."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from cdc_reader.cql.types import (
    CqlType,
    ListType,
    MapType,
    Native,
    SetType,
    UserType,
    children,
    freeze,
)
from cdc_reader.testing.embedded.codec.order import ElementKey, signed
from cdc_reader.testing.embedded.errors import InvalidRequest
from cdc_reader.testing.embedded.grammar.ast import Assignment, Change, Deletion
from cdc_reader.testing.embedded.grammar.terms import Term, written
from cdc_reader.testing.embedded.query import elements
from cdc_reader.testing.embedded.query.model import UNSET, Evaluate, Scope, Unset
from cdc_reader.testing.embedded.query.result import ColumnSpec
from cdc_reader.testing.embedded.query.terms import compile_term
from cdc_reader.testing.embedded.query.write import ReadRow, Write
from cdc_reader.testing.embedded.schema.table import Column
from cdc_reader.testing.embedded.storage.cell import Cell, latest, reconcile
from cdc_reader.testing.embedded.storage.row import LiveRow, Row

Operation = Callable[[Row, Write, ReadRow], None]
"""Writes cells to a mutation's row; may read the stored row first."""


def set_value(column: Column, term: Term, scope: Scope) -> Operation:
    """Compile ``column = term``, which overwrites a whole collection."""
    if str(column.type) == "counter":
        raise InvalidRequest(
            f"Cannot set the value of counter column {column.name} "
            "(counters can only be incremented/decremented, not set)"
        )
    return overwrite(column, compile_term(term, scope.column_spec(column), scope))


def assignment(change: Assignment, scope: Scope) -> Operation:
    """Compile an assignment in an UPDATE."""
    column = scope.column(change.column, "Unknown identifier {}")
    if column.is_key:
        raise InvalidRequest(f"PRIMARY KEY part {column.name} found in SET part")
    if isinstance(change.key, str):
        return _field(column, change.key, change.value, scope)
    if change.key is not None:
        return _element(column, change, change.key, scope)
    if change.change is Change.SET:
        return set_value(column, change.value, scope)
    if str(column.type) == "counter":
        return _count(column, change, scope)
    return _combine(column, change, scope)


def check_assignments(assignments: Sequence[Assignment]) -> None:
    """Reject a second assignment to a field, or to a column that is set as a whole."""
    for index, later in enumerate(assignments):
        for earlier in assignments[:index]:
            if earlier.column == later.column and not (
                _sets_part(earlier)
                and _sets_part(later)
                and not (isinstance(later.key, str) and later.key == earlier.key)
            ):
                raise InvalidRequest(f"Multiple incompatible setting of column {later.column}")


def _sets_part(change: Assignment) -> bool:
    return change.key is not None or change.change is not Change.SET


def deletion(removed: Deletion, scope: Scope) -> Operation:
    """Compile the deletion of a column, element or field."""
    column = scope.column(removed.column, "Unknown identifier {}")
    if column.is_key:
        raise InvalidRequest(f"Invalid identifier {column.name} for deletion (should not be a "
                             "PRIMARY KEY part)")  # fmt: skip
    if isinstance(removed.key, str):
        key = _field_key(column, removed.key, None)
        return lambda row, write, _: _put(row, column, key, write.dead())
    if removed.key is not None:
        return _delete_element(column, removed.key, scope)
    if column.is_multi_cell:
        return lambda row, write, _: _delete_collection(row, column, write.timestamp)
    return lambda row, write, _: row.set_cell(column.name, write.dead())


def _unless_unset(
    value: Evaluate, put: Callable[[bytes | None, Row, Write, ReadRow], None]
) -> Operation:
    """Return an operation that calls `put` with the value, unless the value is unset."""

    def operation(row: Row, write: Write, read: ReadRow) -> None:
        found = value(write.execution)
        if not isinstance(found, Unset):
            put(found, row, write, read)

    return operation


# Whole columns


def overwrite(column: Column, value: Evaluate) -> Operation:
    """Compile an overwrite; a collection's tombstone is 1 µs older than its elements."""

    def put_cell(found: bytes | None, row: Row, write: Write, _: ReadRow) -> None:
        row.set_cell(column.name, write.cell(found))

    def put_elements(found: bytes | None, row: Row, write: Write, _: ReadRow) -> None:
        _delete_collection(row, column, write.timestamp - 1)
        if found is not None:
            _put_all(row, column, _entries(column.type, found, write.appended_keys), write)

    return _unless_unset(value, put_elements if column.is_multi_cell else put_cell)


def _delete_collection(row: Row, column: Column, timestamp: int) -> None:
    cells = row.multi_cell(column.name)
    cells.deletion = latest(cells.deletion, timestamp)


def _put_all(row: Row, column: Column, entries: list[tuple[bytes, bytes]], write: Write) -> None:
    for key, element in entries:
        _put(row, column, key, write.cell(element))


def _entries(
    cql_type: CqlType, value: bytes, new_keys: Callable[[int], list[bytes]]
) -> list[tuple[bytes, bytes]]:
    """Return (cell key, cell value) pairs of the elements; `new_keys` generates a list's keys."""
    match cql_type:
        case ListType():
            values = elements.list_elements(value)
            return list(zip(new_keys(len(values)), values, strict=True))
        case SetType():
            return [(element, b"") for element in elements.list_elements(value)]
        case MapType():
            return elements.map_entries(value)
        case _:
            return [(key, cell) for key, cell in elements.fields(value) if cell is not None]


def _put(row: Row, column: Column, key: bytes, cell: Cell) -> None:
    """Write one element; if the statement has already written it, keep the winning cell."""
    cells = row.multi_cell(column.name).cells
    if isinstance(column.type, MapType | SetType):
        key = ElementKey.of(children(column.type)[0], key)
    cells[key] = reconcile(cells[key], cell) if key in cells else cell


# Additions and removals


def _combine(column: Column, change: Assignment, scope: Scope) -> Operation:
    """Compile ``c + value``, ``value + c`` or ``c - value`` for a collection."""
    if not column.is_multi_cell or isinstance(column.type, UserType):
        raise InvalidRequest(
            f"Invalid operation ({column.name} = {column.name} {change.change.value} ...) for "
            f"{'frozen collection' if 'frozen' in str(column.type) else 'non collection'} "
            f"column {column.name}"
        )
    if change.change is Change.REMOVE:
        return _remove(column, change.value, scope)
    prepends = change.change is Change.PREPEND
    if prepends and not isinstance(column.type, ListType):
        raise InvalidRequest(f"Invalid prepend to {column.name} of type {column.type}: not a list")

    def put(found: bytes | None, row: Row, write: Write, _: ReadRow) -> None:
        if found is not None:
            new_keys = write.prepended_keys if prepends else write.appended_keys
            _put_all(row, column, _entries(column.type, found, new_keys), write)

    return _unless_unset(compile_term(change.value, scope.column_spec(column), scope), put)


def _remove(column: Column, term: Term, scope: Scope) -> Operation:
    removed = SetType(column.type.key) if isinstance(column.type, MapType) else column.type
    is_list = isinstance(column.type, ListType)

    def put(found: bytes | None, row: Row, write: Write, read: ReadRow) -> None:
        keys = [] if found is None else elements.list_elements(found)
        if keys and is_list:
            keys = [key for key, cell in _live(read(), column).items() if cell.value in keys]
        for key in keys:
            _put(row, column, key, write.dead())

    return _unless_unset(compile_term(term, scope.spec(column.name, removed), scope), put)


def _count(column: Column, change: Assignment, scope: Scope) -> Operation:
    """Compile ``c = c + n`` or ``c = c - n``, which reads and rewrites a counter."""
    sign = -1 if change.change is Change.REMOVE else 1

    def put(found: bytes | None, row: Row, write: Write, read: ReadRow) -> None:
        if found is None:
            raise InvalidRequest("Invalid null value for counter increment")
        stored, found_pending = read().cells.get(column.name), row.cells.get(column.name)
        pending = found_pending if isinstance(found_pending, Cell) else None
        before = pending or stored
        if row.deletion is not None or (pending and not pending.is_live(write.execution.now)):
            raise deleted_counter()
        count = before.value if isinstance(before, Cell) else None
        total = signed(count or b"\0") + sign * signed(found)
        wrapped = (total + (1 << 63)) % (1 << 64) - (1 << 63)
        # An increment must win over the stored cell even if its own timestamp is older.
        later = stored.timestamp + 1 if isinstance(stored, Cell) else write.timestamp
        timestamp = max(write.timestamp, later)
        row.cells[column.name] = Cell(timestamp, wrapped.to_bytes(8, "big", signed=True))

    return _unless_unset(compile_term(change.value, scope.column_spec(column), scope), put)


def deleted_counter() -> InvalidRequest:
    """Return the error for incrementing a deleted counter, whose value in ScyllaDB is undefined."""
    return InvalidRequest("To increment a counter after it was deleted is not supported by this "
                          "server")  # fmt: skip


# Elements and fields

_Place = Callable[[Write, ReadRow], bytes]
"""Returns the cell key of an element or field; for a list index, reads the stored list."""


def _set_part(
    place: _Place, part: ColumnSpec, column: Column, term: Term, scope: Scope
) -> Operation:
    """Compile ``column[key] = term`` or ``column.field = term``."""

    def put(found: bytes | None, row: Row, write: Write, read: ReadRow) -> None:
        _put(row, column, place(write, read), write.cell(found))

    return _unless_unset(compile_term(term, part, scope), put)


def _element(column: Column, change: Assignment, key: Term, scope: Scope) -> Operation:
    """Compile ``column[key] = term`` for a map or list."""
    match column.type:
        case MapType(key_type, value_type) if column.is_multi_cell:
            key_spec = scope.spec(f"key({column.name})", freeze(key_type))
        case ListType(value_type) if column.is_multi_cell and change.by_id:
            key_spec = scope.spec(f"uuid_idx({column.name})", Native("uuid"))
        case ListType(value_type) if column.is_multi_cell:
            key_spec = scope.spec(f"idx({column.name})", Native("int"))
        case of_type:
            is_frozen_list = change.by_id and isinstance(of_type, ListType)
            label = f"column {column.name} of type {of_type}"
            raise InvalidRequest(
                f"Invalid operation ({column.name}[...] = ...) for "
                f"{f'frozen collection column {column.name}' if is_frozen_list else label}"
            )
    value_spec = scope.spec(f"value({column.name})", freeze(value_type))
    place = _element_place(column, compile_term(key, key_spec, scope), change.by_id)
    return _set_part(place, value_spec, column, change.value, scope)


def _delete_element(column: Column, key: Term, scope: Scope) -> Operation:
    """Compile ``DELETE column[key]``; executing it rejects a list index that is out of bounds.

    An unset list index deletes nothing.
    """
    types = elements.entry_types(column.type)
    if types is None or not column.is_multi_cell:
        raise InvalidRequest(
            f"Invalid deletion operation for column {column.name} of type {column.type}"
        )
    label = "idx" if isinstance(column.type, ListType) else "key"
    spec = scope.spec(f"{label}({column.name})", freeze(types[0]))
    evaluate = compile_term(key, spec, scope)
    place = _element_place(column, evaluate)

    def delete(row: Row, write: Write, read: ReadRow) -> None:
        if not (isinstance(column.type, ListType) and evaluate(write.execution) is UNSET):
            _put(row, column, place(write, read), write.dead())

    return delete


def _element_place(column: Column, key: Evaluate, by_id: bool = False) -> _Place:
    is_index = isinstance(column.type, ListType) and not by_id

    def place(write: Write, read: ReadRow) -> bytes:
        found = _key(key, write, column)
        return _list_key(read(), column, found) if is_index else found

    return place


def _field(column: Column, name: str, term: Term, scope: Scope) -> Operation:
    """Compile ``column.field = term`` for a UDT."""
    key = _field_key(column, name, term)
    fields = column.type.fields if isinstance(column.type, UserType) else ()
    spec = scope.spec(f"{column.name}.{name}", freeze(dict(fields)[name]))
    return _set_part(lambda _write, _read: key, spec, column, term, scope)


def _field_key(column: Column, name: str, term: Term | None) -> bytes:
    """Return the cell key of a field to set to `term`, or to delete if `term` is None."""
    if not isinstance(column.type, UserType) or not column.is_multi_cell:
        kind = "frozen UDT" if isinstance(column.type, UserType) else "non-UDT"
        if term is not None:
            what = f"Invalid operation ({column.name}.{name} = {written(term)}) for {kind} column"
        elif kind == "frozen UDT":
            raise InvalidRequest(
                f"Frozen UDT column {column.name} does not support field deletions"
            )
        else:
            what = f"Invalid deletion operation for {kind} column"
        raise InvalidRequest(f"{what} {column.name}")
    names = [field for field, _ in column.type.fields]
    if name not in names:
        raise InvalidRequest(f"UDT column {column.name} does not have a field named {name}")
    return elements.field_key(names.index(name))


def _key(key: Evaluate, write: Write, column: Column) -> bytes:
    found = key(write.execution)
    if found is None or isinstance(found, Unset):
        what = "list index" if isinstance(column.type, ListType) else "map key"
        raise InvalidRequest(f"Invalid {'null' if found is None else 'unset'} value for {what}")
    return found


def _list_key(row: LiveRow, column: Column, place: bytes) -> bytes:
    """Return the cell key (a timeuuid) of the list element at an index."""
    live = _live(row, column)
    index = signed(place)
    if not live:
        raise InvalidRequest("Attempted to set an element on a list which is null")
    if not 0 <= index < len(live):
        raise InvalidRequest(f"List index {index} out of bound, list has size {len(live)}")
    return elements.ordered(column.type, live)[index]


def _live(row: LiveRow, column: Column) -> dict[bytes, Cell]:
    live = row.cells.get(column.name)
    return live if isinstance(live, dict) else {}

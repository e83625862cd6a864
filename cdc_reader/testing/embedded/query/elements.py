"""Converts collections between cells and single values, and reads rows and elements."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from attrs import define

from cdc_reader.cql.types import CqlType, ListType, MapType, Native, SetType, UserType, freeze
from cdc_reader.testing.embedded.cdc.collection import element_order
from cdc_reader.testing.embedded.codec.order import join_cells, read_fields, signed, sort_key
from cdc_reader.testing.embedded.codec.validation import (
    list_value,
    map_value,
    read_collection,
    set_value,
)
from cdc_reader.testing.embedded.errors import InvalidRequest
from cdc_reader.testing.embedded.grammar.terms import Term
from cdc_reader.testing.embedded.query.model import Execution, Scope
from cdc_reader.testing.embedded.query.result import ColumnSpec
from cdc_reader.testing.embedded.query.terms import bound_value
from cdc_reader.testing.embedded.schema.table import Column, Kind
from cdc_reader.testing.embedded.storage.cell import Cell
from cdc_reader.testing.embedded.storage.row import LiveRow, LiveValue


def join(cql_type: CqlType, cells: Mapping[bytes, Cell]) -> bytes:
    """Serialize live cells to the value that a reader sees."""
    match cql_type:
        case ListType():
            return list_value([cells[key].value or b"" for key in ordered(cql_type, cells)])
        case SetType(element):
            return set_value(cells, sort_key(element))
        case MapType(key):
            pairs = ((k, cell.value or b"") for k, cell in cells.items())
            return map_value(pairs, sort_key(key))
        case UserType(fields=fields):
            by_index = [cells.get(field_key(index)) for index in range(len(fields))]
            return join_cells([None if cell is None else cell.value for cell in by_index])
        case _:
            raise AssertionError(f"{cql_type} is one cell")


def ordered(cql_type: CqlType, cells: Mapping[bytes, Cell]) -> list[bytes]:
    """Return the element keys in the order of the collection."""
    return sorted(cells, key=element_order(cql_type))


def list_elements(value: bytes) -> list[bytes]:
    """Return the elements of a serialized list or set."""
    return read_collection(value, 1)


def map_entries(value: bytes) -> list[tuple[bytes, bytes]]:
    """Return the (key, value) pairs of a serialized map."""
    cells = read_collection(value, 2)
    return list(zip(cells[::2], cells[1::2], strict=True))


def entry_types(cql_type: CqlType) -> tuple[CqlType, CqlType] | None:
    """Return the types of a collection's keys and values; None for other types.

    The keys of a list are indexes; a set's elements are both its keys and its values.
    """
    match cql_type:
        case MapType(key, value):
            return key, value
        case SetType(element):
            return element, element
        case ListType(element):
            return Native("int"), element
    return None


def entries(cql_type: CqlType, value: bytes) -> list[tuple[bytes, bytes]]:
    """Return the (key, value) pairs of a serialized collection."""
    if isinstance(cql_type, MapType):
        return map_entries(value)
    elements = list_elements(value)
    is_set = isinstance(cql_type, SetType)
    return [(e if is_set else i.to_bytes(4, "big"), e) for i, e in enumerate(elements)]


def fields(value: bytes) -> list[tuple[bytes, bytes | None]]:
    """Return the (cell key, value) pairs of a serialized UDT.

    Fields that were added to the type after the value was written are absent.
    """
    return [(field_key(index), cell) for index, cell in enumerate(read_fields(value))]


def field_key(index: int) -> bytes:
    """Return the cell key of a UDT's field."""
    return index.to_bytes(2, "big")


def user_field(cql_type: CqlType, name: str, label: str) -> tuple[int, CqlType]:
    """Return a UDT field's index and type; error messages call the UDT value `label`."""
    fields = cql_type.fields if isinstance(cql_type, UserType) else ()
    for index, (field, of_type) in enumerate(fields):
        if field == name:
            return index, of_type
    raise InvalidRequest(f"{label} of type {cql_type} has no field {name}")


def field_value(value: bytes | None, index: int) -> bytes | None:
    """Return a field of a serialized UDT; None if the value is older than the field."""
    cells = [] if value is None else read_fields(value)
    return cells[index] if index < len(cells) else None


@define(frozen=True)
class RowView:
    """A row as of `now` (seconds): its partition key, static row and, if any, clustering row."""

    key: tuple[bytes, ...]
    static: LiveRow
    row: LiveRow | None
    now: int

    def live(self, column: Column) -> LiveValue | None:
        """Return the live cell or cells of a non-key column; None if there are none."""
        source = self.static if column.kind is Kind.STATIC else self.row
        return None if source is None else source.cells.get(column.name)

    def value(self, column: Column) -> bytes | None:
        """Return a column's serialized value."""
        if column.kind is Kind.PARTITION_KEY:
            return self.key[column.position]
        if column.kind is Kind.CLUSTERING:
            return self.row.key[column.position] if self.row is not None else None
        live = self.live(column)
        if live is None:
            return None
        return live.value if isinstance(live, Cell) else join(column.type, live)


def element_reader(
    column: Column, key: Term, scope: Scope
) -> tuple[Callable[[RowView, Execution], bytes | None], ColumnSpec]:
    """Return a function that reads ``column[key]`` (null if absent), and the element's type."""
    types, profile = entry_types(column.type), scope.catalog.profile
    is_list, is_set = isinstance(column.type, ListType), isinstance(column.type, SetType)
    if types is None or (is_set and not profile.vectors):
        kinds = "map/list" if is_set else "map/set/list"
        raise InvalidRequest(f"Column {column.name} is not a {kinds}, cannot be subscripted")
    label = "idx" if is_list else "value" if is_set else "key"
    wanted = bound_value(key, scope.spec(f"{label}({column.name})", freeze(types[0])), scope)
    order = sort_key(types[0])

    def read(view: RowView, execution: Execution) -> bytes | None:
        value, place = view.value(column), wanted(execution)
        if value is None or (place is None and profile.new_words):
            return None
        if place is None:
            raise InvalidRequest(f"Invalid null value for {column.type} element access")
        if is_list and signed(place) < 0 and not profile.new_words:
            raise InvalidRequest(f"Invalid negative list index {signed(place)}")
        found = (each for k, each in entries(column.type, value) if order(k) == order(place))
        return next(found, None)

    return read, scope.spec(f"value({column.name})", freeze(types[1]))

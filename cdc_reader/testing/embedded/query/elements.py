"""Converts collections between cells and single values, and shows rows as values."""

from __future__ import annotations

from collections.abc import Mapping

from attrs import define

from cdc_reader.cql.types import CqlType, ListType, MapType, SetType, UserType
from cdc_reader.testing.embedded.cdc.collection import element_order
from cdc_reader.testing.embedded.codec.order import join_cells, read_fields, sort_key
from cdc_reader.testing.embedded.codec.validation import (
    list_value,
    map_value,
    read_collection,
    set_value,
)
from cdc_reader.testing.embedded.errors import InvalidRequest
from cdc_reader.testing.embedded.schema.table import Column, Kind
from cdc_reader.testing.embedded.storage.cell import Cell
from cdc_reader.testing.embedded.storage.row import LiveRow, LiveValue


def join(cql_type: CqlType, cells: Mapping[bytes, Cell]) -> bytes:
    """Return the serialised value that a reader sees, from live cells."""
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
    """Return the elements of a serialised list or set."""
    return read_collection(value, 1)


def list_element(value: bytes, place: bytes) -> bytes | None:
    """Return the element of a serialised list at an index, which is an int; None if absent."""
    elements, index = list_elements(value), int.from_bytes(place, "big", signed=True)
    return elements[index] if 0 <= index < len(elements) else None


def map_entries(value: bytes) -> list[tuple[bytes, bytes]]:
    """Return the (key, value) pairs of a serialised map."""
    cells = read_collection(value, 2)
    return list(zip(cells[::2], cells[1::2], strict=True))


def map_element(of_type: MapType, value: bytes, key: bytes) -> bytes | None:
    """Return the value of a key in a serialised map; None if absent."""
    order = sort_key(of_type.key)
    place = order(key)
    return next((cell for k, cell in map_entries(value) if order(k) == place), None)


def fields(value: bytes) -> list[tuple[bytes, bytes | None]]:
    """Return the (cell key, value) pairs of a serialised UDT, without fields added later."""
    return [(field_key(index), cell) for index, cell in enumerate(read_fields(value))]


def field_key(index: int) -> bytes:
    """Return the cell key of a UDT's field."""
    return index.to_bytes(2, "big")


def user_field(cql_type: CqlType, name: str, label: str) -> tuple[int, CqlType]:
    """Return the index and type of a UDT's field; error messages call the value `label`."""
    fields = cql_type.fields if isinstance(cql_type, UserType) else ()
    for index, (field, of_type) in enumerate(fields):
        if field == name:
            return index, of_type
    raise InvalidRequest(f"{label} of type {cql_type} has no field {name}")


def field_value(value: bytes | None, index: int) -> bytes | None:
    """Return a field of a serialised UDT; None if the value is older than the field."""
    cells = [] if value is None else read_fields(value)
    return cells[index] if index < len(cells) else None


@define(frozen=True)
class RowView:
    """A row to read at `now` (seconds): its partition key, static row and any clustering row."""

    key: tuple[bytes, ...]
    static: LiveRow
    row: LiveRow | None
    now: int

    def live(self, column: Column) -> LiveValue | None:
        """Return the live cell or cells of a non-key column; None if there are none."""
        source = self.static if column.kind is Kind.STATIC else self.row
        return None if source is None else source.cells.get(column.name)

    def value(self, column: Column) -> bytes | None:
        """Return a column's serialised value."""
        if column.kind is Kind.PARTITION_KEY:
            return self.key[column.position]
        if column.kind is Kind.CLUSTERING:
            return self.row.key[column.position] if self.row is not None else None
        live = self.live(column)
        if live is None:
            return None
        return live.value if isinstance(live, Cell) else join(column.type, live)

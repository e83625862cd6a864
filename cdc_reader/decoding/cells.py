"""Builds one Arrow array from the cells of one column, by CQL type.

Parts of nested values are treated as columns, so the recursion is over types, never over rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa

from cdc_reader.cql.types import (
    CqlType,
    ListType,
    MapType,
    Native,
    SetType,
    Transform,
    TupleType,
    UserType,
    VectorType,
)
from cdc_reader.decoding.arrow_type import arrow_type
from cdc_reader.decoding.buffer import Buffer
from cdc_reader.decoding.scalars import SCALARS, Cells
from cdc_reader.errors import DecodeError

Build = Callable[[Cells], pa.Array]
"""Builds the array of a column's cells."""

VECTOR_WIDTHS = {
    "bigint": 8, "boolean": 1, "double": 8, "float": 4, "int": 4, "timestamp": 8,
    "timeuuid": 16, "uuid": 16,
}  # fmt: skip
"""Widths of element types that a vector packs without lengths; smallint, date etc. have lengths."""


def build(cql_type: CqlType, cells: Cells) -> pa.Array:
    """Build the array of `cells`; raise DecodeError for cells that are not of `cql_type`."""
    return _BUILDER(cql_type)(cells)


def _list(cql_type: ListType | SetType | VectorType, element: Build) -> Build:
    arrow = arrow_type(cql_type)
    cut = _vector_cutter(cql_type) if isinstance(cql_type, VectorType) else _elements

    def build_lists(cells: Cells) -> pa.Array:
        offsets, flat = _flatten(cells, cut)
        return pa.ListArray.from_arrays(offsets, element(flat), type=arrow)

    return build_lists


def _map(cql_type: MapType, key: Build, value: Build) -> Build:
    arrow = arrow_type(cql_type)

    def build_maps(cells: Cells) -> pa.Array:
        offsets, flat = _flatten(cells, _entries)
        halves = [None if offset is None else offset // 2 for offset in offsets.to_pylist()]
        keys, values = _keys(key(flat[::2])), value(flat[1::2])
        return pa.MapArray.from_arrays(pa.array(halves, pa.int32()), keys, values, type=arrow)

    return build_maps


def _keys(keys: pa.Array) -> pa.Array:
    if keys.null_count:
        raise DecodeError("a map has a null or empty key")
    return keys


def _flatten(cells: Cells, cut: Callable[[bytes], Cells]) -> tuple[pa.Array, Cells]:
    """Return offsets (null for null cells), and the parts of all cells in one list."""
    offsets: list[int | None] = []
    flat: Cells = []
    for cell in cells:
        offsets.append(len(flat) if cell else None)
        if cell:
            flat.extend(cut(cell))
    offsets.append(len(flat))
    return pa.array(offsets, pa.int32()), flat


def _elements(cell: bytes, factor: int = 1) -> Cells:
    buffer = Buffer(cell)
    parts = [buffer.value() for _ in range(_bounded(buffer, factor))]
    buffer.expect_end("a collection")
    return parts


def _entries(cell: bytes) -> Cells:
    return _elements(cell, 2)


def _bounded(buffer: Buffer, factor: int) -> int:
    """Read the number of parts; check it against the buffer's size before building anything."""
    count = buffer.count("elements") * factor
    if count * 4 > buffer.end:
        raise DecodeError(f"a collection of {buffer.end} bytes claims to have {count} parts")
    return count


def _vector_cutter(vector: VectorType) -> Callable[[bytes], Cells]:
    width = fixed_width(vector.element)

    def cut(cell: bytes) -> Cells:
        buffer = Buffer(cell)
        parts: Cells = [
            buffer.take(buffer.vint() if width is None else width) for _ in range(vector.dimension)
        ]
        buffer.expect_end("a vector")
        return parts

    return cut


def fixed_width(cql_type: CqlType) -> int | None:
    """Return the size in bytes of a vector's packed elements; None if each has a length prefix."""
    if isinstance(cql_type, VectorType):
        inner = fixed_width(cql_type.element)
        return None if inner is None else inner * cql_type.dimension
    return VECTOR_WIDTHS.get(cql_type.name) if isinstance(cql_type, Native) else None


def _struct(cql_type: TupleType | UserType, parts: Sequence[Build]) -> Build:
    fields = list(arrow_type(cql_type))

    def build_structs(cells: Cells) -> pa.Array:
        """Build structs; fields missing at the end are null, because the value predates them."""
        cut = [_fields(cell, len(parts)) if cell is not None else [] for cell in cells]
        children = [
            part([values[index] if index < len(values) else None for values in cut])
            for index, part in enumerate(parts)
        ]
        mask = pa.array([cell is None for cell in cells], pa.bool_())
        return pa.StructArray.from_arrays(children, fields=fields, mask=mask)

    return build_structs


def _fields(cell: bytes, count: int) -> Cells:
    buffer = Buffer(cell)
    parts: Cells = []
    while buffer.position < buffer.end and len(parts) < count:
        parts.append(buffer.value())
    buffer.expect_end(f"a value of {count} fields")
    return parts


_BUILDER: Transform[Build] = Transform(
    native=lambda cql_type: SCALARS[cql_type.name], sequence=_list, mapping=_map, struct=_struct
)

"""From the cells of one column to one Arrow array, by CQL type. Parts of nested values are
columns of their own, so this recurses over types, never over rows.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from cdc_reader.cql_type import (
    CqlType,
    ListType,
    MapType,
    Native,
    SetType,
    TupleType,
    UserType,
    VectorType,
)
from cdc_reader.errors import DecodeError
from cdc_reader.kernel.arrow_type import arrow_type, fields_of
from cdc_reader.kernel.buffer import Buffer
from cdc_reader.kernel.scalars import SCALARS, Cells

VECTOR_WIDTHS = {
    "bigint": 8, "boolean": 1, "double": 8, "float": 4, "int": 4, "timestamp": 8,
    "timeuuid": 16, "uuid": 16,
}  # fmt: skip
"""Element types that a vector packs without lengths; smallint, date and others are not."""


def build(cql_type: CqlType, cells: Cells) -> pa.Array:
    """The array of `cells`; raises DecodeError for cells that are not of `cql_type`."""
    match cql_type:
        case Native(name):
            return SCALARS[name](cells)
        case ListType(element) | SetType(element):
            return _list(cql_type, element, cells, _elements)
        case VectorType(element):
            return _list(cql_type, element, cells, _vector_cutter(cql_type))
        case MapType():
            return _map(cql_type, cells)
        case TupleType() | UserType():
            return _struct(cql_type, cells)


def _list(
    cql_type: CqlType, element: CqlType, cells: Cells, cut: Callable[[bytes], Cells]
) -> pa.Array:
    offsets, flat = _flatten(cells, cut)
    return pa.ListArray.from_arrays(offsets, build(element, flat), type=arrow_type(cql_type))


def _map(cql_type: MapType, cells: Cells) -> pa.Array:
    offsets, flat = _flatten(cells, _entries)
    halves = [None if offset is None else offset // 2 for offset in offsets.to_pylist()]
    return pa.MapArray.from_arrays(
        pa.array(halves, pa.int32()),
        _keys(build(cql_type.key, flat[::2])),
        build(cql_type.value, flat[1::2]),
        type=arrow_type(cql_type),
    )


def _keys(keys: pa.Array) -> pa.Array:
    if keys.null_count:
        raise DecodeError("a map has a null or empty key")
    return keys


def _flatten(cells: Cells, cut: Callable[[bytes], Cells]) -> tuple[pa.Array, Cells]:
    """Offsets (null where the cell is) and the parts of all cells in one run."""
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
    """The number of parts, checked against the bytes there are before anything is built."""
    count = buffer.count("elements") * factor
    if count * 4 > buffer.end:
        raise DecodeError(f"a collection of {buffer.end} bytes says it has {count} parts")
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
    """The bytes of an element in a vector that packs them; None if each has its length before."""
    if isinstance(cql_type, VectorType):
        inner = fixed_width(cql_type.element)
        return None if inner is None else inner * cql_type.dimension
    return VECTOR_WIDTHS.get(cql_type.name) if isinstance(cql_type, Native) else None


def _struct(cql_type: TupleType | UserType, cells: Cells) -> pa.Array:
    """Fields missing at the end are null: the value is older than they are."""
    fields = fields_of(cql_type)
    cut = [_fields(cell, len(fields)) if cell is not None else [] for cell in cells]
    children = [
        build(part, [parts[index] if index < len(parts) else None for parts in cut])
        for index, (_, part) in enumerate(fields)
    ]
    mask = pa.array([cell is None for cell in cells], pa.bool_())
    return pa.StructArray.from_arrays(children, fields=list(arrow_type(cql_type)), mask=mask)


def _fields(cell: bytes, count: int) -> Cells:
    buffer = Buffer(cell)
    parts: Cells = []
    while buffer.position < buffer.end and len(parts) < count:
        parts.append(buffer.value())
    buffer.expect_end(f"a value of {count} fields")
    return parts

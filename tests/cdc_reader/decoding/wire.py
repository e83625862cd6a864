"""An independent encoder of the CQL protocol, which uses the driver for scalars."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import Any

from cassandra import cqltypes
from cassandra.marshal import uvint_pack

from cdc_reader.cql.schema import Column
from cdc_reader.cql.types import (
    CqlType,
    ListType,
    MapType,
    Native,
    SetType,
    TupleType,
    UserType,
    VectorType,
)
from cdc_reader.decoding import Page

# the sizes of Cassandra's fixed-width vector elements; all others have a length prefix
_CLASSES = {
    "ascii": cqltypes.AsciiType, "bigint": cqltypes.LongType, "blob": cqltypes.BytesType,
    "boolean": cqltypes.BooleanType, "counter": cqltypes.CounterColumnType,
    "date": cqltypes.SimpleDateType, "decimal": cqltypes.DecimalType,
    "double": cqltypes.DoubleType, "duration": cqltypes.DurationType,
    "float": cqltypes.FloatType, "inet": cqltypes.InetAddressType, "int": cqltypes.Int32Type,
    "smallint": cqltypes.ShortType, "text": cqltypes.UTF8Type, "time": cqltypes.TimeType,
    "timestamp": cqltypes.TimestampType, "timeuuid": cqltypes.TimeUUIDType,
    "tinyint": cqltypes.ByteType, "uuid": cqltypes.UUIDType, "varint": cqltypes.IntegerType,
}  # fmt: skip
_PACKED = {
    "bigint", "boolean", "double", "float", "int", "timestamp", "timeuuid", "uuid"
}  # fmt: skip


def native_class(name: str) -> Any:
    """Return the driver's class for a native type."""
    return _CLASSES[name]


def page_of(body: bytes, columns: Sequence[Column] | None = None) -> Page:
    """Parse the page in `body`. `columns` are the expected columns, if known."""
    if columns is None:
        return Page.parse(body)
    page = Page.parse(body, tuple(columns))
    page.check(tuple(columns))
    return page


def integer(value: int) -> bytes:
    """Encode a four-byte int."""
    return struct.pack(">i", value)


def cell(value: bytes | None) -> bytes:
    """Encode a value with its length. None stands for null."""
    return integer(-1) if value is None else integer(len(value)) + value


def cells(*values: bytes | None) -> bytes:
    """Encode the cells of a tuple or UDT."""
    return b"".join(map(cell, values))


def collection(count: int, *values: bytes | None) -> bytes:
    """Encode a list, set or map with the given `count`."""
    return integer(count) + cells(*values)


def body_of(*rows: Iterable[bytes | None]) -> bytes:
    """Return a result body without metadata. Each row has as many values as the first row."""
    table = [list(row) for row in rows]
    width = len(table[0]) if table else 1
    header = struct.pack(">iiii", 2, 4, width, len(table))
    return header + b"".join(cells(*row) for row in table)


def column_of(*values: bytes | None) -> bytes:
    """Return a result body with one column, without metadata."""
    return body_of(*([value] for value in values))


def encode(cql_type: CqlType, value: Any) -> bytes | None:
    """Encode a value as the server does. A map is passed as pairs, a tuple or UDT as a sequence."""
    return None if value is None else _encoded(cql_type, value)


def _encoded(cql_type: CqlType, value: Any) -> bytes:
    match cql_type:
        case Native(name):
            raw: bytes = _CLASSES[name].serialize(value, 4)
            return raw
        case ListType(element) | SetType(element):
            return collection(len(value), *(encode(element, item) for item in value))
        case MapType(key, item):
            parts = [part for pair in value for part in zip((key, item), pair, strict=True)]
            return collection(len(value), *(encode(*part) for part in parts))
        case VectorType(element):
            return b"".join(_in_vector(element, encode(element, item) or b"") for item in value)
        case TupleType(elements):
            return cells(*map(encode, elements, value))
        case UserType(fields=fields):
            return cells(*map(encode, (part for _, part in fields), value))


def _in_vector(element: CqlType, raw: bytes) -> bytes:
    return raw if _is_packed(element) else uvint_pack(len(raw)) + raw


def _is_packed(cql_type: CqlType) -> bool:
    if isinstance(cql_type, VectorType):
        return _is_packed(cql_type.element)
    return isinstance(cql_type, Native) and cql_type.name in _PACKED

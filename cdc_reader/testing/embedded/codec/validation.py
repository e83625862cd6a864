"""Validates values from clients against their type, and puts sets and maps in order.

Like the server, it refuses values that are not of the type, and rewrites sets and maps sorted and
without duplicates, because clients may send them in any order.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable

from cdc_reader.cql.types import (
    Collection,
    CqlType,
    ListType,
    MapType,
    Native,
    SetType,
    TupleType,
    UserType,
    VectorType,
)
from cdc_reader.testing.embedded.codec.marshal import MarshalError, class_name
from cdc_reader.testing.embedded.codec.native import decode
from cdc_reader.testing.embedded.codec.order import join_cells, sort_key

Validate = Callable[[bytes], bytes]

_SIZES = {
    "bigint": 8,
    "boolean": 1,
    "counter": 8,
    "date": 4,
    "double": 8,
    "float": 4,
    "int": 4,
    "smallint": 2,
    "time": 8,
    "timestamp": 8,
    "tinyint": 1,
    "uuid": 16,
}


@functools.cache
def validator(cql_type: CqlType) -> Validate:
    """Return a function that returns a valid value in the server's form, or raises MarshalError."""
    match cql_type:
        case Native(name):
            return _native(name, cql_type)
        case ListType() | SetType() | MapType():
            return _collection(cql_type)
        case TupleType(elements):
            return _fields(cql_type, elements)
        case UserType(fields=fields):
            return _fields(cql_type, tuple(field for _, field in fields))
        case VectorType():
            return _anything


def _collection(cql_type: Collection) -> Validate:
    match cql_type:
        case ListType(element):
            return _list(validator(element))
        case SetType(element):
            return _set(element)
        case MapType(key, value):
            return _map(key, value)


def _anything(value: bytes) -> bytes:
    return value


def _native(name: str, cql_type: Native) -> Validate:
    if name in _SIZES:
        return _sized((0, _SIZES[name]), cql_type)
    variable: dict[str, Validate] = {
        "ascii": _encoded("ascii", "non-ASCII character in an ASCII string"),
        "text": _encoded("utf-8", "invalid UTF-8 string"),
        "timeuuid": _timeuuid,
        "inet": _sized((0, 4, 16), cql_type),
        "decimal": _at_least(4, cql_type),
        "duration": _duration,
    }
    return variable.get(name, _anything)


def _encoded(encoding: str, message: str) -> Validate:
    def validate(value: bytes) -> bytes:
        try:
            value.decode(encoding)
        except UnicodeDecodeError:
            raise MarshalError(f"Validation failed - {message}") from None
        return value

    return validate


def _sized(sizes: tuple[int, ...], cql_type: CqlType) -> Validate:
    def validate(value: bytes) -> bytes:
        if len(value) not in sizes:
            raise _wrong_size(value, cql_type)
        return value

    return validate


def _at_least(size: int, cql_type: CqlType) -> Validate:
    def validate(value: bytes) -> bytes:
        if value and len(value) < size:
            raise _wrong_size(value, cql_type)
        return value

    return validate


def _duration(value: bytes) -> bytes:
    _at_least(3, Native("duration"))(value)
    try:
        found = decode(Native("duration"), value) if value else None
    except (IndexError, ValueError, struct.error):
        raise _wrong_size(value, Native("duration")) from None
    if found and min(parts := (found.months, found.days, found.nanoseconds)) < 0 < max(parts):
        raise MarshalError(
            f"The duration months, days, and nanoseconds must be all of the same sign {parts}"
        )
    return value


def _wrong_size(value: bytes, cql_type: CqlType) -> MarshalError:
    return MarshalError(
        f"Validation failed for type {class_name(cql_type)}: got {len(value)} bytes"
    )


def _timeuuid(value: bytes) -> bytes:
    if len(value) not in (0, 16):
        raise _wrong_size(value, Native("timeuuid"))
    if value and value[6] >> 4 != 1:
        raise MarshalError(f"Unsupported UUID version ({value[6] >> 4})")
    return value


def _list(element: Validate) -> Validate:
    def validate(value: bytes) -> bytes:
        count, cells = read_collection(value, 1)
        return count + join_cells([element(cell) for cell in cells])

    return validate


def _set(element: CqlType) -> Validate:
    check, order = validator(element), sort_key(element)

    def validate(value: bytes) -> bytes:
        _, cells = read_collection(value, 1)
        return set_value({check(cell) for cell in cells}, order)

    return validate


def _map(key: CqlType, value_type: CqlType) -> Validate:
    check_key, check_value, order = validator(key), validator(value_type), sort_key(key)

    def validate(value: bytes) -> bytes:
        _, cells = read_collection(value, 2)
        pairs = zip(cells[::2], cells[1::2], strict=True)
        return map_value({check_key(k): check_value(v) for k, v in pairs}, order)

    return validate


def _fields(cql_type: CqlType, types: tuple[CqlType, ...]) -> Validate:
    checks = [validator(each) for each in types]

    def validate(value: bytes) -> bytes:
        cells = read_fields(value)
        if len(cells) > len(checks):
            raise MarshalError(
                f"{class_name(cql_type)}: found {len(cells)} fields, expected {len(checks)}"
            )
        return join_cells(
            [c if c is None else check(c) for check, c in zip(checks, cells, strict=False)]
        )

    return validate


def list_value(elements: list[bytes]) -> bytes:
    """Serialise a list."""
    return len(elements).to_bytes(4, "big") + join_cells([*elements])


def set_value(elements: set[bytes], order: Callable[[bytes], object]) -> bytes:
    """Serialise a set, with its elements in `order`."""
    return list_value(sorted(elements, key=order))  # type: ignore[arg-type]  # keys compare


def map_value(entries: dict[bytes, bytes], order: Callable[[bytes], object]) -> bytes:
    """Serialise a map, with its keys in `order`."""
    keys = sorted(entries, key=order)  # type: ignore[arg-type]  # keys compare
    return len(keys).to_bytes(4, "big") + join_cells([p for k in keys for p in (k, entries[k])])


def read_collection(value: bytes, width: int) -> tuple[bytes, list[bytes]]:
    """Read the count's bytes and the cells of a list, set (width 1) or map (width 2)."""
    cells = read_fields(value[4:])
    if len(value) < 4 or len(cells) != int.from_bytes(value[:4], "big", signed=True) * width:
        raise MarshalError(f"Unexpected end of a collection of {len(value)} bytes")
    whole = [cell for cell in cells if cell is not None]
    if len(whole) != len(cells):
        raise MarshalError("null is not supported inside collections")
    return value[:4], whole


def read_fields(value: bytes) -> list[bytes | None]:
    """Read the [length, bytes] cells that make up the whole of `value`."""
    cells: list[bytes | None] = []
    position = 0
    while position < len(value):
        size = int.from_bytes(value[position : position + 4], "big", signed=True)
        end = position + 4 + max(size, 0)
        if end > len(value):
            raise MarshalError(f"Not enough bytes: expected {end}, found {len(value)}")
        cells.append(None if size < 0 else value[position + 4 : end])
        position = end
    return cells

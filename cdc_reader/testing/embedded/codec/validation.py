"""Validates bound values against their type, and sorts sets and maps.

As in ScyllaDB, values that do not match their type are rejected. Clients may send sets and maps in
any order, so these are sorted, and duplicates are removed.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable, Iterable
from typing import Any

from cassandra.marshal import uvint_pack

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
    children,
)
from cdc_reader.testing.embedded.codec.marshal import MarshalError, class_name
from cdc_reader.testing.embedded.codec.native import decode, fixed_width
from cdc_reader.testing.embedded.codec.order import (
    SortKey,
    distinct,
    join_cells,
    read_fields,
    sort_key,
)

Validate = Callable[[bytes], bytes]

COMPATIBLE = {("ascii", "text"), ("int", "varint"), ("bigint", "varint"), ("timeuuid", "uuid"),
              ("bigint", "timestamp"), ("timestamp", "bigint")}  # fmt: skip
"""Pairs of types; each value of the first type is also a value of the second."""
_MOST_INT = (1 << 31) - 1
_SIZES = {
    "bigint": 8, "boolean": 1, "counter": 8, "date": 4, "double": 8, "float": 4, "int": 4,
    "smallint": 2, "time": 8, "timestamp": 8, "tinyint": 1, "uuid": 16,
}  # fmt: skip


@functools.cache
def validator(cql_type: CqlType) -> Validate:
    """Return a function from a value to its stored form; it raises MarshalError for a bad value."""
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


def list_with_nulls(cql_type: ListType) -> Validate:
    """Return the function for the value of ``IN ?``, a list that may contain nulls."""
    check = validator(cql_type.element)
    return lambda value: (
        value[:4] + join_cells([c if c is None else check(c) for c in read_cells(value, 1)])
    )


def _collection(cql_type: Collection) -> Validate:
    checks = [validator(part) for part in children(cql_type)]
    order, width = sort_key(children(cql_type)[0]), len(checks)

    def validate(value: bytes) -> bytes:
        cells = read_collection(value, width)
        checked = [checks[index % width](cell) for index, cell in enumerate(cells)]
        match cql_type:
            case ListType():
                return list_value(checked)
            case SetType():
                return set_value(checked, order)
            case MapType():
                return map_value(zip(checked[::2], checked[1::2], strict=True), order)

    return validate


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
    for name in ("months", "days") if found else ():
        if not -_MOST_INT - 1 <= (count := getattr(found, name)) <= _MOST_INT:
            raise MarshalError(f"The duration {name} ({count}) must be a 32 bit integer")
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
    """Serialize a list."""
    return len(elements).to_bytes(4, "big") + join_cells([*elements])


def set_value(elements: Iterable[bytes], order: SortKey) -> bytes:
    """Serialize a set, with its elements in `order`."""
    return list_value(distinct(elements, order))


def map_value(entries: Iterable[tuple[bytes, bytes]], order: SortKey) -> bytes:
    """Serialize a map, with its keys in `order`; of equal keys, the first one is kept."""
    first: dict[Any, tuple[bytes, bytes]] = {}
    for entry in entries:
        first.setdefault(order(entry[0]), entry)
    cells = [cell for place in sorted(first) for cell in first[place]]
    return len(first).to_bytes(4, "big") + join_cells([*cells])


def vector_value(elements: Iterable[bytes], element: CqlType) -> bytes:
    """Serialize a vector; each element of variable width follows its length, a vint."""
    if _is_packed(element):
        return b"".join(elements)
    return b"".join(part for each in elements for part in (uvint_pack(len(each)), each))


def _is_packed(cql_type: CqlType) -> bool:
    match cql_type:
        case Native():
            return fixed_width(cql_type) is not None
        case VectorType(element):
            return _is_packed(element)
        case _:
            return False


def read_cells(value: bytes, width: int) -> list[bytes | None]:
    """Read the cells of a list, set (width 1) or map (width 2), including nulls."""
    cells = read_fields(value[4:])
    if len(value) < 4 or len(cells) != int.from_bytes(value[:4], "big", signed=True) * width:
        raise MarshalError(f"Unexpected end of a collection of {len(value)} bytes")
    return cells


def read_collection(value: bytes, width: int) -> list[bytes]:
    """Read the cells of a stored list, set (width 1) or map (width 2), which are not null."""
    cells = read_cells(value, width)
    whole = [cell for cell in cells if cell is not None]
    if len(whole) != len(cells):
        raise MarshalError("null is not supported inside collections")
    return whole

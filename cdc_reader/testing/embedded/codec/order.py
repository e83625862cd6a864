"""The server's order of values: maps a serialised value to a key that Python sorts alike.

Clustering rows, map keys and set elements stand in the order of their type, not of their bytes.
"""

from __future__ import annotations

import functools
import math
import struct
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from cdc_reader.cql import timeuuid
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

SortKey = Callable[[bytes], Any]


def sort_key(cql_type: CqlType, descending: bool = False) -> SortKey:
    """Return a function from a value's bytes to a key that sorts as the server sorts the type."""
    ascending = _ascending(cql_type)
    if not descending:
        return ascending
    return lambda value: Descending(ascending(value))


@functools.total_ordering
class Descending:
    """Wraps a key to reverse its order."""

    __slots__ = ("key",)

    def __init__(self, key: Any) -> None:
        self.key = key

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Descending) and bool(self.key == other.key)

    def __lt__(self, other: Descending) -> bool:
        return bool(other.key < self.key)

    def __hash__(self) -> int:
        return hash(self.key)


@functools.cache
def _ascending(cql_type: CqlType) -> SortKey:
    match cql_type:
        case Native(name):
            return _empty_first(_NATIVE.get(name, _bytes))
        case ListType(element) | SetType(element):
            return _collection(_ascending(element), 1)
        case MapType(key, value):
            return _collection(_ascending(key), 2, _ascending(value))
        case TupleType(elements):
            return _fields([_ascending(element) for element in elements])
        case UserType(fields=fields):
            return _fields([_ascending(field) for _, field in fields])
        case VectorType():
            return _bytes


def _bytes(value: bytes) -> bytes:
    return value


def _empty_first(key: SortKey) -> SortKey:
    """Sort empty values, which are legal for every scalar, before all others."""
    if key is _bytes:
        return key
    return lambda value: (1, key(value)) if value else (0,)


def _signed(value: bytes) -> int:
    return int.from_bytes(value, "big", signed=True)


def _float(layout: str) -> SortKey:
    def key(value: bytes) -> tuple[bool, float, float]:
        number = struct.unpack(layout, value)[0]
        is_nan = math.isnan(number)
        # NaN sorts after every number; -0.0 before 0.0.
        return is_nan, 0.0 if is_nan else number, math.copysign(1.0, number)

    return key


def _decimal(value: bytes) -> Decimal:
    return Decimal(_signed(value[4:])).scaleb(-_signed(value[:4]))


def _uuid(value: bytes) -> tuple[int, Any]:
    """Sort UUIDs by version first; version 1 as timeuuids, the others by their bytes."""
    version = value[6] >> 4
    return version, (timeuuid.ticks(value), value[8:]) if version == 1 else value


_NATIVE: dict[str, SortKey] = {
    "bigint": _signed,
    "counter": _signed,
    "int": _signed,
    "smallint": _signed,
    "tinyint": _signed,
    "varint": _signed,
    "time": _signed,
    "timestamp": _signed,
    "decimal": _decimal,
    "double": _float(">d"),
    "float": _float(">f"),
    "timeuuid": timeuuid.order_key,
    "uuid": _uuid,
}


def _collection(first: SortKey, width: int, second: SortKey | None = None) -> SortKey:
    keys = (first, second or first)

    def key(value: bytes) -> tuple[Any, ...]:
        count = int.from_bytes(value[:4], "big")
        cells = split_cells(value[4:], count * width)
        return tuple(keys[i % width](cell or b"") for i, cell in enumerate(cells))

    return key


def _fields(keys: list[SortKey]) -> SortKey:
    def key(value: bytes) -> tuple[Any, ...]:
        cells = split_cells(value, len(keys))
        return tuple((0,) if c is None else (1, k(c)) for k, c in zip(keys, cells, strict=False))

    return key


def split_cells(value: bytes, most: int) -> list[bytes | None]:
    """Split `value` into at most `most` [length, bytes] cells; -1 is null."""
    cells: list[bytes | None] = []
    position = 0
    while position < len(value) and len(cells) < most:
        size = _signed(value[position : position + 4])
        position += 4
        cells.append(None if size < 0 else value[position : position + size])
        position += max(size, 0)
    return cells


def join_cells(cells: list[bytes | None]) -> bytes:
    """Join cells: the inverse of `split_cells`."""
    return b"".join(
        b"\xff\xff\xff\xff" if cell is None else len(cell).to_bytes(4, "big") + cell
        for cell in cells
    )

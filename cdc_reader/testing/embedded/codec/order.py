"""Maps serialized values to keys that Python sorts in ScyllaDB's order.

Clustering rows, map keys and set elements are ordered by their type, not by their bytes.
`cdc_reader.cql.order` does the same for Python values.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable, Iterable
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, Context, Decimal
from typing import Any

from cdc_reader.cql import timeuuid
from cdc_reader.cql.order import Descending, float_key, uuid_key
from cdc_reader.cql.types import (
    CqlType,
    ListType,
    MapType,
    Native,
    SetType,
    TupleType,
    UserType,
    VectorType,
    parts,
)
from cdc_reader.testing.embedded.codec.marshal import MarshalError

SortKey = Callable[[bytes], Any]
EXACT = Context(prec=MAX_PREC, Emax=MAX_EMAX, Emin=MIN_EMIN)


def sort_key(cql_type: CqlType, descending: bool = False) -> SortKey:
    """Return a function from a value's bytes to a key that sorts in the order of the type."""
    ascending = _ascending(cql_type)
    if not descending:
        return ascending
    return lambda value: Descending(ascending(value))


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
    """Return a sort key that puts empty values first; every scalar type allows empty values."""
    if key is _bytes:
        return key
    return lambda value: (1, key(value)) if value else (0,)


def signed(value: bytes) -> int:
    """Decode a big-endian signed integer of any size."""
    return int.from_bytes(value, "big", signed=True)


def _float(layout: str) -> SortKey:
    return lambda value: float_key(struct.unpack(layout, value)[0])


def decimal(value: bytes) -> Decimal:
    """Decode a decimal exactly: neither its digits nor its exponent is rounded."""
    return EXACT.scaleb(Decimal(signed(value[4:])), -signed(value[:4]))


_INTEGERS = "bigint counter int smallint time timestamp tinyint varint".split()
_NATIVE: dict[str, SortKey] = {
    **dict.fromkeys(_INTEGERS, signed),
    "decimal": decimal,
    "double": _float(">d"),
    "float": _float(">f"),
    "timeuuid": timeuuid.order_key,
    "uuid": uuid_key,
}


def _collection(first: SortKey, width: int, second: SortKey | None = None) -> SortKey:
    keys = (first, second or first)

    def key(value: bytes) -> tuple[Any, ...]:
        cells = read_fields(value[4:])
        return tuple(keys[i % width](cell or b"") for i, cell in enumerate(cells))

    return key


def _fields(keys: list[SortKey]) -> SortKey:
    def key(value: bytes) -> tuple[Any, ...]:
        cells = read_fields(value)
        return tuple((0,) if c is None else (1, k(c)) for k, c in zip(keys, cells, strict=False))

    return key


def distinct(values: Iterable[bytes], order: SortKey) -> list[bytes]:
    """Return the sorted values; of equal ones, such as 1.0 and 1.00, keep only the first."""
    first: dict[Any, bytes] = {}
    for value in values:
        first.setdefault(order(value), value)
    return [first[place] for place in sorted(first)]


class ElementKey(bytes):
    """The cell key of a collection element; 1.0 and 1.00, for example, have equal keys."""

    place: Any

    @classmethod
    def of(cls, key_type: CqlType, key: bytes) -> bytes:
        """Return `key`, wrapped in an ElementKey if equal values may differ in their bytes."""
        if not any(str(part) in ("decimal", "varint") for part in parts(key_type)):
            return key
        made = cls(key)
        made.place = sort_key(key_type)(key)
        return made

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ElementKey) and bool(self.place == other.place)

    def __hash__(self) -> int:
        return hash(self.place)


def read_fields(value: bytes) -> list[bytes | None]:
    """Split `value` into its [length, bytes] cells; a length of -1 means null."""
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


def join_cells(cells: list[bytes | None]) -> bytes:
    """Join cells into a value: the inverse of `read_fields`."""
    return b"".join(
        b"\xff\xff\xff\xff" if cell is None else len(cell).to_bytes(4, "big") + cell
        for cell in cells
    )

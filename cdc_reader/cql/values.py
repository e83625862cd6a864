"""Converts Arrow columns to Python values, a whole column at a time.

=======================  =========================================================
CQL                      Python
=======================  =========================================================
ascii, text              str
blob                     bytes
boolean                  bool
tinyint … bigint, varint int; also counter
float, double            float
decimal                  decimal.Decimal, with the scale it was written with
timestamp                datetime.datetime, UTC
date                     datetime.date
time                     int, ns since midnight
duration                 `Duration`
uuid, timeuuid           uuid.UUID
inet                     ipaddress.IPv4Address or IPv6Address
list, vector, tuple      tuple
set                      frozenset
map                      `FrozenDict`, in the server's order
user-defined type        `FrozenDict` by field name; a null field is None
=======================  =========================================================

Every value is immutable and hashable, because in CQL even collections can be keys. A timestamp or
date outside the years 1 to 9999 is a number: ms, or days, since 1970. In Python -0.0 equals 0.0,
but a CQL set or map may contain both as elements or keys. Then -0.0 becomes a `NegativeZero`. An
integer of thousands of digits is a `LongInteger`, which can be printed.
"""

from __future__ import annotations

import ipaddress
import math
import re
import uuid
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from itertools import pairwise
from typing import Any, NoReturn, TypeVar

import pyarrow as pa
from attrs import frozen

from cdc_reader.cql.types import (
    CqlType,
    ListType,
    MapType,
    SetType,
    Transform,
    TupleType,
    UserType,
    VectorType,
)

Convert = Callable[[pa.Array], list[Any]]
K = TypeVar("K")
V = TypeVar("V")
_MAX_TEXT_DIGITS = 4_000  # by default, Python refuses to parse and print longer integers
_SHOWN = 40


class FrozenDict(dict[K, V]):
    """An immutable dict, which can be a key of a dict and an element of a set."""

    __slots__ = ()

    def __hash__(self) -> int:  # type: ignore[override]  # a dict is mutable and has no hash
        return hash(frozenset(self.items()))

    def __reduce__(self) -> tuple[type[FrozenDict[K, V]], tuple[dict[K, V]]]:
        return FrozenDict, (dict(self),)

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise TypeError("this mapping cannot be changed: make a dict of it first")

    __setitem__ = __delitem__ = __ior__ = _refuse
    clear = pop = popitem = setdefault = update = _refuse


class NegativeZero(float):
    """-0.0 in a set or among the keys of a map, which may contain 0.0 as well.

    It does not equal 0.0. It equals -0.0, and has the same hash.
    """

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return _is_negative_zero(other)

    def __ne__(self, other: object) -> bool:
        return not _is_negative_zero(other)

    def __lt__(self, other: float) -> bool:
        return float.__lt__(self, other) or (other == 0 and not _is_negative_zero(other))

    __hash__ = float.__hash__


def _is_negative_zero(value: object) -> bool:
    return isinstance(value, float) and not value and math.copysign(1, value) < 0


class LongInteger(int):
    """An integer that can be printed although it has more digits than Python prints by default."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(Decimal(self))

    __str__ = __repr__


@frozen
class Duration:
    """A CQL duration. Its parts cannot be converted to each other, and all have the same sign."""

    months: int
    days: int
    nanoseconds: int

    def __str__(self) -> str:
        return f"{self.months}mo{self.days}d{self.nanoseconds}ns"


def converter(cql_type: CqlType) -> Convert:
    """Return a function that converts an Arrow column of `cql_type` to Python values."""
    return _CONVERTER(cql_type)


def frozen_set(elements: Sequence[Any]) -> frozenset[Any]:
    """Return the set of elements that are distinct in CQL."""
    made = frozenset(elements)
    return made if len(made) == len(elements) else frozenset(map(_signed, elements))


def frozen_map(entries: Sequence[tuple[Any, Any]]) -> FrozenDict[Any, Any]:
    """Return the map of entries whose keys are distinct in CQL."""
    made = FrozenDict(entries)
    if len(made) == len(entries):
        return made
    return FrozenDict((_signed(key), value) for key, value in entries)


def _signed(value: Any) -> Any:
    """Return the value with every -0.0 replaced by a `NegativeZero`."""
    match value:
        case tuple():
            return tuple(map(_signed, value))
        case frozenset():
            return frozenset(map(_signed, value))
        case FrozenDict():
            return FrozenDict((_signed(key), _signed(each)) for key, each in value.items())
        case _:
            return NegativeZero(value) if _is_negative_zero(value) else value


def plain(array: pa.Array) -> list[Any]:
    """Convert a column of a type for which `to_pylist` suffices."""
    values: list[Any] = array.to_pylist()
    return values


def _each(make: Callable[[Any], Any]) -> Convert:
    return lambda array: [None if value is None else make(value) for value in array.to_pylist()]


def integer(given: str | Decimal) -> int:
    """Convert the text of an integer, or a number of a column that `decimal_type` made decimal.

    Raises ValueError for other text.
    """
    if isinstance(given, Decimal) or len(given) < _MAX_TEXT_DIGITS:
        return int(given)
    if not re.fullmatch(r"-?\d+", given, re.ASCII):
        raise ValueError(f"found {given[:_SHOWN]}..., expected an integer")
    return LongInteger(Decimal(given))


def _calendar(array: pa.Array) -> list[Any]:
    """Convert points in time; those outside Python's calendar become numbers."""
    try:
        return plain(array)
    except (OverflowError, ValueError):
        return [moment(array[i]) for i in range(len(array))]


def moment(cell: pa.Scalar) -> Any:
    """Convert a timestamp or date; outside Python's calendar, return ms or days since 1970."""
    try:
        return cell.as_py()
    except (OverflowError, ValueError):
        if pa.types.is_date32(cell.type):
            return cell.cast(pa.int32()).as_py()
        number = cell.cast(pa.int64()).as_py()
        return number // 1_000 if cell.type.unit == "us" else number


def _sequences(cql_type: ListType | SetType | VectorType, element: Convert) -> Convert:
    make = frozen_set if isinstance(cql_type, SetType) else tuple

    def convert(array: pa.ListArray) -> list[Any]:
        flat, offsets = element(array.values), array.offsets.to_pylist()
        return _masked(array, [make(flat[start:end]) for start, end in pairwise(offsets)])

    return convert


def _maps(_: MapType, key: Convert, value: Convert) -> Convert:
    def convert(array: pa.MapArray) -> list[Any]:
        pairs = list(zip(key(array.keys), value(array.items), strict=True))
        offsets = array.offsets.to_pylist()
        return _masked(array, [frozen_map(pairs[start:end]) for start, end in pairwise(offsets)])

    return convert


def _tuples_or_udts(cql_type: TupleType | UserType, parts: Sequence[Convert]) -> Convert:
    if isinstance(cql_type, TupleType):
        return _structs(parts, tuple)
    names = [name for name, _ in cql_type.fields]
    return _structs(parts, lambda row: FrozenDict(zip(names, row, strict=True)))


def _structs(parts: Sequence[Convert], make: Callable[[tuple[Any, ...]], Any]) -> Convert:
    def convert(array: pa.StructArray) -> list[Any]:
        columns = [part(field) for part, field in zip(parts, array.flatten(), strict=True)]
        return _masked(array, map(make, zip(*columns, strict=True)))

    return convert


def _masked(array: pa.Array, values: Iterable[Any]) -> list[Any]:
    if not array.null_count:
        return list(values)
    valid = array.is_valid().to_pylist()
    return [value if is_valid else None for value, is_valid in zip(values, valid, strict=True)]


uuids = _each(uuid.UUID)
"""Convert a column of UUIDs."""

_NATIVE: dict[str, Convert] = {
    **dict.fromkeys(("ascii", "blob", "boolean", "text", "time"), plain),
    **dict.fromkeys(("bigint", "counter", "int", "smallint", "tinyint"), plain),
    **dict.fromkeys(("double", "float"), plain),
    "date": _calendar,
    "decimal": _each(Decimal),
    "duration": _structs([plain] * 3, lambda parts: Duration(*parts)),
    "inet": _each(ipaddress.ip_address),
    "timestamp": _calendar,
    "timeuuid": uuids,
    "uuid": uuids,
    "varint": _each(integer),
}
_CONVERTER: Transform[Convert] = Transform(
    native=lambda cql_type: _NATIVE[cql_type.name],
    sequence=_sequences,
    mapping=_maps,
    struct=_tuples_or_udts,
)

"""The server's order of values, as keys that Python sorts: see `sort_key`.

Clustering rows, map keys and set elements are ordered by their type: numbers by value, text by code
point (the order of its UTF-8 bytes), addresses by their bytes, time UUIDs by time, other UUIDs by
version and then by bytes. The order of text forms, or of `uuid.UUID`, differs from it.
"""

from __future__ import annotations

import functools
import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime
from typing import Any

from attrs import frozen

from cdc_reader._time import datetime_micros
from cdc_reader.cql import timeuuid
from cdc_reader.cql.schema import Column, TableSchema
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
from cdc_reader.errors import UnsupportedTableError

SortKey = Callable[[Any], Any]
Place = tuple[Any, ...]
_EPOCH_DAY = date(1970, 1, 1).toordinal()


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


def float_key(number: float) -> tuple[bool, float, float]:
    """Return a key that sorts NaN after every number, and -0.0 before 0.0."""
    is_nan = math.isnan(number)
    return is_nan, 0.0 if is_nan else number, math.copysign(1.0, number)


def is_same(a: Any, b: Any) -> bool:
    """Compare values as the server does: 0.0 and -0.0 differ, and NaN equals itself."""
    return repr(a) == repr(b) if isinstance(a, float) else bool(a == b)


def uuid_key(raw: bytes) -> tuple[int, Any]:
    """Return a key for a UUID's bytes: by version, then as time UUIDs (version 1) or by bytes."""
    version = raw[6] >> 4
    return version, (timeuuid.ticks(raw), raw[8:]) if version == 1 else raw


def sort_key(cql_type: CqlType) -> SortKey:
    """Return a function from a value to a key that sorts in the order of the type.

    Values are as `cql.values` describes them. None sorts first. Raises ValueError for a type
    that this version cannot sort: a duration, a vector, or a type that contains one.
    """
    return _SORT_KEY(cql_type)


@frozen
class KeyRange:
    """A range of clustering keys, between two prefixes of keys, as values by column name."""

    start: Mapping[str, Any]
    end: Mapping[str, Any]
    start_inclusive: bool
    end_inclusive: bool


class ClusteringOrder:
    """Compares clustering keys of a table, and prefixes of keys, in the server's order.

    Raises UnsupportedTableError for a table with a clustering column that cannot be sorted.
    """

    def __init__(self, base: TableSchema) -> None:
        self._keys = [(column.name, _column_key(base, column)) for column in base.clustering]

    def place(self, key: Mapping[str, Any]) -> Place:
        """Return a sort key for the values, by column name, of a clustering key or of a prefix."""
        return tuple(sort(key[name]) for name, sort in self._keys if name in key)

    def section(self, places: Sequence[Place], bounds: KeyRange) -> slice:
        """Return which of these places, in ascending order, the range contains."""
        first, last = self.place(bounds.start), self.place(bounds.end)
        find_start = bisect_left if bounds.start_inclusive else bisect_right
        find_end = bisect_right if bounds.end_inclusive else bisect_left
        start = find_start(places, first, key=lambda place: place[: len(first)])
        return slice(start, find_end(places, last, start, key=lambda place: place[: len(last)]))

    def contains(self, bounds: KeyRange) -> Callable[[Mapping[str, Any]], bool]:
        """Return a function that tells whether a clustering key is in the range."""
        first, last = self.place(bounds.start), self.place(bounds.end)

        def is_inside(key: Mapping[str, Any]) -> bool:
            place = self.place(key)
            low, high = place[: len(first)], place[: len(last)]
            is_after = bounds.start_inclusive if low == first else low > first
            return is_after and (bounds.end_inclusive if high == last else high < last)

        return is_inside


def _column_key(base: TableSchema, column: Column) -> SortKey:
    try:
        ascending = sort_key(column.type)
    except ValueError as error:
        raise UnsupportedTableError(
            f"{base.name}: ranges of clustering column {column.name} cannot be compared: {error}"
        ) from None
    return (lambda value: Descending(ascending(value))) if column.descending else ascending


def _days(value: date | int) -> int:
    return value if isinstance(value, int) else value.toordinal() - _EPOCH_DAY


def _micros(value: datetime | int) -> int:
    return value * 1_000 if isinstance(value, int) else datetime_micros(value)


def _itself(value: Any) -> Any:
    return value


_NATIVE: dict[str, SortKey | None] = {
    **dict.fromkeys("ascii bigint blob boolean counter decimal int".split(), _itself),
    **dict.fromkeys("smallint text time tinyint varint".split(), _itself),
    "date": _days,
    "double": float_key,
    "duration": None,
    "float": float_key,
    "inet": lambda value: value.packed,
    "timestamp": _micros,
    "timeuuid": lambda value: timeuuid.order_key(value.bytes),
    "uuid": lambda value: uuid_key(value.bytes),
}


def _null_first(key: SortKey) -> SortKey:
    return lambda value: (0,) if value is None else (1, key(value))


def _native(cql_type: Native) -> SortKey:
    if (key := _NATIVE[cql_type.name]) is None:
        raise ValueError(f"found type {cql_type}, which has no order")
    return _null_first(key)


def _sequence(cql_type: ListType | SetType | VectorType, element: SortKey) -> SortKey:
    if isinstance(cql_type, VectorType):
        raise ValueError(f"found type {cql_type}, expected a type other than a vector")  # noqa: TRY004 - a type of CQL
    arrange = sorted if isinstance(cql_type, SetType) else list
    return _null_first(lambda value: arrange(map(element, value)))


def _mapping(_: MapType, key: SortKey, value: SortKey) -> SortKey:
    return _null_first(lambda entries: sorted((key(k), value(v)) for k, v in entries.items()))


def _struct(cql_type: TupleType | UserType, parts: Sequence[SortKey]) -> SortKey:
    is_tuple = isinstance(cql_type, TupleType)

    def key(value: Any) -> list[Any]:
        fields = value if is_tuple else value.values()
        return [part(field) for part, field in zip(parts, fields, strict=True)]

    return _null_first(key)


_SORT_KEY: Transform[SortKey] = Transform(
    native=_native, sequence=_sequence, mapping=_mapping, struct=_struct
)

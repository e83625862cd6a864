"""Converts the driver's rows to the Arrow columns that the kernel makes from the same page.

As in a careful user's program, the function that converts values is chosen once per column, and
values that `pa.array` accepts are not converted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

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
from cdc_reader.decoding import arrow_type
from cdc_reader.decoding.arrow_type import fields_of

Convert = Callable[[Any], Any]

_NATIVE: dict[str, Convert] = {
    "date": lambda value: value.days_from_epoch,
    "decimal": str,
    "duration": lambda value: (value.months, value.days, value.nanoseconds),
    "time": lambda value: value.nanosecond_time,
    "timeuuid": str,
    "uuid": str,
    "varint": str,
}


def arrays_of(rows: Sequence[tuple[Any, ...]], types: Sequence[CqlType]) -> list[pa.Array]:
    """Convert the driver's rows to Arrow columns."""
    return [
        _array(cql_type, values)
        for cql_type, values in zip(types, zip(*rows, strict=True), strict=True)
    ]


def _array(cql_type: CqlType, values: Sequence[Any]) -> pa.Array:
    convert = _convert(cql_type)
    if convert is not None:
        values = [None if value is None else convert(value) for value in values]
    return pa.array(values, arrow_type(cql_type))


def _convert(cql_type: CqlType) -> Convert | None:
    """Return the function that converts a value for `pa.array`, or None if none is needed."""
    match cql_type:
        case Native(name):
            return _NATIVE.get(name)
        case ListType(element) | SetType(element) | VectorType(element):
            return _sequence(_convert(element))
        case MapType(key, value):
            return _map(_convert(key), _convert(value))
        case TupleType() | UserType():
            return _fields([_convert(part) for _, part in fields_of(cql_type)])


def _sequence(convert: Convert | None) -> Convert:
    if convert is None:
        return list
    return lambda values: [None if value is None else convert(value) for value in values]


def _map(key: Convert | None, value: Convert | None) -> Convert:
    keys, values = _sequence(key), _sequence(value)
    return lambda found: list(zip(keys(found.keys()), values(found.values()), strict=True))


def _fields(converts: Sequence[Convert | None]) -> Convert:
    if not any(converts):
        return tuple
    return lambda values: tuple(
        value if convert is None or value is None else convert(value)
        for convert, value in zip(converts, values, strict=True)
    )

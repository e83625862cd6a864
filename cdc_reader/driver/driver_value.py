"""Values of this package as the driver takes them, by their CQL type."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cassandra.util import Date, Time
from cassandra.util import Duration as DriverDuration

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
from cdc_reader.value import FrozenDict

_NATIVE: dict[str, Callable[[Any], Any]] = {
    "date": Date,
    "duration": lambda value: DriverDuration(value.months, value.days, value.nanoseconds),
    "inet": str,
    "time": Time,
    "timestamp": lambda value: value // 1_000 if isinstance(value, int) else value,
}


def driver_value(cql_type: CqlType, value: Any) -> Any:
    """The value, `cdc_reader.value` made of an Arrow column, for the driver to bind.

    Collections become tuples, which can be keys; a missing field of a user-defined type is null.
    """
    if value is None:
        return None
    match cql_type:
        case Native(name):
            return _NATIVE[name](value) if name in _NATIVE else value
        case ListType(element) | SetType(element) | VectorType(element):
            return tuple(driver_value(element, item) for item in value)
        case MapType(key, item):
            pairs = ((driver_value(key, k), driver_value(item, v)) for k, v in value.items())
            return FrozenDict(pairs)
        case TupleType(elements):
            return tuple(map(driver_value, elements, value))
        case UserType(fields=fields):
            return tuple(driver_value(part, value.get(name)) for name, part in fields)

"""Converts values of this package for the driver to bind, and to CQL's bytes."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from cassandra import cqltypes
from cassandra.util import Date, Time
from cassandra.util import Duration as DriverDuration

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
from cdc_reader.cql.values import FrozenDict

_TO_DRIVER: dict[str, Callable[[Any], Any]] = {
    "date": Date,
    "duration": lambda value: DriverDuration(value.months, value.days, value.nanoseconds),
    "inet": str,
    "time": Time,
    "timestamp": lambda value: value // 1_000 if isinstance(value, int) else value,
}

PROTOCOL_VERSION = 4

_SERIALISERS = {
    "ascii": cqltypes.AsciiType,
    "bigint": cqltypes.LongType,
    "blob": cqltypes.BytesType,
    "boolean": cqltypes.BooleanType,
    "counter": cqltypes.CounterColumnType,
    "date": cqltypes.SimpleDateType,
    "decimal": cqltypes.DecimalType,
    "double": cqltypes.DoubleType,
    "duration": cqltypes.DurationType,
    "float": cqltypes.FloatType,
    "inet": cqltypes.InetAddressType,
    "int": cqltypes.Int32Type,
    "smallint": cqltypes.ShortType,
    "text": cqltypes.UTF8Type,
    "time": cqltypes.TimeType,
    "timestamp": cqltypes.DateType,
    "timeuuid": cqltypes.TimeUUIDType,
    "tinyint": cqltypes.ByteType,
    "uuid": cqltypes.UUIDType,
    "varint": cqltypes.IntegerType,
}

_ONE_PARAMETER = {ListType: cqltypes.ListType, SetType: cqltypes.SetType}


def driver_value(cql_type: CqlType, value: Any) -> Any:
    """Convert a value that `cdc_reader.cql.values` made from Arrow, for the driver to bind.

    Collections become tuples, which are hashable. A missing field of a user-defined type is null.
    """
    if value is None:
        return None
    match cql_type:
        case Native(name):
            return _TO_DRIVER[name](value) if name in _TO_DRIVER else value
        case ListType(element) | SetType(element) | VectorType(element):
            return tuple(driver_value(element, item) for item in value)
        case MapType(key, item):
            pairs = ((driver_value(key, k), driver_value(item, v)) for k, v in value.items())
            return FrozenDict(pairs)
        case TupleType(elements):
            return tuple(map(driver_value, elements, value))
        case UserType(fields=fields):
            return tuple(driver_value(part, value.get(name)) for name, part in fields)


def serialise(cql_type: CqlType, value: object) -> bytes:
    """The value in CQL's bytes; raises ValueError, which names the type, if it does not fit."""
    try:
        raw: bytes = driver_type(cql_type).to_binary(value, PROTOCOL_VERSION)
    except Exception as error:  # the driver's types raise whatever comes their way
        raise ValueError(f"{value!r} is no {cql_type} ({_one_line(error)})") from error
    return raw


@cache
def driver_type(cql_type: CqlType) -> Any:
    """The driver's class for a type."""
    match cql_type:
        case Native(name):
            return _SERIALISERS[name]
        case ListType(element) | SetType(element):
            return _applied(_ONE_PARAMETER[type(cql_type)], element)
        case MapType(key, value):
            return _applied(cqltypes.MapType, key, value)
        case TupleType(elements):
            return _applied(cqltypes.TupleType, *elements)
        case VectorType(element, dimension):
            return cqltypes.VectorType.apply_parameters([driver_type(element), dimension], None)
        case UserType(keyspace, name, fields):
            names = tuple(field for field, _ in fields)
            parts = tuple(driver_type(part) for _, part in fields)
            return cqltypes.UserType.make_udt_class(keyspace, name, names, parts)


def _applied(kind: Any, *parameters: CqlType) -> Any:
    return kind.apply_parameters([driver_type(parameter) for parameter in parameters])


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__

"""Values of Python to the bytes of CQL, by the driver's own types."""

from __future__ import annotations

from functools import cache
from typing import Any

from cassandra import cqltypes

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

PROTOCOL_VERSION = 4
_NATIVE = {
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


def serialise(cql_type: CqlType, value: object) -> bytes:
    """The value as CQL has it; ValueError, with the type, for one that is none of it."""
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
            return _NATIVE[name]
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

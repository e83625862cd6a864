"""Recorded cells as Python values, by the driver's own types: a yardstick for other decoders."""

from __future__ import annotations

from collections.abc import Iterator
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
    parse,
)
from cdc_reader.testing.comparison import Result

_PROTOCOL_VERSION = 4
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


def decoded(result: Result, *user_types: UserType) -> Iterator[dict[str, Any]]:
    """The rows by column name; `user_types` are those that the columns' types name."""
    named = {user_type.name: user_type for user_type in user_types}
    kinds = [driver_type(parse(text, named.__getitem__)) for _, text in result.columns]
    for row in result.rows:
        yield {
            name: kind.from_binary(cell, _PROTOCOL_VERSION)
            for (name, _), kind, cell in zip(result.columns, kinds, row, strict=True)
        }


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

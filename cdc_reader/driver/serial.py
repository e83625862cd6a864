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
    "ascii": "AsciiType", "bigint": "LongType", "blob": "BytesType", "boolean": "BooleanType",
    "counter": "CounterColumnType", "date": "SimpleDateType", "decimal": "DecimalType",
    "double": "DoubleType", "duration": "DurationType", "float": "FloatType",
    "inet": "InetAddressType", "int": "Int32Type", "smallint": "ShortType", "text": "UTF8Type",
    "time": "TimeType", "timestamp": "DateType", "timeuuid": "TimeUUIDType",
    "tinyint": "ByteType", "uuid": "UUIDType", "varint": "IntegerType",
}  # fmt: skip


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
            return cqltypes.lookup_casstype(_NATIVE[name])
        case UserType(keyspace, name, fields):
            names = tuple(field for field, _ in fields)
            types = tuple(driver_type(part) for _, part in fields)
            return cqltypes.UserType.make_udt_class(keyspace, name, names, types)
        case VectorType(element, dimension):
            return cqltypes.VectorType.apply_parameters([driver_type(element), dimension], None)
        case _:
            made, parts = _collection(cql_type)
            return made.apply_parameters(list(map(driver_type, parts)))


def _collection(cql_type: ListType | SetType | MapType | TupleType) -> tuple[Any, Any]:
    """The driver's class, yet without its parts, and the parts."""
    match cql_type:
        case TupleType(elements):
            return cqltypes.TupleType, elements
        case MapType(key, value):
            return cqltypes.MapType, (key, value)
        case ListType(element):
            return cqltypes.ListType, (element,)
        case SetType(element):
            return cqltypes.SetType, (element,)


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__

"""CAST: values of one type as values of another."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from cassandra import cqltypes

from cdc_reader.cql_type import CqlType, Native
from cdc_reader.testing.embedded.errors import InvalidRequest
from cdc_reader.testing.embedded.query.functions import overloads

_PROTOCOL = 4
_INTEGERS = "tinyint smallint int bigint varint counter".split()
_NUMBERS = (*_INTEGERS, "float", "double", "decimal")
_SIZES = {"tinyint": 1, "smallint": 2, "int": 4, "bigint": 8, "counter": 8}
_TIMES = {
    ("timeuuid", "timestamp"): "totimestamp",
    ("timeuuid", "date"): "todate",
    ("timestamp", "date"): "todate",
    ("date", "timestamp"): "totimestamp",
}


def cast(source: CqlType, target: CqlType) -> Callable[[bytes], bytes]:
    """The conversion, or InvalidRequest if there is none."""
    if isinstance(source, Native) and isinstance(target, Native):
        if source == target or (source.name, target.name) == ("ascii", "text"):
            return lambda value: value
        if source.name in _NUMBERS and target.name in _NUMBERS:
            return lambda value: _number(_decode(source, value), target.name)
        if target.name in ("text", "ascii") and source.name != "blob":
            return lambda value: as_text(source, value).encode()
        if name := _TIMES.get((source.name, target.name)):
            return next(f.body for f in overloads(name) if f.arguments == (source,))
    raise InvalidRequest(f"{source} cannot be cast to {target}")


def as_text(source: Native, value: bytes) -> str:
    """A value as CAST(... AS text) writes it."""
    match source.name:
        case "boolean":
            return "true" if value == b"\x01" else "false"
        case "uuid" | "timeuuid":
            return str(uuid.UUID(bytes=value))
        case "timestamp":
            return f"{_decode(source, value).isoformat(timespec='milliseconds')}Z"
        case _:
            return str(_decode(source, value))


def _decode(source: Native, value: bytes) -> Any:
    name = "bigint" if source.name == "counter" else source.name
    return cqltypes.lookup_casstype(_DRIVER_NAMES.get(name, name)).deserialize(value, _PROTOCOL)


_DRIVER_NAMES = {
    "ascii": "AsciiType",
    "bigint": "LongType",
    "boolean": "BooleanType",
    "date": "SimpleDateType",
    "decimal": "DecimalType",
    "double": "DoubleType",
    "duration": "DurationType",
    "float": "FloatType",
    "inet": "InetAddressType",
    "int": "Int32Type",
    "smallint": "ShortType",
    "text": "UTF8Type",
    "time": "TimeType",
    "timestamp": "DateType",
    "tinyint": "ByteType",
    "varint": "IntegerType",
}


def _number(number: Any, target: str) -> bytes:
    if target == "varint":
        return bytes(cqltypes.IntegerType.serialize(int(number), _PROTOCOL))
    if target == "decimal":
        return bytes(cqltypes.DecimalType.serialize(Decimal(str(number)), _PROTOCOL))
    if target in _SIZES:
        size = _SIZES[target]
        wrapped = int(number) % (1 << 8 * size)
        return wrapped.to_bytes(size, "big")
    serialiser = cqltypes.FloatType if target == "float" else cqltypes.DoubleType
    return bytes(serialiser.serialize(float(number), _PROTOCOL))

"""CAST: converts values of one type to another."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from cdc_reader.cql.types import CqlType, Native
from cdc_reader.testing.embedded.codec.marshal import class_name
from cdc_reader.testing.embedded.codec.native import decode, encode
from cdc_reader.testing.embedded.errors import InvalidRequest
from cdc_reader.testing.embedded.query.functions import overloads

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
    """Return the conversion, or InvalidRequest if there is none."""
    if isinstance(source, Native) and isinstance(target, Native):
        if source == target or (source.name, target.name) == ("ascii", "text"):
            return lambda value: value
        if source.name in _NUMBERS and target.name in _NUMBERS:
            return lambda value: _number(decode(source, value), target)
        if target.name in ("text", "ascii") and source.name != "blob":
            return lambda value: as_text(source, value).encode()
        if name := _TIMES.get((source.name, target.name)):
            return next(f.body for f in overloads(name) if f.arguments == (source,))
    raise InvalidRequest(f"{class_name(source)} cannot be cast to {class_name(target)}")


def as_text(source: Native, value: bytes) -> str:
    """Format a value as CAST(... AS text) does."""
    match source.name:
        case "boolean":
            return "true" if value == b"\x01" else "false"
        case "uuid" | "timeuuid":
            return str(uuid.UUID(bytes=value))
        case "timestamp":
            return f"{decode(source, value).isoformat(timespec='milliseconds')}Z"
        case _:
            return str(decode(source, value))


def _number(number: Any, target: Native) -> bytes:
    """Convert to a number of another type; integers that do not fit wrap."""
    if (size := _SIZES.get(target.name)) is not None:
        return (int(number) % (1 << 8 * size)).to_bytes(size, "big")
    match target.name:
        case "varint":
            return encode(target, int(number))
        case "decimal":
            return encode(target, Decimal(str(number)))
        case _:
            return encode(target, float(number))

"""CAST: converts values from one type to another."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

from cdc_reader.cql.types import CqlType, Native
from cdc_reader.testing.embedded.codec.marshal import class_name
from cdc_reader.testing.embedded.codec.native import decode, encode
from cdc_reader.testing.embedded.codec.order import EXACT
from cdc_reader.testing.embedded.codec.time_text import duration_text
from cdc_reader.testing.embedded.errors import InvalidRequest
from cdc_reader.testing.embedded.query.functions import overloads

_INTEGERS = "tinyint smallint int bigint varint counter".split()
_TIMES = ("date", "timestamp")
_NUMBERS = (*_INTEGERS, "float", "double", "decimal")
_SIZES = {"tinyint": 1, "smallint": 2, "int": 4, "bigint": 8, "counter": 8}


def cast(source: CqlType, target: CqlType) -> Callable[[bytes], bytes]:
    """Return the conversion between two types; raise InvalidRequest if there is none."""
    if isinstance(source, Native) and isinstance(target, Native):
        if source == target or (source.name, target.name) == ("ascii", "text"):
            return lambda value: value
        if source.name in _NUMBERS and target.name in _NUMBERS:
            return lambda value: _number(decode(source, value), source, target)
        if target.name in ("text", "ascii") and source.name not in ("blob", "duration"):
            return lambda value: as_text(source, value).encode()
        for function in overloads(f"to{target.name}") if target.name in _TIMES else ():
            if function.arguments == (source,):
                return function.body
    raise InvalidRequest(f"{class_name(source)} cannot be cast to {class_name(target)}")


def as_text(source: Native, value: bytes) -> str:
    """Format a value as CAST(... AS text) does."""
    match source.name:
        case "boolean":
            return "true" if value == b"\x01" else "false"
        case "date" | "time" | "timestamp":
            return _time(source.name, value)
        case "decimal" | "varint":  # str limits the number of digits of an int
            text = f"{Decimal(decode(source, value)):f}"
            return text.rstrip("0").rstrip(".") if "." in text else text
        case "float" | "double":
            return _shortest(source, value).removesuffix(".0")
        case "duration":
            found = decode(source, value)
            return duration_text((found.months, found.days, found.nanoseconds))
        case _:
            return str(decode(source, value))


def _time(name: str, value: bytes) -> str:
    try:
        if name == "time":
            return str(decode(Native(name), value))
        if name == "date":
            days = int.from_bytes(value, "big") - (1 << 31)
            return (date(1970, 1, 1) + timedelta(days=days)).isoformat()
        millis = timedelta(milliseconds=int.from_bytes(value, "big", signed=True))
        moment = datetime(1970, 1, 1, tzinfo=UTC) + millis
        return f"{moment.replace(tzinfo=None).isoformat(timespec='milliseconds')}Z"
    except (OverflowError, ValueError):
        raise InvalidRequest(f"A {name} outside the years 1 to 9999, or the day, as text is "
                             "not supported by this server") from None  # fmt: skip


def _shortest(source: Native, value: bytes) -> str:
    """Format a number with the fewest digits that identify it in its type."""
    number = decode(source, value)
    if source.name == "double" or not math.isfinite(number):
        return repr(number)
    texts = (repr(float(f"{number:.{digits}g}")) for digits in range(1, 10))
    return next(text for text in texts if single(float(text)) == number)


def single(number: float) -> float:
    """Round a number to a 32-bit float; numbers that are too large become infinity."""
    try:
        return float(struct.unpack(">f", struct.pack(">f", number))[0])
    except OverflowError:
        return math.copysign(math.inf, number)


def _number(number: Any, source: Native, target: Native) -> bytes:
    """Convert a number to another numeric type; integers out of range wrap around."""
    is_float = source.name in ("float", "double")
    size = _SIZES.get(target.name)
    if is_float and target.name in (*_INTEGERS, "decimal"):
        limit = 1 << 8 * size - 1 if size else math.inf
        if not -limit <= number < limit or not math.isfinite(number):
            raise InvalidRequest(f"CAST of {number} to {target} is not supported by this server")
    if size is not None:
        return (int(number) % (1 << 8 * size)).to_bytes(size, "big")
    match target.name:
        case "varint":
            return encode(target, int(number))
        case "decimal" if is_float:
            digits = 9 if source.name == "float" else 17
            return encode(target, Decimal(f"{number:.{digits}g}"))
        case "decimal":  # from an integer
            return encode(target, EXACT.scaleb(Decimal(10 * number), -1))
        case "double":
            return encode(target, float(Decimal(number)))
        case _:
            return encode(target, single(float(Decimal(number))))

"""Serializes the constants of CQL text."""

from __future__ import annotations

import ipaddress
import math
import re
import struct
import uuid
from collections.abc import Callable
from decimal import Decimal

from cassandra.util import Duration

from cdc_reader.cql.types import CqlType, Native
from cdc_reader.testing.embedded.codec import native
from cdc_reader.testing.embedded.codec.marshal import MarshalError, class_name
from cdc_reader.testing.embedded.codec.time_text import (
    date_days,
    duration,
    time_nanos,
    timestamp_millis,
)
from cdc_reader.testing.embedded.errors import ServerError
from cdc_reader.testing.embedded.grammar.terms import Constant, ConstantKind

_NUMBERS = "bigint counter decimal double float int smallint tinyint varint"
_ACCEPTED: dict[ConstantKind, frozenset[str]] = {
    ConstantKind.STRING: frozenset("ascii text inet timestamp date time".split()),
    ConstantKind.INTEGER: frozenset(f"{_NUMBERS} timestamp date".split()),
    ConstantKind.FLOAT: frozenset("decimal double float".split()),
    ConstantKind.UUID: frozenset("uuid timeuuid".split()),
    ConstantKind.BOOLEAN: frozenset(["boolean"]),
    ConstantKind.HEX: frozenset(["blob"]),
    ConstantKind.DURATION: frozenset(["duration"]),
}
_MAY_BE_EMPTY = frozenset("date inet time timestamp".split())
INTEGER_SIZES = {"tinyint": 1, "smallint": 2, "int": 4, "bigint": 8, "counter": 8}


def accepts(constant: Constant, cql_type: CqlType) -> bool:
    """Return True if a constant of this kind is allowed for the type."""
    return isinstance(cql_type, Native) and cql_type.name in _ACCEPTED[constant.kind]


def encode(constant: Constant, cql_type: Native) -> bytes:
    """Serialize an accepted constant; raise MarshalError if its text is not a valid value."""
    if not constant.text and cql_type.name in _MAY_BE_EMPTY:
        return b""
    if constant.kind is ConstantKind.INTEGER and cql_type.name in _FROM_NUMBER:
        return _FROM_NUMBER[cql_type.name](_whole(constant.text))
    return _converted(constant.text, cql_type)


def from_text(text: str, cql_type: Native) -> bytes:
    """Serialize text that the grammar has not checked; raise MarshalError if it is invalid."""
    pattern = _WRITTEN.get(cql_type.name)
    if pattern is not None and not re.fullmatch(pattern, text):
        raise _no_value(text, cql_type)
    return _converted(text, cql_type)


def _converted(text: str, cql_type: Native) -> bytes:
    try:
        if (size := INTEGER_SIZES.get(cql_type.name)) is not None:
            return _integer(text, size, cql_type)
        return _FROM_TEXT[cql_type.name](text)
    except MarshalError:
        raise
    except (ArithmeticError, ValueError):
        raise _no_value(text, cql_type) from None


def _no_value(text: str, cql_type: Native) -> MarshalError:
    return MarshalError(_NO_VALUE.get(cql_type.name, _NO_NUMBER).format(text))


# Python would also accept spaces, underscores and digits of any script.
_WHOLE, _UUID = r"[+-]?[0-9]+", r"(?i)[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_WRITTEN = {
    **dict.fromkeys((*INTEGER_SIZES, "varint"), _WHOLE),
    **dict.fromkeys(("decimal", "double", "float"), "[0-9A-Za-z.+-]+"),
    **dict.fromkeys(("timeuuid", "uuid"), _UUID),
}
_NO_NUMBER = "Invalid number format '{}'"
_NO_VALUE = {
    "decimal": "unable to make BigDecimal from '{}'",
    "text": "Validation failed - invalid UTF-8 string",
    "timeuuid": "Invalid UUID format ({})",
    "uuid": "Cannot parse uuid from '{}'",
    "varint": "unable to make int from '{}'",
}


def _integer(text: str, size: int, cql_type: CqlType) -> bytes:
    number = _whole(text)
    if not -(1 << 63) <= number < 1 << 63:
        raise MarshalError(_NO_NUMBER.format(text))
    try:
        return number.to_bytes(size, "big", signed=True)
    except OverflowError:
        raise MarshalError(
            f"Value out of range for type {class_name(cql_type)}: '{text}'"
        ) from None


def _whole(text: str) -> int:
    try:
        return int(text)
    except ValueError:  # also raised for more digits than Python allows
        raise MarshalError(_NO_NUMBER.format(text)) from None


def _unsigned_days(number: int, text: str | None = None) -> bytes:
    if not 0 <= number < 1 << 32:
        raise MarshalError(f"Input '{text or number}' is out of bounds for a date")
    return number.to_bytes(4, "big")


def _long(number: int) -> bytes:
    try:
        return number.to_bytes(8, "big", signed=True)
    except OverflowError:
        raise MarshalError(f"Value out of range for a 64-bit number: '{number}'") from None


def _ascii(text: str) -> bytes:
    try:
        return text.encode("ascii")
    except UnicodeEncodeError:
        raise MarshalError(f"Invalid ASCII character in string literal: '{text}'") from None


def _inet(text: str) -> bytes:
    try:
        return ipaddress.ip_address(text).packed
    except ValueError:
        raise MarshalError(f"Failed to parse inet_addr from '{text}'") from None


def _blob(text: str) -> bytes:
    try:
        return bytes.fromhex(text[2:])
    except ValueError:
        raise ServerError("An hex string representing bytes must have an even length") from None


def _float(text: str) -> bytes:
    return struct.pack(">f", _double(text))


def _double(text: str) -> float:
    """Parse a double; reject numbers that are too large, which Python would parse as infinity."""
    number = float(text)
    if math.isinf(number) and "inf" not in text.lower():
        raise MarshalError(_NO_NUMBER.format(text))
    return number


def _decimal(text: str) -> bytes:
    number = Decimal(text)
    if not number.is_finite():
        raise MarshalError(f"'{text}' is not a valid decimal")
    return native.encode(Native("decimal"), number)


def _timeuuid(text: str) -> bytes:
    parsed = uuid.UUID(text)
    if parsed.bytes[6] >> 4 != 1:
        raise MarshalError(f"Unsupported UUID version ({parsed.bytes[6] >> 4})")
    return parsed.bytes


_FROM_NUMBER: dict[str, Callable[[int], bytes]] = {"date": _unsigned_days, "timestamp": _long}
_FROM_TEXT: dict[str, Callable[[str], bytes]] = {
    "ascii": _ascii,
    "blob": _blob,
    "boolean": lambda text: b"\x01" if text == "true" else b"\x00",
    "date": lambda text: _unsigned_days(date_days(text), text),
    "decimal": _decimal,
    "double": lambda text: struct.pack(">d", _double(text)),
    "duration": lambda text: native.encode(Native("duration"), Duration(*duration(text))),
    "float": _float,
    "inet": _inet,
    "text": str.encode,
    "time": lambda text: _long(time_nanos(text)),
    "timestamp": lambda text: _long(timestamp_millis(text)),
    "timeuuid": _timeuuid,
    "uuid": lambda text: uuid.UUID(text).bytes,
    "varint": lambda text: native.encode(Native("varint"), int(text)),
}

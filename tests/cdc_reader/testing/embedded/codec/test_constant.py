"""Tests that constants are serialized to the right bytes, or rejected with ScyllaDB's messages."""

import struct
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from cassandra import cqltypes
from hypothesis import given
from hypothesis import strategies as st

from cdc_reader.cql.types import Native
from cdc_reader.testing.embedded.codec.constant import accepts, encode
from cdc_reader.testing.embedded.codec.marshal import MarshalError
from cdc_reader.testing.embedded.grammar.terms import Constant, ConstantKind

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def literal(kind: str, text: str, of_type: str) -> bytes:
    """Serialize a constant."""
    constant = Constant(ConstantKind(kind), text)
    assert accepts(constant, Native(of_type))
    return encode(constant, Native(of_type))


@pytest.mark.parametrize(
    ("kind", "text", "of_type", "value"),
    [
        ("INTEGER", "-1", "tinyint", "ff"),
        ("INTEGER", "32767", "smallint", "7fff"),
        ("INTEGER", "2147483647", "int", "7fffffff"),
        ("INTEGER", "-1", "bigint", "ff" * 8),
        ("INTEGER", "128", "varint", "0080"),
        ("INTEGER", "0", "date", "00000000"),
        ("INTEGER", "1", "timestamp", "0000000000000001"),
        ("STRING", "1969-12-31", "date", "7fffffff"),
        ("STRING", "08:12:54.123456789", "time", "00001ae5c31f8915"),
        ("STRING", "2024-02-29T12:34:56.789Z", "timestamp", "0000018df4dc5495"),
        ("STRING", "2024-02-29 12:34:56.789+0000", "timestamp", "0000018df4dc5495"),
        ("STRING", "2024-02-29 14:34:56.789+02:00", "timestamp", "0000018df4dc5495"),
        ("STRING", "192.0.2.7", "inet", "c0000207"),
        ("STRING", "łódź", "text", "c582c3b364c5ba"),
        ("FLOAT", "NaN", "double", "7ff8000000000000"),
        ("FLOAT", "-Infinity", "float", "ff800000"),
        ("FLOAT", "123.456", "decimal", "0000000301e240"),
        ("HEX", "0xDEADbeef", "blob", "deadbeef"),
        ("BOOLEAN", "true", "boolean", "01"),
        ("DURATION", "1mo2d3ns", "duration", "020406"),
        ("DURATION", "-1mo2d3ns", "duration", "010305"),
        ("DURATION", "P1Y2W", "duration", "181c00"),
        ("DURATION", "P0001-02-03T00:00:00", "duration", "1c0600"),
    ],
)
def test_constants_by_type(kind: str, text: str, of_type: str, value: str) -> None:
    """A constant of each type is serialized to the expected bytes."""
    assert literal(kind, text, of_type).hex() == value


@pytest.mark.parametrize(
    ("kind", "text", "of_type", "message"),
    [
        (
            "INTEGER",
            "128",
            "tinyint",
            "Value out of range for type org.apache.cassandra.db.marshal.ByteType: '128'",
        ),
        (
            "STRING",
            "2024-13-01",
            "date",
            "Unable to coerce '2024-13-01' to a formatted date (long)",
        ),
        ("STRING", "24:00:00", "time", "Hour out of bounds (24)."),
        ("STRING", "yesterday", "timestamp", "unable to parse date 'yesterday'"),
        ("STRING", "1.2.3", "inet", "Failed to parse inet_addr from '1.2.3'"),
        ("STRING", "ł", "ascii", "Invalid ASCII character in string literal: 'ł'"),
        ("FLOAT", "NaN", "decimal", "'NaN' is not a valid decimal"),
        (
            "UUID",
            "123e4567-e89b-42d3-a456-426614174000",
            "timeuuid",
            "Unsupported UUID version (4)",
        ),
    ],
)
def test_a_constant_that_is_no_value_is_refused(
    kind: str, text: str, of_type: str, message: str
) -> None:
    """A constant of the right kind with an invalid value is rejected."""
    with pytest.raises(MarshalError) as caught:
        literal(kind, text, of_type)
    assert str(caught.value) == f"marshaling error: {message}"


@pytest.mark.parametrize(
    ("kind", "of_type"),
    [("STRING", "int"), ("INTEGER", "text"), ("HEX", "text"), ("UUID", "blob"), ("FLOAT", "int")],
)
def test_a_constant_of_another_kind_is_refused(kind: str, of_type: str) -> None:
    """A constant whose kind does not suit the type is rejected, such as a string for a number."""
    assert not accepts(Constant(ConstantKind(kind), "1"), Native(of_type))


def driver(name: str, value: Any) -> bytes:
    """Serialize a value with the driver."""
    return bytes(getattr(cqltypes, name).serialize(value, 4))


@given(st.decimals(allow_nan=False, allow_infinity=False, places=6))
def test_decimals_are_the_driver_s(number: Decimal) -> None:
    """Any decimal is serialized to the bytes that the driver produces."""
    assert literal("FLOAT", format(number, "f"), "decimal") == driver("DecimalType", number)


@given(st.integers(-(10**40), 10**40))
def test_varints_are_the_driver_s(number: int) -> None:
    """Any varint is serialized to the bytes that the driver produces."""
    assert literal("INTEGER", str(number), "varint") == driver("IntegerType", number)


@given(st.floats())
def test_doubles_keep_every_bit_of_their_text(number: float) -> None:
    """Any double that Python formats as text is parsed to the same double."""
    text = {"inf": "Infinity", "-inf": "-Infinity", "nan": "NaN"}.get(repr(number), repr(number))
    assert literal("FLOAT", text, "double") == struct.pack(">d", float(repr(number)))


@given(st.dates())
def test_dates_are_days(day: date) -> None:
    """A date is stored as a number of days, where 2^31 is 1970-01-01."""
    days = (day - EPOCH.date()).days + (1 << 31)
    assert int.from_bytes(literal("STRING", day.isoformat(), "date"), "big") == days


@given(st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30)))  # noqa: DTZ001 - the test sets UTC
def test_timestamps_are_milliseconds(moment: datetime) -> None:
    """A timestamp is stored in milliseconds since 1970."""
    moment = moment.replace(tzinfo=UTC)
    millis = (moment - EPOCH) // timedelta(milliseconds=1)
    found = literal("STRING", moment.isoformat(timespec="milliseconds"), "timestamp")
    assert int.from_bytes(found, "big", signed=True) == millis

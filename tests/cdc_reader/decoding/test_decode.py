"""Values, edge cases and malformed bytes of each type."""

from __future__ import annotations

import struct
import uuid
from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa
import pytest
from cassandra import cqltypes
from cassandra.util import Duration
from hypothesis import example, given
from hypothesis import strategies as st

from cdc_reader.cql.schema import Column
from cdc_reader.cql.types import CqlType, Native, UserType, parse
from cdc_reader.decoding import arrow_type
from cdc_reader.errors import DecodeError
from tests.cdc_reader.decoding.conftest import Decode
from tests.cdc_reader.decoding.wire import cell, cells, collection, column_of, integer

PAIR = UserType("ks", "pair", (("x", Native("int")), ("y", Native("text"))))


def cql(text: str) -> CqlType:
    """Parse a CQL type that may use the UDT `pair`."""
    return parse(text, {"pair": PAIR}.__getitem__)


def decoded(decode: Decode, text: str, *values: bytes | None) -> list[Any]:
    """Decode the values as rows of one column of this type, and return Python values."""
    batch = decode(column_of(*values), [Column("v", cql(text))])
    batch.validate(full=True)
    array = batch.column(0)
    assert array.type == arrow_type(cql(text))
    result: list[Any] = array.to_pylist()
    return result


@pytest.mark.parametrize(
    ("text", "raw", "expected"),
    [
        ("tinyint", b"\x80", -128),
        ("smallint", b"\xff\xfe", -2),
        ("int", b"\x80\0\0\0", -(2**31)),
        ("bigint", b"\x7f" + b"\xff" * 7, 2**63 - 1),
        ("counter", bytes(7) + b"\x01", 1),
        ("float", struct.pack(">f", 1.5), 1.5),
        ("double", struct.pack(">d", -0.1), -0.1),
        ("boolean", b"\0", False),
        ("boolean", b"\x01", True),
        ("text", "żółw".encode(), "żółw"),
        ("text", b"", ""),
        ("ascii", b"a", "a"),
        ("blob", b"\xff\0", b"\xff\0"),
        ("blob", b"", b""),
        ("uuid", bytes(range(16)), "00010203-0405-0607-0809-0a0b0c0d0e0f"),
        ("timeuuid", b"\xff" * 16, "ffffffff-ffff-ffff-ffff-ffffffffffff"),
        ("inet", bytes([10, 0, 0, 1]), "10.0.0.1"),
        ("inet", bytes(15) + b"\x01", "::1"),
        ("varint", b"\x80", "-128"),
        ("varint", (10**5000).to_bytes(2100, "big"), "1" + "0" * 5000),
        ("decimal", integer(2) + b"\x96", "-1.06"),
        ("decimal", integer(2) + bytes([0, 150]), "1.50"),
        ("decimal", integer(-3) + b"\x01", "1E+3"),
        ("decimal", integer(0) + (10**60).to_bytes(26, "big"), "1" + "0" * 60),
        ("date", b"\x80\0\0\0", date(1970, 1, 1)),
        ("date", b"\x7f\xff\xff\xff", date(1969, 12, 31)),
        ("time", struct.pack(">q", 86_399_999_999_999), 86_399_999_999_999),
        ("timestamp", struct.pack(">q", -1), datetime(1969, 12, 31, 23, 59, 59, 999_000, UTC)),
        ("duration", b"\x02\x03\x04", {"months": 1, "days": -2, "nanoseconds": 2}),
        ("list<int>", collection(2, integer(1), None), [1, None]),
        ("set<text>", collection(2, b"b", b"a"), ["b", "a"]),
        ("map<int, text>", collection(1, integer(7), b"x"), [(7, "x")]),
        ("list<frozen<set<int>>>", collection(1, collection(1, integer(3))), [[3]]),
        ("map<text, frozen<map<int, int>>>", collection(0), []),
        ("tuple<int, text>", cells(integer(1), None), {"_1": 1, "_2": None}),
        ("tuple<int, text>", cells(integer(1)), {"_1": 1, "_2": None}),
        ("pair", cells(None, None), {"x": None, "y": None}),
        ("pair", b"", {"x": None, "y": None}),
        ("list<frozen<pair>>", collection(1, cells(integer(1), b"z")), [{"x": 1, "y": "z"}]),
        ("vector<float, 2>", struct.pack(">ff", 1, 2), [1.0, 2.0]),
        ("vector<text, 2>", b"\x01a\x02bc", ["a", "bc"]),
        ("vector<smallint, 1>", b"\x02\x00\x07", [7]),
        ("vector<vector<int, 1>, 2>", integer(1) + integer(2), [[1], [2]]),
    ],
)  # fmt: skip
def test_a_value_is_decoded_beside_null_and_empty_rows(
    decode: Decode, text: str, raw: bytes, expected: object
) -> None:
    """A value is decoded correctly between null and empty rows."""
    assert decoded(decode, text, None, raw, None) == [None, expected, None]


@pytest.mark.parametrize("count", [1, 7, 8, 9, 15, 16, 17, 65])
@pytest.mark.parametrize(
    ("text", "known"),
    [
        ("boolean", {b"\0": False, b"\1": True}),
        ("smallint", {b"\0\1": 1, b"\0\2": 2}),
        ("text", {b"": "", b"a": "a"}),
        ("uuid", {bytes(16): str(uuid.UUID(int=0)), b"\xff" * 16: str(uuid.UUID(int=2**128 - 1))}),
    ],
)
def test_nulls_keep_their_places_among_many(
    decode: Decode, text: str, known: dict[bytes, object], count: int
) -> None:
    """Nulls stay in their rows, even beyond the first byte of Arrow's validity bitmap."""
    cells: list[bytes | None] = [None, *known]
    rows = [cells[row * row % 7 % 3] for row in range(count)]
    assert decoded(decode, text, *rows) == [None if it is None else known[it] for it in rows]


@pytest.mark.parametrize(
    "text",
    """tinyint smallint int bigint float double boolean date time timestamp uuid timeuuid inet
    varint decimal duration list<int> map<int,int> vector<int,1>""".split(),
)
def test_an_empty_value_of_a_type_that_has_none_is_null(decode: Decode, text: str) -> None:
    """An empty value of a type without empty values is null. Old tools may write such values."""
    assert decoded(decode, text, b"", None) == [None, None]


@pytest.mark.parametrize(
    ("text", "raw"),
    [
        ("int", bytes(3)),
        ("boolean", bytes(2)),
        ("uuid", bytes(15)),
        ("inet", bytes(5)),
        ("text", b"\xff"),
        ("ascii", b"\xff"),
        ("decimal", bytes(4)),
        ("duration", b"\x02\x03"),
        ("duration", b"\x02\x03\x04\x05"),
        ("duration", b"\xf1" + b"\xff" * 4 + b"\x00\x00"),
        ("list<int>", collection(2, integer(1))),
        ("list<int>", collection(1, integer(1)) + b"\0"),
        ("list<int>", struct.pack(">i", 2**31 - 1)),
        ("list<int>", struct.pack(">i", -1)),
        ("list<int>", b"\0"),
        ("list<int>", collection(1, bytes(3))),
        ("map<int, int>", collection(1, None, integer(1))),
        ("map<int, int>", collection(1, integer(1))),
        ("tuple<int>", cells(integer(1), integer(2))),
        ("pair", cells(integer(1), b"y", b"a field added since")),
        ("vector<int, 2>", integer(1)),
        ("vector<text, 1>", b"\x05a"),
    ],
)
def test_malformed_bytes_are_a_decode_error_that_names_the_column(
    decode: Decode, text: str, raw: bytes
) -> None:
    """Decoding malformed bytes raises a one-line DecodeError that names the column."""
    with pytest.raises(DecodeError, match=r"^column v of type ") as caught:
        decode(column_of(raw), [Column("v", cql(text))])
    assert "\n" not in str(caught.value)


INT = [Column("v", Native("int"))]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        struct.pack(">i", 1),
        struct.pack(">iii", 2, 4, 1),
        struct.pack(">iii", 2, 4, -1),
        struct.pack(">iiii", 2, 4, 1, -1),
        struct.pack(">iiii", 2, 4, 1, 2**31 - 1),
        struct.pack(">iiii", 2, 4, 1, 1) + struct.pack(">i", 5) + bytes(4),
        column_of(integer(1)) + b"\0",
        struct.pack(">iiii", 2, 4, 2, 0),
        struct.pack(">iiii", 2, 6, 1, 9),
    ],
)
def test_a_malformed_body_is_a_decode_error(decode: Decode, body: bytes) -> None:
    """Decoding a malformed body raises a DecodeError.

    Sizes are checked before memory is allocated.
    """
    with pytest.raises(DecodeError):
        decode(body, INT)


def test_columns_that_differ_from_the_metadata_are_a_decode_error(decode: Decode) -> None:
    """Decoding columns that differ from the expected ones raises a DecodeError.

    The table may have been altered, and its rows must not be decoded with the wrong types.
    """
    header = struct.pack(">iii", 2, 1, 1) + b"\0\2ks\0\1t" + b"\0\1v" + b"\0\x09"
    body = header + struct.pack(">i", 1) + cell(integer(5))
    assert decode(body, INT).to_pylist() == [{"v": 5}]
    with pytest.raises(DecodeError, match="column v int, expected v text: the table was altered"):
        decode(body, [Column("v", Native("text"))])
    with pytest.raises(DecodeError, match="no metadata"):
        decode(column_of(integer(1)))


@given(
    st.integers(-(2**31), 2**31 - 1), st.integers(-(2**31), 2**31 - 1), st.integers(0, 2**63 - 1)
)
def test_durations_are_what_the_driver_wrote(
    decode: Decode, months: int, days: int, nanoseconds: int
) -> None:
    """Durations with variable-length integers of each length are decoded as written."""
    raw = cqltypes.DurationType.serialize(Duration(months, days, nanoseconds), 4)
    assert decoded(decode, "duration", raw) == [
        {"months": months, "days": days, "nanoseconds": nanoseconds}
    ]


@given(st.decimals(allow_nan=False, allow_infinity=False), st.integers())
def test_numbers_without_bounds_keep_every_digit(
    decode: Decode, decimal: Any, integer: int
) -> None:
    """Unbounded numbers decode to text, because Arrow has no unbounded number type."""
    raw = cqltypes.DecimalType.serialize(decimal, 4)
    expected = "0" if decimal.is_zero() and decimal.as_tuple().exponent == 0 else str(decimal)
    found = decoded(decode, "decimal", raw)[0]
    assert type(decimal)(found) == decimal
    assert decimal.is_zero() or found == expected
    assert decoded(decode, "varint", cqltypes.IntegerType.serialize(integer, 4)) == [str(integer)]


@given(st.integers(-(2**31), 2**31 - 1))
def test_dates_span_all_their_32_bits(decode: Decode, days: int) -> None:
    """All 32-bit dates are decoded, even dates far outside the range of Python's dates."""
    raw = struct.pack(">I", days + 2**31)
    batch = decode(column_of(raw), [Column("v", Native("date"))])
    assert batch.column(0).cast(pa.int32()).to_pylist() == [days]


@given(st.integers(-(2**63), 2**63 - 1))
@example(2**63 - 1)
@example(-(2**63))
def test_timestamps_span_all_their_64_bits(decode: Decode, millis: int) -> None:
    """All 64-bit timestamps are decoded, even those that do not fit 64 bits of microseconds."""
    batch = decode(column_of(struct.pack(">q", millis)), [Column("v", Native("timestamp"))])
    assert batch.column(0).cast(pa.int64()).to_pylist() == [millis]

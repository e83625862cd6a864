"""Tests the validation of bound values, which also sorts sets and maps."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc_reader.cql.types import UserType, parse
from cdc_reader.testing.embedded.codec.marshal import MarshalError
from cdc_reader.testing.embedded.codec.validation import list_value, validator

U = UserType("ks", "u", (("x", parse("int")), ("y", parse("text"))))


def check(of_type: str) -> Callable[[bytes], bytes]:
    """Return the validator for a type. The type `u` is a UDT of int and text."""
    return validator(parse(of_type, lambda _: U))


def numbers(*values: int) -> bytes:
    """Serialize a list or set of ints in the given order."""
    return list_value([value.to_bytes(4, "big", signed=True) for value in values])


@pytest.mark.parametrize(
    ("of_type", "size", "name"),
    [
        ("int", 2, "Int32Type"),
        ("boolean", 2, "BooleanType"),
        ("uuid", 8, "UUIDType"),
        ("timestamp", 4, "TimestampType"),
        ("inet", 5, "InetAddressType"),
    ],
)
def test_a_wrong_size_is_refused(of_type: str, size: int, name: str) -> None:
    """A value of the wrong size is rejected. The error names the type's class and the size."""
    with pytest.raises(MarshalError) as caught:
        check(of_type)(bytes(size))
    assert str(caught.value) == (
        "marshaling error: Validation failed for type "
        f"org.apache.cassandra.db.marshal.{name}: got {size} bytes"
    )


@pytest.mark.parametrize("of_type", ["int", "text", "uuid", "timestamp", "decimal", "inet"])
def test_empty_values_are_legal(of_type: str) -> None:
    """Values of every scalar type may be empty."""
    assert check(of_type)(b"") == b""


@pytest.mark.parametrize(
    ("of_type", "value"),
    [
        ("text", b"\xff"),
        ("ascii", b"\x80"),
        ("timeuuid", bytes(16)),
        ("list<int>", numbers(1)[:-1]),
        ("list<int>", numbers(1) + b"\0"),
        ("list<int>", b"\0\0\0\1\xff\xff\xff\xff"),
        ("list<text>", list_value([b"\xff"])),
        ("map<int, int>", numbers(1)),
        ("u", b"\0\0\0\1\0"),
        ("tuple<int>", b"\xff\xff\xff\xff\xff\xff\xff\xff"),
    ],
)
def test_malformed_values_are_refused(of_type: str, value: bytes) -> None:
    """Invalid text, truncated collections, nulls in collections and excess fields are rejected."""
    with pytest.raises(MarshalError):
        check(of_type)(value)


def test_fields_may_be_missing_or_null() -> None:
    """A UDT value with null or missing fields is accepted unchanged."""
    assert check("u")(b"\xff\xff\xff\xff") == b"\xff\xff\xff\xff"


@given(st.lists(st.integers(-(2**31), 2**31 - 1)))
def test_sets_come_out_sorted_and_distinct(values: list[int]) -> None:
    """The elements of a set are sorted in the order of their type, and duplicates are removed."""
    assert check("set<int>")(numbers(*values)) == numbers(*sorted(set(values)))


@given(
    st.binary(max_size=40), st.sampled_from(["list<int>", "map<text, set<int>>", "u", "duration"])
)
def test_any_bytes_pass_or_are_refused(value: bytes, of_type: str) -> None:
    """A validator raises only MarshalError, and accepts the values that it returns."""
    try:
        valid = check(of_type)(value)
    except MarshalError:
        return
    assert check(of_type)(valid) == valid

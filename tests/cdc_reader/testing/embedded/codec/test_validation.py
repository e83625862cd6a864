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

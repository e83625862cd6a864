from __future__ import annotations

import pytest

from cdc_reader.cql.types import Native, UserType, parse
from cdc_reader.decoding.marshal import parse_marshal
from cdc_reader.errors import DecodeError

M = "org.apache.cassandra.db.marshal."


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"{M}DurationType", "duration"),
        (f"{M}VectorType({M}FloatType , 3)", "vector<float, 3>"),
        (f"{M}VectorType({M}VectorType({M}Int32Type, 2), 3)", "vector<vector<int, 2>, 3>"),
        (f"{M}FrozenType({M}ListType({M}UTF8Type))", "frozen<list<text>>"),
        (f"{M}MapType({M}TimeUUIDType,{M}SetType({M}LongType))", "map<timeuuid, set<bigint>>"),
        (f"{M}TupleType({M}Int32Type,{M}BytesType)", "tuple<int, blob>"),
        (f"{M}ReversedType({M}TimestampType)", "timestamp"),
    ],
)
def test_a_class_name_is_the_type_it_stands_for(text: str, expected: str) -> None:
    """Java class names, which servers use for types without a protocol code, are parsed."""
    assert parse_marshal(text) == parse(expected)


def test_a_user_type_has_its_names_in_hex() -> None:
    """The name and field names of a user-defined type are written in hexadecimal."""
    text = f"{M}UserType(ks,{b'u'.hex()},{b'x'.hex()}:{M}Int32Type,{b'y z'.hex()}:{M}UTF8Type)"
    fields = (("x", Native("int")), ("y z", Native("text")))
    assert parse_marshal(text) == UserType("ks", "u", fields)


@pytest.mark.parametrize(
    "text",
    ["", "Nonesuch", "ListType", "ListType(", "ListType(Int32Type,Int32Type)", "Int32Type)",
     "VectorType(Int32Type,x)", "UserType(ks,zz)", "TupleType(Int32Type;"],
)  # fmt: skip
def test_anything_else_is_a_decode_error(text: str) -> None:
    """Text that is not a type's Java class name raises a DecodeError that contains the text."""
    with pytest.raises(DecodeError, match="unknown type"):
        parse_marshal(text)

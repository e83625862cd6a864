"""Partition keys as JSON, for every type that a key may have."""

from __future__ import annotations

import datetime as dt
import itertools
import json
import math
import uuid
from decimal import Decimal
from typing import Any

import pytest
from cassandra.util import OrderedMap
from hypothesis import assume, given
from hypothesis import strategies as st

from cdc_reader.changes.json import value_to_json
from cdc_reader.cluster.values import serialise, token_of
from cdc_reader.cql.json import parse_key
from cdc_reader.cql.names import TableName
from cdc_reader.cql.schema import Column, ColumnKind, TableSchema
from cdc_reader.cql.types import UserType, parse
from cdc_reader.cql.values import converter
from cdc_reader.decoding.cells import build
from cdc_reader.errors import ConfigurationError

PAIR = UserType("ks", "pair", (("x", parse("int")), ("y", parse("text"))), frozen=True)
UUID = uuid.UUID(int=7)
AT = dt.datetime(2026, 1, 2, 3, 4, 5, 6_000, dt.UTC)


def table(text: str) -> TableSchema:
    """Return a table whose partition key is one column, `k`, of this type."""
    column = Column("k", parse(text, lambda _: PAIR), ColumnKind.PARTITION_KEY, 0)
    return TableSchema(TableName("ks", "t"), (column,))


@pytest.mark.parametrize(
    ("text", "given", "value"),
    [
        ("text", "a", "a"),
        ("int", -5, -5),
        ("bigint", "9007199254740993", 2**53 + 1),
        ("varint", str(2**70), 2**70),
        ("decimal", "1.50", Decimal("1.50")),
        ("double", 2.5, 2.5),
        ("double", 2, 2.0),
        ("boolean", True, True),
        ("uuid", str(UUID), UUID),
        ("blob", "0x00ff", b"\x00\xff"),
        ("inet", "::1", "::1"),
        ("date", "2026-01-02", dt.date(2026, 1, 2)),
        ("timestamp", "2026-01-02T03:04:05.006Z", AT),
        ("timestamp", round(AT.timestamp() * 1_000), AT),
        ("time", "03:04:05", dt.time(3, 4, 5)),
        ("frozen<list<bigint>>", [1, 2], [1, 2]),
        ("frozen<set<uuid>>", [str(UUID)], {UUID}),
        ("frozen<map<int, text>>", {"1": "y"}, {1: "y"}),
        ("frozen<map<int, text>>", [[1, "y"]], {1: "y"}),
        ("frozen<tuple<int, blob>>", [1, "0x01"], (1, b"\x01")),
        ("frozen<pair>", {"y": "w", "x": 3}, (3, "w")),
        ("frozen<pair>", {"x": 3}, (3, None)),
        ("vector<float, 2>", [1, 2.5], [1.0, 2.5]),
    ],
)
def test_a_value_in_json_is_the_value(text: str, given: Any, value: Any) -> None:
    """A key as a JSON value, alone or in an object, has the same token as the Python value."""
    schema = table(text)
    expected = token_of(schema, {"k": value})
    assert token_of(schema, parse_key(json.dumps({"k": given}), schema)) == expected
    if not isinstance(given, dict):
        assert token_of(schema, parse_key(json.dumps(given), schema)) == expected


def test_decimals_keep_their_digits() -> None:
    """Decimals in JSON keep their digits. As floats, 0.10 and 0.1 would be the same key."""
    assert parse_key("0.10", table("decimal")) == {"k": Decimal("0.10")}
    assert str(parse_key("0.10", table("decimal"))["k"]) == "0.10"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("varint", 7 * (10**5_000 - 1) // 9),
        ("varint", -(10**5_000)),
        ("decimal", Decimal("-" + "1" * 5_000 + ".50")),
        ("frozen<map<varint, decimal>>", {10**5_000: Decimal("1" * 5_000)}),
        ("frozen<tuple<int, frozen<set<decimal>>>>", (1, {Decimal("1" * 5_000)})),
        ("vector<decimal, 1>", [Decimal("1" * 5_000)]),
    ],
    ids=itertools.count(),
)
def test_numbers_have_any_number_of_digits(text: str, value: Any) -> None:
    """The key of a change may have more digits than Python converts by default."""
    schema = table(text)
    (column,) = schema.columns
    [own] = converter(column.type)(build(column.type, [serialise(column.type, value)]))
    written = json.dumps({"k": value_to_json(own)})
    assert token_of(schema, parse_key(written, schema)) == token_of(schema, {"k": value})
    if text == "varint":
        assert value_to_json(value) == str(Decimal(value))
        assert parse_key(str(Decimal(value)), schema) == {"k": value}


@pytest.mark.parametrize(
    ("text", "given"),
    [
        ("int", '"x"'),
        pytest.param("varint", f'"{"9" * 5_000}x"', id="long-text"),
        ("int", "true"),
        ("int", "1.5"),
        ("text", "1"),
        ("boolean", "1"),
        ("uuid", '"x"'),
        ("blob", "7"),
        ("blob", '"0xg"'),
        ("timestamp", '"yesterday"'),
        ("frozen<list<int>>", "7"),
        ("frozen<tuple<int, int>>", '["x", 1]'),
        ("frozen<tuple<int, int>>", "[1]"),
        ("frozen<pair>", '{"k": {"z": 1}}'),
        ("frozen<pair>", "1"),
        ("int", "null"),
    ],
)
def test_json_that_does_not_fit_the_type_is_refused(text: str, given: str) -> None:
    """The error for a JSON value of the wrong type names the expected CQL type."""
    with pytest.raises(ConfigurationError, match=r"^key column k is .*: give a value of type"):
        parse_key(given, table(text))


KEYS: dict[str, st.SearchStrategy[Any]] = {
    **{
        name: st.integers(-(1 << bits - 1), (1 << bits - 1) - 1)
        for name, bits in (("tinyint", 8), ("smallint", 16), ("int", 32), ("bigint", 64))
    },
    "varint": st.integers(-(1 << 80), 1 << 80),
    "float": st.floats(width=32, allow_nan=False) | st.just(math.nan),
    "double": st.floats(allow_nan=False) | st.just(math.nan),
    "decimal": st.decimals(allow_nan=False, allow_infinity=False),
    "text": st.text(st.characters(exclude_categories=["Cs"])),
    "ascii": st.text(st.characters(max_codepoint=127)),
    "blob": st.binary(),
    "boolean": st.booleans(),
    "uuid": st.uuids(),
    "timeuuid": st.uuids(version=1),
    "inet": st.ip_addresses().map(str),
    "date": st.integers(0, (1 << 32) - 1),
    "time": st.integers(0, 86_400 * 10**9 - 1),
    "timestamp": st.integers(-(1 << 63), (1 << 63) - 1),
}
"""Values, as the driver takes them, of each type that a key may have."""


@st.composite
def keys(draw: st.DrawFn, depth: int = 2) -> tuple[str, Any]:
    """Draw a type, frozen if it is not native, and a value as the driver takes it."""
    kinds = ["native", "list", "set", "map", "tuple", "pair"] if depth else ["native"]
    kind = draw(st.sampled_from(kinds))
    if kind == "native":
        name = draw(st.sampled_from([*KEYS]))
        return name, draw(KEYS[name])
    if kind == "pair":
        value = draw(st.none() | KEYS["int"]), draw(st.none() | KEYS["text"])
        return "frozen<pair>", value
    if kind == "tuple":
        parts = draw(st.lists(keys(depth - 1), min_size=1, max_size=3))
        cells = tuple(draw(st.just(value) | st.none()) for _, value in parts)
        return f"frozen<tuple<{', '.join(name for name, _ in parts)}>>", cells
    name, value = draw(keys(depth - 1))
    others = st.just(value) if name.startswith("frozen") else KEYS[name]
    elements = [value, *draw(st.lists(others, max_size=3))]
    raw = {serialise(parse(name, lambda _: PAIR), each): each for each in elements}
    if kind != "map":
        return f"frozen<{kind}<{name}>>", [*raw.values()]
    item, cell = draw(keys(depth - 1))
    return f"frozen<map<{name}, {item}>>", OrderedMap((each, cell) for each in raw.values())


@given(keys())
def test_what_to_dict_writes_is_read(key: tuple[str, Any]) -> None:
    """The key of a change, as `Change.to_dict` writes it, has the key's token."""
    text, value = key
    schema = table(text)
    (column,) = schema.columns
    assume(serialise(column.type, value))  # a partition key is not empty
    [own] = converter(column.type)(build(column.type, [serialise(column.type, value)]))
    written = json.dumps({"k": value_to_json(own)})
    assert token_of(schema, parse_key(written, schema)) == token_of(schema, {"k": value})

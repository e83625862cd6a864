"""Random schemas and rows for Hypothesis: all types, nested to some depth."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

from attrs import frozen
from cassandra.util import Date, Duration, Time
from hypothesis import strategies as st

from cdc_reader.cql.schema import Column
from cdc_reader.cql.types import (
    NATIVE_TYPES,
    CqlType,
    ListType,
    MapType,
    Native,
    SetType,
    TupleType,
    UserType,
    VectorType,
)
from tests.cdc_reader.decoding.wire import body_of, encode

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def _signed(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


_VALUES: dict[str, st.SearchStrategy[Any]] = {
    "ascii": st.text(st.characters(codec="ascii")),
    "bigint": _signed(64),
    "blob": st.binary(),
    "boolean": st.booleans(),
    "counter": _signed(64),
    "date": st.dates().map(Date),
    "decimal": st.decimals(allow_nan=False, allow_infinity=False)
    | st.builds(lambda digits, places: Decimal(digits).scaleb(-places), _signed(200), _signed(8)),
    "double": st.floats(allow_nan=False),
    "duration": st.builds(Duration, _signed(32), _signed(32), _signed(64)),
    "float": st.floats(allow_nan=False, width=32),
    "inet": st.ip_addresses().map(str),
    "int": _signed(32),
    "smallint": _signed(16),
    "text": st.text(),
    "time": st.integers(0, 86_399_999_999_999).map(Time),
    "timestamp": st.integers(-62_135_596_800_000, 253_402_300_799_999),
    "timeuuid": st.uuids(version=1),
    "tinyint": _signed(8),
    "uuid": st.uuids(),
    "varint": st.integers() | _signed(64) | _signed(600),
}
"""For each type, values in the form that the driver takes."""


def _told_inet(text: str) -> str:
    address = ipaddress.ip_address(text)
    mapped = getattr(address, "ipv4_mapped", None)
    return str(address) if mapped is None else f"::ffff:{mapped}"


_TOLD: dict[str, Any] = {
    "date": lambda value: date(1970, 1, 1) + timedelta(days=value.days_from_epoch),
    "decimal": lambda value: str(value or abs(value)),  # the wire format has no minus zero
    "duration": lambda value: {
        "months": value.months, "days": value.days, "nanoseconds": value.nanoseconds
    },
    "inet": _told_inet,
    "time": lambda value: value.nanosecond_time,
    "timestamp": lambda value: EPOCH + timedelta(milliseconds=value),
    "timeuuid": str,
    "uuid": str,
    "varint": str,
}  # fmt: skip
"""For some types, functions that convert a value to the form that Arrow's `to_pylist` returns."""


def _nested(inner: st.SearchStrategy[CqlType]) -> st.SearchStrategy[CqlType]:
    parts = st.lists(inner, min_size=1, max_size=4).map(tuple)
    fields = parts.map(lambda types: tuple((f"f{at}", part) for at, part in enumerate(types)))
    return st.one_of(
        st.builds(ListType, inner),
        st.builds(SetType, inner),
        st.builds(MapType, inner, inner),
        st.builds(VectorType, inner, st.integers(1, 3)),
        st.builds(TupleType, parts),
        st.builds(UserType, st.just("ks"), st.just("u"), fields),
    )


cql_types: st.SearchStrategy[CqlType] = st.recursive(
    st.sampled_from(sorted(NATIVE_TYPES)).map(Native), _nested, max_leaves=6
)


def values(cql_type: CqlType) -> st.SearchStrategy[Any]:
    """Return a strategy for non-null values of a type, with null parts where servers allow them."""
    match cql_type:
        case Native(name):
            return _VALUES[name]
        case ListType(element) | SetType(element):
            return st.lists(nullable(element), max_size=4)
        case MapType(key, value):
            return st.lists(st.tuples(values(key), nullable(value)), max_size=4)
        case VectorType(element, dimension):
            return st.lists(values(element), min_size=dimension, max_size=dimension)
        case TupleType(elements):
            return st.tuples(*map(nullable, elements))
        case UserType(fields=fields):
            return st.tuples(*(nullable(part) for _, part in fields))


def nullable(cql_type: CqlType) -> st.SearchStrategy[Any]:
    """Return a strategy for values of a type, including null."""
    return st.none() | values(cql_type)


def told(cql_type: CqlType, value: Any) -> Any:
    """Return the value as Arrow's `to_pylist` returns it."""
    if value is None:
        return None
    match cql_type:
        case Native(name):
            return _TOLD.get(name, lambda same: same)(value)
        case ListType(element) | SetType(element) | VectorType(element):
            return [told(element, item) for item in value]
        case MapType(key, item):
            return [(told(key, left), told(item, right)) for left, right in value]
        case TupleType(elements):
            return _struct([(f"_{at}", part) for at, part in enumerate(elements, 1)], value)
        case UserType(fields=fields):
            return _struct(fields, value)


def _struct(fields: Sequence[tuple[str, CqlType]], values: Sequence[Any]) -> dict[str, Any]:
    return {name: told(part, value) for (name, part), value in zip(fields, values, strict=True)}


@frozen
class Table:
    """Columns, and rows of values in the driver's form."""

    columns: list[Column]
    rows: list[tuple[Any, ...]]

    @property
    def body(self) -> bytes:
        types = [column.type for column in self.columns]
        return body_of(*(map(encode, types, row) for row in self.rows))

    @property
    def told(self) -> list[dict[str, Any]]:
        """The rows in the form that Arrow's `to_pylist` returns."""
        return [
            {
                column.name: told(column.type, value)
                for column, value in zip(self.columns, row, strict=True)
            }
            for row in self.rows
        ]


@st.composite
def tables(draw: st.DrawFn, max_rows: int = 8) -> Table:
    """Draw a table with at least one column and one row."""
    types = draw(st.lists(cql_types, min_size=1, max_size=4))
    columns = [Column(f"c{at}", cql_type) for at, cql_type in enumerate(types)]
    rows = st.lists(st.tuples(*map(nullable, types)), min_size=1, max_size=max_rows)
    return Table(columns, draw(rows))


@st.composite
def damaged(draw: st.DrawFn, body: bytes) -> bytes:
    """Draw a copy of `body` with bytes overwritten, inserted, removed, duplicated or truncated."""
    broken = bytearray(body)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(broken)))
        size = draw(st.integers(0, 8))
        change = draw(st.one_of(st.binary(max_size=8), st.sampled_from(_LENGTHS)))
        kind = draw(st.sampled_from(["overwrite", "insert", "cut", "double", "end"]))
        if kind == "overwrite":
            broken[at : at + len(change)] = change
        elif kind == "insert":
            broken[at:at] = change
        elif kind == "cut":
            del broken[at : at + size]
        elif kind == "double":
            broken[at:at] = broken[at : at + size]
        else:
            del broken[at:]
    return bytes(broken)


_LENGTHS = [
    length.to_bytes(4, "big", signed=True)
    for length in (-(2**31), -2, -1, 0, 1, 2, 3, 5, 16, 255, 2**16, 2**30, 2**31 - 1)
]

"""Python values of all CQL types, converted a column at a time."""

from __future__ import annotations

import copy
import ipaddress
import json
import operator
import pickle
import uuid
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc_reader.cql.schema import Column
from cdc_reader.cql.types import (
    CqlType,
    ListType,
    MapType,
    Native,
    SetType,
    TupleType,
    UserType,
    VectorType,
    parse,
)
from cdc_reader.cql.values import Duration, FrozenDict, NegativeZero, converter, integer
from cdc_reader.decoding import arrow_type, decode
from tests.cdc_reader.decoding.schemas import EPOCH, _told_inet, cql_types, values
from tests.cdc_reader.decoding.wire import column_of, encode, page_of


def in_python(cql_type: CqlType, value: Any) -> Any:  # noqa: PLR0911 - a table of types
    """Convert a driver's value to a Python value, without the package's conversions."""
    if value is None:
        return None
    match cql_type:
        case Native(name):
            return _SCALARS.get(name, lambda scalar: scalar)(value)
        case ListType(element) | VectorType(element):
            return tuple(in_python(element, item) for item in value)
        case SetType(element):
            return frozenset(in_python(element, item) for item in value)
        case MapType(key, item):
            return FrozenDict({in_python(key, k): in_python(item, v) for k, v in value})
        case TupleType(elements):
            return tuple(map(in_python, elements, value))
        case UserType(fields=fields):
            named = {n: in_python(t, v) for (n, t), v in zip(fields, value, strict=True)}
            return FrozenDict(named)


_SCALARS: dict[str, Any] = {
    **dict.fromkeys(("double", "float"), lambda value: "-0.0" if str(value) == "-0.0" else value),
    "date": lambda value: value.date(),
    "duration": lambda value: Duration(value.months, value.days, value.nanoseconds),
    "inet": lambda value: ipaddress.ip_address(_told_inet(value)),
    "time": lambda value: value.nanosecond_time,
    "timestamp": lambda value: EPOCH + timedelta(milliseconds=value),
}


def told(value: Any) -> Any:
    """Replace each -0.0 with its text, so that it differs from 0.0."""
    match value:
        case tuple():
            return tuple(map(told, value))
        case frozenset():
            return frozenset(map(told, value))
        case FrozenDict():
            return FrozenDict((told(key), told(each)) for key, each in value.items())
        case float():
            return "-0.0" if str(value) == "-0.0" else value
        case _:
            return value


@given(st.data())
def test_a_column_of_any_type_is_its_values(data: st.DataObject) -> None:
    """Values of any type are converted, even if nested. They can be pickled, copied and hashed."""
    cql_type = data.draw(cql_types)
    drawn = data.draw(st.lists(st.none() | values(cql_type), min_size=1, max_size=4))
    body = column_of(*(encode(cql_type, value) for value in drawn))
    batch = decode(page_of(body, [Column("c", cql_type)]))
    found = converter(cql_type)(batch["c"])
    assert [told(value) for value in found] == [in_python(cql_type, value) for value in drawn]
    assert pickle.loads(pickle.dumps(found)) == found == copy.deepcopy(found)
    assert len(set(found)) <= len(found)
    if len(drawn) > 1:
        assert converter(cql_type)(batch.slice(1)["c"]) == found[1:]


@pytest.mark.parametrize(
    ("of_type", "element"),
    [
        ("double", lambda zero: zero),
        ("frozen<tuple<int, float>>", lambda zero: (1, zero)),
        ("frozen<list<double>>", lambda zero: [zero]),
        ("frozen<set<double>>", lambda zero: [zero]),
        ("frozen<map<int, double>>", lambda zero: [(1, zero)]),
    ],
)
def test_a_set_and_a_map_may_have_both_zeros(of_type: str, element: Any) -> None:
    """A set or map can contain both 0.0 and -0.0. A -0.0 alone remains an ordinary float."""
    zeros = [element(zero) for zero in (-0.0, 0.0)]
    for cql_type, value, alone in (
        (SetType(parse(of_type)), zeros, zeros[:1]),
        (
            MapType(parse(of_type), Native("int")),
            [(zeros[0], 1), (zeros[1], 2)],
            [(zeros[0], 1)],
        ),
    ):
        body = column_of(encode(cql_type, value), encode(cql_type, alone))
        both, one = converter(cql_type)(decode(page_of(body, [Column("c", cql_type)]))["c"])
        assert told(both) == in_python(cql_type, value)
        assert len(both) == 2
        assert pickle.loads(pickle.dumps(both)) == both == copy.deepcopy(both)
        assert hash(pickle.loads(pickle.dumps(both))) == hash(both)
        assert both != one
        assert told(one) == in_python(cql_type, alone)
        assert "NegativeZero" not in repr([*map(type, one)])
        assert both == converter(cql_type)(decode(page_of(body, [Column("c", cql_type)]))["c"])[0]


def test_minus_zero_beside_zero() -> None:
    """`NegativeZero` behaves like -0.0, except that it is less than 0.0 instead of equal to it."""
    found = NegativeZero(-0.0)
    for other, is_same in ((-0.0, True), (NegativeZero(-0.0), True), (0.0, False), ("x", False)):
        assert operator.eq(found, other) is operator.eq(other, found) is is_same
        assert operator.ne(found, other) is operator.ne(other, found) is not is_same
    unsorted = [1.0, 0.0, found, -1.0]
    assert [*map(str, sorted(unsorted))] == ["-1.0", "-0.0", "0.0", "1.0"]
    assert json.dumps(found) == "-0.0"


@pytest.mark.parametrize(
    ("cql_type", "arrow", "expected"),
    [
        ("timestamp", [0, 1 << 62], [datetime(1970, 1, 1, tzinfo=UTC), 1 << 62]),
        ("timestamp", [None, -(1 << 60)], [None, -(1 << 60)]),
        ("date", [1, 2**31 - 1, None], [date(1970, 1, 2), 2**31 - 1, None]),
    ],
)
def test_a_time_beyond_the_calendar_is_a_number(
    cql_type: str, arrow: list[int | None], expected: list[Any]
) -> None:
    """Timestamps and dates outside Python's range of years become numbers."""
    wide = arrow_type(parse(cql_type))
    raw = pa.array(arrow, pa.int64() if cql_type == "timestamp" else pa.int32())
    assert converter(parse(cql_type))(raw.cast(wide)) == expected


def test_a_varint_has_any_number_of_digits() -> None:
    """A varint may have more digits than Python parses by default."""
    text = "-" + "7" * 5_000
    (found,) = converter(Native("varint"))(pa.array([text]))
    assert found == -7 * (10**5_000 - 1) // 9
    assert text == str(found) == repr(found) == f"{found}"
    assert repr((found,)) == f"({text},)"
    for copied in (pickle.loads(pickle.dumps(found)), copy.deepcopy(found)):
        assert (copied, str(copied), hash(copied)) == (found, text, hash(int(found)))
    assert type(converter(Native("varint"))(pa.array(["7" * 20]))[0]) is int


def test_long_text_that_is_no_integer() -> None:
    """Long text is converted only if it consists of digits, whatever exponent it may have."""
    with pytest.raises(ValueError, match=r"^found 0{40}\.\.\., expected an integer$"):
        integer("0" * 5_000 + "1e999999999")


def test_scalars_have_the_documented_types() -> None:
    """Scalars have the types that the module's docstring documents."""
    made = {
        "decimal": ("1.50", Decimal("1.50")),
        "uuid": ("00000000-0000-0000-0000-00000000000a", uuid.UUID(int=10)),
        "inet": ("::1", ipaddress.IPv6Address("::1")),
    }
    for name, (text, value) in made.items():
        (found,) = converter(Native(name))(pa.array([text]))
        assert (type(found), str(found)) == (type(value), str(value))


def test_a_frozen_dict_stays_as_it_is() -> None:
    """A FrozenDict equals a dict with the same items, is hashable, and rejects changes."""
    found = FrozenDict({"a": 1})
    assert found == {"a": 1}
    assert {found: 2}[FrozenDict(a=1)] == 2
    for change in (
        lambda: found.update(b=2),
        lambda: found.pop("a"),
        lambda: found.__setitem__("a", 2),
        lambda: found.__delitem__("a"),
        lambda: found.__ior__({"b": 2}),
        found.clear,
        found.popitem,
        lambda: found.setdefault("b", 2),
    ):
        with pytest.raises(TypeError, match="make a dict of it"):
            change()
    assert found == {"a": 1}


def test_a_duration_prints_as_cql() -> None:
    """A duration prints in CQL's syntax."""
    assert str(Duration(1, 2, 3)) == "1mo2d3ns"

"""Both kernels decode random rows of random nested schemas exactly as the driver does.

`SCYLLA_CDC_KERNEL_ROWS` sets the minimum number of rows per kernel (200 if unset).
"""

from __future__ import annotations

import ipaddress
import os
from datetime import UTC, timedelta
from typing import Any

import pytest
from cassandra import cqltypes
from hypothesis import HealthCheck, assume, given, settings

from cdc_reader.cql.types import (
    CqlType,
    ListType,
    MapType,
    Native,
    SetType,
    TupleType,
    UserType,
    VectorType,
)
from tests.cdc_reader.decoding.conftest import Decode
from tests.cdc_reader.decoding.schemas import Table, tables, told
from tests.cdc_reader.decoding.wire import native_class
from tests.drivers import read_result

ROWS = int(os.environ.get("SCYLLA_CDC_KERNEL_ROWS", "200"))
ROWS_A_TABLE = 20
_COUNTERS = "VectorType(element=Native(name='counter')"


def driver_class(cql_type: CqlType) -> Any:  # noqa: PLR0911 - one return per kind of type
    """Return the driver's class for a type."""
    match cql_type:
        case Native(name):
            return native_class(name)
        case ListType(element):
            return cqltypes.ListType.apply_parameters([driver_class(element)])
        case SetType(element):
            return cqltypes.SetType.apply_parameters([driver_class(element)])
        case MapType(key, value):
            return cqltypes.MapType.apply_parameters([driver_class(key), driver_class(value)])
        case VectorType(element, dimension):
            return cqltypes.VectorType.apply_parameters([driver_class(element), dimension], None)
        case TupleType(elements):
            return cqltypes.TupleType.apply_parameters([*map(driver_class, elements)])
        case UserType(keyspace, name, fields):
            names, types = [n for n, _ in fields], [driver_class(part) for _, part in fields]
            return cqltypes.UserType.make_udt_class(keyspace, name, names, types)


def by_driver(table: Table) -> list[tuple[Any, ...]]:
    """Decode the rows with the driver, from a body without metadata."""
    described = [("ks", "t", column.name, driver_class(column.type)) for column in table.columns]
    message = read_result(table.body, described)
    rows: list[tuple[Any, ...]] = message.parsed_rows
    return rows


def agree(cql_type: CqlType, ours: Any, theirs: Any) -> bool:  # noqa: PLR0911 - one per type
    """Return True if `ours`, from Arrow, equals the driver's value, with equal types in all parts.

    The driver sorts sets, and merges elements that are equal in Python, so each element of the
    driver's set must be in `ours`.
    """
    if ours is None or theirs is None:
        return ours is theirs
    match cql_type:
        case Native(name):
            return _same(name, ours, theirs)
        case ListType(element) | VectorType(element):
            return _all(element, ours, theirs)
        case SetType(element):
            found = (any(agree(element, mine, item) for mine in ours) for item in theirs)
            return len(theirs) <= len(ours) and all(found)
        case MapType(key, value):
            # the private field, because the driver's `items` fails on keys that contain a null
            pairs = [pair for pair in theirs._items if pair is not None]
            return _all(key, [k for k, _ in ours], [k for k, _ in pairs]) and _all(
                value, [v for _, v in ours], [v for _, v in pairs]
            )
        case TupleType(elements):
            return _struct(elements, ours, theirs)
        case UserType(fields=fields):
            return _struct([part for _, part in fields], ours, theirs)


def _same(name: str, ours: Any, theirs: Any) -> bool:
    if name == "inet":  # the driver formats some IPv6 addresses differently
        return ipaddress.ip_address(ours) == ipaddress.ip_address(theirs)
    if name == "timestamp":  # the driver is exact to the millisecond
        apart: timedelta = theirs.replace(tzinfo=UTC) - ours
        is_near = abs(apart) < timedelta(microseconds=500)
        return is_near and not ours.microsecond % 1_000
    theirs = told(Native(name), theirs)
    return type(ours) is type(theirs) and (ours == theirs or repr(ours) == repr(theirs))


def _all(element: CqlType, ours: list[Any], theirs: list[Any]) -> bool:
    same = (agree(element, *pair) for pair in zip(ours, theirs, strict=False))
    return len(ours) == len(theirs) and all(same)


def _struct(parts: Any, ours: dict[str, Any], theirs: tuple[Any, ...]) -> bool:
    values = zip(parts, ours.values(), theirs, strict=True)
    return all(agree(part, mine, item) for part, mine, item in values)


@pytest.mark.timeout(300 + ROWS // 50)
def test_rows_of_any_schema_are_what_the_driver_reads(decode: Decode) -> None:
    """All cells equal the driver's, and have the same types."""
    rows = 0

    @settings(
        max_examples=max(ROWS // 2, 1),  # most tables have three rows
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    @given(tables(max_rows=ROWS_A_TABLE))
    def check(table: Table) -> None:
        nonlocal rows
        # No server has vectors of counters, and the driver treats their elements as fixed-width.
        assume(_COUNTERS not in repr(table.columns))
        batch = decode(table.body, table.columns)
        for mine, theirs in zip(batch.to_pylist(), by_driver(table), strict=True):
            rows += 1
            for column, item in zip(table.columns, theirs, strict=True):
                assert agree(column.type, mine[column.name], item), (column.type, mine, item)

    check()
    assert rows >= ROWS

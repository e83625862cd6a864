"""A table and its copy are compared exactly, whatever the sizes of the temporary files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc_reader.cql.names import TableName
from cdc_reader.cql.schema import OPERATION, Column, ColumnKind, Operation, TableSchema
from cdc_reader.cql.types import CqlType, Native, UserType, parse
from cdc_reader.decoding.arrow_type import arrow_schema, arrow_type
from cdc_reader.errors import UnsupportedTableError
from cdc_reader.replication import buckets
from cdc_reader.replication.buckets import Buckets, pairs
from cdc_reader.replication.comparison import Kind
from cdc_reader.replication.copy_columns import CopyColumns
from cdc_reader.replication.later_changes import change_schema, changed_keys, explained
from cdc_reader.replication.matching import COLUMNS, KINDS, difference_schema, differences

Key = tuple[float, str | None]
Rows = dict[str, tuple[Key, float | None]]

BASE = TableSchema(
    TableName("ks", "t"),
    (
        Column("v", Native("double")),
        Column("p", Native("double"), ColumnKind.PARTITION_KEY, 0),
        Column("c", Native("text"), ColumnKind.CLUSTERING, 0),
        Column("st", Native("int"), ColumnKind.STATIC),
    ),
)
NAN = float("nan")
keys = st.tuples(st.sampled_from([*map(float, range(9)), -0.0, NAN]), st.sampled_from("abcde"))
keys |= st.tuples(st.sampled_from([1.0, NAN]), st.none())
values = st.sampled_from([None, 0.0, -0.0, 1.0, NAN])
tables = st.lists(st.tuples(keys, values), unique_by=lambda row: repr(row[0]), max_size=60).map(
    lambda rows: {repr(key): (key, value) for key, value in rows}
)
"""Rows by the text of their keys, because NaN equals NaN only as text."""


def batches(
    rows: Iterable[tuple[Key, float | None]], size: int, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """Yield the rows in batches of this size."""
    cells = [{"p": p, "c": c, "v": v, "st": 1} for (p, c), v in rows]
    for at in range(0, len(cells), size):
        yield pa.RecordBatch.from_pylist(cells[at : at + size], schema)


@given(common=tables, table=tables, copy=tables, size=st.integers(1, 9), most=st.integers(1, 900))
def test_exactly_what_differs_is_found(
    common: Rows, table: Rows, copy: Rows, size: int, most: int
) -> None:
    """Each row that differs is found once, with its kind, from files of any size."""
    table, copy = {**common, **table}, {**common, **copy}
    schema = arrow_schema(BASE.columns)
    columns = CopyColumns(BASE, "copy", schema)
    with pytest.MonkeyPatch.context() as patched, TemporaryDirectory() as folder:
        patched.setattr(buckets, "_MOST", most)
        patched.setattr(buckets, "_WAITING", most)
        sides = []
        for name, rows in (("table", table), ("copy", copy)):
            side = Buckets(Path(folder) / name, columns.schema, columns.partition)
            for batch in batches(rows.values(), size, schema):
                side.add(columns.of_table(batch))
            sides.append(side.finish())
        assert [side.count for side in sides] == [len(table), len(copy)]
        found = {}
        for mine, its in pairs(*sides):
            for batch in differences(mine, its, columns):
                lists = [batch.column(name).to_pylist() for name in batch.schema.names]
                for p, c, kind, names in zip(*lists, strict=True):
                    assert repr((p, c)) not in found
                    found[repr((p, c))] = KINDS[kind], names
    assert found == {
        **dict.fromkeys(table.keys() - copy.keys(), (Kind.MISSING, [])),
        **dict.fromkeys(copy.keys() - table.keys(), (Kind.EXTRA, [])),
        **{
            key: (Kind.CHANGED, ["v"])
            for key in table.keys() & copy.keys()
            if repr(table[key][1]) != repr(copy[key][1])
        },
    }


def differing(*rows: tuple[float, str | None, Kind, list[str]]) -> pa.RecordBatch:
    """Return rows that differ."""
    columns = CopyColumns(BASE, "copy", arrow_schema(BASE.columns))
    schema = difference_schema(columns)
    cells = [[p, c, KINDS.index(kind), names] for p, c, kind, names in rows]
    arrays = [
        pa.array(column, each.type)
        for column, each in zip(zip(*cells, strict=True), schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


ROW = (1.0, "a", Kind.CHANGED, ["v"])
STATIC = (1.0, "a", Kind.CHANGED, ["st"])
BOTH = (1.0, "a", Kind.CHANGED, ["v", "st"])
MISSING = (1.0, "a", Kind.MISSING, list[str]())
ALONE = (1.0, None, Kind.EXTRA, list[str]())


@pytest.mark.parametrize(
    ("row", "change", "remaining"),
    [
        (ROW, (Operation.UPDATE, 1.0, "a"), None),
        (ROW, (Operation.INSERT, 1.0, "a"), None),
        (ROW, (Operation.ROW_DELETE, 1.0, "a"), None),
        (ROW, (Operation.PARTITION_DELETE, 1.0, None), None),
        (ROW, (Operation.RANGE_START_INCLUSIVE, 1.0, "b"), None),
        (ROW, (Operation.RANGE_END_EXCLUSIVE, 1.0, None), None),
        (ROW, (Operation.PREIMAGE, 1.0, "a"), ["v"]),
        (ROW, (Operation.POSTIMAGE, 1.0, "a"), ["v"]),
        (ROW, (Operation.UPDATE, 1.0, "b"), ["v"]),
        (ROW, (Operation.UPDATE, 2.0, "a"), ["v"]),
        (ROW, (Operation.PARTITION_DELETE, 2.0, None), ["v"]),
        (ROW, (Operation.UPDATE, 1.0, None), ["v"]),
        (STATIC, (Operation.UPDATE, 1.0, None), None),
        (STATIC, (Operation.UPDATE, 2.0, None), ["st"]),
        (BOTH, (Operation.UPDATE, 1.0, None), ["v"]),
        (MISSING, (Operation.INSERT, 1.0, "a"), None),
        (MISSING, (Operation.UPDATE, 1.0, None), []),
        (ALONE, (Operation.UPDATE, 1.0, None), None),
        (ALONE, (Operation.INSERT, 1.0, "z"), None),
        (ALONE, (Operation.INSERT, 2.0, "z"), []),
    ],
)
def test_what_a_later_change_explains(
    row: Any, change: tuple[Operation, float, str | None], remaining: list[str] | None
) -> None:
    """A change explains the differences that it can have made, and no others."""
    columns = CopyColumns(BASE, "copy", arrow_schema(BASE.columns))
    schema = pa.schema([("p", pa.float64()), ("c", pa.string()), (OPERATION, pa.int8())])
    operation, p, c = change
    cells = [{"p": p, "c": c, OPERATION: int(operation)}]
    changes = changed_keys(pa.RecordBatch.from_pylist(cells, schema), columns)
    assert changes.schema == change_schema(columns)
    found = explained(differing(row), changes, columns, {"st"})
    assert found.later.tolist() == [remaining is None]
    if remaining is not None:
        assert found.rows.column(COLUMNS).to_pylist() == [remaining]


PAIR = UserType("ks", "pair", (("a", Native("int")), ("b", Native("decimal"))), frozen=True)
MS, US, NS = (pa.timestamp(unit, tz="UTC") for unit in ("ms", "us", "ns"))
PAIRS = pa.struct([("B", pa.decimal128(9, 2)), ("a", pa.int64()), ("more", pa.int8())])


@pytest.mark.parametrize(
    ("text", "ours", "stored", "kind"),
    [
        ("text", "x", "x", pa.large_string()),
        ("text", "x", "x", pa.string_view()),
        ("text", "x", "x", pa.dictionary(pa.int32(), pa.string())),
        ("text", None, None, pa.null()),
        ("blob", b"ab", b"ab", pa.binary(2)),
        ("blob", b"ab", b"ab", pa.large_binary()),
        ("tinyint", 7, 7, pa.int32()),
        ("bigint", 7, 7, pa.int32()),
        ("float", 0.5, 0.5, pa.float64()),
        ("decimal", "1.50", "1.50", pa.string()),
        ("decimal", "1.5", "1.500", pa.decimal128(9, 3)),
        ("varint", "7", "7", pa.decimal128(38, 0)),
        ("timestamp", 7_000, 7_000_000, pa.timestamp("us")),
        ("timestamp", 7_000, 7_000_000, pa.timestamp("us", tz="Asia/Tokyo")),
        ("timestamp", 7_000, 7_000_000_000, NS),
        ("timestamp", 2**62, 2**62, MS),
        ("list<decimal>", ["1.5", None], ["1.50", None], pa.large_list(pa.decimal128(9, 2))),
        ("set<int>", [1, 2], [2, 1], pa.list_(pa.int64())),
        ("vector<float, 2>", [1.0, NAN], [1.0, NAN], pa.list_(pa.float32(), 2)),
        ("map<text, float>", {"a": NAN, "b": 1}, {"b": 1, "a": NAN}, None),
        ("frozen<pair>", {"a": 1, "b": "1.5"}, {"B": "1.50", "a": 1, "more": 3}, PAIRS),
        ("duration", (1, 2, 3), {"days": 2, "months": 1, "nanoseconds": 3}, None),
    ],
)
def test_equal_values_of_other_types_are_equal(
    text: str, ours: Any, stored: Any, kind: pa.DataType | None
) -> None:
    """Values are equal in each type that a copy may have for them, and others are not."""
    cql_type = parse(text, lambda _: PAIR)
    if text == "duration":
        ours = dict(zip(("months", "days", "nanoseconds"), ours, strict=True))
        kind = pa.struct([(name, arrow_type(cql_type).field(name).type) for name in stored])
    if text.startswith("map"):
        ours, stored = list(ours.items()), list(stored.items())
    if text == "frozen<pair>":
        stored = {**stored, "B": Decimal(stored["B"])}
    kind = kind or arrow_type(cql_type)
    assert compared(cql_type, ours, array([None, stored, stored], kind)) == []
    assert compared(cql_type, ours, array([None, stored, None], kind)) == ([2] if ours else [])


def array(values: list[Any], kind: pa.DataType) -> pa.Array:
    """Return values, the first of which is sliced off, as an array of this type."""
    if pa.types.is_decimal(kind) or "decimal" in str(kind):
        values = [decimal_cells(each) for each in values]
    if pa.types.is_dictionary(kind):
        return pa.array(values, kind.value_type).dictionary_encode()
    if pa.types.is_timestamp(kind):
        return pa.array(values, pa.int64()).cast(pa.timestamp(kind.unit)).view(kind)
    return pa.array(values, kind)


def decimal_cells(value: Any) -> Any:
    """Replace texts by decimals."""
    if isinstance(value, list):
        return [decimal_cells(each) for each in value]
    return Decimal(value) if isinstance(value, str) else value


def compared(cql_type: CqlType, value: Any, stored: pa.Array) -> list[int]:
    """Return the keys of the rows that differ; the first row is null, and others are `value`."""
    base = TableSchema(
        TableName("ks", "t"),
        (Column("p", Native("int"), ColumnKind.PARTITION_KEY, 0), Column("v", cql_type)),
    )
    key = pa.array(range(-1, len(stored)), pa.int32())
    cells = [None, None, *[value] * (len(stored) - 1)]
    kind = arrow_type(cql_type)
    mine = array(cells, kind) if pa.types.is_timestamp(kind) else pa.array(cells, kind)
    rows = pa.RecordBatch.from_arrays([key, mine], names=["p", "v"]).slice(1)
    copy = pa.RecordBatch.from_arrays([key.slice(1), stored], names=["p", "v"])
    columns = CopyColumns(base, "copy", copy.schema)
    found = differences(columns.of_table(rows), columns.of_copy(copy), columns)
    return [key for batch in found for key in batch.column(0).to_pylist()]


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("int", pa.string()),
        ("int", pa.uint32()),
        ("uuid", pa.binary(16)),
        ("timestamp", pa.int64()),
        ("decimal", pa.float64()),
        ("list<int>", pa.int32()),
        ("map<text, int>", pa.list_(pa.int32())),
        ("frozen<pair>", pa.struct([("a", pa.int32())])),
        ("duration", pa.struct([("months", pa.int32())])),
    ],
)
def test_other_types_are_refused(text: str, kind: pa.DataType) -> None:
    """A copy whose type cannot hold the table's values is refused."""
    base = TableSchema(
        TableName("ks", "t"),
        (
            Column("p", Native("int"), ColumnKind.PARTITION_KEY, 0),
            Column("v", parse(text, lambda _: PAIR)),
        ),
    )
    with pytest.raises(UnsupportedTableError, match=r'copy cannot .*: column "v" is of type'):
        CopyColumns(base, "copy", pa.schema([("p", pa.int32()), ("v", kind)]))


@pytest.mark.parametrize(
    ("text", "value", "kind"),
    [
        ("decimal", "1.234", pa.decimal128(9, 2)),
        ("timestamp", 2**62, US),
        ("varint", "1" * 40, None),
    ],
)
def test_values_that_the_copy_cannot_hold(text: str, value: Any, kind: pa.DataType | None) -> None:
    """A value that does not fit the copy's type is an error, and never wrapped."""
    with pytest.raises(UnsupportedTableError, match='column "v" has a value that the copy\'s type'):
        compared(parse(text), value, array([None, None], kind or pa.decimal128(38, 0)))

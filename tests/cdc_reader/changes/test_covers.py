"""`Change.covers` and `fold` remove the same rows as the server does."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from attrs import evolve, frozen
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cdc_reader import CdcReader, Change, ChangeFormat, ConnectionConfig, fold, row_updates
from cdc_reader.cql.names import TableName
from cdc_reader.cql.order import ClusteringOrder
from cdc_reader.cql.schema import Column, ColumnKind, TableSchema
from cdc_reader.cql.types import (
    NATIVE_TYPES,
    CqlType,
    ListType,
    MapType,
    SetType,
    TupleType,
    parse,
)
from cdc_reader.cql.values import converter
from cdc_reader.errors import UnsupportedTableError
from tests.cdc_reader.changes.test_change import change_of
from tests.cdc_reader.decoding import schemas

if TYPE_CHECKING:
    from cassandra.cluster import Session

    from cdc_reader.testing import Scylla

NESTED = (
    "frozen<list<varint>>",
    "frozen<set<timeuuid>>",
    "frozen<map<inet, decimal>>",
    "frozen<tuple<uuid, text>>",
    "frozen<list<frozen<tuple<date, timestamp>>>>",
)
TYPES = [*sorted(NATIVE_TYPES - {"counter", "duration"}), *NESTED]
"""The types that a clustering column can have."""
DELETES = {
    "pk = {pk}": "",
    "pk = {pk} AND a = ? AND b = ?": "ab",
    "pk = {pk} AND a = ?": "a",
    "pk = {pk} AND a < ?": "a",
    "pk = {pk} AND a <= ?": "a",
    "pk = {pk} AND a > ?": "a",
    "pk = {pk} AND a >= ?": "a",
    "pk = {pk} AND a >= ? AND a < ?": "aa",
    "pk = {pk} AND a = ? AND b < ?": "ab",
    "pk = {pk} AND a = ? AND b >= ?": "ab",
    "pk = {pk} AND (a, b) > (?, ?)": "ab",
    "pk = {pk} AND (a, b) <= (?, ?)": "ab",
}
"""Conditions of deletes, each with the columns of its values."""
PARTITIONS = itertools.count()
Key = tuple[Any, ...]


def values(cql_type: CqlType) -> st.SearchStrategy[Any]:
    """Return a strategy for values that can be in a clustering column."""
    match cql_type:
        case ListType(element):
            return st.lists(values(element), max_size=3)
        case SetType(element):
            return st.sets(values(element), max_size=3)
        case MapType(key, value):
            return st.dictionaries(values(key), values(value), max_size=3)
        case TupleType(elements):
            return st.tuples(*(st.none() | values(element) for element in elements))
        case _:
            return schemas.values(cql_type)


@frozen
class Deletion:
    """Keys to insert, and the delete of some of them: its condition and its values."""

    keys: list[Key]
    where: str
    values: list[Any]

    def write(self, session: Session, table: str) -> int:
        """Insert and delete the rows of a new partition, and return its key."""
        partition = next(PARTITIONS)
        insert = session.prepare(f"INSERT INTO {table} (pk, a, b) VALUES ({partition}, ?, ?)")
        for key in self.keys:
            session.execute(insert, key)
        where = self.where.format(pk=partition)
        session.execute(session.prepare(f"DELETE FROM {table} WHERE {where}"), self.values)
        return partition


def deletions(cql_type: CqlType) -> st.SearchStrategy[Deletion]:
    """Return a strategy for deletions; their values are often among those of the keys."""

    def of(cells: list[Any]) -> st.SearchStrategy[Deletion]:
        cell = st.sampled_from(cells)
        wheres = st.sampled_from([*DELETES]).flatmap(
            lambda where: st.tuples(st.just(where), st.tuples(*(cell for _ in DELETES[where])))
        )
        return st.builds(
            lambda keys, delete: Deletion(keys, delete[0], [*delete[1]]),
            st.lists(st.tuples(cell, cell), min_size=1, max_size=12),
            wheres,
        )

    return st.lists(values(cql_type), min_size=2, max_size=8).flatmap(of)


def identity(key: Mapping[str, Any]) -> Key:
    """Return a key such that 0.0 and -0.0 differ."""
    cells = (key["pk"], key["a"], key["b"])
    return tuple((c, math.copysign(1, c)) if isinstance(c, float) else c for c in cells)


def left_by_changes(changes: Iterable[Change]) -> set[Key]:
    """Return the keys of the rows that remain after the changes."""
    rows: dict[Key, Mapping[str, Any]] = {}
    for change in changes:
        if change.operation.is_delete:
            gone = [at for at, key in rows.items() if change.covers(key)]
            for at in gone:
                del rows[at]
        else:
            rows[identity(change.key)] = change.key
    return set(rows)


def left_by_batches(base: TableSchema, batches: Iterable[pa.RecordBatch]) -> set[Key]:
    """Return the keys of the rows that remain after the changes, which are Arrow batches."""
    columns = [column.name for column in base.columns]
    rows = fold(base, pa.Table.from_batches(batches))
    cells = [converter(each.type)(rows[each.name].combine_chunks()) for each in base.columns]
    return {identity(dict(zip(columns, key, strict=True))) for key in zip(*cells, strict=True)}


FEW = {"int", "text", "timeuuid", "varint", "double", "frozen<list<varint>>"}


@pytest.fixture(params=[t if t in FEW else pytest.param(t, marks=pytest.mark.slow) for t in TYPES])
def table(request: pytest.FixtureRequest, scylla: Scylla, keyspace: str) -> tuple[str, CqlType]:
    """A table, and the type of its two clustering columns: one descends, the other ascends."""
    name, text = f"{keyspace}.covers", request.param
    scylla.session.execute(
        f"CREATE TABLE {name} (pk int, a {text}, b {text}, PRIMARY KEY (pk, a, b)) "
        f"WITH CLUSTERING ORDER BY (a DESC, b ASC) AND cdc = {{'enabled': true}}"
    )
    return name, parse(text)


@settings(
    max_examples=1, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_a_delete_covers_the_rows_that_it_removes(
    data: st.DataObject, table: tuple[str, CqlType], scylla: Scylla, connection: ConnectionConfig
) -> None:
    """For every type, the remaining rows are those that a SELECT returns."""
    name, cql_type = table
    drawn = data.draw(st.lists(deletions(cql_type), min_size=6, max_size=6))
    own = {deletion.write(scylla.session, name) for deletion in drawn}
    with CdcReader(connection, name) as reader:
        rows = [row.key for row in reader.snapshot().changes()]
        left = {identity(key) for key in rows if key["pk"] in own}
        changes = (change for change in reader.changes() if change.key["pk"] in own)
        assert left_by_changes(changes) == left
        batches = reader.change_batches(
            format=ChangeFormat(include_delta=True, range_deletes="emit")
        )
        mine = (batch.filter(pc.field("pk").isin([*own])) for batch in batches)
        assert left_by_batches(reader.table.schema.base, mine) == left


BASE = TableSchema(
    TableName("ks", "t"),
    (
        Column("pk", parse("int"), ColumnKind.PARTITION_KEY, 0),
        Column("ck", parse("vector<int, 2>"), ColumnKind.CLUSTERING, 0),
    ),
)


def test_a_type_without_an_order_is_refused() -> None:
    """The error says in one line which column cannot be compared, and why."""
    refused = r"^ks.t: ranges of clustering column ck cannot be compared: found type vector<int, 2>"
    with pytest.raises(UnsupportedTableError, match=refused):
        ClusteringOrder(BASE)


def test_what_a_change_covers() -> None:
    """Only the delete of its partition covers a static row. A change of a row covers no row."""
    partition, row = change_of({"op": 4}), change_of({"op": 3, "ck": 2})
    ranges = change_of({"op": 5, "ck": 2}, {"op": 8, "ck": 4})
    static, keys = {"pk": 1}, [{"pk": 1, "ck": ck} for ck in range(1, 5)]
    deletes = partition, row, ranges
    assert [change.covers(static) for change in deletes] == [True, False, False]
    assert [ranges.covers(key) for key in keys] == [False, True, True, False]
    assert not any(change.covers({"pk": 2, "ck": 2}) for change in deletes)
    assert not change_of({"op": 2, "ck": 2}).covers({"pk": 1, "ck": 2})


def test_a_range_without_an_end_is_refused() -> None:
    """The error shows which end is missing."""
    with pytest.raises(ValueError, match=r"^range from {'ck': 2} inclusive to \?: expected both"):
        change_of({"op": 5, "ck": 2}, complete=False).covers({"pk": 1, "ck": 3})


def test_numbers_that_decimal_type_makes_decimal() -> None:
    """`fold` compares varint values that a query returns as decimals."""
    base = evolve(BASE, columns=(BASE.columns[0], evolve(BASE.columns[1], type=parse("varint"))))
    kind = pa.decimal128(5, 0)
    bound = pa.struct([("ck", kind)])
    ends = {"start": bound, "end": bound}
    flags = dict.fromkeys(("start_inclusive", "end_inclusive"), pa.bool_())
    fields = pa.struct([*(ends | flags).items()])
    limits = {"start": {"ck": None}, "start_inclusive": True}
    limits |= {"end": {"ck": Decimal(10)}, "end_inclusive": False}
    numbers = [Decimal(-5), Decimal(9), Decimal(10), None]
    changes = pa.table(
        {
            "pk": [1] * 4,
            "ck": pa.array(numbers, kind),
            "_change_type": [*["insert"] * 3, "delete_range"],
            "_commit_timestamp": pa.array([0, 0, 0, 1], pa.timestamp("us", "UTC")),
            "_commit_version": ["0", "0", "0", "1"],
            "_sequence": [0, 1, 2, 0],
            "_modified_columns": pa.array([[]] * 4, pa.list_(pa.string())),
            "_inserted": [True, True, True, None],
            "_range": pa.array([None, None, None, limits], fields),
        }
    )
    assert fold(base, changes).to_pylist() == [{"pk": 1, "ck": Decimal(10), "_inserted": True}]
    found = row_updates(base, changes)
    assert dict(zip(found["ck"].to_pylist(), found["_change_type"].to_pylist(), strict=True)) == {
        Decimal(-5): "delete",
        Decimal(9): "delete",
        Decimal(10): "upsert",
    }

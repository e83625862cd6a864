"""A copy to which folded changes are applied equals the table, however the changes are divided."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from attrs import evolve

from cdc_reader import CdcReader, ChangeFormat, ConnectionConfig, TableSchema, fold, row_updates
from cdc_reader import needed_partitions as needed
from cdc_reader._time import SystemClock
from cdc_reader.cql.names import TableName
from cdc_reader.cql.schema import Column, ColumnKind
from cdc_reader.cql.types import parse
from cdc_reader.errors import SchemaError
from tests.connectors.pyspark_scylla_cdc.tables.test_fold import (
    IMAGES,
    TABLE,
    in_order,
    random_statements,
    table_of,
)

if TYPE_CHECKING:
    from cdc_reader.testing import Scylla

WANTED = ChangeFormat(include_delta=True, preimages="none", range_deletes="emit")
Row = dict[str, Any]


class Copy:
    """A copy in memory, which does to its rows what a fold says, and nothing else."""

    def __init__(self, table: TableSchema) -> None:
        self._table = table
        self._rows: dict[str, Row] = {}

    def apply(self, changes: pa.Table) -> None:
        """Fold the changes onto the rows that the fold asks for, and apply the result."""
        own = [column.name for column in self._table.partition_key]
        wanted = needed(self._table, changes).to_pylist()
        names = [*(column.name for column in self._table.columns), "_inserted"]
        there = [
            {name: row[name] for name in names}
            for row in self._rows.values()
            if {name: row[name] for name in own} in wanted
        ]
        schema = changes.schema
        rows = pa.Table.from_pylist(there, pa.schema([schema.field(name) for name in names]))
        for each in row_updates(self._table, changes, rows).to_pylist():
            self._apply(each)

    def _apply(self, found: Row) -> None:
        kind, sets = found.pop("_change_type"), found.pop("_modified_columns")
        key = repr([found[column.name] for column in self._table.columns if column.is_key])
        old = self._rows.pop(key, None)
        if kind == "delete":
            return
        if kind == "upsert" and old is not None:
            found["_inserted"] |= old["_inserted"]
            found |= {name: old[name] for name in old if name not in sets and name != "_inserted"}
        values = [found[column.name] for column in self._table.values]
        if kind == "replace" or found["_inserted"] or any(each is not None for each in values):
            self._rows[key] = found

    def rows(self) -> list[Row]:
        """Return the rows, sorted."""
        return compared(self._rows.values())


def compared(rows: Iterable[Row]) -> list[Row]:
    """Return the rows as they are compared, without `_inserted` and `_expires`."""
    return in_order(
        {name: _plain(cell) for name, cell in row.items() if name not in ("_inserted", "_expires")}
        for row in rows
    )


def _plain(cell: Any) -> Any:
    is_map = isinstance(cell, list) and cell and isinstance(cell[0], tuple)
    return dict(cell) if is_map else cell


def cut(changes: pa.Table, draw: random.Random, parts: int) -> Iterator[pa.Table]:
    """Cut changes in the order of their commits into parts, each with its rows in any order."""
    ordered = changes.sort_by([("_commit_version", "ascending"), ("_sequence", "ascending")])
    places = sorted(draw.choices(range(len(ordered) + 1), k=parts - 1))
    for first, end in zip([0, *places], [*places, len(ordered)], strict=True):
        part = ordered.slice(first, end - first)
        yield part.take(pa.array(draw.sample(range(len(part)), len(part)), pa.int64()))


@pytest.mark.parametrize("images", IMAGES.values(), ids=[*IMAGES])
@pytest.mark.parametrize("parts", [1, 2, 40])
def test_random_statements(
    scylla: Scylla,
    keyspace: str,
    connection: ConnectionConfig,
    execute: Callable[..., None],
    images: str,
    parts: int,
) -> None:
    """Static columns, ranges, partitions, collections and explicit timestamps are all exact."""
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    before = SystemClock().now()
    execute(TABLE + images)
    texts = random_statements(seed, 250, before)
    # A part with an older write than one before it would be late: only one part may have any.
    execute(*(text for text in texts if parts == 1 or "TIMESTAMP" not in text))
    with CdcReader(connection, f"{keyspace}.t") as reader:
        changes = pa.Table.from_batches(reader.change_batches(format=WANTED))
        base = reader.table.schema.base
    copy, rows = Copy(base), None
    for part in cut(changes, random.Random(seed), parts):
        copy.apply(part)
        rows = fold(base, part, rows)
    assert rows is not None
    assert compared(rows.to_pylist()) == table_of(scylla, f"{keyspace}.t")
    assert copy.rows() == table_of(scylla, f"{keyspace}.t")


BASE = TableSchema(
    TableName("ks", "t"),
    (
        Column("pk", parse("int"), ColumnKind.PARTITION_KEY, 0),
        Column("ck", parse("int"), ColumnKind.CLUSTERING, 0),
        Column("v", parse("int"), ColumnKind.REGULAR, 0),
    ),
)
BOUND = pa.struct([("ck", pa.int32())])
SCHEMA = pa.schema(
    {
        **dict.fromkeys(("pk", "ck", "v"), pa.int32()),
        "_change_type": pa.string(),
        "_commit_timestamp": pa.timestamp("us", "UTC"),
        "_commit_version": pa.string(),
        "_sequence": pa.int32(),
        "_modified_columns": pa.list_(pa.string()),
        "_inserted": pa.bool_(),
        "_bad_record": pa.struct([("columns", pa.list_(pa.string()))]),
        "_range": pa.struct(
            [
                *((side, BOUND) for side in ("start", "end")),
                *((f"{side}_inclusive", pa.bool_()) for side in ("start", "end")),
            ]
        ),
    }
)


def changes_of(*changes: Row) -> pa.Table:
    """Return changes, each a microsecond after the one before unless it has a time."""
    common = {"pk": 1, "_change_type": "insert", "_sequence": 0, "_inserted": True}
    rows = [
        {
            **common,
            "_commit_timestamp": number,
            "_commit_version": f"{change.get('_commit_timestamp', number):04}",
            "_modified_columns": ["v"] if "v" in change else [],
            **change,
        }
        for number, change in enumerate(changes)
    ]
    return pa.Table.from_pylist(rows, SCHEMA)


def test_what_cannot_be_converted_is_left_out() -> None:
    """A change with a bad value has no effect, unless it is a delete with a known key."""
    bad = {"columns": ["v"]}
    changes = changes_of(
        {"ck": 1, "v": 1},
        {"ck": 1, "v": None, "_bad_record": bad},
        {"ck": 2, "v": 2},
        {"ck": 2, "_change_type": "delete", "_bad_record": bad},
        {"ck": 3, "v": 3},
        {"ck": None, "_change_type": "delete", "_bad_record": {"columns": ["ck"]}},
    )
    assert [(row["ck"], row["v"]) for row in fold(BASE, changes).to_pylist()] == [(1, 1), (3, 3)]


def test_a_snapshot_begins_anew() -> None:
    """Rows and changes before it are gone; its own rows and later changes remain."""
    rows = fold(BASE, changes_of({"ck": 1, "v": 1}))
    changes = changes_of(
        {"ck": 2, "v": 2},
        {"pk": None, "_change_type": "snapshot_begin", "_sequence": -1},
        {"ck": 3, "v": 3},
        {"ck": 4, "v": None, "_inserted": False, "_change_type": "update_postimage"},
        {"pk": None, "_change_type": "snapshot_complete", "_sequence": 1},
    )
    assert fold(BASE, changes, rows).to_pylist() == [{"pk": 1, "ck": 3, "v": 3, "_inserted": True}]


def test_a_delete_is_last_in_its_microsecond() -> None:
    """A delete removes a write of the same microsecond, whatever their order in the log."""
    changes = changes_of(
        {"ck": 1, "_change_type": "delete", "_commit_timestamp": 5, "_inserted": None},
        {"ck": 1, "v": 1, "_commit_timestamp": 5, "_sequence": 1},
    )
    assert fold(BASE, changes).num_rows == 0
    [found] = row_updates(BASE, changes).to_pylist()
    assert (found["_change_type"], found["v"]) == ("delete", None)


def test_a_null_is_last_in_its_microsecond() -> None:
    """A null removes a value of the same microsecond, whatever their order in the log."""
    for order in ((5, None), (None, 5)):
        changes = changes_of(
            {"ck": 1, "_commit_timestamp": 0},
            *(
                {"ck": 1, "v": v, "_commit_timestamp": 7, "_sequence": n}
                for n, v in enumerate(order)
            ),
        )
        assert fold(BASE, changes)["v"].to_pylist() == [None], order


def test_encodings_of_arrow() -> None:
    """Dictionaries, views, slices and empty chunks fold as plain columns do."""
    changes = changes_of({"ck": 1, "v": 1}, {"ck": 1, "v": 2}, {"ck": 2, "v": 3})
    expected = fold(BASE, changes).to_pylist()
    encoded = changes
    for name in ("ck", "_change_type", "_commit_version"):
        place = encoded.schema.get_field_index(name)
        column = encoded.column(name).combine_chunks().dictionary_encode()
        encoded = encoded.set_column(place, name, column)
    twice = pa.DictionaryArray.from_arrays(pa.array([0, 1, 2]), pa.array([1, 1, 2], pa.int32()))
    encoded = encoded.set_column(1, "ck", twice)
    viewed = changes.set_column(3, "_change_type", changes["_change_type"].cast(pa.string_view()))
    chunked = pa.concat_tables(
        [changes.slice(1).slice(0, 0), changes.slice(0, 1), changes.slice(1)]
    )
    for each in (encoded, viewed, chunked, changes.combine_chunks().to_batches()[0]):
        assert fold(BASE, each).to_pylist() == expected


def test_a_static_column_that_is_dropped() -> None:
    """The row that a partition without other rows had for it is gone."""
    static = evolve(BASE, columns=(*BASE.columns, Column("s", parse("int"), ColumnKind.STATIC, 0)))
    change = {"ck": None, "_inserted": False, "_change_type": "update_postimage"}
    changes = changes_of({**change, "_modified_columns": ["s"]})
    rows = fold(static, changes.append_column("s", pa.array([1], pa.int32())))
    assert rows.to_pylist() == [{"pk": 1, "ck": None, "v": None, "s": 1, "_inserted": False}]
    later = changes_of({"ck": 2, "v": 2})
    assert fold(BASE, later, rows)["ck"].to_pylist() == [2]
    kinds = row_updates(BASE, later, rows).select(["ck", "_change_type"]).to_pylist()
    assert {(row["ck"], row["_change_type"]) for row in kinds} == {(None, "delete"), (2, "upsert")}


@pytest.mark.parametrize(
    ("changes", "rows", "lacking"),
    [
        (["_modified_columns"], [], "the changes lack the column _modified_columns"),
        (["_range"], [], "the changes lack the column _range"),
        ([], ["ck"], "the rows of the copy lack the column ck: if a key column was renamed"),
        ([], ["_inserted"], "the rows of the copy lack the column _inserted"),
    ],
)
def test_columns_that_are_needed(changes: list[str], rows: list[str], lacking: str) -> None:
    """The error names what is missing."""
    before = fold(BASE, changes_of({"ck": 1, "v": 1})).drop_columns(rows)
    ends = {"start": {}, "end": {}, "start_inclusive": True, "end_inclusive": True}
    given = changes_of({"_change_type": "delete_range", "_range": ends}).drop_columns(changes)
    with pytest.raises(SchemaError, match=f"^ks.t: {lacking}"):
        fold(BASE, given, before)


def test_rows_without_new_columns() -> None:
    """Rows may lack a column that the table has gained."""
    rows = fold(BASE, changes_of({"ck": 1}, {"ck": 2})).drop_columns("v")
    found = fold(BASE, changes_of({"ck": 2, "v": 7}), rows).to_pylist()
    assert [(row["ck"], row["v"]) for row in found] == [(1, None), (2, 7)]


RANGE = {"start_inclusive": False, "end_inclusive": True}


@pytest.mark.parametrize(
    "change",
    [
        {"pk": None, "ck": 1},
        {"ck": None, "v": 1},
        {"ck": None, "_change_type": "delete"},
        {"_change_type": "delete_range", "_range": {**RANGE, "start": {}, "end": {"ck": 3}}},
    ],
    ids=["partition", "write", "delete", "range"],
)
def test_changes_without_a_whole_key_are_refused(change: Row) -> None:
    """The error says what happened to the table, and what to do."""
    refused = "^ks.t: found a change with a null in its primary key: a key column was renamed"
    with pytest.raises(SchemaError, match=refused):
        fold(BASE, changes_of({"ck": 1, "v": 1}, change))

"""Rows grouped into changes, compared with a simple row-by-row implementation."""

from __future__ import annotations

from itertools import groupby, pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc_reader.changes.records import (
    IMAGES,
    RANGE_ENDS,
    RANGE_STARTS,
    UPSERTS,
    ChangeRows,
    whole_records,
)
from cdc_reader.cql.schema import Column, ColumnKind, LogSchema, Operation
from cdc_reader.cql.types import parse
from tests.cdc_reader.changes.test_grouping import log_batch
from tests.cdc_reader.support.recorded_logs import KEYS, log_schema

A = Column("a", parse("int"))
SCHEMAS = {
    "one": log_schema(*KEYS, A),
    "two": log_schema(*KEYS, Column("c2", parse("text"), ColumnKind.CLUSTERING, 1), A),
    "none": log_schema(KEYS[0], A),
    "float": log_schema(KEYS[0], Column("ck", parse("float"), ColumnKind.CLUSTERING, 0), A),
    "list": log_schema(
        KEYS[0], Column("ck", parse("frozen<list<int>>"), ColumnKind.CLUSTERING, 0), A
    ),
}
CELLS: dict[str, st.SearchStrategy[dict[str, Any]]] = {
    "one": st.fixed_dictionaries({"ck": st.sampled_from([None, 1, 2])}),
    "two": st.fixed_dictionaries(
        {"ck": st.sampled_from([None, 1, 2]), "c2": st.sampled_from([None, "x", "y"])}
    ),
    "none": st.just({}),
    "float": st.fixed_dictionaries(
        {"ck": st.sampled_from([None, 0.0, -0.0, 1.5, float("nan"), float("inf")])}
    ),
    "list": st.fixed_dictionaries({"ck": st.sampled_from([None, [], [1], [1, 2]])}),
}
OPERATIONS = st.sampled_from([*range(-4, 10), 42])
_ROW = {*IMAGES, *UPSERTS, Operation.ROW_DELETE, Operation.SERVER_ROW_DELETE}
_PARTITION = {Operation.PARTITION_DELETE, Operation.SERVER_PARTITION_DELETE}


def by_the_rule(schema: LogSchema, rows: list[dict[str, Any]]) -> list[list[int]]:
    """Return the indices of each change's rows, found row by row.

    A log row for the end of a range belongs to the same change as the row before it, if that row is
    for the start of a range.
    """
    key = [c.name for c in schema.base.columns if c.kind is ColumnKind.CLUSTERING]
    found: list[list[int]] = []
    for _, group in groupby(enumerate(rows), key=lambda each: each[1]["time"]):
        changes: dict[Any, list[int]] = {}
        before = None
        for number, row in group:
            if row["op"] in (_ROW if key else _ROW | _PARTITION):
                subject: Any = repr([row[name] for name in key])
            else:
                is_end = row["op"] in RANGE_ENDS and before in RANGE_STARTS
                subject = number - 1 if is_end else number
            changes.setdefault(subject, []).append(number)
            before = row["op"]
        found += sorted(changes.values(), key=lambda change: first_delta(rows, change))
    return found


def first_delta(rows: list[dict[str, Any]], change: list[int]) -> int:
    """Return the index of the first row that is not an image, or of the first if all are images."""
    return next((row for row in change if rows[row]["op"] not in IMAGES), change[0])


@pytest.mark.parametrize("name", SCHEMAS)
@given(data=st.data())
def test_records_are_found_as_by_the_row_by_row_rule(name: str, data: st.DataObject) -> None:
    """`ChangeRows` finds the same changes as `by_the_rule`, for all operations in any order."""
    schema = SCHEMAS[name]
    drawn = data.draw(
        st.lists(st.tuples(st.integers(1, 4), OPERATIONS, CELLS[name]), min_size=1, max_size=12)
    )
    drawn.sort(key=lambda each: each[0])
    rows = [{"time": time, "op": op, **cells} for time, op, cells in drawn]
    (records,) = whole_records([log_batch(schema, *rows, {"time": 9, "op": 1, "end": True})])
    changes = ChangeRows.of(records, schema.base)
    order, bounds = changes.order.tolist(), changes.bounds.tolist()
    *found, _ = [order[start:end] for start, end in pairwise(bounds)]
    assert found == by_the_rule(schema, rows)
    assert changes.first.tolist()[:-1] == [change[0] for change in found]
    last = [rows[change[0]]["time"] for change in found]
    assert changes.are_last.tolist()[:-1] == [
        time != after for time, after in zip(last, [*last[1:], 9], strict=True)
    ]
    for kind, place in zip(IMAGES, (changes.preimage, changes.postimage), strict=True):
        images = [[row for row in change if rows[row]["op"] == kind] for change in found]
        assert place.tolist()[:-1] == [of_one[-1] if of_one else -1 for of_one in images]


@given(st.data())
def test_records_are_whole_across_pages(data: st.DataObject) -> None:
    """With or without end marks, no row is lost, and the rows of a record stay together."""
    schema = SCHEMAS["one"]
    times = sorted(data.draw(st.lists(st.integers(1, 6), min_size=1, max_size=15)))
    ends = [time != after for time, after in zip(times, [*times[1:], None], strict=True)]
    rows = [
        {"time": time, "op": 1, "ck": 1, "seq": seq, "end": end or None}
        for seq, (time, end) in enumerate(zip(times, ends, strict=True))
    ]
    batch = log_batch(schema, *rows)
    if data.draw(st.booleans()):
        batch = batch.drop_columns(["cdc$end_of_batch"])
    cuts = sorted(data.draw(st.sets(st.integers(1, len(rows) - 1))) if len(rows) > 1 else set())
    pages = [batch.slice(a, b - a) for a, b in pairwise([0, *cuts, len(rows)])]
    found = list(whole_records(pages))
    assert pa.Table.from_batches([records.batch for records in found]).equals(
        pa.Table.from_batches([batch])
    )
    whole = [records.batch["cdc$time"].to_pylist() for records in found]
    assert all(set(one).isdisjoint(other) for one, other in pairwise(whole))
    assert all(records.are_complete.all() for records in found)
    starts = [records.batch["cdc$time"].take(pa.array(records.starts)) for records in found]
    assert [time for part in starts for time in part.to_pylist()] == [
        time for time, _ in groupby(batch["cdc$time"].to_pylist())
    ]

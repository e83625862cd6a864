"""Grouping batches of log rows into changes."""

from __future__ import annotations

import itertools
import math
import pickle
import uuid
import weakref
from collections import Counter
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cdc_reader.changes.change import Change
from cdc_reader.changes.delta import DELETED, Assigned, CollectionDelta, Delta
from cdc_reader.changes.grouping import Grouping
from cdc_reader.changes.operation import ChangeOperation
from cdc_reader.cql import timeuuid
from cdc_reader.cql.schema import Column, ColumnKind, LogSchema, Operation
from cdc_reader.cql.types import is_multi_cell, parse
from cdc_reader.cql.values import FrozenDict, converter
from cdc_reader.decoding import arrow_schema
from tests.cdc_reader.support.recorded_logs import BASE, KEYS, History, U, histories, log_schema

each_history = pytest.mark.parametrize("history", histories(), ids=["plain", "both", "full"])
SMALL = log_schema(*KEYS, Column("a", parse("int")))
STREAM = bytes(16)


def log_batch(schema: LogSchema, *rows: dict[str, Any]) -> pa.RecordBatch:
    """Return log rows as a RecordBatch. Each dict maps columns to cells. `time` is in µs."""
    full = [
        {
            "cdc$stream_id": row.get("stream", STREAM),
            "cdc$time": str(timeuuid.make(row["time"], row.get("low", bytes(8)))),
            "cdc$batch_seq_no": row.get("seq", 0),
            "cdc$operation": row["op"],
            "cdc$end_of_batch": row.get("end"),
            "pk": 1,
            **{name: value for name, value in row.items() if name in _names(schema)},
        }
        for row in rows
    ]
    return pa.RecordBatch.from_pylist(full, arrow_schema(schema.columns))


def _names(schema: LogSchema) -> set[str]:
    return {column.name for column in schema.columns}


def flattened(changes: list[Change]) -> Counter[Any]:
    """Reconstruct the log rows from the changes' public attributes."""
    rows: Counter[Any] = Counter()
    for change in changes:
        place = change.stream, change.time, change.partition_key["pk"]
        parts = {part.seq: part for part in change.parts}
        for seq in change.seqs:
            cells = change.key.get("ck")
            if (part := parts.get(seq)) is None:
                is_before = change.before is not None and seq == change.seqs[0]
                kind = Operation.PREIMAGE if is_before else Operation.POSTIMAGE
                image = change.before if is_before else change.after
                rows[(*place, seq, kind, cells, None, _items(image or {}))] += 1
                continue
            if change.range is not None:
                bound = change.range.start if seq == change.seqs[0] else change.range.end
                assert bound is not None
                cells = bound.prefix.get("ck")
            rows[(*place, seq, part.operation, cells, part.ttl, _items(part.deltas))] += 1
    return rows


def _items(mapping: Any) -> Any:
    return frozenset(mapping.items())


def logged(history: History) -> Counter[Any]:
    """Derive the expected rows from the log, without the package's own code."""
    batch = history.batch()
    columns = {c.name: converter(c.type)(batch[c.name]) for c in history.schema.columns}
    rows = (dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True))
    return Counter(
        (
            row["cdc$stream_id"],
            row["cdc$time"],
            row["pk"],
            row["cdc$batch_seq_no"],
            row["cdc$operation"],
            row["ck"],
            row["cdc$ttl"],
            _items(_image_of(row) if row["cdc$operation"] in (0, 9) else _deltas_of(row)),
        )
        for row in rows
    )


def _columns_of(row: dict[str, Any]) -> list[Column]:
    kind = ColumnKind.STATIC if row["ck"] is None else ColumnKind.REGULAR
    return [column for column in BASE if column.kind is kind]


def _image_of(row: dict[str, Any]) -> dict[str, Any]:
    found = {}
    for column in _columns_of(row):
        value, deleted = row[column.name], row[f"cdc$deleted_{column.name}"]
        if value is not None or deleted or row["cdc$operation"] == 9:
            found[column.name] = None if _is_nothing(column, value) else value
    return found


def _is_nothing(column: Column, value: Any) -> bool:
    """Return True if an image's value is null in the table."""
    if column.type == U:
        return not any(cell is not None for cell in (value or {}).values())
    return is_multi_cell(column.type) and not value


def _deltas_of(row: dict[str, Any]) -> dict[str, Delta]:
    found: dict[str, Delta] = {}
    for column in _columns_of(row):
        value, deleted = row[column.name], row[f"cdc$deleted_{column.name}"]
        removed = row.get(f"cdc$deleted_elements_{column.name}")
        if f"cdc$deleted_elements_{column.name}" not in row:
            if value is not None or deleted:
                found[column.name] = DELETED if value is None else Assigned(value)
            continue
        if column.type == U:
            value = FrozenDict({k: v for k, v in (value or {}).items() if v is not None})
            removed = removed and frozenset("xy"[i] for i in removed)
        if value or removed:
            nothing: Any = frozenset() if column.name in {"s", "ss"} else FrozenDict()
            found[column.name] = CollectionDelta(
                bool(deleted), value or nothing, removed or frozenset()
            )
        elif deleted:
            found[column.name] = DELETED
    return found


@each_history
def test_changes_hold_everything_in_the_log(history: History) -> None:
    """Flattening the changes yields each row of the log exactly once."""
    assert flattened(history.changes()) == logged(history)


@each_history
def test_each_row_of_a_record_is_one_change(history: History) -> None:
    """The images and writes of a row form one change.

    `is_last` marks the last change of a record.
    """
    changes = history.changes()
    assert all(change.complete for change in changes)
    for _, record in itertools.groupby(changes, lambda change: (change.stream, change.time)):
        group = list(record)
        assert [change.is_last for change in group] == [False] * (len(group) - 1) + [True]
        rows = [change.key for change in group if not change.operation.is_delete]
        assert len(set(rows)) == len(rows)
        seqs = sorted(seq for change in group for seq in change.seqs)
        assert seqs == list(range(len(seqs)))


@settings(max_examples=30)
@given(st.data())
def test_page_boundaries_do_not_affect_changes(data: st.DataObject) -> None:
    """Records stay whole even if they span several pages."""
    history = data.draw(st.sampled_from(histories()))
    start = data.draw(st.integers(0, 500))
    whole = Grouping(history.schema).feed(history.batch(start, start + 40))
    grouping, changes, at = Grouping(history.schema), [], start
    while at < start + 40:
        size = data.draw(st.integers(1, 9))
        changes += grouping.feed(history.batch(at, min(at + size, start + 40)))
        at += size
    assert changes == whole
    assert [repr(change) for change in changes] == [repr(change) for change in whole]


@each_history
def test_lazy_grouping_gives_the_same_changes(history: History) -> None:
    """Grouping lazily and grouping all at once produce equal changes."""
    batch = history.batch(0, 1_000)
    found = Grouping(history.schema).each(batch)
    assert [next(found), *found] == Grouping(history.schema).feed(batch) != []


@each_history
def test_pages_have_the_timestamps_of_their_changes(history: History) -> None:
    """A page computes the timestamps of all its changes at once, as one column."""
    found = Grouping(history.schema).each(history.batch(0, 1_000))
    assert found.page.timestamps.tolist() == [change.timestamp for change in found] != []


def test_a_partition_has_the_same_hash_in_all_pages() -> None:
    """A partition key has the same hash in all pages, and different keys have different hashes.

    0.0 and -0.0 are different keys, and NaN is equal to itself.
    """
    kind = ColumnKind.PARTITION_KEY
    schema = log_schema(
        Column("a", parse("double"), kind),
        Column("b", parse("frozen<list<timestamp>>"), kind),
        Column("c", parse("blob"), kind),
    )
    cells: list[tuple[float, list[int], bytes]] = [
        (a, b, c)
        for a in (0.0, -0.0, math.nan, 1.5)
        for b in ([], [1], [1, 2])
        for c in (b"", b"c")
    ]
    keys = [dict(zip("abc", each, strict=True)) for each in cells]
    hashes: dict[str, set[int]] = {}
    for order in (keys, keys[::-1], keys[5:7] * 2):
        rows = [{"time": n, "op": 4, "end": True, **key} for n, key in enumerate(order, 1)]
        page = Grouping(schema).each(log_batch(schema, *rows)).page
        for key, found in zip(order, page.partition_hashes.tolist(), strict=True):
            hashes.setdefault(repr(key), set()).add(found)
    assert len(hashes) == len(keys)
    assert all(len(found) == 1 for found in hashes.values())
    assert len(set().union(*hashes.values())) == len(keys)


def test_what_is_made_of_a_change_goes_with_it() -> None:
    """The values of a discarded change are freed before the next change is made."""
    rows = [{"time": n, "op": 1, "ck": n, "a": n, "end": True} for n in range(1, 1_001)]
    changes = Grouping(SMALL).each(log_batch(SMALL, *rows))
    last = None
    for change in changes:
        assert last is None or last() is None
        last = weakref.ref(change.deltas["a"])
        assert last() is not None
        del change
    assert last is not None


def applied(before: dict[str, Any], column: str, delta: Delta) -> Any:
    """Return a column's value after a delta, or None for a value that images show as null."""
    if isinstance(delta, Assigned):
        return delta.value
    if not isinstance(delta, CollectionDelta):
        return None
    old = None if delta.overwritten else before.get(column)
    if isinstance(delta.added, frozenset):
        return ((old or frozenset()) | delta.added) - delta.removed or None
    new = {**(old or {}), **delta.added}
    left = {key: value for key, value in new.items() if key not in delta.removed}
    if column == "un":
        is_null = all(value is None for value in left.values())
        return None if is_null else {"x": None, "y": None, **left}
    return left or None


@pytest.mark.parametrize("history", histories()[1:], ids=["both", "full"])
def test_the_postimage_is_the_preimage_with_the_deltas(history: History) -> None:
    """In two recorded histories, each postimage equals the preimage with the deltas applied."""
    seen = Counter[str]()
    for change in history.changes():
        if change.after is None:
            continue
        before = dict(change.before or {})
        for column, delta in change.deltas.items():
            assert change.after[column] == applied(before, column, delta), (change, column)
            seen[type(delta).__name__] += 1
        for column in before.keys() - change.deltas.keys():
            assert change.after[column] == before[column]
    assert min(seen[kind] for kind in ("Assigned", "Deleted", "CollectionDelta")) > 50


def test_a_record_without_an_end_mark_is_one_change() -> None:
    """A change is incomplete if its record has no end mark.

    The record then ends at the next record or at the end of the log.
    """
    grouping = Grouping(SMALL)
    cut = log_batch(SMALL, {"time": 1, "op": 1, "ck": 1, "a": 1})
    assert grouping.feed(cut) == []
    (found, whole) = grouping.feed(log_batch(SMALL, {"time": 2, "op": 1, "ck": 1, "end": True}))
    assert (found.timestamp, found.complete, found.is_last) == (1, False, True)
    assert (whole.timestamp, whole.complete, whole.is_last) == (2, True, True)
    assert grouping.finish() == []
    assert grouping.feed(cut) == []
    (left,) = grouping.finish()
    assert left == found
    assert grouping.finish() == []


def test_a_log_without_end_marks_is_grouped() -> None:
    """Without end marks (before ScyllaDB 4.3), a record is complete when the next one begins."""
    columns = tuple(c for c in SMALL.columns if c.name != "cdc$end_of_batch")
    old = LogSchema(SMALL.base, columns)
    rows = log_batch(
        SMALL,
        {"time": 1, "op": 1, "ck": 1, "a": 1},
        {"time": 1, "op": 1, "ck": 2, "a": 1, "seq": 1},
        {"time": 2, "op": 1, "ck": 1, "a": 1},
    ).drop_columns(["cdc$end_of_batch"])
    grouping = Grouping(old)
    found = grouping.feed(rows)
    assert [(change.timestamp, change.complete) for change in found] == [(1, True), (1, True)]
    assert [change.timestamp for change in grouping.finish()] == [2]


def test_equal_times_in_two_streams_are_two_records() -> None:
    """Rows with equal times in two streams belong to two records."""
    rows = log_batch(
        SMALL,
        {"time": 1, "op": 1, "ck": 1, "end": True},
        {"time": 1, "op": 1, "ck": 1, "end": True, "stream": bytes([1] * 16)},
        {"time": 1, "op": 1, "ck": 1, "end": True, "low": bytes([1] * 8)},
    )
    found = Grouping(SMALL).feed(rows)
    assert [change.is_last for change in found] == [True] * 3
    assert len({(change.stream, change.time) for change in found}) == 3


def test_several_ranges_of_a_record_are_several_changes() -> None:
    """Each range has its own bounds, and the update of a row is a separate change."""
    rows = log_batch(
        SMALL,
        {"time": 1, "op": 1, "ck": 9, "a": 1, "seq": 0},
        {"time": 1, "op": 5, "ck": 1, "seq": 1},
        {"time": 1, "op": 8, "ck": 3, "seq": 2},
        {"time": 1, "op": 6, "ck": 5, "seq": 3},
        {"time": 1, "op": 7, "ck": None, "seq": 4, "end": True},
    )
    update, *ranges = Grouping(SMALL).feed(rows)
    assert update.operation is ChangeOperation.UPDATE
    assert [str(found.range) for found in ranges] == [
        "from {'ck': 1} inclusive to {'ck': 3} exclusive",
        "from {'ck': 5} exclusive to open",
    ]
    assert [found.key for found in ranges] == [{"pk": 1}] * 2


def test_unknown_operations_are_kept() -> None:
    """Each row with an unknown operation becomes a separate change with the row's cells."""
    rows = log_batch(
        SMALL,
        {"time": 1, "op": 0, "ck": 1, "a": 1},
        {"time": 1, "op": 42, "ck": 1, "a": 2, "seq": 1},
        {"time": 1, "op": -3, "ck": 1, "seq": 2},
        {"time": 1, "op": -4, "seq": 3, "end": True},
    )
    unknown, row, partition = Grouping(SMALL).feed(rows)
    assert (unknown.operation, unknown.operation.is_known) == ("unknown_42", False)
    assert (unknown.key, unknown.deltas) == ({"pk": 1, "ck": 1}, {"a": Assigned(2)})
    assert pickle.loads(pickle.dumps(unknown)).operation is unknown.operation
    assert (row.operation, row.before) == (ChangeOperation.SERVER_ROW_DELETE, {"a": 1})
    assert partition.operation is ChangeOperation.SERVER_PARTITION_DELETE
    assert (partition.key, partition.is_last) == ({"pk": 1}, True)


def test_keys_equal_in_python_only_are_two_rows() -> None:
    """The keys -0.0 and 0.0 identify two rows, although Python treats them as equal.

    NaN keys identify one row.
    """
    double = Column("ck", parse("double"), ColumnKind.CLUSTERING, 0)
    schema = log_schema(KEYS[0], double, Column("a", parse("int")))
    keys = [0.0, -0.0, math.nan]
    images = [{"time": 1, "op": 0, "ck": ck, "a": 1, "seq": n} for n, ck in enumerate(keys)]
    updates = [{"time": 1, "op": 1, "ck": ck, "a": 2, "seq": n + 3} for n, ck in enumerate(keys)]
    found = Grouping(schema).feed(
        log_batch(schema, *images, *updates[:-1], updates[-1] | {"end": True})
    )
    assert [change.seqs for change in found] == [(0, 3), (1, 4), (2, 5)]
    assert [change.before for change in found] == [{"a": 1}] * 3


def test_the_row_of_a_table_without_clustering_is_its_partition() -> None:
    """Without clustering columns, the delete of a partition includes the image of its only row."""
    schema = log_schema(KEYS[0], Column("a", parse("int")))
    rows = log_batch(
        schema, {"time": 1, "op": 0, "a": 1}, {"time": 1, "op": 4, "seq": 1, "end": True}
    )
    (found,) = Grouping(schema).feed(rows)
    assert (found.operation, found.before) == (ChangeOperation.PARTITION_DELETE, {"a": 1})
    assert not found.is_static


def test_empty_batches_and_extra_columns_are_ignored() -> None:
    """An empty batch yields no changes. An extra column, such as the remaining TTL, is ignored."""
    rows = log_batch(SMALL, {"time": 1, "op": 1, "ck": 1, "end": True})
    more = rows.append_column("ttl(cdc$operation)", pa.array([7], pa.int32()))
    grouping = Grouping(SMALL)
    assert grouping.feed(rows.slice(0, 0)) == []
    assert grouping.feed(more) == Grouping(SMALL).feed(rows)


def test_a_record_is_identified_by_all_bits_of_its_time() -> None:
    """Records are compared by all bits of `cdc$time`, including the UUID's version bits."""
    rows = log_batch(SMALL, {"time": 7, "op": 2, "ck": 1, "end": True})
    (found,) = Grouping(SMALL).feed(rows)
    assert (found.time, found.timestamp) == (uuid.UUID(rows["cdc$time"][0].as_py()), 7)

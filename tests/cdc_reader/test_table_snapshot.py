"""Snapshots with a real driver and server: as batches, as `change_batches` and as changes."""

from __future__ import annotations

import json
import pickle
import time
import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from attrs import evolve

from cdc_reader import (
    Assigned,
    CdcReader,
    Change,
    ChangeFormat,
    ChangeOperation,
    CollectionDelta,
    ConnectionConfig,
    ReadConfig,
    SnapshotRows,
)
from cdc_reader.cql import timeuuid
from cdc_reader.errors import CheckpointError, ConfigurationError, StoppedError
from tests.cdc_reader.conftest import Execute
from tests.cdc_reader.support.tuned import tuning_of_module

if TYPE_CHECKING:
    from cdc_reader.testing import Scylla

FULL = "{'enabled': true, 'preimage': 'full', 'postimage': true}"
SMALL_PAGES = ReadConfig(fetch_size=2, confidence_window="0s")

small_chunks = tuning_of_module(in_flight=2)


@pytest.fixture
def reader(connection: ConnectionConfig, keyspace: str, execute: Execute) -> Iterator[CdcReader]:
    """A reader of a table with static rows and collections."""
    execute(
        "CREATE TABLE {t} (pk int, ck int, s int static, v int, w text, l list<int>, m map<int, "
        f"text>, PRIMARY KEY (pk, ck)) WITH cdc = {FULL}",
        *[f"INSERT INTO {{t}} (pk, ck, v) VALUES ({n % 5}, {n}, {n})" for n in range(20)],
        "UPDATE {t} SET s = 7 WHERE pk = 1",
        "UPDATE {t} SET s = 8 WHERE pk = 50",
        "INSERT INTO {t} (pk, ck, v, l, m) VALUES (60, 1, 2, [5, 4, 5], {1: 'one'})",
    )
    with CdcReader(connection, f"{keyspace}.t", config=SMALL_PAGES) as reader:
        yield reader


def by_key(changes: Iterator[Change]) -> dict[tuple[Any, ...], Change]:
    """Return the changes by key, and check that each key occurs once."""
    found = list(changes)
    keyed = {tuple(change.key.values()): change for change in found}
    assert len(keyed) == len(found)
    return keyed


def test_batches_are_what_a_select_shows(reader: CdcReader, scylla: Scylla) -> None:
    """Batches contain the rows and columns of a SELECT, with their types."""
    found = pa.Table.from_batches(reader.snapshot().batches(), reader.snapshot().arrow_schema)
    rows = scylla.session.execute(f"SELECT * FROM {reader.table.name}").all()
    assert found.num_rows == len(rows) == 22
    assert {(r["pk"], r["ck"], r["s"], r["v"]) for r in found.to_pylist()} == {
        (row.pk, row.ck, row.s, row.v) for row in rows
    }


def test_columns_are_chosen(reader: CdcReader) -> None:
    """Key columns are always read, and an unknown column is rejected."""
    batch = next(reader.snapshot().batches(["v"]))
    assert batch.schema.names == ["pk", "ck", "v"]
    with pytest.raises(ConfigurationError, match="has no such column; its columns are pk, ck, s"):
        reader.snapshot().batches(["V"])


def test_the_formats_show_rows_as_inserts(reader: CdcReader) -> None:
    """Each row is an insert whose time is the snapshot's position. Static rows are separate."""
    snapshot = reader.snapshot()
    table = snapshot.change_batches(format=ChangeFormat(include_delta=True)).read_all()
    assert table.schema == reader.change_batches(format=ChangeFormat(include_delta=True)).schema
    found = table.to_pylist()
    assert {row["_change_type"] for row in found} == {"insert"}
    times = {int(row["_commit_timestamp"].timestamp() * 1e6) for row in found}
    assert abs(times.pop() - snapshot.position) < 2
    statics = {row["pk"]: row["s"] for row in found if row["ck"] is None}
    assert statics == {1: 7, 50: 8}
    assert len(found) == 21 + 2
    envelope = snapshot.change_batches(format="envelope").read_all().to_pylist()
    assert {(row["op"], row["source"]["snapshot"]) for row in envelope} == {("r", "true")}
    with pytest.raises(ConfigurationError, match="no row of its log"):
        snapshot.change_batches(format="log")


def test_changes_after_its_start_come_from_the_log(reader: CdcReader, execute: Execute) -> None:
    """Changes after the snapshot's position come from the log."""
    snapshot = reader.snapshot()
    execute("UPDATE {t} SET v = 100 WHERE pk = 2 AND ck = 2")
    assert by_key(snapshot.changes())[2, 2].after == {"v": 100, "w": None, "l": None, "m": None}
    later = [change.key["ck"] for change in reader.changes(snapshot.position)]
    assert 2 in later


def test_changes_show_the_row(reader: CdcReader) -> None:
    """A change's `after` and deltas contain the whole row. Its time is the snapshot's position."""
    snapshot = reader.snapshot()
    found = by_key(snapshot.changes())
    assert len(found) == 21 + 2
    change = found[60, 1]
    assert change.operation is ChangeOperation.SNAPSHOT
    assert (change.timestamp, change.time) == (
        snapshot.position,
        timeuuid.bound(snapshot.position),
    )
    assert not change.operation.is_delete
    assert (change.is_last, change.complete, change.late, change.is_static) == (
        True,
        True,
        False,
        False,
    )
    assert change.before is None
    assert change.after is not None
    assert tuple(change.after["l"].values()) == (5, 4, 5)
    ids = list(change.after["l"])
    assert ids == sorted(ids, key=lambda each: timeuuid.order_key(each.bytes))
    assert change.deltas == {
        "v": Assigned(2),
        "l": CollectionDelta(True, change.after["l"]),
        "m": CollectionDelta(True, {1: "one"}),
    }
    cells, collections = change.parts
    assert (change.ttl, set(cells.deltas), set(collections.deltas)) == (None, {"v"}, {"l", "m"})
    assert collections.timestamp is None
    static = found[50,]
    assert static.is_static
    assert (static.after, static.deltas) == ({"s": 8}, {"s": Assigned(8)})
    assert found[0, 5].after == {"v": 5, "w": None, "l": None, "m": None}


def test_cells_keep_their_ttls(reader: CdcReader, execute: Execute) -> None:
    """Cells with different TTLs form separate parts of a change.

    The part with the longest TTL is the insert, and the row marker gets its TTL.
    """
    execute(
        "INSERT INTO {t} (pk, ck, v, w) VALUES (70, 1, 1, 'a') USING TTL 1000",
        "UPDATE {t} USING TTL 50 SET v = 2 WHERE pk = 70 AND ck = 1",
        "INSERT INTO {t} (pk, ck, v) VALUES (71, 1, 1) USING TTL 1000",
        "UPDATE {t} SET w = 'b' WHERE pk = 71 AND ck = 1",
    )
    found = by_key(reader.snapshot().changes())
    first, second = found[70, 1].parts
    assert (first.operation.name, dict(first.deltas)) == ("INSERT", {"w": Assigned("a")})
    assert (second.operation.name, dict(second.deltas)) == ("UPDATE", {"v": Assigned(2)})
    assert first.ttl is not None
    assert second.ttl is not None
    assert 900 < first.ttl <= 1000
    assert 0 < second.ttl <= 50
    assert found[70, 1].ttl is None
    ttls = [part.ttl for part in found[71, 1].parts]
    assert ttls[0] is None
    assert 900 < (ttls[1] or 0) <= 1000
    assert found[70, 1].deltas == {"v": Assigned(2), "w": Assigned("a")}


def test_snapshot_changes_are_values(reader: CdcReader, execute: Execute) -> None:
    """Snapshot changes can be compared, hashed, pickled and converted to JSON."""
    execute("INSERT INTO {t} (pk, ck, v, w) VALUES (70, 1, 1, 'a') USING TTL 1000")
    snapshot = reader.snapshot()
    first, again = by_key(snapshot.changes()), by_key(snapshot.changes())
    plain = {key for key in first if key != (70, 1)}  # the remaining TTL decreases
    assert {key: first[key] for key in plain} == {key: again[key] for key in plain}
    copies = pickle.loads(pickle.dumps(list(first.values())))
    assert copies == list(first.values())
    assert [copy.parts for copy in copies] == [change.parts for change in first.values()]
    told = json.loads(json.dumps(first[60, 1].to_dict()))
    assert (told["operation"], told["after"]["l"]) == (
        "snapshot",
        {str(each): value for each, value in (first[60, 1].after or {})["l"].items()},
    )
    assert uuid.UUID(told["time"]) == timeuuid.bound(snapshot.position)
    assert "snapshot" in repr(first[60, 1])


def test_a_static_row_comes_once_if_pages_divide_its_partition(
    reader: CdcReader, execute: Execute
) -> None:
    """A static row is delivered once, even if its partition spans several pages.

    Reads of several ranges alternate, so the current partition is tracked for each range.
    """
    execute(*[f"INSERT INTO {{t}} (pk, ck, s) VALUES ({n % 9}, {n}, {n})" for n in range(60)])
    found = by_key(reader.snapshot().changes())
    assert sum(change.is_static for change in found.values()) == 10


def test_deliveries_resume_from_a_checkpoint(reader: CdcReader) -> None:
    """A read from a checkpoint delivers only the remaining rows.

    The checkpoint of a complete snapshot is rejected.
    """
    snapshot, found = reader.snapshot(), list[SnapshotRows]()
    deliveries = snapshot.deliveries()
    while isinstance(end := next(deliveries), SnapshotRows) or not end.rows:
        if isinstance(end, SnapshotRows):
            found.append(end)
    rest = reader.table.snapshot(end.checkpoint)
    assert rest.position == snapshot.position
    rows = [each for each in found if each.reading == end.reading]
    assert sum(each.batch.num_rows for each in rows) == end.rows
    again = sum(each.batch.num_rows for each in rest.deliveries() if isinstance(each, SnapshotRows))
    assert again <= 22 - end.rows
    assert rest.share.share == 1.0
    with pytest.raises(CheckpointError, match="completed before this checkpoint"):
        reader.table.snapshot(evolve(end.checkpoint, snapshot=None))


def test_stop_raises_stopped_error(reader: CdcReader) -> None:
    """After `stop`, the read raises StoppedError, because its rows are incomplete."""
    batches = reader.snapshot().batches()
    next(batches)
    reader.stop()
    with pytest.raises(StoppedError):
        list(batches)
    assert reader.snapshot().change_batches().read_all().num_rows == 23


def test_a_table_without_clustering(
    connection: ConnectionConfig, keyspace: str, execute: Execute
) -> None:
    """Without clustering columns, each partition is one row, which is not static."""
    execute(
        f"CREATE TABLE {{t}} (pk text PRIMARY KEY, v int) WITH cdc = {FULL}",
        *[f"INSERT INTO {{t}} (pk, v) VALUES ('{n}', {n})" for n in range(12)],
    )
    with CdcReader(connection, f"{keyspace}.t", config=SMALL_PAGES) as reader:
        found = by_key(reader.snapshot().changes())
    assert {key: change.after for key, change in found.items()} == {
        (str(n),): {"v": n} for n in range(12)
    }
    assert not any(change.is_static for change in found.values())


def test_cells_keep_their_write_times(reader: CdcReader, execute: Execute) -> None:
    """Cells with the same write time form one part of a change. The latest part is the insert."""
    now = time.time_ns() // 1_000
    execute(
        f"INSERT INTO {{t}} (pk, ck, v, w) VALUES (80, 1, 1, 'a') USING TIMESTAMP {now}",
        f"UPDATE {{t}} USING TIMESTAMP {now + 5} SET v = 2 WHERE pk = 80 AND ck = 1",
        "INSERT INTO {t} (pk, ck) VALUES (81, 1)",
    )
    found = by_key(reader.snapshot().changes())
    parts = [
        (part.operation.name, part.timestamp, dict(part.deltas)) for part in found[80, 1].parts
    ]
    assert parts == [("INSERT", now + 5, {"v": Assigned(2)}), ("UPDATE", now, {"w": Assigned("a")})]
    [marker] = found[81, 1].parts
    assert (marker.timestamp, marker.deltas) == (None, {})
    told = json.loads(json.dumps(found[80, 1].to_dict()))
    assert [part["timestamp"] for part in told["parts"]] == [now + 5, now]

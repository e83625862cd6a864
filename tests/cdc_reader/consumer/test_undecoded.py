"""Values that cannot be decoded: they stop a consumer, or go to its dead letters."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from cdc_reader import AsyncChanges, CdcConsumer, CdcReader, Change, ChangeFormat, ConsumerConfig
from cdc_reader._time import SystemClock
from cdc_reader.checkpoints import MemoryCheckpoints
from cdc_reader.config import ReadConfig
from cdc_reader.cql.names import TableName
from cdc_reader.decoding import Page
from cdc_reader.decoding.tolerant import decode_tolerantly
from cdc_reader.errors import ColumnDecodeError
from cdc_reader.metrics import HANDLER_ERRORS, MemoryMetrics
from cdc_reader.reading.delivery import RowsRead
from cdc_reader.testing import EmbeddedScylla
from cdc_reader.testing.embedded.storage.cell import Cell

READ = ReadConfig(confidence_window="0s")
BAD = b"\x01\x02\x03"
KEYSPACE = (
    "CREATE KEYSPACE ks WITH replication = "
    "{'class': 'NetworkTopologyStrategy', 'replication_factor': 1}"
)


@pytest.fixture
def server() -> Iterator[EmbeddedScylla]:
    """A server with ten rows, of which two have values that no client could have written."""
    with EmbeddedScylla() as server:
        server.execute(KEYSPACE)
        server.execute(
            "CREATE TABLE ks.t (p int, c int, v int, PRIMARY KEY (p, c)) "
            "WITH cdc = {'enabled': true, 'postimage': true}"
        )
        for c in range(10):
            server.execute(f"INSERT INTO ks.t (p, c, v) VALUES ({c % 2}, {c}, {c})")
        for name in ("t", "t_scylla_cdc_log"):
            corrupt(server, name, "c", {3, 4})
        yield server


def corrupt(
    server: EmbeddedScylla, name: str, by: str, numbers: set[int], *, column: str = "v"
) -> None:
    """Replace the values of a column in the rows with these numbers in the column `by`."""
    keys = {number.to_bytes(4, "big") for number in numbers}
    for _, partition in server.database.partitions(server.catalog.table("ks", name)):
        for row in partition.rows.values():
            own, cell = row.cells.get(by), row.cells.get(column)
            found = own.value if isinstance(own, Cell) else row.key[0]
            if found in keys and isinstance(cell, Cell):
                row.cells[column] = Cell(cell.timestamp, BAD)


def consumer(server: EmbeddedScylla, handler: Any, **options: Any) -> CdcConsumer:
    """Return a consumer that reads up to the current time."""
    settings: dict[str, Any] = {
        "application": "app",
        "read": READ,
        "checkpoints": MemoryCheckpoints(),
        "end": SystemClock().now(),
    }
    return CdcConsumer(server.contact_point, "ks.t", handler, **(settings | options))


@pytest.mark.parametrize("snapshot", [None, "initial"])
@pytest.mark.parametrize("workers", [1, 2])
def test_such_changes_are_dead_letters(
    server: EmbeddedScylla, snapshot: str | None, workers: int
) -> None:
    """The dead letter has the bytes, also after pickling; the handler gets all other changes."""
    handled: list[int] = []
    dead: list[tuple[Change, Exception]] = []
    metrics = MemoryMetrics()
    consumer(
        server,
        lambda change: handled.append(change.key["c"]),
        dead_letter=lambda *letter: dead.append(letter),
        snapshot=snapshot or "none",
        config=ConsumerConfig(workers=workers),
        metrics=metrics,
    ).run()
    assert sorted(handled) == [0, 1, 2, 5, 6, 7, 8, 9]
    assert sorted(change.key["c"] for change, _ in dead) == [3, 4]
    for change, error in dead:
        for each in (change, pickle.loads(pickle.dumps(change))):
            assert each.undecoded == {"v": "0x010203"}
            assert each.to_dict()["undecoded"] == {"v": "0x010203"}
        assert isinstance(error, ColumnDecodeError)
        assert "010203" not in str(error)
    assert metrics[HANDLER_ERRORS, TableName("ks", "t")] == 2


def test_without_dead_letters_the_consumer_ends(server: EmbeddedScylla) -> None:
    """The error names the change and the column, and says what to do. Nothing is lost."""
    handled: list[int] = []
    store = MemoryCheckpoints()

    def run(**options: Any) -> None:
        consumer(
            server, lambda change: handled.append(change.key["c"]), checkpoints=store, **options
        ).run()

    message = (
        r"insert of ks\.t \{'p': ., 'c': [34]\} .* cannot be decoded: column v holds 3 bytes that "
        r"are no int for Arrow; in a consumer, give dead_letter"
    )
    with pytest.raises(ColumnDecodeError, match=message):
        run()
    with pytest.raises(ColumnDecodeError, match=message):
        run()
    run(config=ConsumerConfig(on_error="skip"))
    assert set(handled) == {0, 1, 2, 5, 6, 7, 8, 9}


def test_changes_for_async_for_end_with_an_error(server: EmbeddedScylla) -> None:
    """`AsyncChanges` has no dead letters, and yields no change with a value missing."""
    changes = AsyncChanges(
        server.contact_point,
        "ks.t",
        application="app",
        read=READ,
        checkpoints=MemoryCheckpoints(),
        end=SystemClock().now(),
    )

    async def read() -> None:
        async for change in changes:
            assert not change.undecoded

    with pytest.raises(ColumnDecodeError, match="column v of type int"):
        asyncio.run(read())


def test_a_bad_clustering_key_hides_no_good_value(server: EmbeddedScylla) -> None:
    """A change with a bad clustering key is of a row, not of static columns, and has its values."""
    dead: list[Change] = []
    corrupt(server, "t_scylla_cdc_log", "v", {7}, column="c")
    consumer(server, lambda _change: None, dead_letter=lambda change, _: dead.append(change)).run()
    [found] = [change for change in dead if "c" in change.undecoded]
    for each in (found, pickle.loads(pickle.dumps(found))):
        assert (each.is_static, dict(each.key)) == (False, {"p": 1, "c": None})
        assert each.after == {"v": 7}
        assert each.undecoded == {"c": "0x010203"}


def test_a_type_that_gains_a_field_during_a_snapshot_is_no_fault(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The bytes of a value may be newer than the type that was read: the range is read again."""
    newer = b"".join(number.to_bytes(4, "big") for number in (4, 1, 4, 99))
    handled: dict[int, object] = {}
    with EmbeddedScylla() as server:
        server.execute(KEYSPACE)
        server.execute("CREATE TYPE ks.u (a int)")
        server.execute(
            "CREATE TABLE ks.t (p int PRIMARY KEY, v frozen<u>) WITH cdc = {'enabled': true}"
        )
        server.execute("INSERT INTO ks.t (p, v) VALUES (1, {a: 1})")
        for _, partition in server.database.partitions(server.catalog.table("ks", "t")):
            for row in partition.rows.values():
                row.cells["v"] = Cell(1, newer)

        def decoded(page: Page) -> pa.RecordBatch:
            if newer in bytes(page.body) and not altered:
                altered.append(server.execute("ALTER TYPE ks.u ADD b int"))
            return decode_tolerantly(page)

        altered: list[object] = []
        monkeypatch.setattr("cdc_reader.cluster.queries.decode_tolerantly", decoded)
        consumer(
            server,
            lambda change: handled.update({change.key["p"]: change.after["v"]}),
            snapshot="initial",
        ).run()
    assert altered
    assert handled == {1: {"a": 1, "b": 99}}


def test_formats_that_follow_a_table_skip_or_quarantine_them(server: EmbeddedScylla) -> None:
    """`on_bad_record` decides in `follow_change_batches`, as in bounded reads."""
    end = SystemClock().now()
    with CdcReader(server.contact_point, "ks.t", config=READ) as reader:
        numbers = {}
        for policy in ("skip", "quarantine"):
            wanted = ChangeFormat(on_bad_record=policy)
            found = reader.follow_change_batches("-1h", end, wanted)
            rows = [
                row
                for delivery in found
                if isinstance(delivery, RowsRead)
                for row in delivery.batch.to_pylist()
            ]
            numbers[policy] = {row["c"]: row.get("_bad_record") is not None for row in rows}
    assert set(numbers["skip"]) == {0, 1, 2, 5, 6, 7, 8, 9}
    assert [c for c, is_bad in sorted(numbers["quarantine"].items()) if is_bad] == [3, 4]

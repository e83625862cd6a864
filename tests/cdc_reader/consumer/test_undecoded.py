"""Values that cannot be decoded: they stop a consumer, or go to its dead letters."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any

import pytest

from cdc_reader import CdcConsumer, CdcReader, Change, ChangeFormat, ConsumerConfig
from cdc_reader._time import SystemClock
from cdc_reader.checkpoints import MemoryCheckpoints
from cdc_reader.config import ReadConfig
from cdc_reader.cql.names import TableName
from cdc_reader.errors import ColumnDecodeError
from cdc_reader.metrics import HANDLER_ERRORS, MemoryMetrics
from cdc_reader.reading.delivery import RowsRead
from cdc_reader.testing import EmbeddedScylla
from cdc_reader.testing.embedded.storage.cell import Cell

READ = ReadConfig(confidence_window="0s")
BAD = b"\x01\x02\x03"


@pytest.fixture
def server() -> Iterator[EmbeddedScylla]:
    """A server with ten rows, of which two have values that no client could have written."""
    with EmbeddedScylla() as server:
        server.execute(
            "CREATE KEYSPACE ks WITH replication = "
            "{'class': 'NetworkTopologyStrategy', 'replication_factor': 1}"
        )
        server.execute(
            "CREATE TABLE ks.t (p int, c int, v int, PRIMARY KEY (p, c)) "
            "WITH cdc = {'enabled': true, 'postimage': true}"
        )
        for c in range(10):
            server.execute(f"INSERT INTO ks.t (p, c, v) VALUES ({c % 2}, {c}, {c})")
        for name in ("t", "t_scylla_cdc_log"):
            corrupt(server, name, "c", {3, 4})
        yield server


def corrupt(server: EmbeddedScylla, name: str, column: str, numbers: set[int]) -> None:
    """Replace the values of column `v` in the rows with these numbers."""
    table = server.catalog.table("ks", name)
    keys = {number.to_bytes(4, "big") for number in numbers}
    for _, partition in server.database.partitions(table):
        for row in partition.rows.values():
            c, v = row.cells.get(column), row.cells.get("v")
            found = c.value if isinstance(c, Cell) else row.key[0]
            if found in keys and isinstance(v, Cell):
                row.cells["v"] = Cell(v.timestamp, BAD)


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

    message = r"insert of ks\.t \{'p': ., 'c': [34]\} .* cannot be decoded, in v: give dead_letter"
    with pytest.raises(ColumnDecodeError, match=message):
        run()
    with pytest.raises(ColumnDecodeError, match=message):
        run()
    run(config=ConsumerConfig(on_error="skip"))
    assert set(handled) == {0, 1, 2, 5, 6, 7, 8, 9}


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

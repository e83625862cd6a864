"""Reads on a machine whose clock is days behind the cluster's, or minutes ahead."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest

from cdc_reader import (
    CdcConsumer,
    CdcReader,
    ChangeFormat,
    ConnectionConfig,
    MemoryCheckpoints,
    ReadConfig,
)
from cdc_reader.cql.names import TableName
from cdc_reader.errors import DataLossError
from cdc_reader.metrics import HEADROOM, LAG, MemoryMetrics
from cdc_reader.reading.delivery import RowsRead
from cdc_reader.reading.snapshot import SnapshotRows
from cdc_reader.testing import EmbeddedScylla, ManualClock
from tests.cdc_reader.support.wrong_clock import WrongClock

WITH_DELTA = ChangeFormat(include_delta=True)
SECOND = 1_000_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
DAY = 24 * HOUR
STRICT = ReadConfig(data_loss="fail")
TABLE = TableName("ks", "t")
WRONG = [-30 * DAY, -DAY, -10 * MINUTE, 10 * MINUTE, 30 * DAY]


@pytest.fixture
def server(clock: ManualClock) -> Iterator[EmbeddedScylla]:
    """A server with a table whose log keeps rows for a day. Ten rows were written an hour ago."""
    with EmbeddedScylla(clock=clock, ring_delay_ms=0) as server:
        server.execute(
            "CREATE KEYSPACE ks WITH replication = "
            "{'class': 'NetworkTopologyStrategy', 'replication_factor': 1}"
            " AND tablets = {'enabled': false}"
        )
        server.execute("CREATE TABLE ks.t (p int PRIMARY KEY) WITH cdc = {'enabled': true}")
        clock.advance(MINUTE)
        _insert(server, range(10))
        clock.advance(HOUR)
        yield server


def _insert(server: EmbeddedScylla, keys: Iterable[int]) -> None:
    for key in keys:
        server.execute(f"INSERT INTO ks.t (p) VALUES ({key})")


@pytest.fixture
def open_reader(server: EmbeddedScylla) -> Iterator[Callable[[WrongClock], CdcReader]]:
    """A function that opens readers of the table on a machine with the given clock."""
    opened: list[CdcReader] = []

    def make(own: WrongClock) -> CdcReader:
        connection = ConnectionConfig(server.contact_point)
        opened.append(CdcReader(connection, "ks.t", config=STRICT, clock=own))
        return opened[-1]

    yield make
    for reader in opened:
        reader.close()


def _complete(server: EmbeddedScylla) -> None:
    server.complete_publication()


def _consume(server: EmbeddedScylla, own: WrongClock, **options: Any) -> list[int]:
    """Return the keys that a consumer handles up to its end."""
    found: list[int] = []
    CdcConsumer(
        ConnectionConfig(server.contact_point),
        "ks.t",
        lambda change: found.append(change.key["p"]),
        application="a",
        checkpoints=MemoryCheckpoints(),
        read=STRICT,
        clock=own,
        **options,
    ).run()
    return found


def _followed(reader: CdcReader, start: Any, end: Any) -> list[int]:
    found = [each.batch for each in reader.follow(start, end) if isinstance(each, RowsRead)]
    return [key for batch in found for key in batch["p"].to_pylist()]


READS: dict[str, Callable[[CdcReader, Any, Any], list[int]]] = {
    "changes": lambda reader, *window: [each.key["p"] for each in reader.changes(*window)],
    "batches": lambda reader, *window: [
        key for batch in reader.batches(*window) for key in batch["p"].to_pylist()
    ],
    "change_batches": lambda reader, *window: (
        reader.change_batches(*window, format=WITH_DELTA).read_all()["p"].to_pylist()
    ),
    "follow": _followed,
    "follow_changes": lambda reader, *window: [
        each.key["p"] for each in reader.follow_changes(*window)
    ],
}


@pytest.mark.parametrize("ahead", WRONG)
@pytest.mark.parametrize("start", [None, pytest.param("-2h", marks=pytest.mark.slow)])
@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_every_read_has_the_rows(
    clock: ManualClock,
    open_reader: Callable[[WrongClock], CdcReader],
    read: Callable[[CdcReader, Any, Any], list[int]],
    start: str | None,
    ahead: int,
) -> None:
    """Relative times and the expiry of rows follow the cluster's clock in each kind of read.

    A read up to now does not wait until the machine's clock shows the right time.
    """
    own = WrongClock(clock, ahead)
    assert sorted(read(open_reader(own), start, "now")) == list(range(10))
    assert own.slept <= 5 * MINUTE


@pytest.mark.parametrize("ahead", WRONG)
def test_a_consumer_has_the_rows(server: EmbeddedScylla, clock: ManualClock, ahead: int) -> None:
    """A consumer's start, end, lag and headroom follow the cluster's clock."""
    own, metrics = WrongClock(clock, ahead), MemoryMetrics()
    found = _consume(server, own, start="-2h", end="now", metrics=metrics)
    assert sorted(found) == list(range(10))
    assert own.slept <= 5 * MINUTE
    assert 0 <= metrics[LAG, TABLE] < 600
    assert 86_400 - 7_200 <= metrics[HEADROOM, TABLE] <= 86_400


@pytest.mark.parametrize("ahead", WRONG)
def test_a_snapshot_has_its_position_by_the_clusters_clock(
    clock: ManualClock, open_reader: Callable[[WrongClock], CdcReader], ahead: int
) -> None:
    """A snapshot's position is one confidence window before now by the cluster's clock."""
    reader = open_reader(WrongClock(clock, ahead))
    snapshot = reader.snapshot()
    assert snapshot.position == clock.now() - 30 * SECOND
    rows = reader.table.follow_change_batches(snapshot.checkpoint, "now", format=WITH_DELTA)
    found = [each.batch for each in rows if isinstance(each, SnapshotRows)]
    assert sum(batch.num_rows for batch in found) == 10


@pytest.mark.parametrize("read", ["follow", "consumer"])
def test_rows_that_settle_late(
    server: EmbeddedScylla,
    clock: ManualClock,
    open_reader: Callable[[WrongClock], CdcReader],
    read: str,
) -> None:
    """Even if the machine's clock is ahead, windows do not end before their rows could arrive."""
    start, written = clock.now(), iter(range(10, 40))

    def write() -> None:
        _insert(server, [key for key in [next(written, None)] if key is not None])

    own = WrongClock(clock, 10 * MINUTE, on_sleep=write)
    end = start + 3 * MINUTE
    if read == "consumer":
        found = _consume(server, own, start=start, end=end)
    else:
        found = READS[read](open_reader(own), start, end)
    due = [c.key["p"] for c in open_reader(WrongClock(clock, 0)).changes(start, end)]
    assert len(due) > 10
    assert sorted(found) == sorted(due)


@pytest.mark.parametrize("ahead", [-30 * DAY, -DAY])
def test_rows_that_expired(
    server: EmbeddedScylla,
    clock: ManualClock,
    open_reader: Callable[[WrongClock], CdcReader],
    ahead: int,
) -> None:
    """A machine's clock that is behind does not hide a loss of rows."""
    del server
    position = clock.now() - 2 * HOUR
    clock.advance(2 * DAY)
    for read in READS.values():
        with pytest.raises(DataLossError, match="expired before"):
            read(open_reader(WrongClock(clock, ahead)), position + DAY // 100, None)


@pytest.mark.parametrize("read", ["changes", "batches", "change_batches"])
def test_a_generation_that_is_not_announced(
    server: EmbeddedScylla,
    clock: ManualClock,
    open_reader: Callable[[WrongClock], CdcReader],
    read: str,
) -> None:
    """A bounded read waits for a generation that is far in the future by the machine's clock."""
    server.hold_publication(rows=1)
    server.join(vnodes=3)
    clock.advance(MINUTE)
    _insert(server, range(10, 20))
    clock.advance(MINUTE)
    own = WrongClock(clock, -HOUR, on_sleep=lambda: _complete(server))
    assert sorted(READS[read](open_reader(own), "-5m", None)) == list(range(10, 20))
    assert own.slept > 0

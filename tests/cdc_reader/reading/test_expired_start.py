"""Each kind of read reports a start whose rows have expired."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from attrs import evolve
from cassandra import InvalidRequest
from cassandra.cluster import ResponseFuture

from cdc_reader import CdcReader, ChangeFormat, ConnectionConfig, ReadConfig
from cdc_reader._time import Clock
from cdc_reader.cluster.connection import Connection
from cdc_reader.cluster.queries import Query
from cdc_reader.errors import DataLossError, TableNotFoundError
from cdc_reader.reading.delivery import RowsRead, WindowComplete
from cdc_reader.testing import EmbeddedScylla, ManualClock
from tests.cdc_reader.support.ticking import Ticking
from tests.cdc_reader.support.tuned import tuned, tuning_of_module

SECOND = 1_000_000
HOUR = 3_600 * SECOND
STRICT = ReadConfig(data_loss="fail")

WITH_DELTA = ChangeFormat(include_delta=True)
READS: dict[str, Callable[[CdcReader, Any], Iterable[Any]]] = {
    "batches": lambda reader, start: reader.batches(start),
    "change_batches": lambda reader, start: reader.change_batches(start, format=WITH_DELTA),
    "changes": lambda reader, start: reader.changes(start),
    "follow_changes": lambda reader, start: reader.follow_changes(start, "now"),
}


@pytest.fixture
def server(clock: ManualClock) -> Iterator[EmbeddedScylla]:
    """A server with a table whose log keeps rows for an hour."""
    with EmbeddedScylla(clock=clock, ring_delay_ms=0) as server:
        server.execute(
            "CREATE KEYSPACE ks WITH replication = "
            "{'class': 'NetworkTopologyStrategy', 'replication_factor': 1}"
        )
        server.execute(
            "CREATE TABLE ks.t (p int PRIMARY KEY) WITH cdc = {'enabled': true, 'ttl': 3600}"
        )
        clock.advance(60 * SECOND)
        yield server


@pytest.fixture
def open_reader(server: EmbeddedScylla, clock: ManualClock) -> Iterator[Callable[..., CdcReader]]:
    """A function that opens readers of the table."""
    opened: list[CdcReader] = []

    def make(config: ReadConfig = STRICT, own: Clock = clock) -> CdcReader:
        connection = ConnectionConfig(server.contact_point)
        opened.append(CdcReader(connection, "ks.t", config=config, clock=own))
        return opened[-1]

    yield make
    for reader in opened:
        reader.close()


@contextmanager
def without_log(server: EmbeddedScylla) -> Iterator[None]:
    """Drop the table's log during the block, and create it again afterwards."""
    server.execute("ALTER TABLE ks.t WITH cdc = {'enabled': false}")
    server.execute("DROP TABLE ks.t_scylla_cdc_log")
    yield
    server.execute("ALTER TABLE ks.t WITH cdc = {'enabled': true, 'ttl': 3600}")


@pytest.mark.parametrize("read", READS.values(), ids=READS)
@pytest.mark.parametrize("ttl", [3_600, 86_400])
def test_rows_since_a_snapshot_that_expired(
    server: EmbeddedScylla,
    clock: ManualClock,
    open_reader: Callable[..., CdcReader],
    read: Callable[[CdcReader, Any], Iterable[Any]],
    ttl: int,
) -> None:
    """Expired rows that were written after a snapshot are reported, even if the TTL was raised."""
    reader = open_reader()
    position = reader.snapshot().position
    server.execute("INSERT INTO ks.t (p) VALUES (1)")
    clock.advance(2 * HOUR)
    server.execute(f"ALTER TABLE ks.t WITH cdc = {{'enabled': true, 'ttl': {ttl}}}")
    with pytest.raises(DataLossError, match=r"rows of ks\.t written in .* expired before"):
        list(read(reader, position))


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_warn_logs_the_loss_and_continues(
    server: EmbeddedScylla,
    clock: ManualClock,
    open_reader: Callable[..., CdcReader],
    caplog: pytest.LogCaptureFixture,
    read: Callable[[CdcReader, Any], Iterable[Any]],
) -> None:
    """With `continue`, the loss is logged once and the remaining rows are read."""
    position = clock.now()
    server.execute("INSERT INTO ks.t (p) VALUES (1)")
    clock.advance(2 * HOUR)
    server.execute("INSERT INTO ks.t (p) VALUES (2)")
    clock.advance(60 * SECOND)
    assert len(list(read(open_reader(ReadConfig(data_loss="continue")), position))) == 1
    assert caplog.text.count("rows_lost") == 1


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_a_log_created_again_during_a_read(
    server: EmbeddedScylla,
    clock: ManualClock,
    open_reader: Callable[..., CdcReader],
    read: Callable[[CdcReader, Any], Iterable[Any]],
) -> None:
    """A read reports the rows that are missing because the log was recreated during the read."""
    for p in range(50):
        server.execute(f"INSERT INTO ks.t (p) VALUES ({p})")
    clock.advance(60 * SECOND)
    with tuned(streams_per_query=1):
        rows = iter(read(open_reader(STRICT_PAGES), "-10m"))
        next(rows)
    with without_log(server):
        pass
    with pytest.raises(DataLossError, match="the log was dropped, and created again"):
        list(rows)


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_a_query_while_a_log_is_created_again(
    server: EmbeddedScylla,
    clock: ManualClock,
    open_reader: Callable[..., CdcReader],
    monkeypatch: pytest.MonkeyPatch,
    read: Callable[[CdcReader, Any], Iterable[Any]],
) -> None:
    """A query that is refused because the log is being recreated raises DataLossError, too."""
    for p in range(50):
        server.execute(f"INSERT INTO ks.t (p) VALUES ({p})")
    clock.advance(60 * SECOND)
    send = Connection._send
    refused: list[ResponseFuture] = []

    def send_too_early(connection: Connection, query: Query, *values: Any) -> ResponseFuture:
        """Send the first query for rows of the log while the log does not exist."""
        if refused or query.doing != "reading ks.t_scylla_cdc_log":
            return send(connection, query, *values)
        with without_log(server), suppress(InvalidRequest):
            refused.append(send(connection, query, *values))
            refused[0].result()
        return refused[0]

    with monkeypatch.context() as patched:
        patched.setattr(Connection, "_send", send_too_early)
        with pytest.raises(DataLossError, match="the log was dropped, and created again"):
            list(read(open_reader(), "-10m"))


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_a_log_created_again_between_two_reads(
    server: EmbeddedScylla,
    clock: ManualClock,
    open_reader: Callable[..., CdcReader],
    read: Callable[[CdcReader, Any], Iterable[Any]],
) -> None:
    """A read reports that the log was recreated since the previous read.

    This holds even if the clock of the node that created the log is behind.
    """
    server.execute("INSERT INTO ks.t (p) VALUES (1)")
    clock.advance(60 * SECOND)
    reader = open_reader(ReadConfig(data_loss="fail"))
    assert len(list(read(reader, "-10m"))) == 1
    server.skew_clock(server.nodes[0], -HOUR)
    with without_log(server):
        pass
    with pytest.raises(DataLossError, match="the log was dropped, and created again"):
        list(read(reader, "-10m"))


@pytest.mark.parametrize("read", READS.values(), ids=READS)
@pytest.mark.parametrize("start", [None, "earliest", "-30m"])
def test_no_loss(
    server: EmbeddedScylla,
    clock: ManualClock,
    open_reader: Callable[..., CdcReader],
    read: Callable[[CdcReader, Any], Iterable[Any]],
    start: str | None,
) -> None:
    """No row is missing if there is no start, or if the start is less than one TTL ago."""
    clock.advance(2 * HOUR)
    server.execute("INSERT INTO ks.t (p) VALUES (2)")
    clock.advance(60 * SECOND)
    assert len(list(read(open_reader(), start))) == 1


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_a_start_before_the_table(
    server: EmbeddedScylla,
    clock: ManualClock,
    open_reader: Callable[..., CdcReader],
    read: Callable[[CdcReader, Any], Iterable[Any]],
) -> None:
    """A start before the table existed causes no loss if the log is younger than its TTL."""
    server.execute("INSERT INTO ks.t (p) VALUES (1)")
    clock.advance(HOUR // 2)
    assert len(list(read(open_reader(), "-7d"))) == 1


def test_rows_with_a_write_time_before_the_table(
    server: EmbeddedScylla, clock: ManualClock, open_reader: Callable[..., CdcReader]
) -> None:
    """Lost rows with write times before the table existed are reported like any other loss.

    This holds even if the read ends at a time before the table was created.
    """
    server.execute("DROP TABLE ks.t")
    clock.advance(300 * SECOND)
    server.execute(
        "CREATE TABLE ks.t (p int PRIMARY KEY) WITH cdc = {'enabled': true, 'ttl': 3600}"
    )
    made = clock.now()
    server.execute(f"INSERT INTO ks.t (p) VALUES (1) USING TIMESTAMP {made - 30 * SECOND}")
    clock.advance(HOUR // 2)
    span = made - 50 * SECOND, made - 10 * SECOND
    [batch] = open_reader().batches(*span)
    assert batch["p"].to_pylist() == [1]
    clock.advance(2 * HOUR)
    with pytest.raises(DataLossError, match=r"rows of ks\.t written in .* expired before"):
        list(open_reader().batches(*span))
    assert list(open_reader().batches(made - 200 * SECOND, made - 100 * SECOND)) == []


def test_a_complete_snapshot_is_resumed_too_late(
    clock: ManualClock, open_reader: Callable[..., CdcReader]
) -> None:
    """The checkpoint of a complete snapshot is checked like any other checkpoint.

    This checkpoint contains no generation yet.
    """
    table = open_reader().table
    rows = table._snapshot_reader(table.begin_snapshot(), lambda: None, tolerant=False)
    list(rows.deliveries())
    clock.advance(2 * HOUR)
    with pytest.raises(DataLossError, match="expired before they were read"):
        list(table.follow(rows.complete, "now"))


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_a_table_that_was_dropped(
    server: EmbeddedScylla,
    open_reader: Callable[..., CdcReader],
    read: Callable[[CdcReader, Any], Iterable[Any]],
) -> None:
    """The error says that the table was dropped, instead of showing the server's message."""
    reader = open_reader()
    list(read(reader, None))
    server.execute("DROP TABLE ks.t")
    with pytest.raises(
        TableNotFoundError, match=r"^table ks\.t was not found: it has been dropped"
    ):
        list(read(reader, None))


def follow_slowly(reader: CdcReader, clock: ManualClock, start: Any) -> list[int]:
    """Follow the log, but pause for 40 minutes after two rows."""
    found: list[int] = []
    is_late = False
    for delivery in reader.table.follow(start, "now"):
        if isinstance(delivery, RowsRead):
            found += delivery.batch.column("p").to_pylist()
        elif len(found) >= 2 and not is_late:
            clock.advance(40 * 60 * SECOND)
            is_late = True
    return found


def write_for_50_minutes(server: EmbeddedScylla, clock: ManualClock) -> None:
    """Write one row per minute."""
    for number in range(50):
        server.execute(f"INSERT INTO ks.t (p) VALUES ({number})")
        clock.advance(60 * SECOND)


@pytest.mark.parametrize("start", ["earliest", "-55m"])
def test_rows_that_expire_while_a_log_is_followed(
    server: EmbeddedScylla,
    clock: ManualClock,
    open_reader: Callable[..., CdcReader],
    caplog: pytest.LogCaptureFixture,
    start: str,
) -> None:
    """Rows that expire while a log is followed are reported at once, not at the next start."""
    write_for_50_minutes(server, clock)
    with pytest.raises(DataLossError, match=r"rows of ks\.t written in .* expired before"):
        follow_slowly(open_reader(), clock, start)
    clock.advance(2 * HOUR)
    write_for_50_minutes(server, clock)
    with caplog.at_level("WARNING"):
        found = follow_slowly(open_reader(ReadConfig(data_loss="continue")), clock, start)
    assert 2 <= len(found) < 50
    assert "rows_lost" in caplog.text


@pytest.mark.parametrize("start", ["earliest", "-55m"])
def test_rows_that_are_read_in_time(
    server: EmbeddedScylla,
    clock: ManualClock,
    open_reader: Callable[..., CdcReader],
    start: str,
) -> None:
    """A reader that stays ahead of expiry reports no loss."""
    write_for_50_minutes(server, clock)
    found = [
        number
        for delivery in open_reader().table.follow(start, "now")
        if isinstance(delivery, RowsRead)
        for number in delivery.batch.column("p").to_pylist()
    ]
    assert sorted(found) == list(range(50))


def read_slowly(
    read: Callable[[CdcReader, Any], Iterable[Any]],
    reader: CdcReader,
    clock: ManualClock,
    start: str,
) -> int:
    """Read the log with a pause of 40 minutes after the first row. Return the number of rows."""
    found = 0
    for _ in read(reader, start):
        clock.advance(0 if found else 40 * 60 * SECOND)
        found += 1
    return found


BOUNDED = {name: read for name, read in READS.items() if name != "follow_changes"}
PAGES = ReadConfig(fetch_size=1, data_loss="continue")
STRICT_PAGES = ReadConfig(fetch_size=1, data_loss="fail")

one_by_one = tuning_of_module(in_flight=1)


@pytest.mark.parametrize("read", BOUNDED.values(), ids=BOUNDED)
@pytest.mark.parametrize("start", ["earliest", "-55m"])
def test_rows_that_expire_during_a_bounded_read(
    server: EmbeddedScylla,
    clock: ManualClock,
    open_reader: Callable[..., CdcReader],
    caplog: pytest.LogCaptureFixture,
    read: Callable[[CdcReader, Any], Iterable[Any]],
    start: str,
) -> None:
    """If rows expire during a bounded read, the loss is reported after the remaining rows."""
    write_for_50_minutes(server, clock)
    with pytest.raises(DataLossError, match=r"rows of ks\.t written in .* expired before"):
        read_slowly(read, open_reader(STRICT_PAGES), clock, start)
    clock.advance(2 * HOUR)
    write_for_50_minutes(server, clock)
    with caplog.at_level("WARNING"):
        found = read_slowly(read, open_reader(PAGES), clock, start)
    assert found < 50
    assert caplog.text.count("rows_lost") == 1


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_what_the_log_still_holds(
    server: EmbeddedScylla,
    clock: ManualClock,
    open_reader: Callable[..., CdcReader],
    read: Callable[[CdcReader, Any], Iterable[Any]],
) -> None:
    """A read from the oldest row of an old log reports no loss, even if rows expire meanwhile."""
    for _ in range(2):
        write_for_50_minutes(server, clock)
    ticking = Ticking(clock, SECOND // 10)
    reader = open_reader(STRICT_PAGES, ticking)
    found = len(list(read(reader, None)))
    assert ticking.ticks
    assert 50 < found <= 61


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_a_start_before_the_table_and_a_long_read(
    server: EmbeddedScylla,
    clock: ManualClock,
    open_reader: Callable[..., CdcReader],
    read: Callable[[CdcReader, Any], Iterable[Any]],
) -> None:
    """A start before the table existed causes no loss in a long read: no rows existed then."""
    for number in range(3):
        server.execute(f"INSERT INTO ks.t (p) VALUES ({number})")
        clock.advance(60 * SECOND)
    reader = open_reader(STRICT_PAGES)
    assert read_slowly(read, reader, clock, "-30m") == 3


def test_a_position_at_which_rows_begin_to_expire(
    server: EmbeddedScylla,
    clock: ManualClock,
    open_reader: Callable[..., CdcReader],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """If rows may have expired when a read begins, they are reported once that is certain."""
    reader = open_reader()
    *_, last = reader.table.follow("earliest", "now")
    assert isinstance(last, WindowComplete)
    server.execute("INSERT INTO ks.t (p) VALUES (1)")
    clock.advance(HOUR + 25 * SECOND)
    with pytest.raises(DataLossError, match="expired before they were read"):
        list(open_reader().table.follow(last.checkpoint, "now"))
    lenient = open_reader(ReadConfig(data_loss="continue"))
    assert not any(
        isinstance(each, RowsRead) for each in lenient.table.follow(last.checkpoint, "now")
    )
    assert "rows_lost" in caplog.text


@pytest.mark.parametrize("read", READS.values(), ids=READS)
@pytest.mark.parametrize("late", [0, 5, 30, 59, 61])
def test_a_moment_at_which_rows_begin_to_expire(
    server: EmbeddedScylla,
    clock: ManualClock,
    open_reader: Callable[..., CdcReader],
    read: Callable[[CdcReader, Any], Iterable[Any]],
    late: int,
) -> None:
    """A read whose start is at least one TTL ago raises DataLossError: rows may have expired."""
    start = datetime.fromtimestamp(clock.now() / SECOND, UTC)
    server.execute("INSERT INTO ks.t (p) VALUES (1)")
    clock.advance(HOUR + late * SECOND)
    with pytest.raises(DataLossError, match="expired before they were read"):
        list(read(open_reader(), start))


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_what_a_log_of_a_minute_still_holds(
    server: EmbeddedScylla,
    clock: ManualClock,
    open_reader: Callable[..., CdcReader],
    read: Callable[[CdcReader, Any], Iterable[Any]],
) -> None:
    """With a TTL of a minute, a read from the oldest row can take half a minute without a loss."""
    server.execute("ALTER TABLE ks.t WITH cdc = {'enabled': true, 'ttl': 60}")
    clock.advance(700 * SECOND)
    server.execute("INSERT INTO ks.t (p) VALUES (1)")
    config = evolve(STRICT, confidence_window=timedelta(0))
    assert len(list(read(open_reader(config, Ticking(clock, SECOND // 10)), None))) >= 1

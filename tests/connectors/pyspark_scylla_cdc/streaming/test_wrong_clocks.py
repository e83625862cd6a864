"""Spark queries on machines whose clocks are minutes or days behind or ahead of the cluster's."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from attrs import evolve
from cassandra.cluster import Session

from cdc_reader._time import SystemClock
from cdc_reader.cluster import Connection
from cdc_reader.cluster.queries import Query, Request
from cdc_reader.errors import ConfigurationError, DataLossError
from cdc_reader.testing import EmbeddedScylla, ManualClock
from pyspark_scylla_cdc.clusters import cluster_of
from pyspark_scylla_cdc.options import kinds
from pyspark_scylla_cdc.options.source_options import SourceOptions
from pyspark_scylla_cdc.sessions import SourceClock
from pyspark_scylla_cdc.spark_versions import ReadMaxFiles
from pyspark_scylla_cdc.streaming.stream import StreamReader
from tests.cdc_reader.support.wrong_clock import WrongClock
from tests.connectors.pyspark_scylla_cdc.support.readers import batch_reader, stream_reader

SECOND = 1_000_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
DAY = 24 * HOUR
LIMIT = ReadMaxFiles(1)
WRONG = [-30 * DAY, -DAY, -10 * MINUTE, 10 * MINUTE, 30 * DAY]
KEYS = list(range(10))
Parse = Callable[..., SourceOptions]


@pytest.fixture
def clock() -> ManualClock:
    """The cluster's clock, two days behind the machine's, which no reader may use."""
    return ManualClock(SystemClock().now() - 2 * DAY)


@pytest.fixture
def write(session: Session, clock: ManualClock) -> Callable[..., None]:
    """Writes rows, `pause` µs apart, to a new table whose log keeps rows for a day."""
    session.execute(
        "CREATE KEYSPACE ks WITH replication = "
        "{'class': 'NetworkTopologyStrategy', 'datacenter1': 1} AND tablets = {'enabled': false}"
    )
    session.execute("CREATE TABLE ks.t (pk int PRIMARY KEY, v int) WITH cdc = {'enabled': true}")
    clock.advance(MINUTE)

    def write(*keys: int, pause: int = 0) -> None:
        for pk in keys:
            session.execute("INSERT INTO ks.t (pk, v) VALUES (%s, 0)", (pk,))
            clock.advance(pause)

    return write


@pytest.fixture
def parse(cluster: EmbeddedScylla, write: Callable[..., None]) -> Iterator[Parse]:
    """Parses options for the table. The fixture writes the first rows."""
    write(*KEYS)
    opened = set()

    def parse(**more: str) -> SourceOptions:
        where = {"hosts": cluster.contact_point, "keyspace": "ks", "table": "t"}
        options = SourceOptions.parse({**where, "consistencyLevel": "ONE", **more})
        opened.add(cluster_of(options.connection(), options.read).connection)
        return options

    yield parse
    for connection in opened:
        connection.close()


def _keys(reader: StreamReader, *offsets: object) -> list[int]:
    parts = reader.partitions(*offsets)  # type: ignore[arg-type]
    batches = [batch for part in parts for batch in reader.read(part)]
    return sorted(row["pk"] for batch in batches for row in batch.to_pylist())


@pytest.mark.parametrize("ahead", WRONG)
def test_a_batch(
    clock: ManualClock, parse: Parse, caplog: pytest.LogCaptureFixture, ahead: int
) -> None:
    """A batch returns the rows that the log holds, and no task counts them as expired."""
    clock.advance(HOUR)
    own = WrongClock(clock, ahead)
    for options in (parse(), evolve(parse(), starting=clock.now() - 2 * HOUR)):
        reader = batch_reader(options, own)
        rows = [row for p in reader.partitions() for b in reader.read(p) for row in b.to_pylist()]
        assert sorted(row["pk"] for row in rows) == KEYS
    assert "rows_lost" not in caplog.text
    clock.advance(2 * DAY)
    batch_reader(evolve(parse(), starting=clock.now() - 2 * DAY), own).partitions()
    assert caplog.text.count("rows_lost") == 1


@pytest.mark.parametrize("ahead", WRONG)
def test_a_stream(clock: ManualClock, parse: Parse, write: Callable[..., None], ahead: int) -> None:
    """A stream delivers each row once, one confidence window behind the cluster's clock."""
    clock.advance(HOUR)
    own = WrongClock(clock, ahead)
    reader = stream_reader(parse(), own)
    offset, found = reader.initialOffset(), []
    for pk in range(100, 120):
        clock.advance(SECOND)
        latest = reader.latestOffset(offset, LIMIT)
        assert latest["position"] <= clock.now() - 30 * SECOND
        write(pk)
        found += _keys(reader, offset, latest)
        offset = latest
    clock.advance(MINUTE)
    latest = reader.latestOffset(offset, LIMIT)
    assert latest["position"] == clock.now() - 30 * SECOND
    assert sorted(found + _keys(reader, offset, latest)) == [*KEYS, *range(100, 120)]


@pytest.mark.parametrize("ahead", [-30 * DAY, DAY + MINUTE])
def test_a_snapshot(
    clock: ManualClock, parse: Parse, caplog: pytest.LogCaptureFixture, ahead: int
) -> None:
    """Tasks of a snapshot count no row of the log as expired, whatever their machine's clock."""
    clock.advance(HOUR)
    reader = stream_reader(
        parse(format="changes", snapshot="initial", includeDelta="true"), WrongClock(clock, ahead)
    )
    offset, found = reader.initialOffset(), []
    for _ in range(5):
        latest = reader.latestOffset(offset, LIMIT)
        found += _keys(reader, offset, latest)
        offset = latest
    assert found == KEYS
    assert "rows_lost" not in caplog.text


@pytest.mark.parametrize("ahead", [-30 * DAY, -DAY])
def test_a_stream_that_lost_rows(
    clock: ManualClock, parse: Parse, write: Callable[..., None], ahead: int
) -> None:
    """A loss is noticed even if the reader's clock is behind."""
    reader = stream_reader(parse(), WrongClock(clock, ahead))
    start = reader.initialOffset()
    clock.advance(10 * MINUTE)
    first = reader.latestOffset(start, LIMIT)
    clock.advance(2 * DAY)
    write(200)
    clock.advance(MINUTE)
    latest = reader.latestOffset(first, LIMIT)
    with pytest.raises(DataLossError, match="expired before"):
        reader.partitions(first, latest)


def test_micro_batches_cost_no_query_for_the_time(
    clock: ManualClock, parse: Parse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the first micro-batch, and the first after five minutes, query the cluster's time."""
    options, sent, request = parse(), [], Connection.request

    def counted(connection: Connection, query: Query) -> Request:
        sent.append(clock.now())
        return request(connection, query)

    monkeypatch.setattr(Connection, "request", counted)
    clock_of_query, began = SourceClock(options, WrongClock(clock, 0)), clock.now()
    for _ in range(10):
        clock_of_query.now()
        clock.advance(MINUTE)
    assert sent == [began, began + 5 * MINUTE]


@pytest.mark.parametrize("ahead", WRONG)
def test_relative_moments(
    monkeypatch: pytest.MonkeyPatch, clock: ManualClock, parse: Parse, ahead: int
) -> None:
    """Relative times, and `now`, refer to the cluster's clock."""
    own = WrongClock(clock, ahead)
    monkeypatch.setattr(kinds, "SystemClock", lambda: own)
    correction = SourceClock(parse(), own).correction()
    corrected = parse(startingTimestamp="-10m", endingTimestamp="now").corrected(correction)
    assert (corrected.starting, corrected.ending) == (clock.now() - 10 * MINUTE, clock.now())


def test_the_order_of_relative_moments(parse: Parse, clock: ManualClock) -> None:
    """The parser compares start and end if their order does not depend on the clock."""
    with pytest.raises(ConfigurationError, match="it is after endingTimestamp"):
        parse(startingTimestamp="-10m", endingTimestamp="-20m")
    far = (clock.now() + DAY) // 1_000
    assert parse(startingTimestamp=str(far), endingTimestamp="now").relative == {"endingTimestamp"}

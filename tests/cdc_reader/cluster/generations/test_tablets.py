"""Generations of a table that uses tablets, and reads of its log."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest

from cdc_reader._time import BEGINNING, FOREVER, SystemClock
from cdc_reader.cluster import CdcTable, Connection, TableGenerations
from cdc_reader.cluster.generations import TabletGenerations
from cdc_reader.config import ConnectionConfig, ReadConfig
from cdc_reader.cql.names import TableName
from cdc_reader.errors import RetriesExhaustedError, TableNotFoundError
from cdc_reader.reading.windows.window_reader import LogReader
from cdc_reader.streams.generation import Generation, StreamGroup
from cdc_reader.streams.window import Window
from cdc_reader.testing import EmbeddedScylla
from cdc_reader.testing.clock import ManualClock
from cdc_reader.testing.cql_session import open_session
from cdc_reader.testing.in_process import InProcessConnection

pytestmark = pytest.mark.needs("topology")

SECOND = 1_000_000
NOW = 1_795_220_000 * SECOND
NAME = TableName("tk", "t")
KEYSPACE = (
    "CREATE KEYSPACE tk WITH replication = {'class': 'NetworkTopologyStrategy', 'datacenter1': 1} "
    "AND tablets = {'initial': 4}"
)
TABLE = "CREATE TABLE tk.t (p int PRIMARY KEY, v int) WITH cdc = {'enabled': true, 'ttl': 3600}"


@pytest.fixture
def clock() -> ManualClock:
    """The clock of the server."""
    return ManualClock(NOW)


@pytest.fixture
def server(clock: ManualClock) -> EmbeddedScylla:
    """A server with a table of four tablets. A resize takes effect after 65 s."""
    server = EmbeddedScylla(clock=clock)
    server.execute(KEYSPACE)
    server.execute(TABLE)
    return server


@pytest.fixture
def generations(server: EmbeddedScylla) -> TableGenerations:
    """The table's generations."""
    impatient = ReadConfig(retry_deadline=timedelta(seconds=1))
    connection = InProcessConnection(server, impatient, sleep=lambda _: None)
    return TableGenerations(connection, NAME)


def test_one_node_answers_all_pages_of_a_set() -> None:
    """A driver that queries nodes in turn gets whole sets, although one node lacks the set."""
    with EmbeddedScylla(nodes=3, ring_delay_ms=0) as server:
        server.execute(KEYSPACE)
        server.execute(TABLE)
        server.freeze(server.nodes[-1])
        streams = server.split_tablets("tk", "t")
        connection = Connection(ConnectionConfig(server.contact_point), ReadConfig(fetch_size=3))
        try:
            generations = TabletGenerations(connection, NAME)
            found = [generations.groups(streams.timestamp * 1_000) for _ in range(9)]
        finally:
            connection.close()
    assert [len(groups) for groups in found] == [8] * 9


def test_tablets_are_detected_by_keyspace(generations: TableGenerations) -> None:
    """Tablets are detected by keyspace, without configuration."""
    assert isinstance(generations.source, TabletGenerations)


def test_each_stream_is_a_group_that_its_token_ends(generations: TableGenerations) -> None:
    """Each tablet has a group of one stream. Groups are ordered by their end tokens."""
    [start] = generations.timestamps()
    assert start == NOW - 5 * SECOND
    groups = Generation(Window(start, start + 1), tuple(generations.groups(start))).groups
    assert [group.range_end for group in groups] == [-(2**62) - 1, -1, 2**62 - 1, 2**63 - 1]
    assert groups == tuple(
        StreamGroup(stream.token, (stream,)) for group in groups for stream in group.streams
    )


def test_a_split_and_a_merge_are_generations(
    server: EmbeddedScylla, generations: TableGenerations
) -> None:
    """Each resize creates a new set of streams, which is announced before it takes effect."""
    server.split_tablets("tk", "t")
    server.merge_tablets("tk", "t")
    starts = sorted(generations.timestamps())
    sets = [{s for g in generations.groups(start) for s in g.streams} for start in starts]
    assert [len(streams) for streams in sets] == [4, 8, 4]
    assert len(set.union(*sets)) == 16
    assert starts[1] == NOW + 65 * SECOND
    assert list(generations.unpublished()) == []


def test_a_set_that_the_server_removed(
    server: EmbeddedScylla, clock: ManualClock, generations: TableGenerations
) -> None:
    """In place of removed sets, the streams that still have rows count as one set."""
    first = min(generations.timestamps())
    streams = {stream for group in generations.groups(first) for stream in group.streams}
    server.split_tablets("tk", "t")
    clock.advance(70 * SECOND)
    assert min(generations.timestamps()) == first
    clock.advance(3_800 * SECOND)
    oldest, second = sorted(generations.timestamps())
    assert oldest < first < second
    assert [group.streams for group in generations.groups(oldest)] == [()]
    server.execute(f"INSERT INTO tk.t (p, v) VALUES (1, 1) USING TIMESTAMP {clock.now()}")
    [group] = generations.groups(oldest)
    assert len(group.streams) == 1
    assert not streams.issuperset(group.streams)


def test_a_lagging_node_is_queried_again(generations: TableGenerations) -> None:
    """A node that does not know a set of streams yet is queried again until the deadline."""
    late = max(generations.timestamps()) + 1_000
    with pytest.raises(RetriesExhaustedError, match=r"does not yet know the streams of tk\.t"):
        generations.groups(late)


def test_a_set_that_arrives_during_the_wait_is_returned(server: EmbeddedScylla) -> None:
    """A set of streams that arrives during the wait is found by a retry."""
    pauses: list[float] = []

    def hear(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 2:
            server.split_tablets("tk", "t")

    generations = TableGenerations(InProcessConnection(server, sleep=hear), NAME)
    assert len(generations.groups(NOW + 65 * SECOND)) == 8
    assert len(pauses) == 2


def test_the_streams_of_a_table_dropped_meanwhile_are_not_waited_for(
    server: EmbeddedScylla, generations: TableGenerations
) -> None:
    """If the table was dropped, an error says so. The reader does not wait for streams."""
    [start] = generations.timestamps()
    server.execute("DROP TABLE tk.t")
    with pytest.raises(TableNotFoundError, match=r"tk\.t .* dropped"):
        generations.groups(start)


def test_the_schema_of_a_table_on_tablets_is_like_any_other(server: EmbeddedScylla) -> None:
    """The schema of a table that uses tablets is read without an error."""
    schema = CdcTable(InProcessConnection(server), NAME).schema()
    assert schema.base.cdc.ttl == 3_600


@pytest.fixture
def listening(clock: ManualClock) -> Iterator[EmbeddedScylla]:
    """A server with sockets, on which a resize takes effect at once."""
    with EmbeddedScylla(clock=clock, ring_delay_ms=0) as server:
        yield server


def test_a_log_on_tablets_is_read_across_resizes(
    listening: EmbeddedScylla, clock: ManualClock
) -> None:
    """Across resizes each row is read once, and the rows of each key are in order."""
    session = open_session(listening.host, listening.port)
    session.execute(KEYSPACE)
    session.execute(TABLE)
    insert = session.prepare("INSERT INTO tk.t (p, v) VALUES (?, ?) USING TIMESTAMP ?")
    for number in range(90):
        at = clock.advance(1_000)
        if number == 30:
            listening.split_tablets("tk", "t")
        if number == 60:
            listening.merge_tablets("tk", "t")
        session.execute(insert, (number % 10, number, at))
    session.cluster.shutdown()
    connection = Connection(ConnectionConfig(listening.contact_point), ReadConfig())
    table = CdcTable(connection, NAME)
    reader = LogReader(table.source(table.schema()), table.generations, ReadConfig(), SystemClock())
    tasks = reader.plan(Window(BEGINNING, FOREVER))
    rows = [row for batch in reader.read(tasks) for row in batch.to_pylist()]
    connection.close()
    assert len(tasks) == 3
    assert sorted(row["v"] for row in rows) == list(range(90))
    for key in range(10):
        numbers = [row["v"] for row in rows if row["p"] == key]
        assert numbers == sorted(numbers)

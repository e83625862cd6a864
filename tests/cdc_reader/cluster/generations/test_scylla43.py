"""Generations of ScyllaDB 4.3, and readers that follow a live upgrade from it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

import pytest

from cdc_reader._time import BEGINNING, FOREVER
from cdc_reader.cluster import CdcTable, Connection, TableGenerations
from cdc_reader.cluster.generations import (
    Scylla43Generations,
    UpgradedGenerations,
    VnodeGenerations,
)
from cdc_reader.config import ConnectionConfig, ReadConfig
from cdc_reader.cql.names import TableName
from cdc_reader.errors import QueryRefusedError
from cdc_reader.reading.cursor import Checkpoint
from cdc_reader.reading.delivery import Delivery, RowsRead, WindowComplete
from cdc_reader.reading.follower import Follower
from cdc_reader.streams.generation import StreamGroup
from cdc_reader.streams.stream import StreamId
from cdc_reader.streams.task import Task
from cdc_reader.streams.window import Window
from cdc_reader.testing import EmbeddedScylla, ManualClock
from cdc_reader.testing.cql_session import open_session
from cdc_reader.testing.in_process import InProcessConnection, RecordedQuery

pytestmark = pytest.mark.needs("topology")

NAME = TableName("ks", "t")


def streams_of(groups: Sequence[StreamGroup]) -> set[StreamId]:
    """Return all streams of the groups."""
    return {stream for group in groups for stream in group.streams}


@pytest.fixture
def server() -> EmbeddedScylla:
    """A ScyllaDB 4.3 server with two generations. Tests use it in process, without sockets."""
    server = EmbeddedScylla(version="4.3", ring_delay_ms=0)
    server.execute(
        "CREATE KEYSPACE ks WITH replication = "
        "{'class': 'NetworkTopologyStrategy', 'replication_factor': 1}"
    )
    server.join(vnodes=3)
    return server


def test_the_table_of_4_3_has_starts_and_streams(server: EmbeddedScylla) -> None:
    """Each stream is a separate group, because the 4.3 table has no range ends."""
    generations = Scylla43Generations(InProcessConnection(server))
    first, second = server.cluster.generations
    assert sorted(generations.timestamps()) == [first.start_us, second.start_us]
    for generation in (first, second):
        groups = generations.groups(generation.start_us)
        assert streams_of(groups) == {s for span in generation.ranges for s in span.streams}
        assert all(group.range_end == group.streams[0].token for group in groups)
    assert list(generations.unpublished()) == []


def test_a_new_cluster_is_not_taken_for_4_3() -> None:
    """A new cluster is not mistaken for 4.3, because it lacks the 4.3 table."""
    server = EmbeddedScylla(version="5.2")
    assert isinstance(TableGenerations(InProcessConnection(server), NAME).source, VnodeGenerations)


def test_the_upgrade_changes_no_start(server: EmbeddedScylla) -> None:
    """Generations keep their starts during an upgrade. New ones are read from the newer tables."""
    asked: Counter[str] = Counter()

    def count(page: RecordedQuery) -> None:
        asked[page.query.cql.partition("FROM ")[2].partition(" ")[0]] += 1

    generations = TableGenerations(InProcessConnection(server, before=count), NAME)
    assert isinstance(generations.source, UpgradedGenerations)
    before = set(generations.timestamps())
    known = {start: streams_of(generations.groups(start)) for start in before}
    server.upgrade_streams()
    assert set(generations.timestamps()) == before
    server.join()
    [added] = set(generations.timestamps()) - before
    assert len(generations.groups(added)) == len(server.cluster.generations[-1].ranges)
    for start, streams in known.items():
        assert streams_of(generations.groups(start)) == streams
    told = asked["system.cdc_local"]
    generations.timestamps()
    assert asked["system.cdc_local"] == told, "asked on, though the upgrade is done"


@pytest.mark.parametrize("copied", [True, False])
def test_a_newer_generation_outweighs_a_missing_mark(server: EmbeddedScylla, copied: bool) -> None:
    """If no upgrade is recorded, a newer generation shows that the 4.3 table is out of date.

    Generations that were never copied to the newer tables are still found.
    """
    generations = TableGenerations(InProcessConnection(server), NAME)
    before = set(generations.timestamps())
    server.cluster.marks_rewritten = False
    server.upgrade_streams()
    if not copied:
        for table in ("cdc_generation_timestamps", "cdc_streams_descriptions_v2"):
            server.execute(f"TRUNCATE system_distributed.{table}")
    server.join()
    found = set(generations.timestamps())
    assert found == before | {server.cluster.generations[-1].start_us}
    for generation in server.cluster.generations:
        streams = {stream for span in generation.ranges for stream in span.streams}
        assert streams_of(generations.groups(generation.start_us)) == streams
    assert generations.source.kind == ("vnodes" if copied else "4.3")
    resumed = TableGenerations(InProcessConnection(server), NAME)
    newest = server.cluster.generations[-1]
    assert len(resumed.groups(newest.start_us)) == len(newest.ranges)  # before any `timestamps()`


def test_a_node_that_does_not_know_the_newer_tables() -> None:
    """A new generation is found by a reader whose first question a node answers that lags."""
    server = EmbeddedScylla(version="4.3", nodes=3, ring_delay_ms=0)
    server.cluster.marks_rewritten = False
    behind = server.nodes[-1]
    with server.lagging(behind):
        server.upgrade_streams()
        server.join()
        connection = InProcessConnection(server, node=lambda _recorded: behind)
        found = TableGenerations(connection, NAME).timestamps()
    assert server.cluster.generations[-1].start_us in found


def test_a_cluster_without_the_mark_is_followed() -> None:
    """Readers started before or after an unrecorded upgrade lose no rows."""
    clock = ManualClock(1_700_000_000_000_000)
    server = EmbeddedScylla(version="4.3", ring_delay_ms=0, clock=clock)
    server.cluster.marks_rewritten = False
    server.execute(
        "CREATE KEYSPACE ks WITH replication = "
        "{'class': 'NetworkTopologyStrategy', 'replication_factor': 1}"
    )
    server.execute("CREATE TABLE ks.t (p int PRIMARY KEY) WITH cdc = {'enabled': true}")

    def follower() -> Follower:
        table = CdcTable(InProcessConnection(server), NAME)
        return Follower(table, clock, ReadConfig(), Checkpoint(BEGINNING))

    acts: list[Callable[[], object]] = [server.upgrade_streams, server.join, server.join]
    followed: list[Delivery] = []
    for delivery in follower().follow(clock.now() + 300_000_000):
        followed.append(delivery)
        if isinstance(delivery, WindowComplete) and acts:
            acts.pop(0)()
            clock.advance(1_000_000)
            server.execute(f"INSERT INTO ks.t (p) VALUES ({len(acts)})")
    assert keys_of(followed) == keys_of(follower().follow(clock.now())) == [2, 1, 0]


def keys_of(deliveries: Iterable[Delivery]) -> list[int]:
    """Return the partition key of each delivered row."""
    batches = (each.batch for each in deliveries if isinstance(each, RowsRead))
    return [key for batch in batches for key in batch.column("p").to_pylist()]


@pytest.mark.parametrize(
    ("missing", "kind"), [("system.cdc_local", "vnodes"), ("scylla_keyspaces", "4.3")]
)
def test_a_missing_system_table_names_the_version(
    server: EmbeddedScylla, missing: str, kind: str
) -> None:
    """A missing system table shows which kind of generations the cluster has.

    A server without `cdc_local` is so new that it uses only the newer generation tables. A server
    without `scylla_keyspaces` is too old to support tablets.
    """

    def refuse(asked: RecordedQuery) -> None:
        if missing in asked.query.cql:
            raise QueryRefusedError(f"{asked.query.purpose}: unconfigured table")

    source = TableGenerations(InProcessConnection(server, before=refuse), NAME).source
    assert source.kind == kind


def test_a_log_of_4_3_is_read() -> None:
    """The driver reads the log over a real socket."""
    with EmbeddedScylla(version="4.3", ring_delay_ms=0) as server:
        session = open_session(server.host, server.port)
        session.execute(
            "CREATE KEYSPACE ks WITH replication = "
            "{'class': 'NetworkTopologyStrategy', 'replication_factor': 1}"
        )
        session.execute("CREATE TABLE ks.t (p int PRIMARY KEY) WITH cdc = {'enabled': true}")
        for key in range(20):
            session.execute(f"INSERT INTO ks.t (p) VALUES ({key})")
        session.cluster.shutdown()
        connection = Connection(ConnectionConfig(server.contact_point), ReadConfig())
        table = CdcTable(connection, NAME)
        source = table.source(table.schema())
        streams = streams_of(table.generations.groups(max(table.generations.timestamps())))
        batches = source.read(Task(Window(BEGINNING, FOREVER), tuple(streams)))
        keys = [row["p"] for batch in batches for row in batch.to_pylist()]
        connection.close()
    assert sorted(keys) == list(range(20))

"""Counts of queries and retries, and waiting times."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cdc_reader._stats import ReadStats, each_recorded_in, recorded_in
from cdc_reader.cluster import Connection
from cdc_reader.cluster.wire import Query
from cdc_reader.config import ConnectionConfig, ReadConfig
from cdc_reader.cql.schema import Column
from cdc_reader.cql.types import Native
from cdc_reader.testing import EmbeddedScylla, Fault
from cdc_reader.testing.cql_session import open_session

ROWS = 40
QUERY = Query("SELECT pk FROM ks.t", columns=(Column("pk", Native("int")),))


@pytest.fixture(scope="module")
def server() -> Iterator[EmbeddedScylla]:
    """A server whose table fills several pages."""
    with EmbeddedScylla(vnodes=4) as server:
        session = open_session(server.host, server.port)
        session.execute(
            "CREATE KEYSPACE ks WITH replication = "
            "{'class': 'NetworkTopologyStrategy', 'replication_factor': 1}"
        )
        session.execute("CREATE TABLE ks.t (pk int PRIMARY KEY)")
        for pk in range(ROWS):
            session.execute(f"INSERT INTO ks.t (pk) VALUES ({pk})")
        session.cluster.shutdown()
        yield server


@pytest.fixture
def connection(server: EmbeddedScylla) -> Iterator[Connection]:
    """A connection with small pages."""
    config = ConnectionConfig(contact_points=f"{server.host}:{server.port}", consistency="ONE")
    connection = Connection(config, ReadConfig(fetch_size=10))
    yield connection
    connection.close()


def test_queries_are_counted_and_waits_measured(connection: Connection) -> None:
    """Waiting for further pages adds to the waiting time, but is not counted as queries."""
    stats = ReadStats()
    with recorded_in(stats):
        batches = list(connection.batches(QUERY))
    assert sum(batch.num_rows for batch in batches) == ROWS
    assert len(batches) > 3
    assert (stats.queries, stats.retries) == (1, 0)
    assert stats.waited > 0


def test_retries_are_counted(server: EmbeddedScylla, connection: Connection) -> None:
    """Each repeated request counts as a retry, and pauses count as waiting time."""
    stats = ReadStats()
    with server.faults.during(Fault("read-timeout", "ks.t", times=2)), recorded_in(stats):
        list(connection.batches(QUERY))
    assert (stats.queries, stats.retries) == (1, 2)


def test_counters_are_per_reader(connection: Connection) -> None:
    """Counters are separate for two reads in one thread, and ignore other queries."""
    first, second = ReadStats(), ReadStats()

    def read(queries: int) -> Iterator[int]:
        for _ in range(queries):
            yield len(list(connection.batches(QUERY)))

    turns = zip(each_recorded_in(first, read(3)), each_recorded_in(second, read(3)), strict=True)
    for _ in turns:
        list(connection.batches(QUERY))
    assert (first.queries, second.queries) == (3, 3)
    total = first + second
    assert (total.queries, total.waited) == (6, first.waited + second.waited)

"""Queries, with the driver and over sockets, of a cluster in which a node lags or is down."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest

from cdc_reader.cluster import CdcTable, Connection
from cdc_reader.cluster.queries import Query
from cdc_reader.config import ConnectionConfig, ReadConfig
from cdc_reader.cql.names import TableName
from cdc_reader.errors import RetriesExhaustedError
from cdc_reader.reader import CdcReader
from cdc_reader.testing import EmbeddedScylla

pytestmark = pytest.mark.needs("faults", "topology")

NAME = TableName("ks", "t")
KEYSPACE = (
    "CREATE KEYSPACE ks WITH replication = {'class': 'NetworkTopologyStrategy', "
    "'replication_factor': 1} AND tablets = {'initial': 4}"
)
TABLE = "CREATE TABLE ks.t (p int PRIMARY KEY, v int) WITH cdc = {'enabled': true}"
VERSION = Query("SELECT schema_version FROM system.local", consistency="ONE")
TIMES = 9
"""The number of reads; the driver asks another of the three nodes first each time."""


@pytest.fixture
def server() -> Iterator[EmbeddedScylla]:
    """A server with three nodes."""
    with EmbeddedScylla(nodes=3, ring_delay_ms=0) as server:
        server.execute(KEYSPACE)
        server.execute(TABLE)
        yield server


@pytest.fixture
def connection(server: EmbeddedScylla) -> Iterator[Connection]:
    """A connection that soon gives up."""
    read = ReadConfig(retry_deadline=timedelta(seconds=1))
    connection = Connection(ConnectionConfig(server.contact_point), read)
    yield connection
    connection.close()


def test_a_column_that_a_node_does_not_know_is_read(server: EmbeddedScylla) -> None:
    """An open reader, and each new one, reads a new column although one node lacks it."""
    with CdcReader(server.contact_point, NAME) as reader:
        assert not [*reader.table.changes()]
        server.freeze(server.nodes[-1])
        server.execute("ALTER TABLE ks.t ADD w int")
        server.execute("INSERT INTO ks.t (p, v, w) VALUES (1, 2, 3)")
        found = [_cells(reader, "w") for _ in range(TIMES)]
    for _ in range(3):
        with CdcReader(server.contact_point, NAME) as reader:
            found.append(_cells(reader, "w"))
    assert found == [[3]] * (TIMES + 3)


def test_streams_that_a_node_does_not_know_are_read(server: EmbeddedScylla) -> None:
    """Bounded reads find the rows of a set of streams that one node lacks."""
    with CdcReader(server.contact_point, NAME) as reader:
        assert not [*reader.table.changes()]
        server.freeze(server.nodes[-1])
        server.split_tablets("ks", "t")
        for p in range(20):
            server.execute(f"INSERT INTO ks.t (p, v) VALUES ({p}, 0)")
        assert [len([*reader.table.changes()]) for _ in range(TIMES)] == [20] * TIMES


def test_the_newest_schema_is_taken_of_nodes_that_differ(
    server: EmbeddedScylla, connection: Connection
) -> None:
    """One node that knows a new column is enough, and what was seen is not forgotten."""
    table, (first, *others) = CdcTable(connection, NAME), server.nodes
    for node in others:
        server.freeze(node)
    server.execute("ALTER TABLE ks.t ADD w int")
    server.execute("ALTER TABLE ks.t WITH cdc = {'enabled': true, 'ttl': 7}")
    assert {"w"} < {column.name for column in table.schema().columns}
    assert [table.state().cdc.ttl for _ in range(TIMES)][-3:] == [7] * 3
    server.take_down(first)
    assert {"w"} < {column.name for column in table.schema().columns}


def test_half_of_the_nodes_are_enough(server: EmbeddedScylla, connection: Connection) -> None:
    """Two nodes of three answer for all of them, and one does not."""
    assert len(connection.from_all_nodes(VERSION)) == 3
    server.take_down(server.nodes[-1])
    assert len(connection.from_all_nodes(VERSION)) == 2
    server.take_down(server.nodes[-2])
    with pytest.raises(RetriesExhaustedError):
        connection.from_all_nodes(VERSION)


def _cells(reader: CdcReader, name: str) -> list[object]:
    return [cell for batch in reader.table.batches() for cell in batch.column(name).to_pylist()]

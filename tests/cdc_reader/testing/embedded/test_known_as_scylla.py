"""Tests features by which clients recognize ScyllaDB, such as options, tables and traces."""

import io
import socket
from collections.abc import Iterator
from contextlib import closing

import pytest
from cassandra.cluster import Cluster, Session
from cassandra.protocol import OptionsMessage, SupportedMessage

from cdc_reader.testing import EmbeddedScylla
from tests.drivers import PATIENT

SHARDS = 3


@pytest.fixture(scope="module")
def server() -> Iterator[EmbeddedScylla]:
    """A server with several shards."""
    with EmbeddedScylla(shards=SHARDS) as scylla:
        yield scylla


@pytest.fixture(scope="module")
def session(server: EmbeddedScylla) -> Iterator[Session]:
    """A driver session with the server."""
    cluster = Cluster([server.host], port=server.port, protocol_version=4, **PATIENT)
    try:
        yield cluster.connect()
    finally:
        cluster.shutdown()


def options(server: EmbeddedScylla, port: int) -> tuple[int, dict[str, list[str]]]:
    """Return (client's port, supported options) of a new connection to a port."""
    with closing(socket.create_connection((server.host, port), timeout=120)) as client:
        client.sendall(bytes((4, 0, 0, 1, OptionsMessage.opcode, 0, 0, 0, 0)))
        header = client.recv(9, socket.MSG_WAITALL)
        body = client.recv(int.from_bytes(header[5:], "big"), socket.MSG_WAITALL)
        message = SupportedMessage.recv_body(io.BytesIO(body))
        return client.getsockname()[1], {**message.options, "CQL_VERSION": message.cql_versions}


def test_clients_choose_their_shard_by_their_port(server: EmbeddedScylla) -> None:
    """Clients select the shard on the shard-aware port. On the other port, the node selects it."""
    _, told = options(server, server.port)
    port = int(told["SCYLLA_SHARD_AWARE_PORT"][0])
    for _ in range(2 * SHARDS):
        own, told = options(server, port)
        assert told["SCYLLA_SHARD"] == [str(own % SHARDS)]
    turns = {options(server, server.port)[1]["SCYLLA_SHARD"][0] for _ in range(SHARDS)}
    assert turns == {str(shard) for shard in range(SHARDS)}


def test_requests_are_traced(session: Session) -> None:
    """A client can read the trace that it has requested."""
    trace = session.execute("SELECT key FROM system.local", trace=True).get_query_trace()
    assert trace.parameters == {"query": "SELECT key FROM system.local"}
    assert [event.description for event in trace.events][-1] == "Done processing"


@pytest.mark.parametrize(
    "table", ["config", "runtime_info", "scylla_local", "protocol_servers", "versions", "clients"]
)
def test_tables_of_scylla_s_own_have_rows(session: Session, table: str) -> None:
    """The tables that exist only in ScyllaDB are not empty."""
    assert session.execute(f"SELECT * FROM system.{table}").all()


def test_a_replication_factor_applies_to_each_datacenter(session: Session) -> None:
    """A replication factor applies to each datacenter, so token-aware clients find replicas."""
    session.execute(
        "CREATE KEYSPACE spread WITH replication = "
        "{'class': 'NetworkTopologyStrategy', 'replication_factor': 2}"
    )
    select = "SELECT replication FROM system_schema.keyspaces WHERE keyspace_name = 'spread'"
    (row,) = session.execute(select)
    assert dict(row.replication) == {
        "class": "org.apache.cassandra.locator.NetworkTopologyStrategy",
        "datacenter1": "2",
    }


def test_descriptions_recreate_the_schema(session: Session) -> None:
    """DESCRIBE returns statements that recreate the schema."""
    session.execute("CREATE KEYSPACE made WITH replication = "
                    "{'class': 'SimpleStrategy', 'replication_factor': 1}")  # fmt: skip
    session.execute('CREATE TYPE made.u ("Field" int, b frozen<list<text>>)')
    session.execute(
        'CREATE TABLE made.t (a int, b text, c frozen<u>, "full" int static, '
        "PRIMARY KEY ((a, b), c)) WITH CLUSTERING ORDER BY (c DESC) AND comment = 'it''s' "
        "AND cdc = {'enabled': true}"
    )
    described = session.execute("DESC KEYSPACE made").all()
    session.execute("DROP KEYSPACE made")
    for row in described:
        session.execute(row.create_statement)
    assert session.execute("DESC KEYSPACE made").all() == described


@pytest.mark.parametrize(
    "what", ["CLUSTER", "SCHEMA", "FULL SCHEMA", "KEYSPACES", "TABLES", "TYPES", "FUNCTIONS"]
)
def test_everything_can_be_described(session: Session, what: str) -> None:
    """Every kind of DESCRIBE that cqlsh sends is supported."""
    assert session.execute(f"DESCRIBE {what}").column_names

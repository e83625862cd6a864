"""Tests features by which clients recognize ScyllaDB, such as options, tables and traces."""

import io
import re
import socket
from collections.abc import Iterator
from contextlib import closing

import pytest
from cassandra.cluster import Cluster, Session
from cassandra.protocol import OptionsMessage, SupportedMessage

from cdc_reader.testing import EmbeddedScylla
from cdc_reader.testing.embedded.errors import ServerError
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


@pytest.mark.parametrize("version", ["5.2", "2026.1"])
def test_compressors_have_long_names(version: str) -> None:
    """A compressor may be named with its package, with which only those of Cassandra are shown."""
    server = EmbeddedScylla(version=version)
    server.execute("CREATE KEYSPACE ks WITH replication = "
                   "{'class': 'SimpleStrategy', 'replication_factor': 1}")  # fmt: skip
    server.execute("CREATE TABLE ks.t (pk int PRIMARY KEY)")
    package = "org.apache.cassandra.io.compress."
    alter = "ALTER TABLE ks.t WITH compression = {{'sstable_compression': '{}'}}"
    names = ["LZ4", "Snappy", "Deflate", "Zstd"]
    names += ["LZ4WithDicts", "ZstdWithDicts"] if version == "2026.1" else []
    for name in names:
        expected = f"{name}Compressor" if "Dicts" in name else f"{package}{name}Compressor"
        for given in (f"{name}Compressor", f"{package}{name}Compressor"):
            server.execute(alter.format(given))
            select = "SELECT compression FROM system_schema.tables WHERE keyspace_name = 'ks'"
            ((shown,),) = server.execute(select)
            assert (shown or b"").endswith(len(expected).to_bytes(4, "big") + expected.encode())
    for unknown in (f"{package}NoSuchCompressor", "com.example.LZ4Compressor"):
        with pytest.raises(ServerError, match=r"Unknown sstable_compression|unable to find class"):
            server.execute(alter.format(unknown))


def test_a_speculative_retry_is_shown_with_its_precision(session: Session) -> None:
    """The property `speculative_retry` is shown in upper case, with a fixed number of digits."""
    session.execute("CREATE KEYSPACE IF NOT EXISTS retried WITH replication = "
                    "{'class': 'SimpleStrategy', 'replication_factor': 1}")  # fmt: skip
    session.execute("CREATE TABLE retried.t (pk int PRIMARY KEY)")
    select = "SELECT speculative_retry FROM system_schema.tables WHERE keyspace_name = 'retried'"
    for given, shown in (
        ("none", "NONE"),
        ("Always", "ALWAYS"),
        ("5ms", "5.00ms"),
        ("1e2MS", "100.00ms"),
        ("0percentile", "0.0PERCENTILE"),
        ("99.99Percentile", "100.0PERCENTILE"),
    ):
        session.execute(f"ALTER TABLE retried.t WITH speculative_retry = '{given}'")
        assert session.execute(select).one().speculative_retry == shown


def test_internals_restore_dropped_columns(session: Session) -> None:
    """DESCRIBE ... WITH INTERNALS includes the ids of tables, and the times of dropped columns."""
    session.execute("CREATE KEYSPACE kept WITH replication = "
                    "{'class': 'SimpleStrategy', 'replication_factor': 1}")  # fmt: skip
    session.execute(
        "CREATE TABLE kept.t (pk int, ck int, a int, b list<int>, s int static, "
        "PRIMARY KEY (pk, ck)) WITH cdc = {'enabled': true}"
    )
    session.execute("ALTER TABLE kept.t DROP (a, b) USING TIMESTAMP 1600000000000000")
    session.execute("ALTER TABLE kept.t DROP s USING TIMESTAMP -5")
    session.execute("ALTER TABLE kept.t WITH cdc = {'enabled': false}")
    session.execute("ALTER TABLE kept.t ADD s text static")
    (described,) = session.execute("DESC TABLE kept.t WITH INTERNALS")
    table_id = session.execute(
        "SELECT id FROM system_schema.tables WHERE keyspace_name = 'kept' AND table_name = 't'"
    ).one().id  # fmt: skip
    create, *alterations = described.create_statement.split(";\n")
    assert create.startswith(
        "CREATE TABLE kept.t (\n    pk int,\n    ck int,\n    a int,\n    b list<int>,\n"
        "    s int,\n    PRIMARY KEY (pk, ck)\n"
        f") WITH ID = {table_id}\nAND CLUSTERING ORDER BY (ck ASC)\n    AND bloom_filter"
    )
    assert [each.strip("\n;") for each in alterations] == [
        "ALTER TABLE kept.t DROP a USING TIMESTAMP 1600000000000000",
        "ALTER TABLE kept.t DROP b USING TIMESTAMP 1600000000000000",
        "ALTER TABLE kept.t DROP s USING TIMESTAMP -5",
        "ALTER TABLE kept.t ADD s text static",
    ]
    assert "DROP" not in session.execute("DESC TABLE kept.t").one().create_statement
    (log,) = session.execute("DESC kept.t_scylla_cdc_log WITH INTERNALS")
    assert re.search(r'\nALTER TABLE \S+ DROP "cdc\$deleted_a" USING TIMESTAMP \d{16};', log[3])
    dropped = "SELECT column_name, dropped_time FROM system_schema.dropped_columns"
    rows = session.execute(f"{dropped} WHERE keyspace_name = 'kept' AND table_name = 't'")
    assert {row.column_name: row.dropped_time.year for row in rows} == {
        "a": 2020,
        "b": 2020,
        "s": 1969,
    }
    session.execute("DROP KEYSPACE kept")

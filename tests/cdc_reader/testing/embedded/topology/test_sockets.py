"""Tests topology changes and tablets with the driver, over real sockets."""

import queue
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

import pytest
from cassandra import ConsistencyLevel, InvalidRequest
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile, Session
from cassandra.policies import AddressTranslator, RoundRobinPolicy, WhiteListRoundRobinPolicy
from cassandra.query import SimpleStatement

from cdc_reader.errors import ConfigurationError
from cdc_reader.testing import EmbeddedScylla
from cdc_reader.testing.embedded.topology.tablets import last_tokens
from tests.drivers import PATIENT

CDC = "WITH cdc = {'enabled': true}"
NTS = "WITH replication = {'class': 'NetworkTopologyStrategy', 'datacenter1': 1}"
LOG = "ks.t_scylla_cdc_log"
TABLETS = "WHERE keyspace_name = 'ks' AND table_name = 't'"


@contextmanager
def connected(
    server: EmbeddedScylla, host: str = "", translator: AddressTranslator | None = None
) -> Iterator[Session]:
    """Yield a session with all nodes, or only with `host`."""
    first = host or server.host
    policy = WhiteListRoundRobinPolicy([host]) if host else RoundRobinPolicy()
    profiles = {EXEC_PROFILE_DEFAULT: ExecutionProfile(load_balancing_policy=policy)}
    cluster = Cluster(
        [first],
        port=server.port,
        protocol_version=4,
        execution_profiles=profiles,
        address_translator=translator,
        **PATIENT,
    )
    try:
        yield cluster.connect()
    finally:
        cluster.shutdown()


def milliseconds(moment: datetime) -> int:
    """Convert the driver's datetime back to the server's timestamp in ms."""
    return round(moment.replace(tzinfo=UTC).timestamp() * 1000)


def test_a_node_that_joins_is_there_for_clients() -> None:
    """A node that joins accepts clients and has the same data. Registered clients are notified."""
    with EmbeddedScylla(vnodes=4) as server, connected(server) as session:
        events: queue.Queue[tuple[str, str, tuple[str, int]]] = queue.Queue()
        connection = session.cluster.control_connection._connection
        for kind in ("TOPOLOGY_CHANGE", "STATUS_CHANGE"):
            connection.register_watcher(
                kind, lambda e, k=kind: events.put((k, e["change_type"], e["address"]))
            )
        session.execute(f"CREATE KEYSPACE ks {NTS}")
        session.execute(f"CREATE TABLE ks.t (pk int PRIMARY KEY, v int) {CDC}")
        generation = server.join(vnodes=3, shards=5)
        address = ("127.0.0.2", server.port)
        assert events.get(timeout=120) == ("TOPOLOGY_CHANGE", "NEW_NODE", address)
        assert events.get(timeout=120) == ("STATUS_CHANGE", "UP", address)

        with connected(server, "127.0.0.2") as other:
            local = other.execute("SELECT rpc_address, tokens FROM system.local").one()
            assert local.rpc_address == "127.0.0.2"
            assert set(local.tokens) == {str(t) for t in server.cluster.nodes[1].tokens}
            peers = other.execute("SELECT peer FROM system.peers")
            assert [row.peer for row in peers] == ["127.0.0.1"]
            other.execute("INSERT INTO ks.t (pk, v) VALUES (1, 2)")
            assert session.execute("SELECT v FROM ks.t").one().v == 2
            ring = other.cluster.metadata.token_map.ring
            assert [token.value for token in ring] == list(generation.range_ends)
        first = session.cluster.metadata.get_host("127.0.0.1", server.port)
        peers = session.execute("SELECT peer, tokens FROM system.peers", host=first)
        assert [(row.peer, len(row.tokens)) for row in peers] == [("127.0.0.2", 3)]


def test_a_node_may_join_before_the_start() -> None:
    """When the server starts, nodes that joined earlier listen, and nodes that left do not."""
    server = EmbeddedScylla(vnodes=1)
    server.join(vnodes=1)
    server.join(vnodes=1)
    server.leave(server.cluster.nodes[1])
    with server, connected(server, "127.0.0.3") as session:
        assert session.execute("SELECT rpc_address FROM system.local").one()
        with pytest.raises(ConnectionError):
            socket.create_connection(("127.0.0.2", server.port), timeout=120)


def test_a_node_cannot_join_where_there_is_no_address() -> None:
    """If no address is available for a joining node, the ring does not change."""
    with EmbeddedScylla("0.0.0.0") as server:
        with pytest.raises(ConfigurationError, match="several nodes need a loopback IPv4"):
            server.join()
        assert len(server.cluster.nodes) == 1
    with EmbeddedScylla() as server, socket.create_server(("127.0.0.2", server.port)):
        with pytest.raises(OSError, match="in use"):
            server.join()
        assert len(server.cluster.nodes) == 1


def test_tablets_keyspaces_work_as_documented() -> None:
    """Streams are listed by table, and each log row is in the stream of its tablet."""
    with EmbeddedScylla(vnodes=1, ring_delay_ms=0) as server, connected(server) as session:
        session.execute(f"CREATE KEYSPACE ks {NTS} AND tablets = {{'initial': 4}}")
        session.execute(f"CREATE TABLE ks.t (pk int PRIMARY KEY, v int) {CDC}")
        first = server.tablets.histories()[0].newest
        split = server.split_tablets("ks", "t")
        times = session.execute(f"SELECT timestamp FROM system.cdc_timestamps {TABLETS}")
        found = [milliseconds(row.timestamp) for row in times]
        assert found == [split.timestamp, first.timestamp]

        streams = "SELECT timestamp, stream_state, stream_id FROM system.cdc_streams"
        changes = session.execute(
            f"{streams} {TABLETS} AND timestamp = %s AND stream_state >= 1 AND stream_state <= 2",
            [split.timestamp],
        )
        assert [(row.stream_state, row.stream_id) for row in changes] == [
            *((1, stream) for stream in first.streams),
            *((2, stream) for stream in split.streams),
        ]
        insert = session.prepare("INSERT INTO ks.t (pk, v) VALUES (?, 0) USING TIMESTAMP ?")
        for pk in range(50):
            session.execute(insert, [pk, split.start_us])
            session.execute(insert, [pk, split.start_us - 1])
        tokens = [row.t for row in session.execute("SELECT token(pk) AS t FROM ks.t")]
        assert len(tokens) == 50
        rows = session.execute(f'SELECT "cdc$stream_id" AS s, pk FROM {LOG}')
        assert {row.s for row in rows} <= {*first.streams, *split.streams}
        for made in (first, split):
            counted = []
            for stream in made.streams:
                where = 'WHERE "cdc$stream_id" = %s'
                counted.append(
                    len(list(session.execute(f"SELECT pk FROM {LOG} {where}", [stream])))
                )
            ends = list(last_tokens(len(made.streams)))
            starts = [-(2**63), *(end + 1 for end in ends)]
            assert counted == [
                sum(start <= token <= end for token in tokens)
                for start, end in zip(starts, ends, strict=False)
            ]


def test_a_serial_read_of_a_tablets_log_is_refused() -> None:
    """A serial read of the log, whether prepared or not, is rejected with ScyllaDB's message."""
    with EmbeddedScylla(vnodes=1) as server, connected(server) as session:
        session.execute(f"CREATE KEYSPACE ks {NTS} AND tablets = {{'initial': 1}}")
        session.execute(f"CREATE TABLE ks.t (pk int PRIMARY KEY) {CDC}")
        prepared = session.prepare(f"SELECT * FROM {LOG}")
        prepared.consistency_level = ConsistencyLevel.LOCAL_SERIAL
        plain = SimpleStatement(f"SELECT * FROM {LOG}", consistency_level=ConsistencyLevel.SERIAL)
        for statement in (prepared, plain):
            with pytest.raises(InvalidRequest, match=f"not supported on CDC log tables: {LOG}"):
                session.execute(statement)


def test_the_driver_reads_the_table_of_4_3_and_the_upgraded_ones() -> None:
    """The new tables do not exist before the upgrade from 4.3, and are complete after it."""
    with EmbeddedScylla(version="4.3", ring_delay_ms=0, vnodes=2) as server:
        server.join(vnodes=1)
        with connected(server) as session:
            legacy = "SELECT time, streams FROM system_distributed.cdc_streams_descriptions"
            described = {
                milliseconds(row.time): set(row.streams) for row in session.execute(legacy)
            }
            assert described == {
                g.timestamp: {s for span in g.ranges for s in span.streams}
                for g in server.cluster.generations
            }
            times = (
                "SELECT time FROM system_distributed.cdc_generation_timestamps "
                "WHERE key = 'timestamps'"
            )
            with pytest.raises(InvalidRequest, match="unconfigured table"):
                session.execute(times)
            server.upgrade_streams()
            assert {milliseconds(row.time) for row in session.execute(times)} == set(described)
            ranges = "SELECT time, streams FROM system_distributed.cdc_streams_descriptions_v2"
            rewritten: dict[int, set[bytes]] = {}
            for row in session.execute(ranges):
                rewritten.setdefault(milliseconds(row.time), set()).update(row.streams)
            assert rewritten == described


class Relays(AddressTranslator):  # type: ignore[misc]
    """A translator from a relay's address to the address on which the node behind it listens."""

    def translate(self, addr: str) -> str:
        return {"192.0.2.7": "127.0.0.9"}.get(addr, addr)


def test_a_node_behind_a_relay_is_told_by_the_relay_s_address() -> None:
    """System tables and events show the relay's address, not the one on which the node listens."""
    with EmbeddedScylla() as server:
        server.join(address="192.0.2.7", listen_address="127.0.0.9")
        with connected(server, "127.0.0.9", Relays()) as session:
            local = session.execute("SELECT rpc_address FROM system.local").one()
            assert local.rpc_address == "192.0.2.7"
            peers = session.execute("SELECT rpc_address FROM system.peers")
            assert [peer.rpc_address for peer in peers] == [server.host]
        joined = server.nodes[-1]
        server.take_down(joined)
        server.bring_up(joined)
        server.leave(joined)
        assert [node.address for node in server.nodes] == [server.host]


@pytest.mark.parametrize("tablets", [True, False])
def test_keyspaces_use_tablets_by_default_if_the_server_does(tablets: bool) -> None:
    """The server's default applies unless a keyspace sets `tablets` or uses SimpleStrategy."""
    server = EmbeddedScylla(tablets=tablets)
    for name, options in (
        ("ks", NTS),
        ("other", f"{NTS} AND tablets = {{'enabled': {str(not tablets).lower()}}}"),
        ("simple", "WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}"),
    ):
        server.execute(f"CREATE KEYSPACE {name} {options}")
    found = server.execute("SELECT keyspace_name FROM system_schema.scylla_keyspaces")
    assert found == [(b"ks" if tablets else b"other",)]
    cql = "SELECT value FROM system.config WHERE name = 'tablets_mode_for_new_keyspaces'"
    assert server.execute(cql) == [(b'"enabled"' if tablets else b'"disabled"',)]


def test_a_version_without_tablets_cannot_prefer_them() -> None:
    """The option `tablets` is rejected for a version without tablets."""
    with pytest.raises(ConfigurationError, match=r"tablets is True: ScyllaDB 5\.2 has none"):
        EmbeddedScylla(version="5.2", tablets=True)


def test_each_node_lists_its_own_clients() -> None:
    """`system.clients` of a node contains the sessions with this node, and no others."""
    with EmbeddedScylla(nodes=2) as server, connected(server, "127.0.0.2") as session:
        rows = session.execute("SELECT address, port FROM system.clients")
        own = {each.peer for each in server._server.sessions if each.host.address == "127.0.0.2"}
        assert {(row.address, row.port) for row in rows} == own

"""Tests the embedded server over real sockets, with drivers and raw clients."""

import io
import socket
import ssl
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import pytest
from cassandra import InvalidRequest
from cassandra.auth import PlainTextAuthProvider
from cassandra.cluster import (
    EXEC_PROFILE_DEFAULT,
    Cluster,
    ExecutionProfile,
    NoHostAvailable,
    Session,
)
from cassandra.connection import DRIVER_NAME
from cassandra.policies import WhiteListRoundRobinPolicy
from cassandra.protocol import QueryMessage, RegisterMessage, StartupMessage

from cdc_reader.errors import ConfigurationError
from cdc_reader.testing import EmbeddedScylla
from cdc_reader.testing.clock import ManualClock
from cdc_reader.testing.embedded.codec.order import read_fields
from cdc_reader.testing.embedded.errors import CqlError
from tests.drivers import PATIENT
from tests.recordings.replay import raw_select

TLS = Path(__file__).parents[3] / "data" / "tls"
KEYSPACE = "WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}"
READY, RESULT, EVENT, ERROR = 2, 8, 12, 0


class RawClient:
    """A client that sends and receives frames itself, to see what drivers hide."""

    def __init__(self, server: EmbeddedScylla) -> None:
        self.socket = socket.create_connection((server.host, server.port), timeout=120)
        self.ask(StartupMessage("3.3.1", {}))

    def send(self, message: Any, stream: int = 0) -> None:
        body = io.BytesIO()
        message.send_body(body, 4)
        header = struct.pack(">BBhBI", 4, 0, stream, message.opcode, len(body.getvalue()))
        self.socket.sendall(header + body.getvalue())

    def receive(self) -> tuple[int, int, bytes]:
        """Return (opcode, stream, body) of the next frame."""
        _, _, stream, opcode, size = struct.unpack(">BBhBI", self._exactly(9))
        return opcode, stream, self._exactly(size)

    def ask(self, message: Any) -> tuple[int, int, bytes]:
        self.send(message)
        return self.receive()

    def query(self, cql: str) -> tuple[int, int, bytes]:
        return self.ask(QueryMessage(cql, 1))

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            more = self.socket.recv(size - len(data))
            if not more:
                raise ConnectionError("closed by the server")
            data += more
        return data

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()


@pytest.fixture(scope="module")
def server() -> Iterator[EmbeddedScylla]:
    """A three-node cluster."""
    with EmbeddedScylla(nodes=3, vnodes=8) as server:
        yield server


@pytest.fixture(scope="module")
def session(server: EmbeddedScylla) -> Iterator[Session]:
    """A session with the driver's default settings."""
    cluster = Cluster([server.host], port=server.port, **PATIENT)
    yield cluster.connect()
    cluster.shutdown()


def test_the_driver_connects_with_default_settings(
    server: EmbeddedScylla, session: Session
) -> None:
    """The driver negotiates version 4, and finds all nodes, tokens and system keyspaces."""
    metadata = session.cluster.metadata
    assert session.cluster.protocol_version == 4
    assert {host.address for host in metadata.all_hosts()} == {f"127.0.0.{n}" for n in (1, 2, 3)}
    assert {host.host_id for host in metadata.all_hosts()} == {
        node.host_id for node in server.cluster.nodes
    }
    assert [token.value for token in metadata.token_map.ring] == list(server.cluster.ring.tokens)
    assert {"system", "system_schema", "system_distributed"} <= set(metadata.keyspaces)


def test_each_node_speaks_of_itself_and_its_peers(server: EmbeddedScylla) -> None:
    """`system.local` describes the connected node, and `system.peers` describes the others."""
    with RawClient(server) as client:
        address = socket.inet_aton("127.0.0.1")
        _, _, local = client.query("SELECT broadcast_address FROM system.local")
        _, _, peers = client.query("SELECT peer FROM system.peers")
        assert local.endswith(address)
        assert address not in peers
        assert all(socket.inet_aton(f"127.0.0.{n}") in peers for n in (2, 3))


def test_system_peers_v2_does_not_exist(session: Session) -> None:
    """The table `system.peers_v2` does not exist, so drivers query `system.peers`."""
    with pytest.raises(InvalidRequest, match="unconfigured table peers_v2"):
        session.execute("SELECT * FROM system.peers_v2")


def test_clients_receive_schema_change_events(server: EmbeddedScylla) -> None:
    """Registered clients, and no others, are notified of a new table and of its log."""
    with RawClient(server) as listener, RawClient(server) as other, RawClient(server) as actor:
        assert listener.ask(RegisterMessage(["SCHEMA_CHANGE"]))[0] == READY
        assert other.ask(RegisterMessage(["STATUS_CHANGE"]))[0] == READY
        actor.query(f"CREATE KEYSPACE told {KEYSPACE}")
        actor.query("CREATE TABLE told.t (pk int PRIMARY KEY) WITH cdc = {'enabled': true}")
        events = [listener.receive() for _ in range(3)]
        assert [(opcode, stream) for opcode, stream, _ in events] == [(EVENT, -1)] * 3
        assert events[0][2] == b"\0\x0dSCHEMA_CHANGE\0\x07CREATED\0\x08KEYSPACE\0\x04told"
        assert events[1][2].endswith(b"\0\x05TABLE\0\x04told\0\x01t")
        assert events[2][2].endswith(b"\0\x05TABLE\0\x04told\0\x10t_scylla_cdc_log")
        assert other.query("SELECT key FROM system.local")[0] == RESULT


def test_pipelined_requests_are_answered_in_order(server: EmbeddedScylla) -> None:
    """Many requests in flight get their responses in order, with their stream numbers."""
    with RawClient(server) as client:
        for stream in range(500):
            client.send(QueryMessage("SELECT key FROM system.local", 1), stream)
        assert [client.receive()[1] for _ in range(500)] == list(range(500))


def test_use_affects_its_connection_only(server: EmbeddedScylla) -> None:
    """USE does not change the keyspace of other connections."""
    with RawClient(server) as first, RawClient(server) as second:
        first.query("USE system")
        assert first.query("SELECT key FROM local")[0] == RESULT
        assert second.query("SELECT key FROM local")[0] == ERROR


def test_garbage_ends_only_its_connection(server: EmbeddedScylla) -> None:
    """Only the client that sends garbage gets a protocol error and is disconnected."""
    with RawClient(server) as client, RawClient(server) as healthy:
        client.socket.sendall(b"GET / HTTP/1.1\r\n\r\n")
        opcode, _, body = client.receive()
        assert (opcode, body[:4]) == (ERROR, b"\0\0\0\x0a")
        with pytest.raises(ConnectionError):
            client.receive()
        assert healthy.query("SELECT key FROM system.local")[0] == RESULT


def test_system_clients_lists_who_is_connected(session: Session) -> None:
    """`system.clients` lists each client with the name of its driver."""
    names = {row.driver_name for row in session.execute("SELECT * FROM system.clients")}
    assert DRIVER_NAME in names


def test_system_clients_lists_clients_of_the_queried_node() -> None:
    """`system.clients` lists only the clients of the queried node."""
    with EmbeddedScylla(nodes=2) as server:
        sessions = []
        for node in server.cluster.nodes:
            profile = ExecutionProfile(WhiteListRoundRobinPolicy([node.address]))
            cluster = Cluster(
                [node.address],
                port=server.port,
                protocol_version=4,
                execution_profiles={EXEC_PROFILE_DEFAULT: profile},
                **PATIENT,
            )
            sessions.append(cluster.connect())
        ports = [
            {row.port for row in session.execute("SELECT port FROM system.clients")}
            for session in sessions
        ]
        assert all(ports)
        assert not ports[0] & ports[1]
        for session in sessions:
            session.cluster.shutdown()


def test_cdc_that_was_turned_off_is_remembered(session: Session) -> None:
    """After CDC is disabled, the schema of the table keeps the CDC extension."""
    session.execute(f"CREATE KEYSPACE ext {KEYSPACE}")
    select = "SELECT extensions FROM system_schema.tables WHERE keyspace_name = 'ext'"
    session.execute("CREATE TABLE ext.t (pk int PRIMARY KEY)")
    assert not session.execute(select).one().extensions
    session.execute("ALTER TABLE ext.t WITH cdc = {'enabled': true}")
    session.execute("ALTER TABLE ext.t WITH cdc = {'enabled': false}")
    extensions = [row.extensions for row in session.execute(select) if row.extensions]
    assert [list(extension) for extension in extensions] == [["cdc"]]
    session.execute("DROP KEYSPACE ext")


@pytest.mark.parametrize("password", ["wrong", "", "secret "])
def test_a_wrong_password_is_refused(password: str) -> None:
    """A wrong password is rejected with ScyllaDB's message."""
    with EmbeddedScylla(credentials=("scylla", "secret")) as server:
        cluster = Cluster(
            [server.host],
            port=server.port,
            protocol_version=4,
            auth_provider=PlainTextAuthProvider("scylla", password),
            **PATIENT,
        )
        with pytest.raises(NoHostAvailable, match="Username and/or password are incorrect"):
            cluster.connect()
        cluster.shutdown()


def test_the_right_password_is_accepted() -> None:
    """After login, `system.clients` shows the user's name."""
    with EmbeddedScylla(credentials=("scylla", "secret")) as server:
        provider = PlainTextAuthProvider("scylla", "secret")
        cluster = Cluster([server.host], port=server.port, auth_provider=provider, **PATIENT)
        clients = cluster.connect().execute("SELECT username FROM system.clients")
        assert {row.username for row in clients} == {"scylla"}
        cluster.shutdown()


def test_tls_protects_the_connection() -> None:
    """A client that trusts the certificate can connect, but a client without TLS cannot."""
    with EmbeddedScylla(certificate=TLS / "certificate.pem", key=TLS / "key.pem") as server:
        context = ssl.create_default_context(cafile=str(TLS / "certificate.pem"))
        context.check_hostname = True
        cluster = Cluster(
            [server.host],
            port=server.port,
            ssl_context=context,
            ssl_options={"server_hostname": "localhost"},
            **PATIENT,
        )
        assert cluster.connect().execute("SELECT key FROM system.local").one().key == "local"
        cluster.shutdown()
        plain = Cluster([server.host], port=server.port, protocol_version=4, connect_timeout=2)
        with pytest.raises(NoHostAvailable):
            plain.connect()
        plain.shutdown()


@pytest.mark.parametrize(
    ("host", "address"),
    [("localhost", "127.0.0.1"), ("0.0.0.0", "127.0.0.1"), ("127.0.0.5", "127.0.0.5")],
)
def test_a_node_knows_the_address_it_is_reached_by(host: str, address: str) -> None:
    """A node that listens on a host name or on all addresses reports a numeric address."""
    with EmbeddedScylla(host) as server:
        assert server.contact_point == f"{host}:{server.port}"
        cluster = Cluster([host], port=server.port, protocol_version=4, **PATIENT)
        row = cluster.connect().execute("SELECT rpc_address FROM system.local").one()
        assert row.rpc_address == address
        cluster.shutdown()


def test_stopping_closes_connections_and_the_port() -> None:
    """`stop` closes connections and the port, and can be called twice."""
    server = EmbeddedScylla().start()
    with RawClient(server) as client:
        server.stop()
        with pytest.raises(ConnectionError):
            client.receive()
    with pytest.raises(ConnectionError):
        socket.create_connection((server.host, server.port), timeout=120)
    server.stop()


def test_a_port_in_use_cannot_be_listened_on(server: EmbeddedScylla) -> None:
    """If the port is in use, `start` raises OSError."""
    with pytest.raises(OSError, match="in use"):
        EmbeddedScylla(port=server.port).start()


def test_the_clock_is_the_one_given() -> None:
    """Generations have timestamps from the given clock."""
    clock = ManualClock(1_795_220_000_000_000)
    with EmbeddedScylla(clock=clock) as server:
        assert server.cluster.generations[0].timestamp == 1_795_220_000_000
        clock.advance(1_000_000)
        assert server.join().timestamp == 1_795_220_066_000


def test_a_later_generation_is_published_to_clients() -> None:
    """The description tables show a generation before it starts, with streams in shard order."""
    with EmbeddedScylla(shards=3, vnodes=2) as server:
        generation = server.join(vnodes=1, shards=5)
        cluster = Cluster([server.host], port=server.port, **PATIENT)
        session = cluster.connect()
        times = session.execute(
            "SELECT time FROM system_distributed.cdc_generation_timestamps WHERE key = 'timestamps'"
        )
        expected = [g.timestamp for g in reversed(server.cluster.generations)]
        assert [round(row.time.timestamp() * 1000) for row in times] == expected
        streams = raw_select(
            session,
            "SELECT range_end, streams FROM system_distributed.cdc_streams_descriptions_v2 "
            f"WHERE time = {generation.timestamp}",
        )
        assert [(end, read_fields((ids or b"")[4:])) for end, ids in streams.rows] == [
            (span.range_end.to_bytes(8, "big", signed=True), list(span.streams))
            for span in generation.ranges
        ]
        cluster.shutdown()


def test_a_node_that_leaves_is_gone_for_clients() -> None:
    """When a node leaves, its connections and port are closed, and other clients are notified."""
    with EmbeddedScylla(nodes=2) as server, RawClient(server) as client:
        gone = ("127.0.0.2", server.port)
        connected = socket.create_connection(gone, timeout=120)
        assert client.ask(RegisterMessage(["TOPOLOGY_CHANGE", "STATUS_CHANGE"]))[0] == READY
        server.leave(server.cluster.nodes[1])
        assert connected.recv(1) == b""
        connected.close()
        with pytest.raises(ConnectionError):
            socket.create_connection(gone, timeout=120)
        where = b"\x04\x7f\0\0\x02" + server.port.to_bytes(4, "big")
        assert client.receive()[2] == b"\0\x0dSTATUS_CHANGE\0\x04DOWN" + where
        assert client.receive()[2] == b"\0\x0fTOPOLOGY_CHANGE\0\x0cREMOVED_NODE" + where
        assert client.query("SELECT peer FROM system.peers")[2].endswith(b"\0\0\0\0")


def test_repair_makes_a_generation_after_a_node_has_left() -> None:
    """Streams are repaired only if the ring has changed, for example because a node has left."""
    with EmbeddedScylla(nodes=2) as server:
        assert server.check_and_repair_streams() is None
        server.leave(server.cluster.nodes[1])
        repaired = server.check_and_repair_streams()
        assert repaired is not None
        assert repaired.range_ends == server.cluster.ring.tokens


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"host": "0.0.0.0", "nodes": 2}, "host is '0.0.0.0': several nodes need a loopback IPv4"),
        ({"host": "::1", "nodes": 2}, "host is '::1': several nodes need a loopback IPv4"),
        ({"host": "no such host"}, "host is 'no such host': expected an address of this machine"),
        ({"nodes": 0}, "nodes is 0: expected at least 1"),
        ({"vnodes": 0}, "vnodes is 0: expected at least 1"),
        ({"shards": -1}, "shards is -1: expected at least 1"),
        ({"version": "newest"}, "version is 'newest': expected a version of ScyllaDB such as"),
        ({"version": "9.9"}, "version is '9.9': expected a version of ScyllaDB such as"),
        ({"version": "2024.1"}, "version is '2024.1': expected a version of ScyllaDB such as"),
        ({"port": 70000}, "port is 70000: expected 0 to 65535"),
        ({"nodes": 100, "vnodes": 1000, "shards": 100}, "vnodes is 1000: expected"),
        ({"certificate": "none.pem", "key": "none.pem"}, "certificate is 'none.pem': No such file"),
        ({"certificate": __file__, "key": __file__}, f"certificate is {__file__!r}: expected PEM"),
        ({"certificate": "c.pem"}, "key is None: TLS takes both a certificate and its private"),
    ],
)
def test_impossible_settings_are_refused(settings: dict[str, Any], message: str) -> None:
    """An invalid setting raises a one-line error with its name, its value and what is expected."""
    with pytest.raises(ConfigurationError) as error:
        EmbeddedScylla(**settings)
    assert str(error.value).startswith(message)
    assert "\n" not in str(error.value)


def test_statements_run_without_a_connection() -> None:
    """`execute` works before the server starts, while it listens, and after it stops."""
    server = EmbeddedScylla(clock=ManualClock(1_700_000_000_000_000))
    server.execute(f"CREATE KEYSPACE ks {KEYSPACE}")
    server.execute("CREATE TABLE ks.t (pk int PRIMARY KEY, v text) WITH cdc = {'enabled': true}")
    assert server.execute("INSERT INTO ks.t (pk, v) VALUES (?, ?)", (_int(1), b"a")) == []
    with server:
        server.execute("INSERT INTO ks.t (pk, v) VALUES (:p, :q)", {"p": _int(2), "q": None})
        assert server.execute("SELECT v FROM ks.t WHERE pk = ?", (_int(1),)) == [(b"a",)]
    assert len(server.execute("SELECT * FROM ks.t_scylla_cdc_log")) == 2


def test_pages_are_read_without_a_connection() -> None:
    """`pages` returns the bodies of the RESULTs that a client would get."""
    server = EmbeddedScylla()
    server.execute(f"CREATE KEYSPACE ks {KEYSPACE}")
    server.execute("CREATE TABLE ks.t (pk int, ck int, PRIMARY KEY (pk, ck))")
    for number in range(5):
        server.execute("INSERT INTO ks.t (pk, ck) VALUES (0, ?)", (_int(number),))
    pages = server.pages("SELECT ck FROM ks.t WHERE pk = ?", page_size=2, parameters=(_int(0),))
    assert [page[-4:] for page in pages] == [_int(1), _int(3), _int(4)]


def test_a_refusal_without_a_connection_is_an_exception() -> None:
    """`execute` raises CqlError with ScyllaDB's message."""
    with pytest.raises(CqlError, match="Keyspace 'none' does not exist"):
        EmbeddedScylla().execute("USE none")


def test_a_table_under_replay_is_not_executed_against() -> None:
    """`execute` raises ValueError for a table under replay, whose pages are already encoded."""
    server = EmbeddedScylla()
    server.replay("system", "local", server.pages("SELECT key FROM system.local"))
    with pytest.raises(ValueError, match="not under replay"):
        server.execute("SELECT key FROM system.local")


def _int(number: int) -> bytes:
    return number.to_bytes(4, "big", signed=True)

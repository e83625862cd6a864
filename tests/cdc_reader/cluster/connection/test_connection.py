"""Failed connections raise the right error within the timeout."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from cassandra.cluster import DefaultConnection

from cdc_reader.cluster import opening
from cdc_reader.cluster.opening import Opening
from cdc_reader.cluster.tls import tls_context
from cdc_reader.config import ConnectionConfig
from cdc_reader.errors import ConfigurationError, ConnectionFailedError
from cdc_reader.reading.retry import NEVER
from cdc_reader.testing import EmbeddedScylla

TLS = Path(__file__).parents[3] / "data" / "tls"
PATIENCE = 1.0


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    """A socket that accepts connections and never responds."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


def port_of(server: socket.socket) -> int:
    """Return the port of the listener."""
    port: int = server.getsockname()[1]
    return port


def test_a_closed_port_fails_at_once(listener: socket.socket) -> None:
    """The error for a closed port names the host and port, and says what to check."""
    port = port_of(listener)
    listener.close()
    with pytest.raises(
        ConnectionFailedError, match=rf"cannot connect to 127.0.0.1:{port}: .*check"
    ):
        Opening(ConnectionConfig(f"127.0.0.1:{port}"), 100).session(NEVER)


def test_a_silent_server_fails_at_the_timeout(
    listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The timeout for silent servers covers all contact points together."""
    monkeypatch.setattr(opening, "CONNECT_TIMEOUT", PATIENCE)
    points = [f"127.0.0.1:{port_of(listener)}"] * 3
    with pytest.raises(ConnectionFailedError, match=r"cannot connect to 127.0.0.1"):
        Opening(ConnectionConfig(points), 100).session(NEVER)


def test_an_unknown_host_is_named() -> None:
    """The error names a host that cannot be resolved. RFC 6761 reserves the name used here."""
    with pytest.raises(ConnectionFailedError, match=r"cannot connect to nonesuch.invalid:9042"):
        Opening(ConnectionConfig("nonesuch.invalid"), 100).session(NEVER)


@pytest.mark.parametrize("content", [None, "not a certificate"])
def test_an_unfit_authority_file_is_named(tmp_path: Path, content: str | None) -> None:
    """The error for an unusable CA file names the option and the path."""
    path = tmp_path / "ca.pem"
    if content:
        path.write_text(content)
    with pytest.raises(ConfigurationError, match=r"^tls_ca is .*ca.pem"):
        tls_context(ConnectionConfig("host", tls_ca=str(path)))


def test_no_tls_path_is_no_tls() -> None:
    """Without TLS options, connections are not encrypted."""
    assert tls_context(ConnectionConfig("host")) is None


@pytest.mark.needs("topology")
def test_the_authority_that_is_given_is_trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server whose certificate was issued by the given CA is trusted.

    Without TLS, the connection fails, and the error says that the port uses TLS.
    """
    from cdc_reader.testing import EmbeddedScylla

    certificate, key = TLS / "certificate.pem", TLS / "key.pem"
    with EmbeddedScylla(certificate=certificate, key=key) as server:
        session = Opening(
            ConnectionConfig(server.contact_point, tls_ca=str(certificate)), 100
        ).session(NEVER)
        session.cluster.shutdown()
        monkeypatch.setattr(opening, "CONNECT_TIMEOUT", PATIENCE)
        without = ConnectionConfig(server.contact_point)
        with pytest.raises(ConnectionFailedError, match="it speaks TLS on this port"):
            Opening(without, 100).session(NEVER)


@pytest.mark.slow
@pytest.mark.needs("topology")
def test_a_node_that_is_silent_keeps_nobody_from_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A session opens although a node does not answer, as when its machine has vanished.

    The driver waits for that node in some attempts only.
    """
    monkeypatch.setattr(opening, "CONNECT_TIMEOUT", 2 * PATIENCE)
    with EmbeddedScylla(nodes=3) as server:
        silent = server.cluster.nodes[-1]
        server.take_down(silent)
        with socket.create_server((silent.address, server.port)):
            for _ in range(10):
                session = Opening(ConnectionConfig(server.contact_point), 100).session(NEVER)
                session.cluster.shutdown()


def test_requests_are_sent_at_once_and_pages_received_in_few_calls() -> None:
    """Sockets have TCP_NODELAY set, and a receive buffer 64 times as large as the default."""
    with EmbeddedScylla(port=0) as server:
        session = Opening(ConnectionConfig(server.contact_point), 100).session(NEVER)
        try:
            [pool] = session.get_pools()
            connection, _ = pool.borrow_connection(timeout=120)
            pool.return_connection(connection)
            assert connection._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            assert connection.in_buffer_size >= 64 * DefaultConnection.in_buffer_size
        finally:
            session.cluster.shutdown()

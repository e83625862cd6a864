"""Opens the driver's session: its settings, its time limit, and its errors."""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import Any

from cassandra import ConsistencyLevel
from cassandra.auth import PlainTextAuthProvider
from cassandra.cluster import (
    EXEC_PROFILE_DEFAULT,
    Cluster,
    DefaultConnection,
    ExecutionProfile,
    Session,
)
from cassandra.connection import ConnectionShutdown
from cassandra.policies import (
    ExponentialReconnectionPolicy,
    FallthroughRetryPolicy,
    TokenAwarePolicy,
)

from cdc_reader.cluster.driver import PageProtocol, application, open_cluster
from cdc_reader.cluster.errors import connect_error, refused_error, unreachable_error
from cdc_reader.cluster.routing import OwnerFirst
from cdc_reader.cluster.tls import Refusal, speaks_tls, tls_context
from cdc_reader.config import ConnectionConfig
from cdc_reader.errors import ConfigurationError, ConnectionFailedError
from cdc_reader.reading.retry import Interruption, in_background, wait_for

CONNECT_TIMEOUT = 10.0
"""The seconds to connect to the cluster."""

_RECONNECT_FIRST, _RECONNECT_LONGEST = 0.5, 10.0
"""Seconds between attempts to reconnect to a node."""
_PROTOCOL_VERSION = 4


class PageConnection(DefaultConnection):  # type: ignore[misc]
    """The driver's connection, with larger reads and prompt detection of a closed socket.

    It reads a page from the socket in a few calls; the driver's 4 KiB buffer would need hundreds.
    It fails as soon as the server closes the socket. If the server closes the socket in the middle
    of a frame, the driver's own connection fails late: most event loops wait for the rest of the
    frame until each request times out, and libev's loop spins meanwhile.
    """

    in_buffer_size = 1 << 20

    def process_io_buffer(self) -> None:
        """Handle data after each read from the socket; the driver calls this in its event loop."""
        super().process_io_buffer()
        while self._iobuf.tell() and (more := self._more()):
            self._iobuf.write(more)
            super().process_io_buffer()

    def _more(self) -> bytes:
        """Read what is available; fail the connection at the end of the stream or on an error."""
        if self.is_closed or self.is_defunct or self._socket is None:
            return b""
        try:
            more: bytes = self._socket.recv(self.in_buffer_size)
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return b""  # no data yet
        except OSError as error:
            self.defunct(error)
            return b""
        if not more:
            self.defunct(ConnectionShutdown(f"{self.endpoint} closed the connection"))
        return more


class Opening:
    """A session that starts to open when this object is created; thread-safe.

    A separate thread opens it, because the driver limits the time of each step, but not the number
    of steps.
    """

    def __init__(self, config: ConnectionConfig, fetch_size: int) -> None:
        self._tls = tls_context(config)
        settings = _settings(config, self._tls)
        self._endpoints = config.endpoints()
        self._where = ", ".join(f"{host}:{port}" for host, port in self._endpoints)
        self._deadline = time.monotonic() + CONNECT_TIMEOUT
        self._is_given_up = False
        self._opened = in_background(
            partial(_session, settings, config.local_dc, fetch_size), "cdc-connect"
        )

    @property
    def has_failed(self) -> bool:
        """True if opening failed, and a new `Opening` is needed."""
        failed = self._opened.done() and self._opened.exception() is not None
        return failed or self._is_given_up

    def session(self, interruption: Interruption) -> Session:
        """Wait for the session, up to the connect timeout.

        Raises ConfigurationError, ConnectionFailedError, AuthenticationFailedError, and
        StoppedError if it is interrupted first.
        """
        left, opened = max(0.0, self._deadline - time.monotonic()), self._opened
        if not opened.done() and not wait_for(opened.add_done_callback, interruption, left):
            self.close()
            self._check_tls()
            raise self._too_slow()
        try:
            return opened.result()
        except Exception as error:
            if self._tls is not None and self._tls.refusals:
                raise refused_error(self._where, self._tls.refusals.values()) from error
            found = connect_error(error, self._where)
            if isinstance(found, ConnectionFailedError):
                self._check_tls()
            raise found from error

    def has_moved(self) -> bool:
        """Return True if a contact point has an address now at which the session knows no node."""
        cluster = self._opened.result().cluster
        known = {
            *cluster.endpoints_resolved,
            *(host.endpoint for host in cluster.metadata.all_hosts()),
        }
        return not self._addresses() <= {str(endpoint.address) for endpoint in known}

    def close(self) -> None:
        """Close the session; if it is still being opened, close it afterwards."""
        self._is_given_up = True
        self._opened.add_done_callback(_discard)

    def _addresses(self) -> set[str]:
        """Look up the contact points; leave out names that cannot be resolved."""
        found = set()
        for host, port in self._endpoints:
            with suppress(OSError):
                answers = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
                found |= {str(address[0]) for *_, address in answers}
        return found

    def _check_tls(self) -> None:
        """Raise ConnectionFailedError if TLS is off and a contact point requires TLS."""
        if self._tls is None and any(map(speaks_tls, self._endpoints)):
            refusal = Refusal("it speaks TLS on this port", "check the port, or turn tls on")
            raise refused_error(self._where, [refusal])

    def _too_slow(self) -> ConnectionFailedError:
        return unreachable_error(self._where, f"no answer within {CONNECT_TIMEOUT:g} s")


def _session(settings: dict[str, Any], local_dc: str | None, fetch_size: int) -> Session:
    cluster = open_cluster(settings)
    try:
        session = cluster.connect()
    except BaseException:
        cluster.shutdown()
        _check_datacenter(cluster, local_dc)
        raise
    session.client_protocol_handler = PageProtocol
    session.default_fetch_size = fetch_size
    return session


def _check_datacenter(cluster: Cluster, local_dc: str | None) -> None:
    """Reject an unknown datacenter; the driver would report that all its nodes are down."""
    known = _datacenters(cluster)
    if local_dc and known and local_dc not in known:
        raise ConfigurationError("local_dc", local_dc, f"the cluster has {', '.join(known)}")


def _datacenters(cluster: Cluster) -> Sequence[str]:
    return sorted({host.datacenter for host in cluster.metadata.all_hosts() if host.datacenter})


def _discard(opening: Future[Session]) -> None:
    if opening.exception() is None:
        opening.result().cluster.shutdown()


def _settings(config: ConnectionConfig, tls: ssl.SSLContext | None) -> dict[str, Any]:
    """Return the settings of the driver's `Cluster`.

    Schema metadata is off, because on a large cluster reading it takes longer than the queries.
    Nagle's algorithm is off, because the queries of a window are small and would wait for each
    other's responses. A connection has less time than the session, because the driver may wait for
    a node that does not answer before it opens a session with the others.
    """
    endpoints = config.endpoints()
    return {
        "connection_class": PageConnection,
        "contact_points": endpoints,
        "port": endpoints[0][1],
        "protocol_version": _PROTOCOL_VERSION,
        "auth_provider": _credentials(config),
        "ssl_context": tls,
        "connect_timeout": CONNECT_TIMEOUT / (1 + len(endpoints)),
        "control_connection_timeout": CONNECT_TIMEOUT,
        "sockopts": [(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)],
        "schema_metadata_enabled": False,
        "monitor_reporting_enabled": False,
        "reconnection_policy": ExponentialReconnectionPolicy(_RECONNECT_FIRST, _RECONNECT_LONGEST),
        "execution_profiles": {EXEC_PROFILE_DEFAULT: _profile(config)},
        **application("scylla-cdc"),
    }


def _credentials(config: ConnectionConfig) -> PlainTextAuthProvider | None:
    if config.username is None:
        return None
    return PlainTextAuthProvider(config.username, config.password)


def _profile(config: ConnectionConfig) -> ExecutionProfile:
    """Return the execution profile; the driver does not retry, because `Connection.retry` does."""
    return ExecutionProfile(
        load_balancing_policy=TokenAwarePolicy(OwnerFirst(config.local_dc or "")),
        retry_policy=FallthroughRetryPolicy(),
        consistency_level=ConsistencyLevel.name_to_value[config.consistency],
        request_timeout=config.request_timeout.total_seconds(),
        row_factory=lambda _names, rows: rows,
    )

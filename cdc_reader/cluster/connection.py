"""A connection to the cluster: opens the driver's session on first use, and sends queries.

Every wait has a limit: the connect timeout for connecting, and the request timeout for reading a
page.
"""

from __future__ import annotations

import os
import socket
import ssl
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar
from weakref import WeakSet

from cassandra import ConsistencyLevel
from cassandra.auth import PlainTextAuthProvider
from cassandra.cluster import (
    EXEC_PROFILE_DEFAULT,
    Cluster,
    DefaultConnection,
    ExecutionProfile,
    NoHostAvailable,
    ResponseFuture,
    ResultSet,
    Session,
)
from cassandra.connection import ConnectionShutdown
from cassandra.policies import (
    ExponentialReconnectionPolicy,
    FallthroughRetryPolicy,
    TokenAwarePolicy,
)
from cassandra.query import PreparedStatement, SimpleStatement, Statement

from cdc_reader._log import get_logger
from cdc_reader._stats import count_overload, waiting
from cdc_reader.cluster.driver import application, forget_columns, keep_columns, open_cluster
from cdc_reader.cluster.errors import connect_error, refused_error, request_error
from cdc_reader.cluster.routing import OwnerFirst, RoutedStatement
from cdc_reader.cluster.throttle import Throttle
from cdc_reader.cluster.tls import speaks_tls, tls_context
from cdc_reader.cluster.wire import PageProtocol, Queries, Query, Request
from cdc_reader.config import ConnectionConfig, ReadConfig, as_connection
from cdc_reader.cql.schema import Column
from cdc_reader.decoding import Page
from cdc_reader.errors import (
    CdcError,
    ConfigurationError,
    ConnectionFailedError,
    DecodeError,
    OverloadedError,
)
from cdc_reader.reading.retry import in_background, interruptibly, retry, wait_for

log = get_logger(__name__)

T = TypeVar("T")

Columns = tuple[Column, ...]

CONNECT_TIMEOUT = 10.0
"""The seconds to connect to the cluster."""

PREPARED = 1_000
"""The maximum number of prepared statements to keep; a table needs about a dozen."""

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
        self._known: set[str] = set()
        self._where = ", ".join(f"{host}:{port}" for host, port in self._endpoints)
        self._deadline = time.monotonic() + CONNECT_TIMEOUT
        self._is_given_up = False
        self._opened = in_background(
            partial(self._open, settings, config.local_dc, fetch_size), "cdc-connect"
        )

    @property
    def has_failed(self) -> bool:
        """True if opening failed, and a new `Opening` is needed."""
        failed = self._opened.done() and self._opened.exception() is not None
        return failed or self._is_given_up

    def session(self) -> Session:
        """Wait for the session, up to the connect timeout.

        Raises ConfigurationError, ConnectionFailedError, AuthenticationFailedError, and
        StoppedError if the context's stop is set first.
        """
        left = max(0.0, self._deadline - time.monotonic())
        if not self._opened.done() and not wait_for(self._opened.add_done_callback, left):
            self.close()
            self._check_tls()
            raise self._too_slow()
        try:
            return self._opened.result()
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
        nodes = {str(host.address) for host in cluster.metadata.all_hosts()}
        return not self._addresses() <= self._known | nodes

    def close(self) -> None:
        """Close the session; if it is still being opened, close it afterwards."""
        self._is_given_up = True
        self._opened.add_done_callback(_discard)

    def _open(self, settings: dict[str, Any], local_dc: str | None, fetch_size: int) -> Session:
        self._known = self._addresses()
        return _session(settings, local_dc, fetch_size)

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
            reason = "it speaks TLS on this port; check the port, or turn tls on"
            raise refused_error(self._where, [reason])

    def _too_slow(self) -> ConnectionFailedError:
        return ConnectionFailedError(
            f"cannot connect to {self._where}: no answer within {CONNECT_TIMEOUT:g} s; check host, "
            "port and that the node is up"
        )


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
    other's responses.
    """
    endpoints = config.endpoints()
    return {
        "connection_class": PageConnection,
        "contact_points": endpoints,
        "port": endpoints[0][1],
        "protocol_version": _PROTOCOL_VERSION,
        "auth_provider": _credentials(config),
        "ssl_context": tls,
        "connect_timeout": CONNECT_TIMEOUT / len(endpoints),
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


_connections: WeakSet[Connection] = WeakSet()
_parents: list[Opening] = []
"""Sessions of the process from which this one was forked."""


def _leave_to_parent() -> None:
    for connection in [*_connections]:
        connection.leave_to_parent()


if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=_leave_to_parent)


class Connection(Queries):
    """Queries a cluster through the driver.

    A forked process may go on to use it, and opens a session of its own.

    The first page of a prepared statement carries metadata, which is checked against the query's
    columns. Later pages omit it if the driver supports that; cassandra-driver up to 3.30 does not.
    When the table is altered, the driver prepares the statement again on its own, and the new
    metadata is checked as well.

    `throttle` limits how often pages are requested. Writes are not delayed.
    """

    def __init__(self, config: ConnectionConfig | str, read: ReadConfig) -> None:
        self._config = as_connection(config)
        self._read = read
        self._opening: Opening | None = None
        self._reset()
        _connections.add(self)

    def _reset(self) -> None:
        self.throttle = Throttle(self._read.max_queries_per_second)
        self._lock, self._moving = threading.Lock(), threading.Lock()
        self._opening = None
        self._prepared: OrderedDict[tuple[str, Columns | None], PreparedStatement] = OrderedDict()

    def leave_to_parent(self) -> None:
        """Let the next use open a session of this process, which was forked from another.

        None of the driver's threads run in this process. The parent's session is kept, because the
        driver would close its sockets if it were collected.
        """
        if self._opening is not None:
            _parents.append(self._opening)
        self._reset()

    @property
    def hosts(self) -> str:
        """The contact points."""
        return self._config.hosts

    def session(self) -> Session:
        """Return the driver's session; the first call connects, within the connect timeout."""
        with self._lock:
            if self._opening is None or self._opening.has_failed:
                self._opening = Opening(self._config, self._read.fetch_size)
            opening = self._opening
        return opening.session()

    def close(self) -> None:
        """Close the session; a later use reopens it."""
        with self._lock:
            opening, self._opening = self._opening, None
            self._prepared.clear()
        if opening is not None:
            opening.close()

    def request(self, query: Query) -> Request:
        """See `Queries.request`; prepares the statement before returning."""
        statement, values = self._statement(query)

        def request(paging_state: bytes | None) -> Callable[[], Page]:
            sent = self.throttle.admit()
            future = self._send(query, statement, values, paging_state)

            def answer() -> Page:
                try:
                    return self._page(future, query, statement)
                except OverloadedError:
                    self.throttle.overloaded(sent)
                    count_overload()
                    raise

            return answer

        return request

    def retry(self, action: Callable[[], T]) -> T:
        """See `Queries.retry`; the deadline comes from the configuration."""
        with waiting():
            return retry(action, self._read.retry_deadline)

    def prepare(self, cql: str, doing: str, columns: Columns | None = None) -> PreparedStatement:
        """Prepare a statement, or return the one already prepared for the same text and columns.

        The statement's results carry metadata until a page has been checked against `columns`.
        """
        key = cql, columns
        with self._lock:
            if (known := self._prepared.get(key)) is not None:
                self._prepared.move_to_end(key)
                return known
        prepared = self.retry(partial(self._prepare, cql, doing))
        with self._lock:
            self._prepared[key] = prepared
            if len(self._prepared) > PREPARED:
                self._prepared.popitem(last=False)
        return prepared

    def execute(self, statement: Callable[[], Statement | str], doing: str) -> ResultSet:
        """Execute a statement and wait for its result, retrying transient failures."""
        return self.retry(partial(self._result, statement, doing, []))

    def send(self, statement: Statement, doing: str) -> Callable[[], ResultSet]:
        """Send a statement; the returned function waits for its result, like `execute`."""
        sent: list[ResponseFuture] = []
        with suppress(Exception):  # the returned function tries again, and raises the error
            sent.append(self.session().execute_async(statement))
        return partial(self.retry, partial(self._result, lambda: statement, doing, sent))

    def _result(
        self, statement: Callable[[], Statement | str], doing: str, sent: list[ResponseFuture]
    ) -> ResultSet:
        """Return the result of a request.

        The request is the one in `sent`, which is removed, or a new one if `sent` is empty.
        """
        try:
            return _outcome(sent.pop() if sent else self.session().execute_async(statement()))
        except Exception as error:
            raise self._failure(error, doing) from error

    def _prepare(self, cql: str, doing: str) -> PreparedStatement:
        """Prepare a statement.

        Drops the driver's result metadata, whose types this library does not use.
        """
        try:
            session = self.session()
            statement = interruptibly(partial(session.prepare, cql), "driver-prepare")
        except Exception as error:
            raise self._failure(error, doing) from error
        forget_columns(statement)
        return statement

    def _statement(self, query: Query) -> tuple[Statement, tuple[object, ...] | None]:
        """Return the statement for the driver to execute, and its values."""
        level = query.consistency and ConsistencyLevel.name_to_value[query.consistency]
        if query.columns is None:
            text = query.cql.replace("?", "%s")
            return SimpleStatement(text, consistency_level=level or None), query.values or None
        prepared = self.prepare(query.cql, query.purpose, query.columns)
        bound = RoutedStatement(prepared).bind(query.values)
        if query.route is not None:
            bound.to_owner(query.route)
        if level:
            bound.consistency_level = level
        return bound, None

    def _send(
        self,
        query: Query,
        statement: Statement,
        values: tuple[object, ...] | None,
        paging_state: bytes | None,
    ) -> ResponseFuture:
        session = self.session()
        try:
            return session.execute_async(statement, values, paging_state=paging_state)
        except Exception as error:
            raise self._failure(error, query.purpose) from error

    def _page(self, future: ResponseFuture, query: Query, statement: Any) -> Page:
        try:
            result = _outcome(future)
        except Exception as error:
            if isinstance(statement, RoutedStatement):
                statement.to_any_node()
            raise self._failure(error, query.purpose) from error
        page = next(iter(result.current_rows), None)
        if not isinstance(page, Page):
            raise DecodeError(f"{query.purpose}: expected a result of rows, found none")
        if query.columns is not None:
            page.check(query.columns)
            keep_columns(statement.prepared_statement, query.columns)
        return page

    def _failure(self, error: Exception, doing: str) -> CdcError:
        """Return the error for a failed request; if no node answered, look for a moved cluster."""
        if isinstance(error, NoHostAvailable) and self._moving.acquire(blocking=False):
            try:
                self._follow_move()
            finally:
                self._moving.release()
        return request_error(error, doing)

    def _follow_move(self) -> None:
        """Open another session if the contact points' names lead to other addresses now.

        The driver looks the names up only once. If the other session cannot be opened, this one is
        kept, and the next request that no node answers tries again.
        """
        old = self._opening
        if old is None or not interruptibly(old.has_moved, "cdc-look-up"):
            return
        log.info("contact_points_moved", hosts=self.hosts)
        new = Opening(self._config, self._read.fetch_size)
        try:
            new.session()
        except ConnectionFailedError:
            new.close()
            return
        with self._lock:
            if self._opening is not old:  # closed meanwhile
                old = new
            else:
                self._opening = new
                self._prepared.clear()
        old.close()


def _outcome(future: ResponseFuture) -> ResultSet:
    """Wait for the outcome of a request; the context's stop ends the wait."""
    wait_for(lambda answered: future.add_callbacks(answered, answered))
    return future.result()

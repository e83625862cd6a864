"""A connection to the cluster: opens the driver's session on first use, and sends queries.

Every wait has a limit: the connect timeout for connecting, and the request timeout for reading a
page.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar
from weakref import WeakSet

from cassandra import ConsistencyLevel
from cassandra.cluster import (
    NoHostAvailable,
    ResponseFuture,
    ResultSet,
    Session,
)
from cassandra.policies import HostDistance
from cassandra.pool import Host
from cassandra.query import PreparedStatement, SimpleStatement, Statement

from cdc_reader._log import get_logger
from cdc_reader._stats import count_overload, waiting
from cdc_reader.cluster.driver import (
    accept_long_decimals,
    forget_columns,
    keep_columns,
    wait_for_nodes,
)
from cdc_reader.cluster.errors import request_error
from cdc_reader.cluster.opening import Opening
from cdc_reader.cluster.queries import Queries, Query, Request, SharedAnswers
from cdc_reader.cluster.routing import RoutedStatement
from cdc_reader.cluster.throttle import Throttle
from cdc_reader.config import ConnectionConfig, ReadConfig, as_connection
from cdc_reader.cql.schema import Column
from cdc_reader.decoding import Page
from cdc_reader.errors import (
    CdcError,
    ConnectionFailedError,
    DecodeError,
    OverloadedError,
    QueryRefusedError,
)
from cdc_reader.reading.retry import interruptibly, retry, wait_for

log = get_logger(__name__)

T = TypeVar("T")

Columns = tuple[Column, ...]

PREPARED = 1_000
"""The maximum number of prepared statements to keep; a table needs about a dozen."""


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
        self._reset()
        _connections.add(self)

    def _reset(self) -> None:
        self.shared = SharedAnswers()
        self.throttle = Throttle(self._read.max_queries_per_second)
        self._lock, self._moving = threading.Lock(), threading.Lock()
        self._opening: Opening | None = None
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
        """Return the driver's session; the first call connects, within the connect timeout.

        A read that has been stopped does not open another session after `close`.
        """
        self.interruption.check()
        with self._lock:
            if self._opening is None or self._opening.has_failed:
                self._opening = Opening(self._config, self._read.fetch_size)
            opening = self._opening
        return opening.session(self.interruption)

    def nodes(self) -> Sequence[Host]:
        """See `Queries.nodes`; leaves out the nodes of other datacenters."""
        session = self.session()
        wait_for_nodes(session, self.interruption)
        cluster = session.cluster
        policy = cluster.profile_manager.default.load_balancing_policy
        hosts = cluster.metadata.all_hosts()
        return [host for host in hosts if policy.distance(host) != HostDistance.IGNORED]

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
            sent = self.throttle.admit(self.interruption.stop)
            future = self._send(query, statement, values, paging_state)

            def answer() -> Page:
                try:
                    return self._read_page(future, query, statement)
                except OverloadedError:
                    self.throttle.overloaded(sent)
                    count_overload()
                    raise

            return answer

        return request

    def retry(self, action: Callable[[], T]) -> T:
        """See `Queries.retry`; the deadline comes from the configuration."""
        with waiting():
            return retry(action, self._read.retry_deadline, self.interruption)

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
            return self._outcome(sent.pop() if sent else self.session().execute_async(statement()))
        except Exception as error:
            raise self._failure(error, doing) from error

    def _prepare(self, cql: str, doing: str) -> PreparedStatement:
        """Prepare a statement.

        If a node refuses it, the others are asked, because the node may lag behind them. Drops the
        driver's result metadata, whose types this library does not use.
        """
        with suppress(QueryRefusedError):
            return self._prepare_at_next(cql, doing)
        for _ in self.nodes():
            with suppress(QueryRefusedError):
                return self._prepare_at_next(cql, doing)
        return self._prepare_at_next(cql, doing)

    def _prepare_at_next(self, cql: str, doing: str) -> PreparedStatement:
        """Prepare a statement at the next node; the driver takes the nodes in turn."""
        try:
            prepare = partial(self.session().prepare, cql)
            statement = interruptibly(prepare, "driver-prepare", self.interruption)
        except Exception as error:
            raise self._failure(error, doing) from error
        forget_columns(statement)
        accept_long_decimals(statement)
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
            return session.execute_async(
                statement, values, paging_state=paging_state, host=query.node
            )
        except Exception as error:
            raise self._failure(error, query.purpose) from error

    def _read_page(self, future: ResponseFuture, query: Query, statement: Any) -> Page:
        try:
            result = self._outcome(future)
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

    def _outcome(self, future: ResponseFuture) -> ResultSet:
        wait_for(lambda answered: future.add_callbacks(answered, answered), self.interruption)
        return future.result()

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
        old, until = self._opening, self.interruption
        if old is None or not interruptibly(old.has_moved, "cdc-look-up", until):
            return
        log.info("contact_points_moved", hosts=self.hosts)
        new = Opening(self._config, self._read.fetch_size)
        try:
            new.session(until)
        except CdcError as error:
            new.close()
            if isinstance(error, ConnectionFailedError):
                return
            raise
        with self._lock:
            is_open = self._opening is old  # it may have been closed meanwhile
            if is_open:
                self._opening = new
                self._prepared.clear()
        (old if is_open else new).close()

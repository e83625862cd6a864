"""The cluster through cassandra-driver: connected when first needed, never waited for unbounded."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from cassandra import ConsistencyLevel
from cassandra.cluster import ResponseFuture, Session
from cassandra.query import PreparedStatement, SimpleStatement, Statement

from cdc_reader.config import ConnectionConfig, ReadConfig
from cdc_reader.driver.connecting import connect
from cdc_reader.driver.errors import request_error
from cdc_reader.driver.protocol import RowsBody
from cdc_reader.driver.queries import Queries, Query
from cdc_reader.driver.request import Answer, Page, pages
from cdc_reader.errors import DecodeError
from cdc_reader.retry import retry
from cdc_reader.schema import Column

T = TypeVar("T")
Columns = tuple[Column, ...]


class Connection(Queries):
    """A cluster to ask, through the driver.

    A prepared statement's first page carries metadata, which is checked against the query's
    columns; a driver that can leaves it out from then on. (Up to its version 3.30,
    cassandra-driver never does.) When the table is altered the driver prepares the statement
    again, on its own, and what that promises is checked too.
    """

    def __init__(self, config: ConnectionConfig, read: ReadConfig) -> None:
        self._config = config
        self._read = read
        self._lock = threading.Lock()
        self._session: Session | None = None
        self._prepared: dict[str, tuple[Columns, PreparedStatement]] = {}

    def session(self) -> Session:
        """The driver's session; the first call connects, within the connect timeout."""
        with self._lock:
            if self._session is None:
                self._session = connect(self._config, self._read.fetch_size)
            return self._session

    def close(self) -> None:
        """Give the session up; a later use opens another."""
        with self._lock:
            session, self._session = self._session, None
            self._prepared.clear()
        if session is not None:
            session.cluster.shutdown()

    def pages(self, query: Query) -> Iterator[Page]:
        """See `Queries.pages`; a statement is prepared before this returns."""
        statement, values = self._statement(query)

        def ask(paging_state: bytes | None) -> Answer:
            future = self._send(query, statement, values, paging_state)
            return lambda: _page(future, query, statement)

        return pages(ask, self.retry)

    def retry(self, action: Callable[[], T]) -> T:
        """See `Queries.retry`; the deadline is the configuration's."""
        return retry(action, self._read.retry_deadline)

    def prepare(self, cql: str, doing: str) -> PreparedStatement:
        """The prepared statement, its results with metadata until `result_metadata` is set.

        What the driver read of the metadata is dropped: it is in the driver's own types.
        """

        def attempt() -> PreparedStatement:
            try:
                statement = self.session().prepare(cql)
            except Exception as error:
                raise request_error(error, doing) from error
            statement.result_metadata = None
            return statement

        return self.retry(attempt)

    def _statement(self, query: Query) -> tuple[Statement, tuple[object, ...] | None]:
        """What the driver is to execute, and the values that go with it."""
        level = query.consistency and ConsistencyLevel.name_to_value[query.consistency]
        if query.columns is None:
            text = query.cql.replace("?", "%s")
            return SimpleStatement(text, consistency_level=level or None), query.values or None
        bound = self._prepare_once(query, query.columns).bind(query.values)
        if level:
            bound.consistency_level = level
        return bound, None

    def _prepare_once(self, query: Query, columns: Columns) -> PreparedStatement:
        """A statement is known by its text; other columns than before need another one."""
        known = self._prepared.get(query.cql)
        if known is None or (known[0] is not columns and known[0] != columns):
            known = columns, self.prepare(query.cql, query.purpose)
            self._prepared[query.cql] = known
        return known[1]

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
            raise request_error(error, query.purpose) from error


def _page(future: ResponseFuture, query: Query, statement: Any) -> Page:
    try:
        result = future.result()
    except Exception as error:
        raise request_error(error, query.purpose) from error
    match result.current_rows:
        case [RowsBody(body, promised)]:
            page = Page(body, promised, result.paging_state)
        case _:
            raise DecodeError(f"{query.purpose}: expected a result of rows, found none")
    if query.columns is not None:
        page.check(query.columns)
        statement.prepared_statement.result_metadata = query.columns
    return page

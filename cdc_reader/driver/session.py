"""The cluster through cassandra-driver: connected when first needed, never waited for unbounded."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from cassandra import ConsistencyLevel
from cassandra.cluster import Session
from cassandra.query import PreparedStatement, SimpleStatement

from cdc_reader.config import ConnectionConfig, ReadConfig
from cdc_reader.driver.connecting import connect
from cdc_reader.driver.errors import request_error
from cdc_reader.driver.request import Page, Query, Request
from cdc_reader.kernel import decode
from cdc_reader.retry import retry


class Connection:
    """A cluster to ask. Every method raises errors of `cdc_reader.errors` only."""

    def __init__(self, config: ConnectionConfig, read: ReadConfig) -> None:
        self._config = config
        self._read = read
        self._lock = threading.Lock()
        self._session: Session | None = None

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
        if session is not None:
            session.cluster.shutdown()

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

        return retry(attempt, self._read.retry_deadline)

    def ask(self, query: Query, paging_state: bytes | None = None) -> Request:
        """Ask for a page without waiting for it."""
        return Request(self.session, query, paging_state, self._read.retry_deadline)

    def pages(self, query: Query) -> Iterator[Page]:
        """All pages, the first asked for now, each next one before its forerunner is handed on."""
        return self._pages(query, self.ask(query))

    def batches(
        self, cql: str, parameters: Sequence[object] = (), consistency: str = "ONE"
    ) -> Iterator[pa.RecordBatch]:
        """The result of a query, page by page; ``%s`` stands for a parameter."""
        level = ConsistencyLevel.name_to_value[consistency]
        statement = SimpleStatement(cql, consistency_level=level)
        for page in self.pages(Query(statement, parameters or None, cql)):
            yield decode(page.rows.body)

    def rows(self, cql: str, *parameters: object) -> list[dict[str, Any]]:
        """All rows of a small query, each a dict by column."""
        return [row for batch in self.batches(cql, parameters) for row in batch.to_pylist()]

    def _pages(self, query: Query, request: Request) -> Iterator[Page]:
        while True:
            page = request.page()
            if page.paging_state is None:
                yield page
                return
            request = self.ask(query, page.paging_state)
            yield page

"""A connection to an in-process cluster, without a driver or sockets, for simulations.

`InProcessConnection` queries an `EmbeddedScylla` page by page, in the calling thread. Nothing runs
in the background, so runs are repeatable, and the test decides which requests fail.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import TypeVar, cast

from attrs import frozen

from cdc_reader.cluster.errors import is_lasting
from cdc_reader.cluster.queries import Queries, Query, Request
from cdc_reader.cluster.values import serialise
from cdc_reader.config import ReadConfig
from cdc_reader.cql.schema import Column
from cdc_reader.decoding import Page
from cdc_reader.errors import (
    PermissionDeniedError,
    QueryRefusedError,
    SourceError,
    TransientError,
)
from cdc_reader.reading.retry import retry
from cdc_reader.testing.embedded import EmbeddedScylla, errors
from cdc_reader.testing.embedded.query.result import ColumnSpec, Prepared
from cdc_reader.testing.embedded.topology.ring import Node

T = TypeVar("T")

_MEANINGS: Mapping[type[errors.CqlError], type[SourceError]] = {
    errors.Unauthorized: PermissionDeniedError,
    errors.InvalidRequest: QueryRefusedError,
    errors.InvalidSyntax: QueryRefusedError,
    errors.ConfigurationError: QueryRefusedError,
}
"""Permanent errors of the server, as in `cdc_reader.cluster`; all others are transient."""


@frozen
class RecordedQuery:
    """A page to be requested: the first page of a query, or the one after a paging state."""

    query: Query
    paging_state: bytes | None = None


def _nothing(_recorded: RecordedQuery) -> None:
    pass


def _first(_recorded: RecordedQuery) -> None:
    """Leave every page to the first node."""


class InProcessConnection(Queries):
    """A connection like `cdc_reader.cluster.Connection`, to a server in this process.

    Args:
        server: the server, which need not be started.
        read: sets the page size and the retry deadline.
        before: called before each page is requested. If it raises an error, the request fails with
            that error; a TransientError is retried.
        sleep: called with the length of each pause between attempts, in seconds.
        node: called for each page that any node may answer; returns the node that answers, one of
            `server.nodes`, or None for the first node. Pages of one query may come from different
            nodes.
    """

    def __init__(
        self,
        server: EmbeddedScylla,
        read: ReadConfig | None = None,
        *,
        before: Callable[[RecordedQuery], None] = _nothing,
        sleep: Callable[[float], None] = time.sleep,
        node: Callable[[RecordedQuery], Node | None] = _first,
    ) -> None:
        self._server = server
        self._read = read or ReadConfig()
        self._before = before
        self._sleep = sleep
        self._node = node

    @property
    def hosts(self) -> str:
        """A description of the server, in place of addresses."""
        return "the server in this process"

    def request(self, query: Query) -> Request:
        """See `Queries.request`."""
        return lambda paging_state: self._answer(RecordedQuery(query, paging_state))

    def nodes(self) -> Sequence[Node]:
        """See `Queries.nodes`."""
        return self._server.nodes

    def retry(self, action: Callable[[], T]) -> T:
        """See `Queries.retry`; `sleep` is called for pauses."""
        return retry(action, self._read.retry_deadline, self.interruption, self._sleep)

    def _answer(self, recorded: RecordedQuery) -> Callable[[], Page]:
        """Request the page now; return a function that returns the page or raises the error."""
        try:
            page = self._take(recorded)
        except Exception as error:  # noqa: BLE001 - raised later, as with a driver
            return _raising(error)
        return lambda: page

    def _take(self, recorded: RecordedQuery) -> Page:
        self._before(recorded)
        query = recorded.query
        node = cast("Node | None", query.node) or self._node(recorded)
        if query.node is not None and node not in self._server.nodes:
            raise TransientError(f"{query.purpose}: node {node} has left the cluster")
        try:
            prepared = self._server._prepare(query.cql, node)  # noqa: SLF001 - not public
            body = self._server.page(
                query.cql,
                _serialised(prepared, query),
                page_size=self._read.fetch_size,
                paging_state=recorded.paging_state,
                skip_metadata=query.columns is not None,
                node=node,
                consistency=query.consistency or "QUORUM",
            )
        except errors.CqlError as error:
            lasts = isinstance(error, errors.ServerError) and is_lasting(error.message)
            kind = QueryRefusedError if lasts else _MEANINGS.get(type(error), TransientError)
            raise kind(f"{query.purpose}: {error.message}") from error
        if query.columns is None:
            return Page.parse(body)
        page = Page.parse(body, _columns(prepared.result_columns))
        page.check(query.columns)
        return page


def _raising(error: Exception) -> Callable[[], Page]:
    def answer() -> Page:
        raise error

    return answer


def _serialised(prepared: Prepared, query: Query) -> list[bytes]:
    variables = zip(prepared.bind_columns, query.values, strict=True)
    return [serialise(column.type, value) for column, value in variables]


@lru_cache
def _columns(specs: tuple[ColumnSpec, ...]) -> tuple[Column, ...]:
    return tuple(Column(spec.name, spec.type) for spec in specs)

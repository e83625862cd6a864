"""Queries of a cluster whose nodes may differ, page by page.

The next page is requested before the current one is returned. A page that fails is requested again
from its own paging state. Each node answers from its own copy of the schema, and with tablets, of
the streams; a node that lags does not yet have the newest state.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import cached_property, partial
from itertools import chain, count, repeat
from typing import Any, Self, TypeVar, cast

import pyarrow as pa
from attrs import evolve, frozen

from cdc_reader._time import BEGINNING, Micros
from cdc_reader.cluster.errors import most_keys
from cdc_reader.cql.schema import Column
from cdc_reader.decoding import Page, decode
from cdc_reader.decoding.tolerant import decode_tolerantly
from cdc_reader.errors import (
    DecodeError,
    QueryRefusedError,
    SchemaError,
    TransientError,
)
from cdc_reader.reading.retry import NEVER, Interruptible, Interruption, Viewable, wait_for

T = TypeVar("T")

Node = object
"""One of `Queries.nodes`; only the connection knows what it is."""


@frozen
class Route:
    """The last token of a query's rows; `is_exact` is True if all of the rows have this token."""

    token: int
    is_exact: bool


@frozen
class Query:
    """A SELECT with a ``?`` for each of its values.

    If the result's `columns` are given, the query is prepared, and a result with other columns
    raises DecodeError. If `consistency` is None, the configured level is used. In errors, `doing`
    says what the query is for; if it is empty, errors quote the CQL. With a `route` the query goes
    to a node that has the rows, if one is known; only a query with `columns` may have a route. If
    `node` is given, it answers all pages.
    """

    cql: str
    values: tuple[object, ...] = ()
    columns: tuple[Column, ...] | None = None
    consistency: str | None = None
    doing: str = ""
    route: Route | None = None
    node: Node | None = None

    @property
    def purpose(self) -> str:
        return self.doing or self.cql


class SharedAnswers:
    """Answers that the tables of a connection share; thread-safe.

    Readers of several tables begin their passes at about the same time. A reader that sees the
    cluster as of a `moment` may use whatever was asked for since then, by itself or by another.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._moment = BEGINNING
        self._answers: dict[str, tuple[Micros, Future[Any]]] = {}

    def moment(self, now: Micros, age: int) -> Micros:
        """Return the time as of which a pass that begins `now` sees the cluster.

        It is the time of an earlier pass if one began at most `age` µs ago.
        """
        with self._lock:
            if not 0 <= now - self._moment <= age:
                self._answers.clear()
                self._moment = now
            return self._moment

    def answer(
        self, name: str, since: Micros | None, ask: Callable[[], T], interruption: Interruption
    ) -> T:
        """Return an answer that was asked for at `since` (µs) or later, or now if it is None.

        If another thread is asking, its answer is awaited; if it fails, `ask` is called.
        """
        if since is None:
            return ask()
        with self._lock:
            found = self._answers.get(name)
            is_asked = found is not None and found[0] >= since
            at, answer = found if found is not None and is_asked else (self._moment, Future[Any]())
            self._answers[name] = at, answer
        if is_asked:
            wait_for(answer.add_done_callback, interruption)
            return ask() if answer.exception() else cast("T", answer.result())
        try:
            answer.set_result(ask())
        except BaseException as error:
            with self._lock:
                self._answers.pop(name, None)
            answer.set_exception(error)
            raise
        return cast("T", answer.result())


_SCHEMA_VERSION = Query("SELECT schema_version FROM system.local", consistency="ONE")

Request = Callable[[bytes | None], Callable[[], Page]]
"""Requests the page at a paging state, or the first page for None, without waiting.

The returned function waits for the page, and raises errors of `cdc_reader.errors`."""


class Queries(Viewable, ABC):
    """Sends queries, page by page. Every method raises only errors of `cdc_reader.errors`.

    `interrupted_by` returns a view of the same connection, whose waits can be interrupted.
    """

    __slots__ = ("_interruption",)

    most_keys: int | None = None
    """The server's limit on keys in an IN list; None until the server rejects a longer list."""
    at_one: int = 0
    """The number of queries of replicated tables to send at ONE, because there is only one node."""

    @cached_property
    def _turns(self) -> Iterator[int]:
        return count()

    @cached_property
    def shared(self) -> SharedAnswers:
        """The answers that all tables of this connection share."""
        return SharedAnswers()

    @property
    def interruption(self) -> Interruption:
        """Ends waits, retries and pauses."""
        return getattr(self, "_interruption", NEVER)

    def interrupted_by(self, interruption: Interruption) -> Self:
        """Return a view whose waits, retries and pauses `interruption` ends."""
        return self._view(_interruption=interruption)

    @property
    @abstractmethod
    def hosts(self) -> str:
        """The hosts that are queried, for messages."""

    @abstractmethod
    def request(self, query: Query) -> Request:
        """Prepare to request pages of the query."""

    @abstractmethod
    def retry(self, action: Callable[[], T]) -> T:
        """Call `action` until it raises no TransientError, and return its result."""

    @abstractmethod
    def nodes(self) -> Sequence[Node]:
        """Return the nodes that may be queried, including those that are down."""

    def pages(self, query: Query) -> Iterator[Page]:
        """Yield all pages, reading one page ahead. The call itself requests the first page.

        A page that fails with a transient error is requested again from its own paging state. After
        a stop, raises StoppedError instead of yielding the next page, and even instead of ending.
        """
        request = self.request(query)
        return self._pages(query, request, _attempts(request, None))

    def _pages(self, query: Query, request: Request, attempt: Callable[[], Page]) -> Iterator[Page]:
        page = self.retry(partial(self._page, query, None, attempt))
        while (state := page.paging_state) is not None:
            attempt = _attempts(request, state)
            yield page
            page = self.retry(partial(self._page, query, state, attempt))
        yield page
        self.interruption.check()

    def _page(self, query: Query, state: bytes | None, attempt: Callable[[], Page]) -> Page:
        """Return a page.

        If it is refused, or has other columns, the node's schema may be another than the query was
        made for: then the page is requested from one node of each schema version.
        """
        self.interruption.check()
        try:
            return attempt()
        except (QueryRefusedError, DecodeError) as error:
            if query.node is not None or most_keys(str(error)) is not None:
                raise
            for node in one_of_each(_versions(self._from_all_nodes(_SCHEMA_VERSION))):
                with suppress(QueryRefusedError, DecodeError):
                    return self.request(evolve(query, node=node))(state)()
            raise

    def batches(self, query: Query, *, tolerant: bool = False) -> Iterator[pa.RecordBatch]:
        """Yield the decoded pages. The call itself requests the first page.

        If `tolerant` is True, cells that cannot be decoded are recorded as faults: see
        `cdc_reader.decoding.faults`.
        """
        return map(decode_tolerantly if tolerant else decode, self.pages(query))

    def at(self, node: Node) -> Queries:
        """Return queries that only this node answers, and that are not retried."""
        return _AtNode(self, node)

    def from_one_node(self, read: Callable[[Queries], T], turn: int | None = None) -> T:
        """Return the result of `read`, all of whose queries one node answers.

        If a node fails, or does not know the table, the next one is asked. All of them are asked
        again until the deadline. A caller that asks again and again gives the number of its `turn`,
        so that it asks each node in turn.
        """
        return self.retry(partial(self._from_one_node, read, turn))

    def _from_one_node(self, read: Callable[[Queries], T], turn: int | None) -> T:
        *others, last = self._nodes_in_turn(turn)
        for node in others:
            with suppress(TransientError, SchemaError):
                return read(self.at(node))
        return read(self.at(last))

    def from_all_nodes(self, query: Query) -> dict[Node, list[pa.RecordBatch]]:
        """Return the answers of all nodes that answer, which are asked at the same time.

        At least half of the nodes must answer. The cluster changes its schema and its streams by
        the vote of a majority, so one of these nodes has heard of every change.
        """
        return self.retry(partial(self._from_all_nodes, query))

    def _from_all_nodes(self, query: Query) -> dict[Node, list[pa.RecordBatch]]:
        nodes = self._nodes_in_turn()
        sent = [(node, self.at(node).batches(query)) for node in nodes]
        found, failure = dict[Node, list[pa.RecordBatch]](), None
        for node, batches in sent:
            try:
                found[node] = [*batches]
            except TransientError as error:
                failure = error
        if failure is not None and 2 * len(found) < len(nodes):
            raise failure
        return found

    def answer(self, name: str, since: Micros | None, ask: Callable[[], T]) -> T:
        """Return an answer that the tables of this connection share; see `SharedAnswers.answer`."""
        return self.shared.answer(name, since, ask, self.interruption)

    def schema_version(self, since: Micros | None = None) -> str:
        """Return the schema version of the node that answers; see `SharedAnswers.answer`."""
        return self.answer("schema_version", since, self._schema_version)

    def _schema_version(self) -> str:
        return _version(self.batches(_SCHEMA_VERSION))

    def schema_versions(self) -> dict[Node, str]:
        """Return the schema version of each node that answers; see `from_all_nodes`."""
        return _versions(self.from_all_nodes(_SCHEMA_VERSION))

    def _nodes_in_turn(self, turn: int | None = None) -> list[Node]:
        """Return all nodes, each time from another one on, so that all of them share the load."""
        nodes = [*self.nodes()]
        if not nodes:
            raise TransientError("the driver knows no node of the cluster")
        first = (next(self._turns) if turn is None else turn) % len(nodes)
        return nodes[first:] + nodes[:first]

    def rows(self, cql: str, *values: object) -> list[dict[str, Any]]:
        """Return all rows of a small query, each as a dict by column; read at consistency ONE."""
        batches = self.batches(Query(cql, values, consistency="ONE"))
        return [row for batch in batches for row in batch.to_pylist()]


class _AtNode(Queries):
    """Queries that one node answers, and that are not retried."""

    def __init__(self, queries: Queries, node: Node) -> None:
        self._queries = queries
        self._node = node

    @property
    def interruption(self) -> Interruption:
        return self._queries.interruption

    @property
    def hosts(self) -> str:
        return self._queries.hosts

    def nodes(self) -> Sequence[Node]:
        return [self._node]

    def request(self, query: Query) -> Request:
        return self._queries.request(evolve(query, node=self._node))

    def retry(self, action: Callable[[], T]) -> T:
        return action()


class Asking(Interruptible):
    """An object that asks through `_queries`; its views share what it learns from the answers."""

    __slots__ = ("_queries",)
    _queries: Queries
    _waiting = "_queries"

    def over(self, queries: Queries) -> Self:
        """Return a view that asks through `queries`."""
        return self._view(_queries=queries)


def one_of_each(versions: Mapping[Node, str]) -> list[Node]:
    """Return one node of each schema version; that of the most frequent version comes first."""
    nodes = {version: node for node, version in versions.items()}
    return [nodes[version] for version, _ in Counter(versions.values()).most_common()]


def _versions(answers: Mapping[Node, Iterable[pa.RecordBatch]]) -> dict[Node, str]:
    return {node: _version(batches) for node, batches in answers.items()}


def _version(batches: Iterable[pa.RecordBatch]) -> str:
    [row] = (row for batch in batches for row in batch.to_pylist())
    return str(row["schema_version"])


def _attempts(request: Request, paging_state: bytes | None) -> Callable[[], Page]:
    """Request a page now; return a function that waits for it, and retries if called again."""
    answers = chain([request(paging_state)], map(request, repeat(paging_state)))

    def attempt() -> Page:
        answer = next(answers)
        return answer()

    return attempt

"""Queries, and result pages that are kept as bytes until `decoding` reads them.

By default, the driver turns each cell into a Python object. Here, the body of a ROWS result is kept
as received. The next page is requested before the current one is returned. A page that fails is
requested again from its own paging state.
"""

from __future__ import annotations

import io
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from itertools import chain, repeat
from typing import Any, ClassVar, TypeVar

import pyarrow as pa
from attrs import evolve, frozen
from cassandra.protocol import ResultMessage, _ProtocolHandler

from cdc_reader.cql.schema import Column
from cdc_reader.decoding import Page, decode
from cdc_reader.decoding.buffer import Buffer
from cdc_reader.decoding.metadata import ResultMetadata, read_metadata
from cdc_reader.decoding.tolerant import decode_tolerantly

T = TypeVar("T")


class PageResult(ResultMessage):  # type: ignore[misc]
    """A RESULT whose rows are kept as bytes: `parsed_rows` contains a single Page."""

    def recv_results_metadata(self, f: io.BytesIO, user_type_map: object) -> None:  # noqa: ARG002
        """Read the metadata of a statement that is being prepared."""
        buffer = Buffer(f.getvalue(), f.tell())
        self._keep(read_metadata(buffer))
        f.seek(buffer.position)

    def recv_results_rows(
        self,
        f: io.BytesIO,
        protocol_version: int,
        user_type_map: object,
        result_metadata: tuple[Column, ...] | None,
        column_encryption_policy: object,
    ) -> None:
        """Keep the body as bytes, starting at its kind; only the metadata is parsed now."""
        del protocol_version, user_type_map, column_encryption_policy
        page = Page.parse(f.getvalue()[f.tell() - 4 :], result_metadata or None)
        self._keep(page.metadata)
        self.column_names = self.column_types = ()
        self.parsed_rows = [page]

    def _keep(self, metadata: ResultMetadata) -> None:
        self.column_metadata = metadata.columns
        self.paging_state = metadata.paging_state
        if metadata.metadata_id is not None:
            self.result_metadata_id = metadata.metadata_id


class PageProtocol(_ProtocolHandler):  # type: ignore[misc]
    """The protocol handler of sessions that read rows as pages of bytes."""

    message_types_by_opcode: ClassVar[dict[int, Any]] = {
        **_ProtocolHandler.message_types_by_opcode,
        ResultMessage.opcode: PageResult,
    }


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
    to a node that has the rows, if one is known; only a query with `columns` may have a route. With
    `at_one_node`, the node that answered the first page answers the others, too.
    """

    cql: str
    values: tuple[object, ...] = ()
    columns: tuple[Column, ...] | None = None
    consistency: str | None = None
    doing: str = ""
    route: Route | None = None
    at_one_node: bool = False

    @property
    def purpose(self) -> str:
        return self.doing or self.cql


Request = Callable[[bytes | None], Callable[[], Page]]
"""Requests the page at a paging state, or the first page for None, without waiting.

The returned function waits for the page, and raises errors of `cdc_reader.errors`."""


class Queries(ABC):
    """Sends queries, page by page. Every method raises only errors of `cdc_reader.errors`."""

    most_keys: int | None = None
    """The server's limit on keys in an IN list; None until the server rejects a longer list."""

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

    def pages(self, query: Query) -> Iterator[Page]:
        """Yield all pages, reading one page ahead. The call itself requests the first page.

        A page that fails with a transient error is requested again from its own paging state.
        """
        request = self.request(query)
        return self._pages(request, _attempts(request, None))

    def _pages(self, request: Request, attempt: Callable[[], Page]) -> Iterator[Page]:
        while (page := self.retry(attempt)).paging_state is not None:
            attempt = _attempts(request, page.paging_state)
            yield page
        yield page

    def batches(self, query: Query, *, tolerant: bool = False) -> Iterator[pa.RecordBatch]:
        """Yield the decoded pages. The call itself requests the first page.

        If `tolerant` is True, cells that cannot be decoded are recorded as faults: see
        `cdc_reader.decoding.faults`.
        """
        return map(decode_tolerantly if tolerant else decode, self.pages(query))

    def at_one_node(self, query: Query) -> list[pa.RecordBatch]:
        """Return the decoded pages of a query of a table that each node keeps for itself.

        Nodes may differ, so one node answers all pages. If it fails, the query begins anew.
        """
        query = evolve(query, at_one_node=True)
        return self.retry(lambda: [*self._pages_of_one_node(self.request(query))])

    def _pages_of_one_node(self, request: Request) -> Iterator[pa.RecordBatch]:
        page = request(None)()
        yield decode(page)
        while page.paging_state is not None:
            page = request(page.paging_state)()
            yield decode(page)

    def rows(self, cql: str, *values: object) -> list[dict[str, Any]]:
        """Return all rows of a small query, each as a dict by column; read at consistency ONE."""
        batches = self.batches(Query(cql, values, consistency="ONE"))
        return [row for batch in batches for row in batch.to_pylist()]


def _attempts(request: Request, paging_state: bytes | None) -> Callable[[], Page]:
    """Request a page now; return a function that waits for it, and retries if called again."""
    answers = chain([request(paging_state)], map(request, repeat(paging_state)))

    def attempt() -> Page:
        answer = next(answers)
        return answer()

    return attempt

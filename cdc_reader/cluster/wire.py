"""Queries, and result pages kept as bytes for `decoding`.

The driver would turn each cell into a Python object; here the body of a ROWS result stays as
received. The next page is requested before the current one is returned. A page that fails is
requested again from its own paging state.
"""

from __future__ import annotations

import io
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, TypeVar

import pyarrow as pa
from attrs import field, frozen
from cassandra.protocol import ResultMessage, _ProtocolHandler

from cdc_reader.cql.schema import Column
from cdc_reader.decoding import decode
from cdc_reader.decoding.buffer import Buffer
from cdc_reader.decoding.metadata import agreed_columns, check_same, parse_metadata, read_metadata


@frozen
class RowsBody:
    """A RESULT body of kind ROWS, and the columns its prepared statement promised, if any.

    `received` is when the driver read it, in seconds of `time.monotonic`.
    """

    body: bytes = field(repr=lambda body: f"<{len(body)} bytes>")
    promised: tuple[Column, ...] | None
    received: float = field(factory=time.monotonic, eq=False)


class BytesResult(ResultMessage):  # type: ignore[misc]
    """A RESULT whose rows stay bytes: `parsed_rows` is one RowsBody."""

    def recv_results_metadata(self, f: io.BytesIO, user_type_map: object) -> None:  # noqa: ARG002
        """Read the metadata; also called for the metadata of a statement that is prepared again."""
        buffer = Buffer(f.getvalue(), f.tell())
        metadata = read_metadata(buffer)
        f.seek(buffer.position)
        self.column_metadata = metadata.columns
        self.paging_state = metadata.paging_state
        if metadata.metadata_id is not None:
            self.result_metadata_id = metadata.metadata_id

    def recv_results_rows(
        self,
        f: io.BytesIO,
        protocol_version: int,
        user_type_map: object,
        result_metadata: tuple[Column, ...] | None,
        column_encryption_policy: object,
    ) -> None:
        """Keep the body as bytes, from its kind on; only the paging state is parsed now."""
        del protocol_version, column_encryption_policy
        body = f.getvalue()[f.tell() - 4 :]
        self.recv_results_metadata(f, user_type_map)
        self.column_names = self.column_types = ()
        self.parsed_rows = [RowsBody(body, result_metadata or None)]


class BytesProtocol(_ProtocolHandler):  # type: ignore[misc]
    """The protocol handler of sessions that read rows as bytes."""

    message_types_by_opcode: ClassVar[dict[int, Any]] = {
        **_ProtocolHandler.message_types_by_opcode,
        ResultMessage.opcode: BytesResult,
    }


@frozen
class Page:
    """A page of a result: the body of a ROWS result, and facts about it.

    `promised` are the columns that the prepared statement announced, or None if the body carries
    them itself. The last page has no `paging_state`. `received` is the time of arrival, in seconds
    of `time.monotonic`: pages are requested ahead, so one may wait for a while.
    """

    body: bytes = field(repr=lambda body: f"<{len(body)} bytes>")
    promised: tuple[Column, ...] | None
    paging_state: bytes | None
    received: float = field(factory=time.monotonic, eq=False)

    @property
    def age(self) -> float:
        """Seconds since the page was received."""
        return time.monotonic() - self.received

    def check(self, columns: tuple[Column, ...]) -> None:
        """Raise DecodeError unless the page has exactly these columns."""
        if self.promised is None:
            agreed_columns(parse_metadata(self.body), columns)
        elif self.promised is not columns:
            check_same(self.promised, columns)


Answer = Callable[[], Page]
"""Waits for a requested page; raises errors of `cdc_reader.errors`."""

Ask = Callable[[bytes | None], Answer]
"""Requests the page at a paging state, without waiting; None stands for the first page."""

Retry = Callable[[Callable[[], Page]], Page]
"""Calls an action, again while it raises transient errors, and returns its result."""


class Request:
    """A request for the page at `paging_state`, sent when this object is made."""

    def __init__(self, ask: Ask, paging_state: bytes | None, retry: Retry) -> None:
        self._ask = ask
        self._paging_state = paging_state
        self._retry = retry
        self._under_way: Answer | None = ask(paging_state)

    def page(self) -> Page:
        """Wait for the page; after a transient error, request it again from its paging state."""
        return self._retry(self._attempt)

    def _attempt(self) -> Page:
        answer, self._under_way = self._under_way or self._ask(self._paging_state), None
        return answer()


def pages(ask: Ask, retry: Retry) -> Iterator[Page]:
    """All pages; the first is requested now, each next one before the current is returned."""
    return _following(Request(ask, None, retry), ask, retry)


def _following(request: Request, ask: Ask, retry: Retry) -> Iterator[Page]:
    while True:
        page = request.page()
        if page.paging_state is None:
            yield page
            return
        request = Request(ask, page.paging_state, retry)
        yield page


T = TypeVar("T")


@frozen
class Route:
    """The location of a query's rows: its last token, and whether that is its only one."""

    token: int
    is_exact: bool


@frozen
class Query:
    """A SELECT with a ``?`` for each of its values.

    If `columns` of the result are given, the query is prepared, and a result with others raises
    DecodeError. `consistency` is the configuration's if None. `doing` tells errors what the query
    is for; if empty, they quote the text. With a `route` the query goes to a node that has the
    rows, if one is known; only a query with `columns` may have one.
    """

    cql: str
    values: tuple[object, ...] = ()
    columns: tuple[Column, ...] | None = None
    consistency: str | None = None
    doing: str = ""
    route: Route | None = None

    @property
    def purpose(self) -> str:
        return self.doing or self.cql


class Queries(ABC):
    """Sends queries, page by page. Every method raises errors of `cdc_reader.errors` only."""

    most_keys: int | None = None
    """The server's limit of keys in an IN list, known once it has refused a longer list."""

    @property
    @abstractmethod
    def hosts(self) -> str:
        """The hosts that are queried, for messages."""

    @abstractmethod
    def pages(self, query: Query) -> Iterator[Page]:
        """All pages; the first is requested now, each next one before the current is returned.

        A page that fails with a transient error is requested again from its own paging state.
        """

    @abstractmethod
    def retry(self, action: Callable[[], T]) -> T:
        """Call `action`, again while it raises TransientError, and return its result."""

    def batches(self, query: Query) -> Iterator[pa.RecordBatch]:
        """The pages, decoded; the first is requested now."""
        return (decode(page.body, query.columns) for page in self.pages(query))

    def rows(self, cql: str, *values: object) -> list[dict[str, Any]]:
        """All rows of a small query at ONE, each a dict by column."""
        batches = self.batches(Query(cql, values, consistency="ONE"))
        return [row for batch in batches for row in batch.to_pylist()]

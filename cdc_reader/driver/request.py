"""One page of a result: asked for at once, waited for later, asked for again if need be."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

from attrs import frozen
from cassandra.cluster import ResponseFuture, Session

from cdc_reader.driver.errors import request_error
from cdc_reader.driver.protocol import RowsBody
from cdc_reader.errors import DecodeError
from cdc_reader.retry import retry


@frozen
class Page:
    """A page of a result; without a `paging_state` it is the last one."""

    rows: RowsBody
    paging_state: bytes | None


@frozen
class Query:
    """A statement with its parameters; `doing` says in errors what it is for."""

    statement: Any
    parameters: Sequence[object] | None
    doing: str


class Request:
    """The page of `query` at `paging_state`, under way since this was made."""

    def __init__(
        self,
        session: Callable[[], Session],
        query: Query,
        paging_state: bytes | None,
        deadline: timedelta,
    ) -> None:
        self._session = session
        self._query = query
        self._paging_state = paging_state
        self._deadline = deadline
        self._under_way: ResponseFuture | None = self._send()

    def page(self) -> Page:
        """Wait for the page, asking again, from its own paging state, while errors may pass.

        Raises errors of `cdc_reader.errors`.
        """
        return retry(self._attempt, self._deadline)

    def _send(self) -> ResponseFuture:
        session, query = self._session(), self._query
        try:
            return session.execute_async(
                query.statement, query.parameters, paging_state=self._paging_state
            )
        except Exception as error:
            raise request_error(error, query.doing) from error

    def _attempt(self) -> Page:
        future, self._under_way = self._under_way or self._send(), None
        try:
            result = future.result()
        except Exception as error:
            raise request_error(error, self._query.doing) from error
        match result.current_rows:
            case [RowsBody() as rows]:
                return Page(rows, result.paging_state)
        raise DecodeError(f"{self._query.doing}: expected a result of rows, found none")

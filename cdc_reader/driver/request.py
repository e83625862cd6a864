"""One page of a result: asked for at once, waited for later, asked for again if need be."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from attrs import field, frozen

from cdc_reader.kernel.metadata import agreed_columns, check_same, parse_metadata
from cdc_reader.schema import Column


@frozen
class Page:
    """A page of a result: the body of a RESULT of kind ROWS, and what its sender knew of it.

    `promised` are the columns that a prepared statement said it would have, None where the body
    has them itself. Without a `paging_state` it is the last page.
    """

    body: bytes = field(repr=lambda body: f"<{len(body)} bytes>")
    promised: tuple[Column, ...] | None
    paging_state: bytes | None

    def check(self, columns: tuple[Column, ...]) -> None:
        """DecodeError unless the page's columns are these."""
        if self.promised is None:
            agreed_columns(parse_metadata(self.body), columns)
        elif self.promised is not columns:
            check_same(self.promised, columns)


Answer = Callable[[], Page]
"""Waits for a page that was asked for; raises errors of `cdc_reader.errors`."""
Ask = Callable[[bytes | None], Answer]
"""Asks for the page at a paging state, the first at None, without waiting for it."""
Retry = Callable[[Callable[[], Page]], Page]
"""What an action returns, called again while it raises errors that may pass."""


class Request:
    """The page at `paging_state`, under way since this was made."""

    def __init__(self, ask: Ask, paging_state: bytes | None, retry: Retry) -> None:
        self._ask = ask
        self._paging_state = paging_state
        self._retry = retry
        self._under_way: Answer | None = ask(paging_state)

    def page(self) -> Page:
        """Wait for the page, asking again, from its own paging state, while errors may pass."""
        return self._retry(self._attempt)

    def _attempt(self) -> Page:
        answer, self._under_way = self._under_way or self._ask(self._paging_state), None
        return answer()


def pages(ask: Ask, retry: Retry) -> Iterator[Page]:
    """All pages, the first asked for now, each next one before its forerunner is handed on."""
    return _following(Request(ask, None, retry), ask, retry)


def _following(request: Request, ask: Ask, retry: Retry) -> Iterator[Page]:
    while True:
        page = request.page()
        if page.paging_state is None:
            yield page
            return
        request = Request(ask, page.paging_state, retry)
        yield page

"""Prefetching and retries of pages, on a scripted session."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from datetime import timedelta
from itertools import islice
from typing import Any

import pytest
from attrs import define, field, frozen
from cassandra import InvalidRequest, Unavailable
from cassandra.query import SimpleStatement

from cdc_reader.cluster.connection import Connection
from cdc_reader.cluster.queries import Query
from cdc_reader.config import ConnectionConfig, ReadConfig
from cdc_reader.decoding import Page
from cdc_reader.errors import DecodeError, QueryRefusedError, RetriesExhaustedError, StoppedError
from cdc_reader.reading.retry import NEVER, Interruption, Stop
from tests.cdc_reader.decoding.wire import cell

_MORE_PAGES, _NO_METADATA = 2, 4
QUERY = Query("SELECT", consistency="ONE", doing="reading ks.t")


@frozen
class Answer:
    """A completed future."""

    outcome: Exception | None
    current_rows: list[Any]

    def add_callbacks(
        self, callback: Callable[[object], None], errback: Callable[[Exception], None]
    ) -> None:
        errback(self.outcome) if self.outcome else callback(self.current_rows)

    def result(self) -> Answer:
        if self.outcome:
            raise self.outcome
        return self


@define
class ScriptedSession:
    """A session with five pages. A request for page n first raises the errors scripted for n."""

    script: dict[int, list[Exception]] = field(factory=dict)
    asked: list[int] = field(factory=list)

    def execute_async(
        self,
        statement: SimpleStatement,
        parameters: object,
        paging_state: bytes | None,
        host: object,
    ) -> Answer:
        assert (statement.query_string, parameters, host) == (QUERY.cql, None, None)
        page = int(paging_state or b"0")
        self.asked.append(page)
        errors = self.script.get(page, [])
        return Answer(errors.pop(0) if errors else None, [numbered(page)])


def numbered(page: int) -> Page:
    """Return page `page`, from 0 to 4, without columns."""
    if page == 4:
        return Page.parse(struct.pack(">iiii", 2, _NO_METADATA, 0, page))
    header = struct.pack(">iii", 2, _MORE_PAGES | _NO_METADATA, 0)
    return Page.parse(header + cell(str(page + 1).encode()) + struct.pack(">i", page))


def pages(
    session: ScriptedSession, deadline: float = 60, interruption: Interruption = NEVER
) -> Iterator[int]:
    """Return the numbers of the pages in the order of delivery."""
    read = ReadConfig(retry_deadline=timedelta(seconds=deadline))
    connection = Connection(ConnectionConfig("host"), read)
    connection.session = lambda: session  # type: ignore[method-assign]  # it takes no socket
    connection._from_all_nodes = lambda query: {}  # type: ignore[method-assign]  # noqa: ARG005
    for page in connection.interrupted_by(interruption).pages(QUERY):
        yield int.from_bytes(page.body[-4:], "big")


def test_the_next_page_is_requested_before_the_current_one_is_yielded() -> None:
    """While the client decodes a page, the server already prepares the next one."""
    session = ScriptedSession()
    reading = pages(session)
    assert next(reading) == 0
    assert session.asked == [0, 1]
    assert list(reading) == [1, 2, 3, 4]
    assert session.asked == [0, 1, 2, 3, 4]


def test_a_failed_page_is_requested_again_from_its_paging_state() -> None:
    """A failed page is requested again from its paging state, so no page is repeated or skipped."""
    session = ScriptedSession({2: [Unavailable("two nodes down"), Unavailable("still")]})
    assert list(pages(session)) == [0, 1, 2, 3, 4]
    assert session.asked == [0, 1, 2, 2, 2, 3, 4]


def test_failures_beyond_the_deadline_end_the_read() -> None:
    """Failures beyond the deadline end the read, after the earlier pages have been delivered."""
    session = ScriptedSession({1: [Unavailable("down")] * 9})
    reading = pages(session, deadline=0)
    assert next(reading) == 0
    with pytest.raises(RetriesExhaustedError, match=r"reading ks\.t: .*down"):
        next(reading)


@pytest.mark.parametrize("received", [1, 5])
def test_a_stop_ends_a_read_that_never_waits(received: int) -> None:
    """A stop raises an error even after the last page, so that the read does not look complete."""
    stop = Stop()
    reading = pages(ScriptedSession(), interruption=Interruption(stop))
    assert list(islice(reading, received)) == list(range(received))
    stop.set()
    with pytest.raises(StoppedError):
        next(reading)


def test_a_read_with_a_grace_period_is_finished() -> None:
    """After a stop, a store still reads what it needs to save a checkpoint."""
    stop = Stop()
    stop.set()
    assert list(pages(ScriptedSession(), interruption=Interruption(stop, 0.4))) == [0, 1, 2, 3, 4]


def test_a_refused_query_is_not_repeated() -> None:
    """A rejected query is not repeated, because it would be rejected again."""
    session = ScriptedSession({0: [InvalidRequest("no such table")]})
    with pytest.raises(QueryRefusedError, match=r"reading ks\.t: no such table"):
        list(pages(session))
    assert session.asked == [0]


def test_a_result_without_rows_is_a_decode_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """If a SELECT's result is not of kind Rows, a DecodeError is raised."""
    nothing = Answer(None, [])
    monkeypatch.setattr(ScriptedSession, "execute_async", lambda *_, **__: nothing)
    with pytest.raises(DecodeError, match="expected a result of rows, found none"):
        list(pages(ScriptedSession()))

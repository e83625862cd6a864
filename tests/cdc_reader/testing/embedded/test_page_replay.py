"""Tests the replay of pages, in which each reader gets all pages in order."""

from collections.abc import Iterator

import pytest
from cassandra.cluster import Session
from cassandra.protocol import ProtocolException

from cdc_reader.decoding import parse_metadata
from cdc_reader.testing import EmbeddedScylla
from cdc_reader.testing.cql_session import open_session

SELECT = "SELECT pk, v FROM ks.t"
ROWS = [(number, f"row {number}") for number in range(25)]


@pytest.fixture
def server() -> Iterator[EmbeddedScylla]:
    """An embedded server."""
    with EmbeddedScylla() as server:
        yield server


@pytest.fixture
def session(server: EmbeddedScylla) -> Iterator[Session]:
    """A session with a table of 25 rows."""
    session = open_session(server.host, server.port)
    session.execute(
        "CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}"
    )
    session.execute("CREATE TABLE ks.t (pk int PRIMARY KEY, v text)")
    insert = session.prepare("INSERT INTO ks.t (pk, v) VALUES (?, ?)")
    for row in ROWS:
        session.execute(insert, row)
    yield session
    session.cluster.shutdown()


def test_pages_are_replayed_in_place_of_the_table(server: EmbeddedScylla, session: Session) -> None:
    """Text and prepared statements return the pages during a replay, and the table afterward."""
    pages = server.pages(SELECT, page_size=10)
    assert len(pages) == 3
    session.execute("TRUNCATE ks.t")
    server.replay("ks", "t", pages, times=2)
    for statement in (SELECT, session.prepare(SELECT)):
        assert sorted(map(tuple, session.execute(statement))) == sorted(ROWS * 2)
    server.end_replay("ks", "t")
    assert list(session.execute(SELECT)) == []


@pytest.mark.usefixtures("session")
@pytest.mark.parametrize("skips", [False, True])
def test_metadata_is_left_out_where_that_is_asked_for(server: EmbeddedScylla, skips: bool) -> None:
    """Clients can request replayed pages without metadata, as they can request other pages."""
    read = server.page(SELECT, skip_metadata=skips)
    server.replay("ks", "t", server.pages(SELECT), times=2)
    first = parse_metadata(server.page(SELECT, skip_metadata=skips))
    assert (first.columns is None, first.column_count) == (skips, 2)
    assert server.page(SELECT, skip_metadata=skips, paging_state=first.paging_state) == read


def test_readers_do_not_move_one_another(server: EmbeddedScylla, session: Session) -> None:
    """Two readers that take turns both read every page."""
    server.replay("ks", "t", server.pages(SELECT, page_size=10))
    first, second = session.execute(SELECT), session.execute(SELECT)
    seen: list[list[int]] = [[], []]
    for _ in range(3):
        for result, pks in zip((first, second), seen, strict=True):
            pks += [row.pk for row in result.current_rows]
            result.fetch_next_page()
    assert seen[0] == seen[1]
    assert sorted(seen[0]) == [pk for pk, _ in ROWS]


@pytest.mark.parametrize("state", [b"?", b"replayed page \0\0\0\7"])
def test_a_paging_state_of_another_kind_is_refused(
    server: EmbeddedScylla, session: Session, state: bytes
) -> None:
    """A paging state that is not from a replay is rejected with ScyllaDB's message."""
    server.replay("ks", "t", server.pages(SELECT))
    with pytest.raises(ProtocolException, match="Invalid value for the paging state"):
        session.execute(SELECT, paging_state=state)


def test_only_pages_of_rows_with_their_columns_are_replayed(server: EmbeddedScylla) -> None:
    """A page body that lacks rows or their metadata is rejected with the reason."""
    for body, found in (
        (b"", "4 bytes"),
        (b"\0\0\0\1" + bytes(8), r"kind 2 \(rows\), found 1"),
        (b"\0\0\0\2\0\0\0\4\0\0\0\1", "expected metadata"),
    ):
        with pytest.raises(ValueError, match=found):
            server.replay("ks", "t", [body])
    with pytest.raises(ValueError, match="at least one page"):
        server.replay("ks", "t", [])


def test_only_a_select_has_pages(server: EmbeddedScylla) -> None:
    """`pages` rejects statements other than SELECT."""
    with pytest.raises(ValueError, match="expected a SELECT"):
        server.pages("USE system")

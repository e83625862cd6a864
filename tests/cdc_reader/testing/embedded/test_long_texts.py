"""Tests that very long statements are executed or rejected without delaying other clients."""

import threading
from collections.abc import Iterator

import pytest
from cassandra import InvalidRequest
from cassandra.cluster import Session
from cassandra.protocol import SyntaxException

from cdc_reader.testing import EmbeddedScylla
from cdc_reader.testing.cql_session import open_session
from cdc_reader.testing.embedded.grammar.parser import parse_ahead

SIZE = 10_000_000


@pytest.fixture(scope="module")
def server() -> Iterator[EmbeddedScylla]:
    """A server with a table."""
    with EmbeddedScylla() as server:
        server.execute(
            "CREATE KEYSPACE ks WITH replication = "
            "{'class': 'SimpleStrategy', 'replication_factor': 1}"
        )
        server.execute("CREATE TABLE ks.t (pk int PRIMARY KEY, v text, b blob, l list<int>)")
        yield server


@pytest.fixture(scope="module")
def sessions(server: EmbeddedScylla) -> Iterator[tuple[Session, Session]]:
    """Sessions of two clients."""
    opened = [open_session(server.host, server.port) for _ in range(2)]
    yield opened[0], opened[1]
    for session in opened:
        session.cluster.shutdown()


@pytest.fixture
def session(sessions: tuple[Session, Session]) -> Session:
    """The session of the first client."""
    return sessions[0]


def test_a_long_text_does_not_block_other_clients(
    sessions: tuple[Session, Session], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another client gets a response while a long text is being parsed."""
    is_parsing, may_parse = threading.Event(), threading.Event()

    def parse(text: str) -> None:
        is_parsing.set()
        may_parse.wait()
        parse_ahead(text)

    monkeypatch.setattr("cdc_reader.testing.embedded.server.parse_ahead", parse)
    asked = sessions[0].execute_async(f"INSERT INTO ks.t (pk, v) VALUES (1, '{'x' * SIZE}')")
    try:
        is_parsing.wait()
        assert list(sessions[1].execute("SELECT pk FROM ks.t WHERE pk = 0")) == []
        assert not asked._event.is_set()
    finally:
        may_parse.set()
    asked.result()


@pytest.mark.parametrize(
    "value",
    [f"v) VALUES (1, '{'x' * SIZE}')", f"v) VALUES (1, '{chr(39) * SIZE}')",
     f"b) VALUES (1, 0x{'ab' * (SIZE // 2)})", f"l) VALUES (1, [{'1,' * 40_000}1])"],
    ids=["string", "quotes", "blob", "list"],
)  # fmt: skip
def test_long_values_are_written(session: Session, value: str) -> None:
    """A 10 MB string or blob, and a list of many elements, can be written."""
    session.execute(f"INSERT INTO ks.t (pk, {value}")


@pytest.mark.parametrize(
    "value",
    ["(" * SIZE, "[" * SIZE + "]" * SIZE, "[" + "1," * SIZE + "1]"],
    ids=["open", "nested", "list"],
)
def test_too_many_words_are_refused(session: Session, value: str) -> None:
    """A statement with too many tokens, which would take minutes to parse, is rejected."""
    with pytest.raises(SyntaxException, match=r"line 1:2000\d\d the statement is too long"):
        session.execute(f"INSERT INTO ks.t (pk, l) VALUES (1, {value})")


def test_deep_nesting_is_refused(session: Session) -> None:
    """A statement whose literals are nested too deeply is rejected."""
    with pytest.raises(SyntaxException, match="nested too deeply"):
        session.execute(f"INSERT INTO ks.t (pk, l) VALUES (1, {'[' * 9000}{']' * 9000})")


def test_an_error_that_quotes_a_long_text_is_shortened(session: Session) -> None:
    """An error message is truncated to 65,535 bytes, the maximum of the protocol."""
    with pytest.raises(InvalidRequest, match="Invalid STRING constant"):
        session.execute(f"INSERT INTO ks.t (pk, l) VALUES (1, '{'é' * SIZE}')")


def test_a_number_of_ten_million_digits_is_refused(session: Session) -> None:
    """A number with ten million digits is rejected."""
    with pytest.raises(InvalidRequest, match="Invalid number format"):
        session.execute(f"INSERT INTO ks.t (pk) VALUES ({'1' * SIZE})")

"""Tests that very long statements are executed or rejected without delaying other clients."""

from collections.abc import Iterator

import pytest
from cassandra import InvalidRequest
from cassandra.cluster import Session
from cassandra.protocol import SyntaxException

from cdc_reader.testing import EmbeddedScylla
from cdc_reader.testing.cql_session import open_session

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


def test_a_number_of_ten_million_digits_is_refused(session: Session) -> None:
    """A number with ten million digits is rejected."""
    with pytest.raises(InvalidRequest, match="Invalid number format"):
        session.execute(f"INSERT INTO ks.t (pk) VALUES ({'1' * SIZE})")

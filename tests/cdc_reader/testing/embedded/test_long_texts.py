"""Statements of megabytes: answered, or refused, without keeping other clients waiting."""

import time
from collections.abc import Iterator

import pytest
from cassandra import InvalidRequest
from cassandra.cluster import Session
from cassandra.protocol import SyntaxException

from cdc_reader.testing import EmbeddedScylla
from cdc_reader.testing.cql_session import open_session

SIZE = 10_000_000
PATIENCE = 30.0  # seconds; it takes 0.1 where nothing else runs, and minutes when one waits


@pytest.fixture(scope="module")
def server() -> Iterator[EmbeddedScylla]:
    """A server with a table of long columns."""
    with EmbeddedScylla() as server:
        server.execute(
            "CREATE KEYSPACE ks WITH replication = "
            "{'class': 'SimpleStrategy', 'replication_factor': 1}"
        )
        server.execute("CREATE TABLE ks.t (pk int PRIMARY KEY, v text, b blob, l list<int>)")
        yield server


@pytest.fixture(scope="module")
def sessions(server: EmbeddedScylla) -> Iterator[tuple[Session, Session]]:
    """Two clients of that server."""
    opened = [open_session(server.host, server.port) for _ in range(2)]
    yield opened[0], opened[1]
    for session in opened:
        session.cluster.shutdown()


def answered(sessions: tuple[Session, Session], cql: str) -> None:
    """Execute a statement on one session while another one gets its answers soon."""
    asked = sessions[0].execute_async(cql)
    waited = []
    while not asked._event.is_set():
        start = time.monotonic()
        sessions[1].execute("SELECT pk FROM ks.t WHERE pk = 0")
        waited.append(time.monotonic() - start)
    assert max(waited, default=0.0) < PATIENCE
    asked.result()


@pytest.mark.parametrize(
    "value",
    [f"v) VALUES (1, '{'x' * SIZE}')", f"v) VALUES (1, '{chr(39) * SIZE}')",
     f"b) VALUES (1, 0x{'ab' * (SIZE // 2)})", f"l) VALUES (1, [{'1,' * 40_000}1])"],
    ids=["string", "quotes", "blob", "list"],
)  # fmt: skip
def test_long_values_are_written(sessions: tuple[Session, Session], value: str) -> None:
    """A string or blob of 10 MB, a list of many elements."""
    answered(sessions, f"INSERT INTO ks.t (pk, {value}")


@pytest.mark.parametrize(
    "value",
    ["(" * SIZE, "[" * SIZE + "]" * SIZE, "[" + "1," * SIZE + "1]"],
    ids=["open", "nested", "list"],
)
def test_too_many_words_are_refused(sessions: tuple[Session, Session], value: str) -> None:
    """They would take minutes; the error says where there were too many."""
    with pytest.raises(SyntaxException, match=r"line 1:2000\d\d the statement is too long"):
        answered(sessions, f"INSERT INTO ks.t (pk, l) VALUES (1, {value})")


def test_deep_nesting_is_refused(sessions: tuple[Session, Session]) -> None:
    """Nothing that is stored is nested so deeply."""
    with pytest.raises(SyntaxException, match="nested too deeply"):
        answered(sessions, f"INSERT INTO ks.t (pk, l) VALUES (1, {'[' * 9000}{']' * 9000})")


def test_an_error_that_quotes_a_long_text_is_shortened(
    sessions: tuple[Session, Session],
) -> None:
    """A message has at most 65,535 bytes on the wire."""
    with pytest.raises(InvalidRequest, match="Invalid STRING constant"):
        answered(sessions, f"INSERT INTO ks.t (pk, l) VALUES (1, '{'é' * SIZE}')")


def test_no_number_is_too_long_for_an_answer(sessions: tuple[Session, Session]) -> None:
    """Ten million digits are no value of any type."""
    with pytest.raises(InvalidRequest, match="Invalid number format"):
        answered(sessions, f"INSERT INTO ks.t (pk) VALUES ({'1' * SIZE})")

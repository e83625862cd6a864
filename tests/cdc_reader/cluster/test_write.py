"""Writes to a cluster, in batches and in rounds of concurrent batches."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from cdc_reader.cluster.write import CqlWriter
from cdc_reader.config import ConnectionConfig, ReadConfig
from cdc_reader.cql.statement import UNSET, Statement
from cdc_reader.cql.types import Native, SetType
from cdc_reader.errors import QueryRefusedError, RetriesExhaustedError, SourceError

if TYPE_CHECKING:
    from cdc_reader.testing import EmbeddedScylla, Scylla

INT, TEXT = Native("int"), Native("text")
KINDS = ["overloaded", "unavailable", pytest.param("drop", marks=pytest.mark.slow)]
"""Kinds of transient faults. After a drop, the driver waits before it connects again."""


@pytest.fixture
def writer(connection: ConnectionConfig) -> Iterator[CqlWriter]:
    """A writer to the server under test."""
    writer = CqlWriter(connection)
    yield writer
    writer.close()


@pytest.fixture
def table(scylla: Scylla, keyspace: str) -> str:
    """The name of an empty table."""
    scylla.session.execute(
        f"CREATE TABLE {keyspace}.t (p int, c int, v text, s set<int>, PRIMARY KEY (p, c))"
    )
    return f"{keyspace}.t"


def insert(table: str, p: int | None, c: int, v: Any) -> Statement:
    """Return an INSERT of a row."""
    return Statement(f"INSERT INTO {table} (p, c, v) VALUES (?, ?, ?)", (INT, INT, TEXT), (p, c, v))


def rows(scylla: Scylla, table: str) -> list[tuple[Any, ...]]:
    """Return the pair (c, v) of each row of the table, sorted."""
    return sorted(tuple(row) for row in scylla.session.execute(f"SELECT c, v FROM {table}"))


def test_null_and_unset_differ(scylla: Scylla, writer: CqlWriter, table: str) -> None:
    """Null overwrites a value, and `UNSET` leaves it unchanged."""
    writer.write([insert(table, 1, 1, "a"), insert(table, 1, 2, "b")])
    writer.write([insert(table, 1, 1, None)])
    writer.write([insert(table, 1, 2, UNSET)])
    assert rows(scylla, table) == [(1, None), (2, "b")]


def test_large_batches_are_split(scylla: Scylla, writer: CqlWriter, table: str) -> None:
    """Batches are split by their size in bytes and by their number of statements.

    A statement above the limit is sent alone.
    """
    long = "x" * 30_000
    writer.write([insert(table, 1, c, long) for c in range(5)])
    writer.write([insert(table, 1, c, "y") for c in range(100, 550)])
    found = rows(scylla, table)
    assert [v for _, v in found] == [long] * 5 + ["y"] * 450


def test_a_round_follows_the_previous_one(scylla: Scylla, writer: CqlWriter, table: str) -> None:
    """A round of statements is computed while the previous round is written, and sent after it."""
    found = []

    def rounds() -> Iterator[list[list[Statement]]]:
        for number in range(4):
            found.append({c for c, _ in rows(scylla, table)})
            yield [[insert(table, p, 10 * number + p, "a")] for p in range(5)]

    writer.write_all(rounds())
    for number in (2, 3):
        assert found[number] >= {10 * n + p for n in range(number - 1) for p in range(5)}
    assert len(rows(scylla, table)) == 20


def test_partitions_with_large_batches(scylla: Scylla, writer: CqlWriter, table: str) -> None:
    """The partitions written in one round may need different numbers of batches."""
    lengths = (450, 1, 250)
    writer.write_all(
        [[[insert(table, p, 1_000 * p + c, "y") for c in range(n)] for p, n in enumerate(lengths)]]
    )
    assert len(rows(scylla, table)) == sum(lengths)


def test_an_error_ends_the_rounds(writer: CqlWriter, table: str) -> None:
    """A rejected write raises its error before a later round is sent."""
    drawn: list[int] = []

    def rounds() -> Iterator[list[list[Statement]]]:
        for number in range(10):
            drawn.append(number)
            yield [[insert(table, 1, 1, "a")], [insert(table, None, 2, "a")]]

    with pytest.raises(SourceError):
        writer.write_all(rounds())
    assert drawn == [0, 1]


def test_several_threads_write_at_once(scylla: Scylla, writer: CqlWriter, table: str) -> None:
    """Several threads can share one writer."""
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda c: writer.write([insert(table, c % 3, c, str(c))]), range(200)))
    assert rows(scylla, table) == [(c, str(c)) for c in range(200)]


def test_a_refusal_is_raised_as_an_error_of_this_package(writer: CqlWriter, table: str) -> None:
    """A statement rejected by the server or by the driver raises an error of this package."""
    with pytest.raises(QueryRefusedError, match="nonesuch"):
        writer.write([insert(table + "nonesuch", 1, 1, "a")])
    with pytest.raises(SourceError, match=r"INSERT INTO"):
        writer.write([insert(table, 1, 1, 7)])
    add = Statement(
        f"UPDATE {table} SET s = s + ? WHERE p = ? AND c = ?",
        (SetType(INT), INT, INT),
        (frozenset([1]), None, 1),
    )
    with pytest.raises(SourceError):
        writer.write([add])


@pytest.fixture(scope="module")
def server() -> Iterator[EmbeddedScylla]:
    """A separate server with a table ks.t."""
    from cdc_reader.testing import EmbeddedScylla

    with EmbeddedScylla() as server:
        server.execute(
            "CREATE KEYSPACE ks WITH replication = "
            "{'class': 'NetworkTopologyStrategy', 'replication_factor': 1}"
        )
        server.execute("CREATE TABLE ks.t (p int, c int, v text, PRIMARY KEY (p, c))")
        yield server


@pytest.mark.needs("faults")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("count", [1, 2])
def test_transient_errors_are_retried(server: EmbeddedScylla, kind: str, count: int) -> None:
    """Transient errors of single statements and of batches are retried."""
    assert struck_while_writing(server, kind, count) == 2


@pytest.mark.needs("faults")
def test_a_statement_the_server_forgot_is_prepared_again(server: EmbeddedScylla) -> None:
    """The driver prepares a statement again if the server has discarded it."""
    assert struck_while_writing(server, "unprepared", 1) == 2


@pytest.mark.needs("faults")
def test_an_error_is_raised_once_no_write_is_under_way(server: EmbeddedScylla) -> None:
    """If one write is rejected, its error is raised after the round's other writes are complete."""
    from cdc_reader.testing import Fault

    server.execute("TRUNCATE ks.t")
    writer = CqlWriter(ConnectionConfig(server.contact_point))
    fault = Fault("overloaded", "INSERT INTO ks.t", times=3)
    writer.write([insert("ks.t", 1, 0, "a")])  # prepares the statement before the fault
    with server.faults.during(fault), pytest.raises(SourceError):
        writer.write_all([[[insert("ks.t", p, 1, "a")] for p in (None, 1, 2, 3, 4)]])
    writer.close()
    assert len(server.execute("SELECT c FROM ks.t WHERE c = 1 ALLOW FILTERING")) == 4


@pytest.mark.needs("faults")
@pytest.mark.parametrize("kind", KINDS)
def test_transient_errors_of_a_round_are_retried(server: EmbeddedScylla, kind: str) -> None:
    """Writes of a round that fail with a transient error are repeated."""
    from cdc_reader.testing import Fault

    server.execute("TRUNCATE ks.t")
    writer = CqlWriter(ConnectionConfig(server.contact_point))
    fault = Fault(kind, "INSERT INTO ks.t", times=3)
    writer.write([insert("ks.t", 1, 0, "a")])  # prepares the statement before the fault
    with server.faults.during(fault):
        writer.write_all([[[insert("ks.t", p, p, "a")] for p in range(1, 20)]])
        assert server.faults.struck(fault) == 3
    writer.close()
    assert len(server.execute("SELECT c FROM ks.t")) == 20


def struck_while_writing(server: EmbeddedScylla, kind: str, count: int) -> int:
    """Write rows during a fault, check that all arrive, and return how often the fault occurred."""
    from cdc_reader.testing import Fault

    server.execute("TRUNCATE ks.t")
    writer = CqlWriter(ConnectionConfig(server.contact_point))
    fault = Fault(kind, "INSERT INTO ks.t", times=2)
    try:
        writer.write([insert("ks.t", 1, 0, "a")])  # prepares the statement before the fault
        with server.faults.during(fault):
            writer.write([insert("ks.t", 1, c, "a") for c in range(count)])
            assert len(server.execute("SELECT c FROM ks.t")) == count
            return server.faults.struck(fault)
    finally:
        writer.close()


@pytest.mark.needs("faults")
def test_retries_end_at_the_deadline(server: EmbeddedScylla) -> None:
    """A write that still fails at the deadline raises RetriesExhaustedError."""
    from cdc_reader.testing import Fault

    read = ReadConfig(retry_deadline=timedelta(seconds=0.2))
    writer = CqlWriter(ConnectionConfig(server.contact_point), read)
    try:
        writer.write([insert("ks.t", 1, 0, "a")])
        with (
            server.faults.during(Fault("overloaded", "INSERT INTO ks.t", times=1_000)),
            pytest.raises(RetriesExhaustedError, match="writing"),
        ):
            writer.write([insert("ks.t", 1, 1, "a")])
    finally:
        writer.close()

"""Unusual use over a real socket: answered as by the server, or refused."""

from collections.abc import Iterator
from typing import Any

import pytest
from cassandra import InvalidRequest
from cassandra.cluster import Session
from cassandra.query import SimpleStatement

from cdc_reader.testing import EmbeddedScylla
from cdc_reader.testing.cql_session import open_session
from cdc_reader.testing.embedded.errors import CqlError

REPLICATION = "WITH replication = {'class': 'NetworkTopologyStrategy', 'replication_factor': 1}"


@pytest.fixture
def server() -> Iterator[EmbeddedScylla]:
    """A server with a table of vnodes and one of tablets."""
    with EmbeddedScylla(nodes=2) as server:
        server.execute(f"CREATE KEYSPACE ks {REPLICATION}")
        server.execute(f"CREATE KEYSPACE tb {REPLICATION} AND tablets = {{'initial': 2}}")
        for keyspace in ("ks", "tb"):
            server.execute(
                f"CREATE TABLE {keyspace}.t (pk int, ck int, v text, PRIMARY KEY (pk, ck)) "
                "WITH cdc = {'enabled': true}"
            )
            for number in range(10):
                server.execute(f"INSERT INTO {keyspace}.t (pk, ck, v) VALUES (1, {number}, 'x')")
        yield server


@pytest.fixture
def session(server: EmbeddedScylla) -> Iterator[Session]:
    """A client of the server's first node."""
    session = open_session(server.host, server.port)
    yield session
    session.cluster.shutdown()


def first_page(session: Session, table: str) -> Any:
    """Return three rows, with more to come."""
    page = session.execute(SimpleStatement(f"SELECT * FROM {table}", fetch_size=3))
    assert page.has_more_pages
    return page


def test_paging_survives_added_and_dropped_columns(
    server: EmbeddedScylla, session: Session
) -> None:
    """Each page has the columns of its time."""
    page = first_page(session, "ks.t")
    server.execute("ALTER TABLE ks.t ADD w int")
    page.fetch_next_page()
    assert page.current_rows[0]._fields == ("pk", "ck", "v", "w")
    server.execute("ALTER TABLE ks.t DROP v")
    assert [(row.ck, row.w) for row in page][-1] == (9, None)


def test_a_table_that_is_dropped_ends_paging(server: EmbeddedScylla, session: Session) -> None:
    """The next page is an error."""
    page = first_page(session, "ks.t")
    server.execute("DROP TABLE ks.t")
    with pytest.raises(InvalidRequest, match="unconfigured table t"):
        list(page)


@pytest.mark.parametrize("size", [-(1 << 31), -1, 1, (1 << 31) - 1])
def test_any_page_size_gives_all_rows(session: Session, size: int) -> None:
    """A size below 1 means no paging."""
    statement = SimpleStatement("SELECT ck FROM ks.t", fetch_size=size)
    assert len(session.execute(statement).all()) == 10


def test_paging_survives_splits_and_merges_of_tablets(
    server: EmbeddedScylla, session: Session
) -> None:
    """Each row of the log is read once."""
    page = first_page(session, "tb.t_scylla_cdc_log")
    server.split_tablets("tb", "t")
    page.fetch_next_page()
    server.merge_tablets("tb", "t")
    assert len(list(page)) == 7


def test_thousands_of_values_are_used(server: EmbeddedScylla) -> None:
    """Each value counts, although they are the same key."""
    markers = ", ".join("?" * 10_000)
    rows = server.execute(f"SELECT ck FROM ks.t WHERE pk IN ({markers})", [b"\0\0\0\1"] * 10_000)
    assert len(rows) == 10


def test_a_node_that_fails_leaves_no_batch_half_done(
    server: EmbeddedScylla, session: Session
) -> None:
    """Requests under way are answered or lost, each as a whole."""
    for number in range(500):
        session.execute_async(
            f"BEGIN BATCH INSERT INTO ks.t (pk, ck) VALUES ({number}, -1); "
            f"INSERT INTO ks.t (pk, ck) VALUES ({number}, -2) APPLY BATCH"
        )
    server.take_down(server.cluster.nodes[0])
    rows = server.execute("SELECT pk FROM ks.t WHERE ck < 0 ALLOW FILTERING")
    assert len(rows) == 2 * len(set(rows))


def test_a_node_leaves_once(server: EmbeddedScylla) -> None:
    """A node that has left cannot leave again."""
    last = server.cluster.nodes[-1]
    server.leave(last)
    with pytest.raises(ValueError, match="expected one that is on the ring"):
        server.leave(last)


@pytest.mark.parametrize("keyspace", ["ks", "tb"])
@pytest.mark.parametrize("micros", [-(2**63) + 1, -8_496_879_624_406_387_599, -(2**55)])
def test_times_before_any_uuid_are_refused_like_other_old_ones(
    server: EmbeddedScylla, keyspace: str, micros: int
) -> None:
    """No `cdc$time` can say them, on vnodes or on tablets."""
    with pytest.raises(CqlError, match="stream"):
        server.execute(
            f"INSERT INTO {keyspace}.t (pk, ck, v) VALUES (1, 1, 'x') USING TIMESTAMP {micros}"
        )

"""Tests that the code that queries real clusters can also query an in-process cluster."""

from __future__ import annotations

import itertools
from datetime import timedelta
from typing import Any

import pytest

from cdc_reader._time import BEGINNING, FOREVER
from cdc_reader.cluster import CqlLogSource, SchemaSource, TableGenerations
from cdc_reader.cluster.queries import Query
from cdc_reader.config import ReadConfig
from cdc_reader.cql.names import TableName
from cdc_reader.cql.schema import LogSchema
from cdc_reader.errors import (
    DecodeError,
    QueryRefusedError,
    RetriesExhaustedError,
    TableNotFoundError,
    TransientError,
)
from cdc_reader.streams.task import RangeTask, Task
from cdc_reader.streams.window import Window
from cdc_reader.testing import EmbeddedScylla
from cdc_reader.testing.in_process import InProcessConnection, RecordedQuery

pytestmark = pytest.mark.needs("faults")

ALL = Window(BEGINNING, FOREVER)
RING = RangeTask(ALL, -(1 << 63), (1 << 63) - 1)
SMALL_PAGES = ReadConfig(fetch_size=3)
NAME = TableName("ks", "t")
COUNT = 20


@pytest.fixture
def server() -> EmbeddedScylla:
    """A server that does not listen, with 20 rows in the log of `ks.t`."""
    server = EmbeddedScylla()
    server.execute(
        "CREATE KEYSPACE ks WITH replication = "
        "{'class': 'NetworkTopologyStrategy', 'replication_factor': 1} "
        "AND tablets = {'enabled': false}"
    )
    server.execute("CREATE TYPE ks.u (x int)")
    server.execute("CREATE TABLE ks.t (p int PRIMARY KEY, u u) WITH cdc = {'enabled': true}")
    for key in range(COUNT):
        server.execute(f"INSERT INTO ks.t (p) VALUES ({key})")
    return server


def schema_of(connection: InProcessConnection) -> LogSchema:
    """Return the current schema of the log of `ks.t`."""
    return SchemaSource(connection).log_schema(NAME)


def keys(source: CqlLogSource, task: Task | RangeTask = RING) -> list[int]:
    """Return the keys of all rows, in order of arrival."""
    return [row["p"] for batch in source.read(task) for row in batch.to_pylist()]


def all_streams(connection: InProcessConnection) -> Task:
    """Return a task that reads all streams of the newest generation."""
    generations = TableGenerations(connection, NAME)
    groups = generations.groups(max(generations.timestamps()))
    return Task(ALL, tuple(stream for group in groups for stream in group.streams))


def test_real_sources_read_an_embedded_server(server: EmbeddedScylla) -> None:
    """The sources read the schema, the generations, and pages of the log with both strategies."""
    asked: list[RecordedQuery] = []
    connection = InProcessConnection(server, SMALL_PAGES, before=asked.append)
    source = CqlLogSource(connection, schema_of(connection))
    task = all_streams(connection)
    asked.clear()
    assert sorted(keys(source, task)) == list(range(COUNT))
    assert len(asked) > COUNT // SMALL_PAGES.fetch_size
    assert len({each.paging_state for each in asked}) == len(asked)
    assert sorted(keys(source)) == list(range(COUNT))


def test_each_page_is_current_when_requested(server: EmbeddedScylla) -> None:
    """Rows written after a page was read are on later pages, because pages are not read ahead."""
    connection = InProcessConnection(server, SMALL_PAGES)
    batches = CqlLogSource(connection, schema_of(connection)).read(RING)
    next(batches)
    for key in range(COUNT):
        server.execute(f"INSERT INTO ks.t (p) VALUES ({1000 + key})")
    rest = [row["p"] for batch in batches for row in batch.to_pylist()]
    assert any(key >= 1000 for key in rest)


def test_a_failed_page_is_requested_again(server: EmbeddedScylla) -> None:
    """A failed page is requested again with the same paging state, after a simulated pause."""
    failures = {4: 2, 5: 1}
    states: list[Any] = []
    pauses: list[float] = []

    def fail(asked: RecordedQuery) -> None:
        if asked.query.columns is None:
            return
        states.append(asked.paging_state)
        page = len(set(states))
        if failures.get(page, 0):
            failures[page] -= 1
            raise TransientError("a node is down, as the test has it")

    connection = InProcessConnection(server, SMALL_PAGES, before=fail, sleep=pauses.append)
    source = CqlLogSource(connection, schema_of(connection))
    assert sorted(keys(source)) == list(range(COUNT))
    assert len(pauses) == 3
    assert len(states) == len(set(states)) + 3


def test_retries_end_by_the_time_slept(server: EmbeddedScylla) -> None:
    """The retry deadline counts simulated pauses, so the test does not wait."""
    pauses: list[float] = []

    def fail(asked: RecordedQuery) -> None:
        raise TransientError(f"{asked.query.purpose}: no node is up")

    patience = ReadConfig(retry_deadline=timedelta(seconds=60))
    connection = InProcessConnection(server, patience, before=fail, sleep=pauses.append)
    with pytest.raises(RetriesExhaustedError, match="no node is up"):
        connection.rows("SELECT key FROM system.local")
    assert 30 < sum(pauses) < 60


def test_refusals_of_the_server_are_raised(server: EmbeddedScylla) -> None:
    """The server's errors for a dropped column and a dropped table are raised."""
    connection = InProcessConnection(server)
    source = CqlLogSource(connection, schema_of(connection))
    server.execute("ALTER TABLE ks.t DROP u")
    with pytest.raises(QueryRefusedError, match=r"reading ks\.t_scylla_cdc_log: "):
        keys(source)
    server.execute("DROP TABLE ks.t")
    with pytest.raises(TableNotFoundError):
        schema_of(connection)


def test_a_type_altered_during_a_read_is_an_error(server: EmbeddedScylla) -> None:
    """If a type is altered during a read, the error is the same as over a real connection."""
    connection = InProcessConnection(server)
    source = CqlLogSource(connection, schema_of(connection))
    assert len(keys(source)) == COUNT
    server.execute("ALTER TYPE ks.u ADD y int")
    with pytest.raises(DecodeError, match="the table was altered"):
        keys(source)
    assert len(keys(CqlLogSource(connection, schema_of(connection)))) == COUNT


def test_each_page_is_answered_by_the_node_that_the_test_chooses() -> None:
    """Pages of one query come from nodes that differ; at QUORUM the nodes give the same answer."""
    server = EmbeddedScylla(nodes=3, vnodes=4, shards=1)
    server.freeze(server.nodes[1])
    server.check_and_repair_streams()
    server.add_empty_generation()
    turns = itertools.cycle(server.nodes)
    connection = InProcessConnection(server, SMALL_PAGES, node=lambda _asked: next(turns))
    address = "SELECT rpc_address FROM system.local"
    told = [connection.rows(address)[0]["rpc_address"] for _ in range(4)]
    assert told == ["127.0.0.1", "127.0.0.2", "127.0.0.3", "127.0.0.1"]
    times = "SELECT time FROM system_distributed.cdc_generation_timestamps WHERE key = 'timestamps'"
    for level, counts in (("ONE", [1, 2, 2]), (None, [2, 2, 2])):
        query = Query(times, consistency=level)
        assert [sum(map(len, connection.batches(query))) for _ in range(3)] == counts

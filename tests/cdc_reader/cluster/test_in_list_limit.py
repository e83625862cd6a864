"""Reads from a server that limits IN lists to fewer streams than a chunk contains.

A reader learns the limit from the first error.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest

from cdc_reader import CdcReader, ConnectionConfig, ReadConfig
from cdc_reader._time import BEGINNING, FOREVER, Clock, SystemClock
from cdc_reader.checkpoints import MemoryCheckpoints
from cdc_reader.cluster.log import CdcTable
from cdc_reader.consumer import CdcConsumer
from cdc_reader.cql.names import TableName
from cdc_reader.errors import QueryRefusedError
from cdc_reader.streams.task import Task
from cdc_reader.streams.window import Window
from cdc_reader.testing import EmbeddedScylla
from cdc_reader.testing.in_process import InProcessConnection, RecordedQuery

COUNT = 100
NAME = TableName("ks", "t")
LIMIT = 7
READ = ReadConfig(confidence_window=timedelta(0), fetch_size=5, retry_deadline=timedelta(hours=1))
"""A long retry deadline: if the rejection were retried, the test would hang."""


def served(limit: int) -> EmbeddedScylla:
    """Return a server with 64 streams whose table `ks.t` has 100 rows with 10 partition keys."""
    server = EmbeddedScylla(vnodes=32, shards=2, most_partitions=limit)
    server.execute(
        "CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}"
    )
    server.execute(
        "CREATE TABLE ks.t (p int, c int, PRIMARY KEY (p, c)) "
        "WITH cdc = {'enabled': true, 'ttl': 3600}"
    )
    for number in range(COUNT):
        server.execute(f"INSERT INTO ks.t (p, c) VALUES ({number % 10}, {number})")
    return server


@pytest.fixture(scope="module")
def server() -> Iterator[EmbeddedScylla]:
    """A server that accepts at most 7 keys in an IN list."""
    with served(LIMIT) as server:
        yield server


@pytest.fixture
def connection(server: EmbeddedScylla) -> ConnectionConfig:
    """A connection to `server`."""
    return ConnectionConfig(server.contact_point)


def test_all_rows_are_read_by_shorter_lists(connection: ConnectionConfig) -> None:
    """With shorter lists each row is read once, and the rows of each partition key are in order."""
    with CdcReader(connection, "ks.t", config=READ) as reader:
        rows = [row for batch in reader.batches() for row in batch.to_pylist()]
    assert sorted(row["c"] for row in rows) == list(range(COUNT))
    for key in range(10):
        written = [row["c"] for row in rows if row["p"] == key]
        assert written == sorted(written)


def test_a_consumer_follows_by_shorter_lists(connection: ConnectionConfig) -> None:
    """A consumer handles each change once, although the server accepts only short IN lists."""
    seen: list[int] = []
    CdcConsumer(
        connection,
        "ks.t",
        lambda change: seen.append(change.key["c"]),
        application="app",
        checkpoints=MemoryCheckpoints(),
        end="now",
        read=READ,
    ).run()
    assert sorted(seen) == list(range(COUNT))


def streams_of(asked: list[RecordedQuery]) -> list[int]:
    """Return the number of streams in each query of the log."""
    return [
        len(names)
        for each in asked
        if "cdc$stream_id" in each.query.cql and isinstance(names := each.query.values[0], list)
    ]


@pytest.mark.parametrize("clock", [None, SystemClock()], ids=["rows", "expiry"])
@pytest.mark.parametrize("limit", [1, 7, 63, 64])
def test_a_connection_is_refused_once(limit: int, clock: Clock | None) -> None:
    """Only the first query is rejected. Later queries list as many streams as the server accepts.

    This also holds for searches for late rows.
    """
    asked: list[RecordedQuery] = []
    server = served(limit)
    connection = InProcessConnection(server, READ, before=asked.append)
    table = CdcTable(connection, NAME)
    generations = table.generations
    groups = generations.groups(max(generations.timestamps()))
    streams = tuple(stream for group in groups for stream in group.streams)
    task = Task(Window(BEGINNING, FOREVER), streams)
    for refusals in (int(limit < 64), 0):
        asked.clear()
        source = table.source(table.schema())
        rows = sum(batch.num_rows for batch in source.read(task, clock=clock))
        assert rows == COUNT
        named = streams_of([each for each in asked if each.paging_state is None])
        assert named[:refusals] == [64] * refusals
        assert max(named[refusals:]) == limit
        assert len(named) == refusals + -(-64 // limit)


def test_a_refusal_that_names_no_limit_is_raised(server: EmbeddedScylla) -> None:
    """A rejection that states no limit is raised at once, because shorter lists would not help."""

    def refuse(asked: RecordedQuery) -> None:
        if "cdc$stream_id" in asked.query.cql:
            raise QueryRefusedError("reading ks.t: unknown column")

    table = CdcTable(InProcessConnection(server, READ, before=refuse), NAME)
    generations = table.generations
    groups = generations.groups(max(generations.timestamps()))
    task = Task(Window(BEGINNING, FOREVER), groups[0].streams)
    with pytest.raises(QueryRefusedError, match="unknown column"):
        list(table.source(table.schema()).read(task))

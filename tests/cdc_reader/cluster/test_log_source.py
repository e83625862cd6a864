"""Reading the log by streams and by token ranges, with and without remaining TTLs."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from cdc_reader._time import BEGINNING, FOREVER, Clock, SystemClock
from cdc_reader.cluster import Connection, CqlLogSource, SchemaSource
from cdc_reader.cluster.generations import VnodeGenerations
from cdc_reader.config import ConnectionConfig, ReadConfig
from cdc_reader.cql import timeuuid
from cdc_reader.cql.names import TableName
from cdc_reader.cql.schema import LogSchema
from cdc_reader.decoding import arrow_schema
from cdc_reader.reading.ports import EXPIRY
from cdc_reader.streams.stream import StreamId
from cdc_reader.streams.task import RangeTask, Task
from cdc_reader.streams.window import Window

if TYPE_CHECKING:
    from cdc_reader.testing import Scylla

COUNT = 60
ALL = Window(BEGINNING, FOREVER)
FIRST_TOKEN, LAST_TOKEN = -(1 << 63), (1 << 63) - 1
SECOND = 1_000_000


@pytest.fixture
def opened(connection: ConnectionConfig) -> Iterator[Connection]:
    """A connection that reads pages of seven rows."""
    opened = Connection(connection, ReadConfig(fetch_size=7))
    yield opened
    opened.close()


@pytest.fixture
def schema(scylla: Scylla, keyspace: str, opened: Connection) -> LogSchema:
    """The schema of a log with 60 rows of different keys. Rows expire after an hour."""
    scylla.session.execute(
        f"CREATE TABLE {keyspace}.t (p int PRIMARY KEY, v text) "
        "WITH cdc = {'enabled': true, 'ttl': 3600}"
    )
    insert = scylla.session.prepare(f"INSERT INTO {keyspace}.t (p, v) VALUES (?, 'x')")
    for key in range(COUNT):
        scylla.session.execute(insert, (key,))
    return SchemaSource(opened).log_schema(TableName(keyspace, "t"))


@pytest.fixture
def streams(opened: Connection) -> list[StreamId]:
    """The streams of the newest generation in token order."""
    generations = VnodeGenerations(opened)
    groups = generations.groups(max(generations.timestamps()))
    return sorted(
        (stream for group in groups for stream in group.streams), key=lambda stream: stream.token
    )


def read(
    source: CqlLogSource, tasks: Iterable[Task | RangeTask], *, clock: Clock | None = None
) -> list[dict[str, Any]]:
    """Return all rows of the tasks, with `cdc$time` as bytes."""
    return [
        {**row, "cdc$time": uuid.UUID(row["cdc$time"]).bytes}
        for task in tasks
        for batch in source.read(task, clock=clock)
        for row in batch.to_pylist()
    ]


def ranges(streams: list[StreamId], window: Window) -> list[RangeTask]:
    """Return tasks that cover the whole ring, split at every tenth stream."""
    edges = [FIRST_TOKEN, *(stream.token for stream in streams[::10]), LAST_TOKEN]
    return [RangeTask(window, start, end) for start, end in pairwise(edges)]


def test_streams_and_ranges_give_the_same_rows(
    opened: Connection, schema: LogSchema, streams: list[StreamId]
) -> None:
    """Each kind of task reads each row once. Ranges return rows in order of token and time."""
    source = CqlLogSource(opened, schema)
    by_stream = read(
        source,
        [Task(ALL, tuple(streams[start : start + 9])) for start in range(0, len(streams), 9)],
    )
    by_range = read(source, ranges(streams, ALL))
    assert sorted(row["p"] for row in by_stream) == list(range(COUNT))
    places = [
        (StreamId(row["cdc$stream_id"]).token, timeuuid.order_key(row["cdc$time"]))
        for row in by_range
    ]
    assert places == sorted(places)
    key = timeuuid.order_key
    assert sorted(by_range, key=lambda row: key(row["cdc$time"])) == sorted(
        by_stream, key=lambda row: key(row["cdc$time"])
    )


def test_limit(opened: Connection, schema: LogSchema, streams: list[StreamId]) -> None:
    """`limit` applies to each kind of task."""
    source = CqlLogSource(opened, schema, limit=1)
    for task in (Task(ALL, tuple(streams)), RangeTask(ALL, FIRST_TOKEN, LAST_TOKEN)):
        assert len(read(source, [task])) == 1
    assert read(source, [Task(Window(0, 1), tuple(streams))]) == []


def test_a_range_is_half_open_in_time_and_token(
    opened: Connection, schema: LogSchema, streams: list[StreamId]
) -> None:
    """A row at the end of a range belongs to the next range."""
    source = CqlLogSource(opened, schema)
    rows = read(source, ranges(streams, ALL))
    row = rows[len(rows) // 2]
    token, at = StreamId(row["cdc$stream_id"]).token, timeuuid.micros(row["cdc$time"])
    there, behind = Window(at, at + 1), Window(at - 1, at)
    found = [
        [found["p"] for found in read(source, [task])]
        for task in (
            RangeTask(there, token - 1, token),
            RangeTask(there, token, LAST_TOKEN),
            RangeTask(there, FIRST_TOKEN, token - 1),
            RangeTask(behind, token - 1, token),
        )
    ]
    assert found == [[row["p"]], [], [], []]


@pytest.mark.parametrize("by", [Task, RangeTask])
def test_rows_have_their_expiry_on_request(
    opened: Connection, schema: LogSchema, streams: list[StreamId], by: type
) -> None:
    """With a clock, an extra column contains the time at which each row expires."""
    tasks = [Task(ALL, tuple(streams))] if by is Task else ranges(streams, ALL)
    source = CqlLogSource(opened, schema)
    clock = SystemClock()
    rows = read(source, tasks, clock=clock)
    assert len(rows) == COUNT
    assert all(3_500 * SECOND < row[EXPIRY] - clock.now() <= 3_600 * SECOND for row in rows)
    batch = next(batch for task in tasks for batch in source.read(task, clock=clock))
    assert batch.schema.names == [*arrow_schema(schema.columns).names, EXPIRY]
    assert str(batch.schema.field(EXPIRY).type) == "int64"
    plain = read(source, tasks)
    assert EXPIRY not in plain[0]
    assert len(plain) == COUNT


def test_rows_without_ttl_do_not_expire(scylla: Scylla, keyspace: str, opened: Connection) -> None:
    """The expiry is null for rows that do not expire."""
    scylla.session.execute(
        f"CREATE TABLE {keyspace}.u (p int PRIMARY KEY) WITH cdc = {{'enabled': true, 'ttl': 0}}"
    )
    scylla.session.execute(f"INSERT INTO {keyspace}.u (p) VALUES (1)")
    schema = SchemaSource(opened).log_schema(TableName(keyspace, "u"))
    task = RangeTask(ALL, FIRST_TOKEN, LAST_TOKEN)
    rows = read(CqlLogSource(opened, schema), [task], clock=SystemClock())
    assert [row[EXPIRY] for row in rows] == [None]

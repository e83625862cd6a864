"""Streaming queries: their start, their advance, and restarts that repeat nothing."""

from __future__ import annotations

import json
import pickle
from typing import TYPE_CHECKING, Any

import pytest
from attrs import evolve

from cdc_reader._time import SystemClock
from cdc_reader.cluster import Connection
from cdc_reader.errors import ConfigurationError, DataLossError, SchemaError
from cdc_reader.testing.clock import ManualClock
from pyspark_scylla_cdc.options.source_options import SourceOptions
from pyspark_scylla_cdc.spark_versions import ReadAllAvailable, ReadMaxFiles
from pyspark_scylla_cdc.streaming.stream import StreamReader
from tests.cdc_reader.support.trusted_clock import TrustedClock
from tests.connectors.pyspark_scylla_cdc.support.readers import offset_at, stream_reader

if TYPE_CHECKING:
    from collections.abc import Callable

    from cdc_reader.testing import Scylla

SECOND = 1_000_000
DAY = 86_400 * SECOND
LIMIT = ReadMaxFiles(1)


@pytest.fixture
def table(scylla: Scylla, keyspace: str) -> str:
    """A table whose log keeps rows forever."""
    name = f"{keyspace}.t"
    scylla.session.execute(
        f"CREATE TABLE {name} (pk int PRIMARY KEY, v int) WITH cdc = {{'enabled': true, 'ttl': 0}}"
    )
    return name


@pytest.fixture
def clock() -> ManualClock:
    """A clock an hour ahead, so that all rows written by the tests have settled."""
    return TrustedClock(SystemClock().now() + 3_600 * SECOND)


@pytest.fixture
def reader(
    table: str,  # noqa: ARG001 - the table must be there
    options: dict[str, str],
    clock: ManualClock,
) -> Callable[..., StreamReader]:
    """Creates stream readers as Spark does, with additional options."""

    def make(**more: str) -> StreamReader:
        return stream_reader(SourceOptions.parse({**options, **more}), clock)

    return make


def position(offset: dict[str, Any]) -> int:
    """Return the position of an offset."""
    return int(offset["position"])


def test_first_micro_batch_names_its_start(reader: Callable[..., StreamReader]) -> None:
    """Only the offset at the end of the first micro-batch contains the query's start."""
    stream = reader()
    start = stream.initialOffset()
    end = stream.latestOffset(start, LIMIT)
    assert end["began"] == position(start) == position(stream.initialOffset())
    assert position(end) > position(start)
    assert "began" not in stream.latestOffset(offset_at(stream, position(end) - DAY), LIMIT)


def test_restart_before_the_first_commit(
    reader: Callable[..., StreamReader], clock: ManualClock
) -> None:
    """If Spark requests the start again, a later start does not change the first micro-batch."""
    stream = reader(startingTimestamp="-1h")
    start = stream.initialOffset()
    end = stream.latestOffset(start, LIMIT)
    clock.advance(7_200 * SECOND)
    restarted = reader(startingTimestamp="latest")
    assert restarted.partitions(end, end) == []
    later = restarted.initialOffset()
    assert position(later) > position(end)
    planned = [repr(part) for part in restarted.partitions(later, end)]
    assert planned == [repr(part) for part in stream.partitions(start, end)]
    assert position(restarted.latestOffset(end, LIMIT)) == clock.now() - 30 * SECOND


def test_restart_from_a_checkpoint(reader: Callable[..., StreamReader], clock: ManualClock) -> None:
    """If Spark requests no start, the reader resumes from the checkpoint's offset."""
    start = offset_at(reader(), clock.now() - DAY)
    assert position(reader().latestOffset(start, LIMIT)) == clock.now() - 30 * SECOND


def test_polling_costs_no_query(
    monkeypatch: pytest.MonkeyPatch, reader: Callable[..., StreamReader], clock: ManualClock
) -> None:
    """However often Spark polls, no query is sent until the position is due to advance."""
    stream = reader()
    start = offset_at(stream, clock.now() - 30 * SECOND)
    seen = {position(stream.latestOffset(start, LIMIT))}  # looks once for newer rows
    with monkeypatch.context() as without_cluster:
        without_cluster.setattr(Connection, "pages", None)
        for _ in range(20):
            seen.add(position(stream.latestOffset(start, LIMIT)))
            clock.advance(SECOND // 20)
    assert seen == {position(start)}
    clock.advance(60 * SECOND)
    assert position(stream.latestOffset(start, LIMIT)) == clock.now() - 30 * SECOND


def test_window_limit(reader: Callable[..., StreamReader], clock: ManualClock) -> None:
    """The limit holds for each trigger except one that requests everything."""
    stream = reader(maxWindowPerTrigger="1m")
    start = offset_at(stream, clock.now() - DAY)
    assert stream.getDefaultReadLimit() == LIMIT
    assert position(stream.latestOffset(start, LIMIT)) == position(start) + 60 * SECOND
    everything = stream.latestOffset(start, ReadAllAvailable())
    assert position(everything) == clock.now() - 30 * SECOND


def test_available_now_ends(reader: Callable[..., StreamReader], clock: ManualClock) -> None:
    """With `availableNow`, the end is fixed when the query starts, however long the query runs."""
    stream = reader(maxWindowPerTrigger="7h")
    stream.prepareForTriggerAvailableNow()
    target = clock.now() - 30 * SECOND
    offset, steps = offset_at(stream, target - DAY), 0
    while (latest := stream.latestOffset(offset, LIMIT)) != offset:
        offset, steps = latest, steps + 1
        clock.advance(3_600 * SECOND)
    assert (position(offset), steps) == (target, 4)


def test_start_in_the_future_waits(reader: Callable[..., StreamReader], clock: ManualClock) -> None:
    """A start in the future is not moved, and the query waits until that time."""
    stream = reader(startingTimestamp=str((clock.now() + 60 * SECOND) // 1_000))
    start = stream.initialOffset()
    clock.advance(60 * SECOND)
    assert stream.latestOffset(start, LIMIT) == start
    clock.advance(91 * SECOND)
    assert position(stream.latestOffset(start, LIMIT)) > position(start)


def test_start_is_not_before_the_log(
    scylla: Scylla, table: str, reader: Callable[..., StreamReader], clock: ManualClock
) -> None:
    """A start before the log moves to the start of the first generation.

    If that time is older than the TTL, the start moves to the oldest time within the TTL.
    """
    first = position(reader(startingTimestamp="2000-01-01").initialOffset())
    assert clock.now() - 100 * 365 * DAY < first < clock.now()
    scylla.session.execute(f"ALTER TABLE {table} WITH cdc = {{'enabled': true, 'ttl': 600}}")
    clock.advance(365 * DAY)
    kept = position(reader(startingTimestamp="2000-01-01").initialOffset())
    assert kept == clock.now() - 600 * SECOND


def test_readers_travel(reader: Callable[..., StreamReader]) -> None:
    """A reader pickled for executors works without a connection, and contains no password."""
    stream = reader()
    options = evolve(stream._options, connection={**stream._options._connection, "password": "x7"})
    assert "x7" not in repr(options)
    travelled = pickle.loads(pickle.dumps(StreamReader(stream._options, stream._schema, ())))
    assert travelled.initialOffset() == stream.initialOffset()


def test_offset_of_another_version(reader: Callable[..., StreamReader]) -> None:
    """A checkpoint of an unknown version is rejected."""
    with pytest.raises(ConfigurationError, match="checkpointLocation"):
        reader().latestOffset({"version": 99}, LIMIT)


def test_expired_changes(
    scylla: Scylla, table: str, reader: Callable[..., StreamReader], clock: ManualClock
) -> None:
    """A position older than the log's TTL ends the query, unless `onDataLoss` is `continue`."""
    scylla.session.execute(f"ALTER TABLE {table} WITH cdc = {{'enabled': true, 'ttl': 600}}")
    old = offset_at(reader(), clock.now() - 700 * SECOND)
    end = offset_at(reader(), clock.now() - 30 * SECOND)
    message = r"TTL was 600 s.*onDataLoss is 'fail': give 'continue'"
    with pytest.raises(DataLossError, match=message):
        reader().partitions(old, end)
    reader(onDataLoss="continue").partitions(old, end)
    recent = offset_at(reader(), clock.now() - 500 * SECOND)
    reader().partitions(recent, end)
    stream = reader()
    first = stream.initialOffset()
    clock.advance(120 * SECOND)
    stream.partitions(first, end)


@pytest.mark.parametrize("given", ["latest", "earliest", "reported"])
def test_starting_offsets(
    reader: Callable[..., StreamReader], clock: ManualClock, given: str
) -> None:
    """A query can start at an offset that another query has reported."""
    report = reader().reportLatestOffset()
    started = reader(startingOffsets=json.dumps(report) if given == "reported" else given)
    if given == "reported":
        assert started.initialOffset() == report
    elif given == "latest":
        assert position(started.initialOffset()) == clock.now()
    else:
        assert position(started.initialOffset()) < clock.now()


def test_table_altered_while_followed(
    scylla: Scylla, table: str, reader: Callable[..., StreamReader], clock: ManualClock
) -> None:
    """A running stream keeps its columns even if columns are added to the table."""
    stream = reader()
    start = stream.initialOffset()
    scylla.session.execute(f"INSERT INTO {table} (pk, v) VALUES (1, 2)")
    before = rows_up_to(stream, start, clock)
    scylla.session.execute(f"ALTER TABLE {table} ADD w int")
    scylla.session.execute(f"INSERT INTO {table} (pk, v, w) VALUES (3, 4, 5)")
    after = rows_up_to(stream, start, clock)
    assert [row["pk"] for row in before] == [1]
    assert sorted(row["pk"] for row in after) == [1, 3]
    assert before[0].keys() == after[0].keys()
    strict = reader(schemaMode="fail")
    scylla.session.execute(f"ALTER TABLE {table} ADD x int")
    with pytest.raises(SchemaError, match=r"the DataFrame lacks \(cdc\$deleted_x, x\)"):
        rows_up_to(strict, start, clock)


@pytest.mark.parametrize("columns", [{}, {"columns": "v"}])
def test_column_dropped_while_followed(
    scylla: Scylla,
    table: str,
    reader: Callable[..., StreamReader],
    clock: ManualClock,
    columns: dict[str, str],
) -> None:
    """A running stream ends with an error if one of its columns is dropped."""
    stream = reader(**columns)
    start = stream.initialOffset()
    scylla.session.execute(f"INSERT INTO {table} (pk, v) VALUES (1, 2)")
    assert len(rows_up_to(stream, start, clock)) == 1
    scylla.session.execute(f"ALTER TABLE {table} DROP v")
    with pytest.raises(
        SchemaError, match=r"column v was dropped while the query ran: start the query again$"
    ):
        rows_up_to(stream, start, clock)
    assert [row["pk"] for row in rows_up_to(reader(), start, clock)] == [1]


def test_postimages_turned_off_while_followed(
    scylla: Scylla, table: str, reader: Callable[..., StreamReader], clock: ManualClock
) -> None:
    """A stream of complete rows ends with an error at the first incomplete change."""
    scylla.session.execute(f"ALTER TABLE {table} WITH cdc = {{'enabled': true, 'postimage': true}}")
    stream = reader(format="changes")
    start = stream.initialOffset()
    scylla.session.execute(f"INSERT INTO {table} (pk, v) VALUES (1, 2)")
    assert [row["v"] for row in rows_up_to(stream, start, clock)] == [2]
    scylla.session.execute(f"ALTER TABLE {table} WITH cdc = {{'enabled': true}}")
    scylla.session.execute(f"UPDATE {table} SET v = 3 WHERE pk = 1")
    with pytest.raises(SchemaError, match="has no postimage in the log"):
        rows_up_to(stream, start, clock)


def rows_up_to(stream: StreamReader, start: dict[str, int], clock: ManualClock) -> list[Any]:
    """Return the settled rows from `start` on, read as Spark reads them."""
    end = offset_at(stream, clock.now() - 30 * SECOND)
    batches = (
        batch for partition in stream.partitions(start, end) for batch in stream.read(partition)
    )
    return [row for batch in batches for row in batch.to_pylist()]

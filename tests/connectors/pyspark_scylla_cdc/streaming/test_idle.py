"""Idle streams run no micro-batches, make few queries, and miss no later rows."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from attrs import frozen
from cassandra.cluster import Session
from hypothesis import given
from hypothesis import strategies as st

from cdc_reader._time import Clock
from cdc_reader.cluster import Connection
from cdc_reader.reading import tuning
from cdc_reader.streams.generation import Timeline
from cdc_reader.streams.stream import StreamId
from cdc_reader.streams.task import RangeTask, Task
from cdc_reader.streams.window import Window
from cdc_reader.testing import EmbeddedScylla, ManualClock
from pyspark_scylla_cdc.clusters import cluster_of
from pyspark_scylla_cdc.options.source_options import SourceOptions
from pyspark_scylla_cdc.planning.partition import LogPartition
from pyspark_scylla_cdc.planning.streams import Streams
from pyspark_scylla_cdc.spark_versions import ReadAllAvailable, ReadMaxFiles
from pyspark_scylla_cdc.streaming import idle
from pyspark_scylla_cdc.streaming.idle import EmptyWindows, RowProbe
from pyspark_scylla_cdc.streaming.stream import StreamReader
from tests.cdc_reader.support.tuned import tuned
from tests.connectors.pyspark_scylla_cdc.support.readers import offset_at, stream_reader

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

    from cdc_reader.cluster import Query

    Execute = Callable[..., None]
    Load = Callable[..., Any]

SECOND = 1_000_000
MINUTE = 60 * SECOND
LIMIT = ReadMaxFiles(1)
PATIENCE = 120
"""Seconds after which a call that should have returned fails the test."""
Make = Callable[..., StreamReader]


@pytest.fixture
def make(cluster: EmbeddedScylla, session: Session, clock: ManualClock) -> Iterator[Make]:
    """Creates readers of a table without changes, with given options and internal settings."""
    session.execute(
        "CREATE KEYSPACE ks WITH replication = "
        "{'class': 'NetworkTopologyStrategy', 'datacenter1': 1} AND tablets = {'enabled': false}"
    )
    session.execute("CREATE TABLE ks.t (pk int PRIMARY KEY, v int) WITH cdc = {'enabled': true}")
    known = {
        "hosts": cluster.contact_point,
        "keyspace": "ks",
        "table": "t",
        "consistencyLevel": "ONE",
        "startingTimestamp": "latest",
        "lateRows": "ignore",
    }

    opened = set()

    def make(**more: str) -> StreamReader:
        parsed = SourceOptions.parse({**known, **more})
        opened.add(cluster_of(parsed.connection(), parsed.read).connection)
        return stream_reader(parsed, clock)

    yield make
    for connection in opened:
        connection.close()


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """The number of queries that read each table."""
    counted: Counter[str] = Counter()
    ask = Connection.pages

    def count(connection: Connection, query: Query) -> Iterator[Any]:
        counted[query.cql.split(" FROM ")[1].split()[0].split(".")[-1].strip(chr(34))] += 1
        return ask(connection, query)

    monkeypatch.setattr(Connection, "pages", count)
    return counted


def poll(
    stream: StreamReader, start: dict[str, Any], clock: ManualClock, seconds: int, rate: int = 8
) -> list[dict[str, Any]]:
    """Poll a stream `rate` times a second, and return the offsets after `start`."""
    offsets = [start]
    for _ in range(seconds * rate):
        clock.advance(SECOND // rate)
        if (latest := stream.latestOffset(offsets[-1], LIMIT)) != offsets[-1]:
            stream.partitions(offsets[-1], latest)
            offsets.append(latest)
    return offsets[1:]


def settled(stream: StreamReader, clock: ManualClock) -> dict[str, Any]:
    """Return the start of a new query, and advance the clock so that a window can be checked."""
    start = stream.initialOffset()
    clock.advance(31 * SECOND)
    return start


def rows(stream: StreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[int]:
    """Return the keys of the rows in a micro-batch."""
    batches = (batch for part in stream.partitions(start, end) for batch in stream.read(part))
    return [row["pk"] for batch in batches for row in batch.to_pylist()]


def test_log_without_changes(make: Make, clock: ManualClock, asked: Counter[str]) -> None:
    """The position advances once a minute, and the log is queried at most once a second."""
    stream = make()
    start = settled(stream, clock)
    asked.clear()
    offsets = poll(stream, start, clock, 300)
    assert 4 <= len(offsets) <= 5
    assert all(
        late["position"] - early["position"] >= MINUTE
        for early, late in zip([start, *offsets], offsets, strict=False)
    )
    assert asked["t_scylla_cdc_log"] <= 300
    assert max(asked.values()) <= 300 + 20


def test_rows_after_an_idle_time(make: Make, clock: ManualClock, session: Session) -> None:
    """Rows written after an idle time are delivered once, in the next micro-batch."""
    stream = make()
    start = settled(stream, clock)
    assert poll(stream, start, clock, 20) == []
    write(session, 7)
    assert poll(stream, start, clock, 29) == []
    [end, *_] = poll(stream, start, clock, 3)
    assert rows(stream, start, end) == [7]
    assert poll(stream, end, clock, 50) == []


def test_a_generation_after_an_idle_time(
    make: Make, clock: ManualClock, session: Session, cluster: EmbeddedScylla
) -> None:
    """Older streams need not be checked again after an idle time, but new streams are checked."""
    stream = make(confidenceWindow="0s")
    start = settled(stream, clock)
    cluster.hold_publication()
    cluster.join(vnodes=4)
    for pk in range(20):
        clock.advance(SECOND // 100)
        write(session, pk)
    found = poll(stream, start, clock, 5)
    cluster.complete_publication()
    found += poll(stream, (found or [start])[-1], clock, 5)
    windows = zip([start, *found], found, strict=False)
    assert sorted(pk for window in windows for pk in rows(stream, *window)) == list(range(20))


@pytest.mark.parametrize("every", [60, 90])
def test_triggers_as_long_as_the_advance(make: Make, clock: ManualClock, every: int) -> None:
    """If triggers are a minute or more apart, only every second trigger gets a new offset."""
    stream = make()
    offset = settled(stream, clock)
    moved = []
    for _ in range(10):
        clock.advance(every * SECOND)
        latest = stream.latestOffset(offset, LIMIT)
        moved.append(latest != offset)
        offset = latest
    assert moved == [True, False] * 5


def test_triggers_that_are_not_at_rest(make: Make, clock: ManualClock) -> None:
    """A query that is behind, or must read up to an end, advances without waiting for rows."""
    behind = make(maxWindowPerTrigger="10s")
    start = settled(behind, clock)
    clock.advance(20 * SECOND)
    ends = poll(behind, start, clock, 2)
    assert [end["position"] - start["position"] for end in ends] == [10 * SECOND, 20 * SECOND]
    everything = behind.latestOffset(ends[-1], ReadAllAvailable())
    assert everything["position"] == clock.now() - 30 * SECOND
    behind.prepareForTriggerAvailableNow()
    assert behind.latestOffset(ends[-1], LIMIT) == everything
    ending = make(endingTimestamp=str((clock.now() + 40 * SECOND) // 1_000))
    start = settled(ending, clock)
    assert len(poll(ending, start, clock, 100)) == 1


def test_more_streams_than_are_probed(
    make: Make, clock: ManualClock, asked: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """If there are too many streams to check, the position advances without querying the log."""
    monkeypatch.setattr(tuning, "STREAMS_PER_QUERY", 1)
    stream = make()
    parts = stream.partitions(*window(stream, clock))
    streams = sum(part.streams for part in parts if isinstance(part, LogPartition))
    monkeypatch.setattr(idle, "MOST_QUERIES", streams // 8)
    start = settled(stream, clock)
    stream.latestOffset(start, LIMIT)  # looks once for rows that have not settled
    asked.clear()
    offsets = poll(stream, start, clock, 80)
    assert 7 <= len(offsets) <= 10
    assert asked["t_scylla_cdc_log"] == 0


def test_probing_begins_where_rows_were_found(
    make: Make, clock: ManualClock, asked: Counter[str], session: Session
) -> None:
    """If one key is written continuously, the first query finds its rows."""
    with tuned(streams_per_query=1, in_flight=1):
        stream = make()
        offset, looked = settled(stream, clock), 0
        for _ in range(4):
            write(session, 7)
            clock.advance(31 * SECOND)
            asked.clear()
            latest = stream.latestOffset(offset, LIMIT)
            looked = asked["t_scylla_cdc_log"]
            assert rows(stream, offset, latest) == [7]
            offset = latest
    assert looked == 1


def window(stream: StreamReader, clock: ManualClock) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the start and end offsets of a micro-batch that covers the last second."""
    return tuple(  # type: ignore[return-value]  # a pair
        offset_at(stream, clock.now() - ago * SECOND) for ago in (1, 0)
    )


def write(session: Session, pk: int) -> None:
    """Write one change."""
    session.execute("INSERT INTO ks.t (pk, v) VALUES (%s, 0)", (pk,))


STREAM = StreamId((5).to_bytes(8, "big", signed=True) + bytes(7) + b"\1")


@frozen
class Written:
    """A log of one stream, given by the write times of its rows."""

    times: list[int]

    def read(
        self, task: Task | RangeTask, *, clock: Clock | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Return the first row in the task's window, if there is one."""
        del clock
        found = [time for time in self.times if time in task.window][:1]
        return iter([pa.record_batch({"time": found})] if found else [])


@given(
    gaps=st.lists(st.integers(1, 200), max_size=80),
    writes=st.sets(st.integers(0, 4_000)),
    shortest=st.integers(1, 20),
    longest=st.integers(1, 300),
)
def test_rest_law(gaps: list[int], writes: set[int], shortest: int, longest: int) -> None:
    """A window with rows becomes a micro-batch once it grows by `shortest` after the last check.

    An empty window becomes a micro-batch only if it lasts at least `longest` and does not directly
    follow another empty micro-batch.
    """
    log = Written(sorted(writes))

    def probe() -> RowProbe:
        return RowProbe(log, lambda _: Streams(bytes(STREAM)))

    rest = EmptyWindows(probe, shortest, longest)
    position = now = looked = 0
    was_empty = False
    for gap in gaps:
        now += gap
        grown = Window(position, now)
        is_worth = rest.is_long(grown) or rest.has_rows(grown, Timeline((0,)))
        end = now if is_worth else position
        has_rows = any(time in Window(position, now) for time in writes)
        if end == position:
            was_new = any(time in Window(position, looked) for time in writes)
            assert not was_new
            assert not has_rows or now - looked < shortest
            looked = looked if now - looked < shortest else now
            was_empty = False
        else:
            assert has_rows or (now - position >= longest and not was_empty)
            was_empty = not has_rows
            position = looked = now
    assert now - position < longest + 2 * max(gaps, default=0) + shortest


@pytest.mark.spark
def test_process_all_available(execute: Execute, load: Load, tmp_path: Path) -> None:
    """`processAllAvailable` delivers all rows and returns, even if the table is idle.

    Rows that are written afterwards are delivered too.
    """
    execute("CREATE TABLE {t} (pk int PRIMARY KEY, v int) WITH cdc = {'enabled': true}")
    frame = load(stream=True, confidenceWindow="0s")
    found: list[int] = []
    query = (
        frame.writeStream.foreachBatch(lambda rows, _: found.extend(r.pk for r in rows.collect()))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )
    began = time.monotonic()
    try:
        for pk in (1, 2, 3):
            execute(f"INSERT INTO {{t}} (pk, v) VALUES ({pk}, 0)")
            while (
                len(found) < pk
            ):  # on a busy machine, the time of the cluster is known less exactly
                process(query)
            assert found == list(range(1, pk + 1))
        process(query)
        # One micro-batch at the start, one for each write, and one per idle minute.
        assert len(micro_batches(query)) <= 5 + (time.monotonic() - began) / 60 + 1
    finally:
        query.stop()


def process(query: StreamingQuery) -> None:
    """Wait for all available rows, and fail if this takes longer than `PATIENCE`."""
    with ThreadPoolExecutor(1) as pool:
        waited = pool.submit(query.processAllAvailable)
        try:
            waited.result(PATIENCE)
        except TimeoutError:
            query.stop()
            raise


def micro_batches(query: StreamingQuery) -> set[int]:
    """Return the numbers of the micro-batches that ran, without the reports of idle triggers."""
    return {
        progress.batchId for progress in query.recentProgress if "addBatch" in progress.durationMs
    }

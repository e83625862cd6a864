"""Limits on a micro-batch, and the query rate that its tasks share."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest
from attrs import evolve, frozen
from cassandra.cluster import Session

from cdc_reader._time import Clock
from cdc_reader.reading.ports import LogSource
from cdc_reader.streams.task import RangeTask, Task
from cdc_reader.streams.window import Window
from cdc_reader.testing import EmbeddedScylla, ManualClock
from pyspark_scylla_cdc.clusters import cluster_of
from pyspark_scylla_cdc.row_count import TOO_MANY, row_count
from pyspark_scylla_cdc.sessions import timeline_of
from pyspark_scylla_cdc.spark_versions import ReadMaxFiles
from pyspark_scylla_cdc.streaming.stream import StreamReader
from tests.connectors.pyspark_scylla_cdc.support.readers import stream_readers

SECOND = 1_000_000
LIMIT = ReadMaxFiles(1)
Make = Callable[..., StreamReader]
Offset = dict[str, Any]


@pytest.fixture
def make(cluster: EmbeddedScylla, session: Session, clock: ManualClock) -> Iterator[Make]:
    """Creates readers of an idle table. Rows settle after a second."""
    session.execute(
        "CREATE KEYSPACE ks WITH replication = "
        "{'class': 'NetworkTopologyStrategy', 'datacenter1': 1} AND tablets = {'enabled': false}"
    )
    session.execute("CREATE TABLE ks.t (pk int PRIMARY KEY, v text) WITH cdc = {'enabled': true}")
    known = {
        "hosts": cluster.contact_point,
        "path": "ks.t",
        "consistencyLevel": "ONE",
        "startingTimestamp": "latest",
        "lateRows": "ignore",
        "confidenceWindow": "1s",
    }
    with stream_readers(known, clock) as make:
        yield make


@pytest.fixture
def write(session: Session, clock: ManualClock) -> Callable[..., None]:
    """Write rows of a given size, a tenth of a second apart, and let them settle."""

    def write(count: int, size: int = 1) -> None:
        for number in range(count):
            clock.advance(SECOND // 10)
            session.execute("INSERT INTO ks.t (pk, v) VALUES (%s, %s)", (number, "x" * size))
        clock.advance(2 * SECOND)

    return write


def sizes(stream: StreamReader, start: Offset) -> list[tuple[int, int]]:
    """Return the numbers of rows and bytes in each micro-batch from `start` on."""
    found = []
    while (end := stream.latestOffset(start, LIMIT)) != start:
        parts = stream.partitions(start, end)
        batches = [batch for part in parts for batch in stream.read(part)]
        found.append((sum(b.num_rows for b in batches), sum(b.nbytes for b in batches)))
        start = end
    return found


@pytest.mark.parametrize(("rows", "size"), [(300, 1_000), (60, 20_000)])
def test_bytes(make: Make, write: Callable[..., None], rows: int, size: int) -> None:
    """Micro-batches have about the same size in bytes, whatever the size of a row."""
    stream = make(maxBytesPerTrigger="100k")
    start = stream.initialOffset()
    write(rows, size)
    found = sizes(stream, start)
    assert sum(count for count, _ in found) == rows
    assert all(count for count, _ in found)
    assert max(held for _, held in found) <= 1.5 * 100 * 1024
    assert len(found) <= 3 * rows * size / 100_000


@pytest.fixture
def write_hot(session: Session, clock: ManualClock) -> Callable[..., None]:
    """Write rows of one key, of given sizes, and before each a number of small rows of others."""

    def write_hot(sizes: list[int], others: int = 5) -> None:
        for number, size in enumerate(sizes):
            for pk in range(others):
                small = (1_000 + others * number + pk, "x")
                session.execute("INSERT INTO ks.t (pk, v) VALUES (%s, %s)", small)
                clock.advance(SECOND // 100)
            session.execute("INSERT INTO ks.t (pk, v) VALUES (%s, %s)", (0, "x" * size))
            clock.advance(SECOND // 10)
        clock.advance(2 * SECOND)

    return write_hot


@pytest.mark.slow
def test_bytes_of_a_hot_stream(make: Make, write_hot: Callable[..., None]) -> None:
    """The size of rows is estimated for each stream: one stream has rows larger than all others."""
    stream = make(maxBytesPerTrigger="100k")
    start = stream.initialOffset()
    write_hot([20_000] * 60)
    found = sizes(stream, start)
    assert sum(count for count, _ in found) == 6 * 60
    assert max(held for _, held in found) <= 1.5 * 100 * 1024
    assert len(found) <= 3 * 60 * 20_000 / 100_000


@pytest.mark.slow
@pytest.mark.parametrize("grows", [True, False])
def test_bytes_of_a_stream_whose_rows_change(
    make: Make, write_hot: Callable[..., None], *, grows: bool
) -> None:
    """A cut window is weighed again, because the rows of a stream may grow or shrink."""
    stream = make(maxBytesPerTrigger="100k")
    start = stream.initialOffset()
    write_hot(sorted([20] * 40 + [20_000] * 40, reverse=not grows))
    found = sizes(stream, start)
    assert sum(count for count, _ in found) == 6 * 80
    assert max(held for _, held in found) <= 3 * 100 * 1024
    assert len(found) <= 3 * 40 * 20_000 / 100_000


@frozen
class Weighed:
    """A source of rows that records the size of each batch in `sizes`."""

    source: LogSource
    sizes: list[int]

    def read(
        self, task: Task | RangeTask, *, clock: Clock | None = None
    ) -> Iterator[pa.RecordBatch]:
        for batch in self.source.read(task, clock=clock):
            self.sizes.append(batch.nbytes)
            yield batch


def test_weighing_reads_little(make: Make, write_hot: Callable[..., None]) -> None:
    """However much a stream has to read, a few of its rows are weighed."""
    stream = make(maxBytesPerTrigger="1m")
    count = row_count(stream._options, stream._schema, timeline_of(stream._options))
    start = stream.initialOffset()["position"]
    write_hot([20_000] * 300, others=0)  # a small row of the same stream would be weighed, too
    weighed: list[int] = []
    some = Weighed(count.some, weighed)
    window = Window(start, start + 60 * SECOND)
    whole = evolve(count, some=some).size(window, math.inf)
    assert whole == pytest.approx(300 * 20_000, rel=0.1)
    assert sum(weighed) < whole / 4
    weighed.clear()
    assert evolve(count, some=some).size(window, 10_000) == TOO_MANY
    assert len(weighed) == 1


@pytest.mark.slow
def test_rows_and_bytes(make: Make, write: Callable[..., None]) -> None:
    """The limit that is reached first applies. A micro-batch contains at least one row."""
    stream = make(maxBytesPerTrigger="100k", maxRowsPerTrigger="10")
    start = stream.initialOffset()
    write(40)
    assert max(count for count, _ in sizes(stream, start)) <= 10
    stream = make(maxBytesPerTrigger="1")
    assert [count for count, _ in sizes(stream, start)] == [1] * 40


def test_tasks_share_the_rate(make: Make, write: Callable[..., None]) -> None:
    """Each partition gets an equal part of the query rate. The driver may use the whole rate."""
    stream = make(maxQueriesPerSecond="1000", maxPartitions="4")
    options = stream._options
    throttle = cluster_of(options.connection(), options.read).connection.throttle
    start = stream.initialOffset()
    write(20)
    end = stream.latestOffset(start, LIMIT)
    assert throttle.rate == 1_000
    parts = stream.partitions(start, end)
    assert len(parts) == 4
    assert sum(b.num_rows for part in parts for b in stream.read(part)) == 20
    assert throttle.rate == 1_000 / 4

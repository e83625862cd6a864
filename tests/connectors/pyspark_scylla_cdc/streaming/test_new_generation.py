"""A stream finds the generations that the cluster creates while it is followed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from attrs import evolve
from cassandra.cluster import Session

from cdc_reader.testing import EmbeddedScylla, ManualClock
from pyspark_scylla_cdc.options.source_options import SourceOptions
from pyspark_scylla_cdc.sessions import connection_of
from pyspark_scylla_cdc.spark_versions import ReadAllAvailable, ReadMaxFiles
from pyspark_scylla_cdc.streaming.stream import StreamReader
from tests.cdc_reader.announcing import Announcing
from tests.connectors.pyspark_scylla_cdc.readers import batch_reader, stream_reader

SECOND = 1_000_000
KEYS = range(40)


@pytest.fixture
def stream(cluster: EmbeddedScylla, session: Session, clock: ManualClock) -> Iterator[StreamReader]:
    """A reader of the table `ks.t`, as in a long-running query."""
    session.execute(
        "CREATE KEYSPACE ks WITH replication = "
        "{'class': 'NetworkTopologyStrategy', 'datacenter1': 1} AND tablets = {'enabled': false}"
    )
    session.execute(
        "CREATE TABLE ks.t (pk int PRIMARY KEY, v int) WITH cdc = {'enabled': true, 'ttl': 0}"
    )
    options = SourceOptions.parse(
        {"hosts": cluster.contact_point, "keyspace": "ks", "table": "t", "consistencyLevel": "ONE"}
    )
    yield stream_reader(options, clock)
    connection_of(options.connection(), options.read).close()


def test_rows_of_a_generation_made_between_two_micro_batches(
    cluster: EmbeddedScylla, session: Session, stream: StreamReader, clock: ManualClock
) -> None:
    """Rows written after a node has joined are read too, once."""
    start = stream.initialOffset()
    clock.advance(SECOND)
    write(session, 1)
    first, end = micro_batch(stream, start, clock)
    assert first == [(pk, 1) for pk in KEYS]

    joined = cluster.join(vnodes=4)
    clock.advance(SECOND)
    assert joined.timestamp * 1_000 < clock.now()
    write(session, 2)
    second, _ = micro_batch(stream, end, clock)
    assert second == [(pk, 2) for pk in KEYS]


def test_a_generation_published_half_way_is_waited_for(
    cluster: EmbeddedScylla, session: Session, stream: StreamReader, clock: ManualClock
) -> None:
    """No micro-batch passes the start of a generation that is stored but not announced."""
    start = stream.initialOffset()
    cluster.hold_publication()
    joined = cluster.join(vnodes=4)
    clock.advance(60 * SECOND)
    write(session, 1)
    held = stream.latestOffset(start, ReadMaxFiles(1))
    assert held["position"] <= joined.timestamp * 1_000
    cluster.complete_publication()
    rows, end = micro_batch(stream, held, clock)
    assert rows == [(pk, 1) for pk in KEYS]
    assert end["position"] == stream.latestOffset(held, ReadMaxFiles(1))["position"]


def test_a_batch_waits_for_a_generation_that_is_announced_late(
    cluster: EmbeddedScylla, session: Session, stream: StreamReader, clock: ManualClock
) -> None:
    """A batch query also has the rows of a generation that is stored but not announced yet."""
    cluster.hold_publication(rows=1)
    cluster.join(vnodes=4)
    clock.advance(60 * SECOND)
    write(session, 1)
    clock.advance(60 * SECOND)
    announcing = Announcing(cluster, clock, after=3)
    batch = batch_reader(stream._options, announcing)
    rows = [row for part in batch.partitions() for b in batch.read(part) for row in b.to_pylist()]
    assert sorted((row["pk"], row["v"]) for row in rows) == [(pk, 1) for pk in KEYS]
    assert announcing.sleeps == 3


def test_topology_changed_between_plan_and_read(
    cluster: EmbeddedScylla, session: Session, stream: StreamReader, clock: ManualClock
) -> None:
    """Announced generations never change, so the plan stays valid."""
    start = stream.initialOffset()
    clock.advance(SECOND)
    write(session, 1)
    clock.advance(60 * SECOND)
    planned = stream.partitions(start, stream.reportLatestOffset())
    cluster.join(vnodes=4)
    clock.advance(SECOND)
    write(session, 2)
    rows = [row for part in planned for batch in stream.read(part) for row in batch.to_pylist()]
    assert sorted((row["pk"], row["v"]) for row in rows) == [(pk, 1) for pk in KEYS]


def test_another_number_of_partitions(
    cluster: EmbeddedScylla, session: Session, stream: StreamReader, clock: ManualClock
) -> None:
    """A micro-batch that is planned again with other settings has the same rows."""
    start = stream.initialOffset()
    write(session, 1)
    clock.advance(SECOND)  # a generation begins at a whole millisecond, which may be in the past
    cluster.join(vnodes=4)
    clock.advance(SECOND)
    write(session, 2)
    expected, end = micro_batch(stream, start, clock)
    assert len(expected) == 2 * len(KEYS)
    for least, most in ((1, 1), (3, 5), (40, 40)):
        changed = evolve(stream._options, min_partitions=least, max_partitions=most)
        again = StreamReader(changed, stream._schema, stream._names, clock)
        parts = again.partitions(start, end)
        rows = [row for part in parts for batch in again.read(part) for row in batch.to_pylist()]
        assert sorted((row["pk"], row["v"]) for row in rows) == expected
        assert least <= len(parts) <= most


def test_rows_limit(session: Session, stream: StreamReader, clock: ManualClock) -> None:
    """A micro-batch has about the allowed number of rows, however they are distributed in time."""
    limited = StreamReader(
        evolve(stream._options, max_rows=100), stream._schema, stream._names, clock
    )
    start = limited.initialOffset()
    for number in range(600):
        clock.advance({60: 3_000 * SECOND}.get(number, SECOND if number < 60 else SECOND // 10))
        session.execute("INSERT INTO ks.t (pk, v) VALUES (%s, 0)", (number,))
    clock.advance(60 * SECOND)
    counts, offset = followed(limited, start)
    assert sum(counts) == 600
    assert max(counts) <= 150
    assert 6 <= len(counts) <= 15
    assert all(counts)
    assert limited.latestOffset(start, ReadAllAvailable())["position"] == offset["position"]


@pytest.mark.parametrize("quiet", [1, 3_600, 20 * 3_600])
def test_rows_limit_after_a_quiet_time(
    session: Session, stream: StreamReader, clock: ManualClock, quiet: int
) -> None:
    """No micro-batch is empty, however long there were no writes."""
    options = evolve(stream._options, max_rows=10)
    limited = StreamReader(options, stream._schema, stream._names, clock)
    start = limited.initialOffset()
    clock.advance(quiet * SECOND)
    for number in range(44):
        clock.advance(SECOND)
        session.execute("INSERT INTO ks.t (pk, v) VALUES (%s, 0)", (number,))
    clock.advance(60 * SECOND)
    counts, _ = followed(limited, start)
    assert sum(counts) == 44
    assert max(counts) <= 10
    assert all(counts)
    assert len(counts) <= 10


@pytest.mark.slow
@pytest.mark.parametrize(("fetch_size", "limit"), [(10, 1_000), (10, 300), (5_000, 1_000)])
def test_rows_limit_of_many_pages(
    session: Session, stream: StreamReader, clock: ManualClock, fetch_size: int, limit: int
) -> None:
    """The limit holds for any number of pages, and for any hot stream."""
    read = evolve(stream._options.read, fetch_size=fetch_size)
    options = evolve(stream._options, max_rows=limit, read=read)
    limited = StreamReader(options, stream._schema, stream._names, clock)
    start = limited.initialOffset()
    for number in range(4_000):
        clock.advance(SECOND // 100)
        session.execute("INSERT INTO ks.t (pk, v) VALUES (%s, 0)", (number % 50 and 7,))
    clock.advance(60 * SECOND)
    counts, _ = followed(limited, start)
    assert sum(counts) == 4_000
    assert max(counts) <= limit
    assert len(counts) <= 4 * 4_000 / limit


def followed(stream: StreamReader, start: dict[str, int]) -> tuple[list[int], dict[str, int]]:
    """Return the number of rows of each micro-batch from `start` on, and the end of the last."""
    counts, offset = [], start
    while (latest := stream.latestOffset(offset, ReadMaxFiles(1))) != offset:
        parts = stream.partitions(offset, latest)
        counts.append(sum(b.num_rows for part in parts for b in stream.read(part)))
        offset = latest
    return counts, offset


def write(session: Session, value: int) -> None:
    """Write one change to each key."""
    for pk in KEYS:
        session.execute("INSERT INTO ks.t (pk, v) VALUES (%s, %s)", (pk, value))


def micro_batch(
    stream: StreamReader, start: dict[str, int], clock: ManualClock
) -> tuple[list[tuple[int, int]], dict[str, int]]:
    """Advance by a minute; return the sorted changes that have settled, and the end offset."""
    clock.advance(60 * SECOND)
    end = stream.reportLatestOffset()
    rows = [
        row
        for partition in stream.partitions(start, end)
        for batch in stream.read(partition)
        for row in batch.to_pylist()
    ]
    return sorted((row["pk"], row["v"]) for row in rows), end

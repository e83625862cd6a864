"""A streaming query finds the generations that the cluster creates while the query runs."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator

import pytest
from attrs import evolve
from cassandra.cluster import Session

from cdc_reader.errors import DataLossError
from cdc_reader.testing import EmbeddedScylla, ManualClock
from pyspark_scylla_cdc.clusters import cluster_of
from pyspark_scylla_cdc.options.source_options import SourceOptions
from pyspark_scylla_cdc.spark_versions import ReadAllAvailable, ReadMaxFiles, WithoutStart
from pyspark_scylla_cdc.streaming.stream import StreamReader
from tests.cdc_reader.support.announcing import Announcing
from tests.connectors.pyspark_scylla_cdc.support.followed_log import FollowedLog, create_table
from tests.connectors.pyspark_scylla_cdc.support.readers import batch_reader, stream_reader

SECOND = 1_000_000
Make = Callable[..., FollowedLog]
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
    cluster_of(options.connection(), options.read).connection.close()


def test_rows_of_a_generation_made_between_two_micro_batches(
    cluster: EmbeddedScylla, session: Session, stream: StreamReader, clock: ManualClock
) -> None:
    """Rows written before and after a node joins are read once."""
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
    write(session, 0)
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
    """A batch query also reads rows of a generation that is stored but not announced yet."""
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


@pytest.fixture
def late(session: Session, clock: ManualClock, follow: Make) -> Make:
    """Follows a table `ks.t` whose log has a TTL of a day."""
    clock.advance(600 * SECOND)
    create_table(session, tablets="{'enabled': false}")
    return follow


def unannounced(cluster: EmbeddedScylla, clock: ManualClock, stored: int = 0) -> None:
    """Begin a generation that is not announced. `stored` rows of its description are stored."""
    cluster.hold_publication(stored)
    cluster.join(vnodes=3)
    clock.advance(SECOND)  # it begins at a whole millisecond


def written(followed: FollowedLog, *pks: int) -> None:
    """Write a row every four seconds, and poll the query in between."""
    for pk in pks:
        followed.write(pk)
        followed.run(4)


@pytest.mark.parametrize(
    ("mode", "stored"),
    [
        ("deliver", 1),
        pytest.param("ignore", 0, marks=pytest.mark.slow),
        pytest.param("report", 1, marks=pytest.mark.slow),
        pytest.param("deliver", 0, marks=pytest.mark.slow),
    ],
)
def test_a_generation_announced_behind_the_position(
    cluster: EmbeddedScylla,
    late: Make,
    caplog: pytest.LogCaptureFixture,
    mode: str,
    stored: int,
) -> None:
    """A generation announced late is read from its start, and each row is delivered once."""
    followed = late(lateRows=mode)
    written(followed, 0, 1)
    unannounced(cluster, followed.clock, stored)
    if stored:  # the reader waits for it first
        followed.clock.advance(600 * SECOND)
    written(followed, *range(2, 20))
    followed.write(20, age=45)
    assert followed.run(40) == []
    cluster.complete_publication()
    written(followed, 21, 22)
    assert "generation_announced_late" in caplog.text
    followed.write(23, age=90)
    followed.run(200)
    assert followed.delivered == [*range(23), *([23] if mode == "deliver" else [])]
    assert caplog.text.count("generation_announced_late") == 1


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["report", "deliver"])
@pytest.mark.parametrize("is_planned", [False, True])
def test_a_restart_while_a_generation_is_unannounced(
    cluster: EmbeddedScylla, late: Make, mode: str, *, is_planned: bool
) -> None:
    """Restarts neither lose nor repeat rows, because the offset records the known generations."""
    followed = late(lateRows=mode)
    unannounced(cluster, followed.clock)
    written(followed, *range(20))
    followed.start()
    followed.run(40)
    cluster.complete_publication()
    if is_planned:
        followed.clock.advance(10 * SECOND)
        assert followed.step(commit=False) == list(range(20))
    followed.start()
    assert followed.run(200) == list(range(20))


@pytest.mark.parametrize("mode", ["report", "deliver"])
def test_a_repeated_micro_batch_reads_the_generations_of_its_plan(
    cluster: EmbeddedScylla, late: Make, mode: str
) -> None:
    """A repeated micro-batch contains the same rows.

    The next micro-batch reads a generation that was announced after the first attempt.
    """
    followed = late(lateRows=mode)
    followed.write(0)
    unannounced(cluster, followed.clock)
    followed.clock.advance(SECOND)
    followed.write(1)
    followed.clock.advance(60 * SECOND)
    start = followed.offsets[-1]
    assert followed.step() == [0]
    middle = followed.offsets[-1]
    cluster.complete_publication()
    followed.start()
    assert followed.read(start, middle) == [0]
    followed.clock.advance(10 * SECOND)
    assert followed.step() == [1]
    end = followed.offsets[-1]
    unannounced(cluster, followed.clock)
    cluster.complete_publication()
    for pause in (0, 20, 90):
        followed.clock.advance(pause * SECOND)
        followed.start()
        assert followed.read(middle, end) == [1]
    assert followed.run(200) == []


@pytest.mark.slow
@pytest.mark.parametrize("given", [{"snapshot": "initial"}, {"startingTimestamp": "latest"}])
def test_a_late_generation_older_than_the_query(
    cluster: EmbeddedScylla, late: Make, given: dict[str, str]
) -> None:
    """A query delivers no log rows that are older than its start or its snapshot."""
    before = late()
    unannounced(cluster, before.clock)
    before.write(1)
    before.clock.advance(60 * SECOND)
    followed = late(lateRows="deliver", **given)
    followed.run(60)
    found = [1] if "snapshot" in given else []
    assert followed.delivered == found
    followed.write(2)
    followed.run(100)
    cluster.complete_publication()
    followed.run(200)
    assert followed.delivered == [*found, 2]


@pytest.mark.slow
def test_several_generations_announced_out_of_order(cluster: EmbeddedScylla, late: Make) -> None:
    """Rows of an older generation are delivered even if a newer one has long been known."""
    followed = late()
    unannounced(cluster, followed.clock)
    written(followed, 1, 2)
    cluster.resume_publication()
    cluster.join(vnodes=2)
    followed.clock.advance(SECOND)
    written(followed, 3, 4)
    followed.run(100)
    assert followed.delivered == [3, 4]
    cluster.complete_publication()
    written(followed, 5)
    followed.start()
    followed.run(100)
    assert followed.delivered == [1, 2, 3, 4, 5]


@pytest.mark.slow
def test_a_query_that_ends_with_what_is_available(cluster: EmbeddedScylla, late: Make) -> None:
    """A query that reads all available rows also reads a generation announced late.

    This includes the generation's rows that are older than the query's position.
    """
    followed = late()
    written(followed, 0)
    unannounced(cluster, followed.clock)
    written(followed, *range(1, 20))
    followed.run(100)
    cluster.complete_publication()
    followed.write(20)
    followed.clock.advance(60 * SECOND)
    followed.start()
    followed.reader.prepareForTriggerAvailableNow()
    while followed.step():
        pass
    assert followed.delivered == list(range(21))
    followed.offsets.pop()
    everything = followed.reader.latestOffset(json.loads(followed.offsets[-1]), ReadAllAvailable())
    assert followed.read(followed.offsets[-1], json.dumps(everything)) == list(range(1, 21))


def test_a_spark_that_does_not_tell_where_a_micro_batch_starts(
    cluster: EmbeddedScylla, late: Make
) -> None:
    """Even if Spark passes no start, a late generation's rows before the position are read."""
    followed = late()
    unannounced(cluster, followed.clock)
    written(followed, 1, 2)
    followed.run(100)
    cluster.complete_publication()
    followed.write(3)
    followed.clock.advance(60 * SECOND)
    start = json.loads(followed.offsets[-1])
    followed.start()
    adapted = WithoutStart(followed.reader)
    assert adapted.partitions(start, start) == []
    end = adapted.latestOffset()
    parts = adapted.partitions(start, end)
    batches = [batch for part in parts for batch in adapted.read(part)]
    assert sorted(row["pk"] for batch in batches for row in batch.to_pylist()) == [1, 2, 3]
    assert adapted.latestOffset() == end


@pytest.mark.slow
def test_starting_offsets_from_before_an_announcement(cluster: EmbeddedScylla, late: Make) -> None:
    """A query that starts at an offset also delivers older rows that were unread at that offset."""
    followed = late()
    unannounced(cluster, followed.clock)
    written(followed, 1, 2)
    followed.run(100)
    cluster.complete_publication()
    again = late(startingOffsets=followed.offsets[-1])
    assert again.run(20) == [1, 2]


@pytest.mark.slow
@pytest.mark.parametrize("lenient", [False, True])
def test_rows_of_a_late_generation_that_expired(
    cluster: EmbeddedScylla, late: Make, *, lenient: bool
) -> None:
    """Expired rows of a late generation are reported like other lost rows."""
    followed = late(onDataLoss="continue" if lenient else "fail")
    unannounced(cluster, followed.clock)
    followed.write(1)
    followed.run(100)
    for _ in range(25):
        followed.clock.advance(3_600 * SECOND)
        followed.step()
    followed.write(2)
    followed.run(100)
    cluster.complete_publication()
    followed.clock.advance(10 * SECOND)
    if lenient:
        assert followed.step() == [2]
    else:
        with pytest.raises(DataLossError, match=r"TTL was 86400 s"):
            followed.step()


@pytest.mark.slow
def test_a_new_snapshot_replaces_the_rows_of_a_late_generation(
    cluster: EmbeddedScylla, late: Make
) -> None:
    """If rows of a late generation have expired, the query begins a new snapshot."""
    followed = late(onDataLoss="resnapshot")
    unannounced(cluster, followed.clock)
    at = followed.clock.now()
    followed.write(1)
    for _ in range(25):
        followed.clock.advance(3_600 * SECOND)
        followed.step()
    before = json.loads(followed.offsets[-1])
    assert before["snapshot"] == "none"
    cluster.complete_publication()
    followed.clock.advance(10 * SECOND)
    end = followed.reader.latestOffset(before, ReadMaxFiles(1))
    assert end["lost"][0] <= at < end["lost"][1] < before["position"] < end["position"]
    assert "generations" not in end


def test_one_partition_of_a_late_generation(cluster: EmbeddedScylla, late: Make) -> None:
    """With the option `partitionKey`, a late generation yields only rows of that partition."""
    followed = late(partitionKey='{"pk": 3}')
    unannounced(cluster, followed.clock)
    written(followed, 1, 2, 3, 4)
    followed.run(100)
    cluster.complete_publication()
    assert followed.run(20) == [3]


@pytest.mark.parametrize("mode", ["ignore", "deliver"])
def test_twins_of_a_late_generation(cluster: EmbeddedScylla, late: Make, mode: str) -> None:
    """Rows that were delivered from the previous generation are not delivered from the new one.

    The repeated micro-batch contains the same rows.
    """
    followed = late(lateRows=mode)
    unannounced(cluster, followed.clock)
    for pk in range(1, 9):
        if pk % 2:
            followed.astray(cluster, pk, by=-1, twice=True)
        else:
            followed.write(pk)
        followed.clock.advance(SECOND)
    followed.run(100)
    assert followed.delivered == [1, 3, 5, 7]
    cluster.complete_publication()
    followed.clock.advance(20 * SECOND)
    assert followed.step() == [2, 4, 6, 8]
    start, end = followed.offsets[-2:]
    followed.start()
    assert followed.read(start, end) == [2, 4, 6, 8]
    assert followed.run(200) == []


def test_strays_of_a_late_generation(cluster: EmbeddedScylla, late: Make) -> None:
    """Strays in the streams of a generation are delivered, though they came before it was known.

    They were written before the generation began.
    """
    followed = late(lateRows="deliver")
    followed.run(20)
    at = followed.clock.now()
    unannounced(cluster, followed.clock)
    stream = cluster.cluster.generations[-1].ranges[0].streams[0]
    followed.log_change(stream, 1, at - 5 * SECOND)
    followed.run(100)
    assert followed.delivered == []
    cluster.complete_publication()
    followed.write(2)
    followed.run(200)
    assert followed.delivered == [1, 2]


def test_a_late_row_and_strays_of_a_generation_to_come(cluster: EmbeddedScylla, late: Make) -> None:
    """An offset does not name a generation before its strays have been looked for."""
    followed = late(lateRows="deliver")
    followed.run(100)
    cluster.cluster.ring_delay_ms = 60_000
    cluster.hold_publication(rows=None)
    cluster.join(vnodes=3)
    stream = cluster.cluster.generations[-1].ranges[0].streams[0]
    followed.log_change(stream, 1, followed.clock.now())
    followed.run(50)
    followed.write(2, age=60)
    cluster.complete_publication()
    followed.run(300)
    assert followed.delivered == [1, 2]


def check_history(seed: int, cluster: EmbeddedScylla, followed: FollowedLog) -> None:
    """Follow the log through generations that are announced at any time, in any order.

    Rows may arrive late, and the query may restart before, during and after each micro-batch. Each
    row is delivered in exactly one micro-batch, and in every attempt at this micro-batch.
    """
    draw = random.Random(seed)
    followed.run(120)
    rows = 0
    for _ in range(60):
        followed.clock.advance(draw.randrange(12 * SECOND))
        match draw.choice(["write"] * 5 + ["poll"] * 5 + ["restart", "generation", "announce"]):
            case "write":
                began = cluster.cluster.generations[-1].start_us
                ages = [0, 0, draw.randrange(90)]
                age = min(draw.choice(ages), (followed.clock.now() - began) // SECOND)
                followed.write(rows, age=max(0, age))
                rows += 1
            case "poll":
                followed.step_twice(draw)
            case "restart":
                followed.step(commit=False)
                followed.start()
            case "generation" if len(cluster.cluster.generations) < 6:
                if draw.random() < 0.7:
                    cluster.hold_publication(0)
                cluster.join(vnodes=2)
                followed.clock.advance(SECOND)
                cluster.resume_publication()
            case "announce":
                cluster.complete_publication()
    cluster.complete_publication()
    followed.run(200)
    assert followed.delivered == list(range(rows))


@pytest.mark.parametrize("seed", [1, *(pytest.param(n, marks=pytest.mark.slow) for n in (2, 3, 4))])
def test_some_announcements(cluster: EmbeddedScylla, late: Make, seed: int) -> None:
    """In a few random sequences of events, no row is lost or repeated."""
    check_history(seed, cluster, late(lateRows="deliver"))


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(100, 140))
def test_more_announcements(cluster: EmbeddedScylla, late: Make, seed: int) -> None:
    """In many random sequences of events, no row is lost or repeated."""
    check_history(seed, cluster, late(lateRows="deliver"))


def test_topology_changed_between_plan_and_read(
    cluster: EmbeddedScylla, session: Session, stream: StreamReader, clock: ManualClock
) -> None:
    """Announced generations never change, so a plan stays valid if the topology changes."""
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
    """A micro-batch that is planned again with other settings contains the same rows."""
    start = stream.initialOffset()
    write(session, 1)
    clock.advance(SECOND)  # A generation begins at a whole millisecond, which may be in the past.
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


@pytest.mark.slow
def test_rows_limit(session: Session, stream: StreamReader, clock: ManualClock) -> None:
    """A micro-batch contains about the allowed number of rows.

    This holds however the rows are distributed in time.
    """
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
    """After a quiet time of any length, no micro-batch is empty."""
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


@pytest.mark.nightly
@pytest.mark.parametrize(("fetch_size", "limit"), [(10, 1_000), (10, 300), (5_000, 1_000)])
def test_rows_limit_of_many_pages(
    session: Session, stream: StreamReader, clock: ManualClock, fetch_size: int, limit: int
) -> None:
    """The limit holds for any number of pages, even if one stream contains nearly all rows."""
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
    """Return the number of rows of each micro-batch from `start` on, and the last end offset."""
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
    """Advance the clock by a minute. Return the settled changes, sorted, and the end offset."""
    clock.advance(60 * SECOND)
    end = stream.reportLatestOffset()
    rows = [
        row
        for partition in stream.partitions(start, end)
        for batch in stream.read(partition)
        for row in batch.to_pylist()
    ]
    return sorted((row["pk"], row["v"]) for row in rows), end

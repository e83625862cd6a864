"""Rows that arrive behind a stream's position: ignored, reported, or delivered exactly once.

A stray is a row in a stream of the wrong generation. Its twin is the same row in the right stream.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pyarrow as pa
import pytest
from attrs import evolve, frozen
from cassandra.cluster import Session
from hypothesis import given, settings
from hypothesis import strategies as st

from cdc_reader._time import Clock, SystemClock
from cdc_reader.checkpoints.encoding import cursor_from_json, cursor_to_json
from cdc_reader.cql import timeuuid
from cdc_reader.cql.schema import BATCH_SEQ_NO, STREAM_ID, TIME
from cdc_reader.errors import ConfigurationError
from cdc_reader.reading import cursor as cursors
from cdc_reader.reading.advance import Step
from cdc_reader.reading.cursor import Checkpoint, KnownGenerations, LateState, RowKey
from cdc_reader.reading.deduplication import keys
from cdc_reader.reading.expiry import TtlHistory
from cdc_reader.reading.late.keys import KeyReader
from cdc_reader.reading.ports import EXPIRY, FixedStreams
from cdc_reader.reading.windows.fetch import KeyLog
from cdc_reader.streams.generation import StreamGroup, Timeline
from cdc_reader.streams.shard import MAX_TOKEN
from cdc_reader.streams.stream import StreamId
from cdc_reader.streams.task import RangeTask, Task
from cdc_reader.streams.window import Window
from cdc_reader.testing import EmbeddedScylla, ManualClock
from cdc_reader.testing.cql_session import open_session
from pyspark_scylla_cdc.offsets.offset import Offset
from pyspark_scylla_cdc.planning.late import ArrivalFilter
from pyspark_scylla_cdc.spark_versions import TELLS_START, ReadMaxFiles
from pyspark_scylla_cdc.streaming import late_rows
from pyspark_scylla_cdc.streaming.late_rows import DeliveringWatch, LateRows
from tests.connectors.pyspark_scylla_cdc.support.available_now import read_available
from tests.connectors.pyspark_scylla_cdc.support.followed_log import FollowedLog

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from cdc_reader.testing import Scylla

SECOND = 1_000_000
MINUTE = 60 * SECOND
LIMIT = ReadMaxFiles(1)

Make = Callable[..., FollowedLog]


@pytest.fixture
def session(cluster: EmbeddedScylla, clock: ManualClock) -> Iterator[Session]:
    """A session with the table `ks.t`, whose streams accept rows of the last ten minutes."""
    clock.advance(10 * MINUTE)
    session = open_session(cluster.host, cluster.port)
    session.execute(
        "CREATE KEYSPACE ks WITH replication = "
        "{'class': 'NetworkTopologyStrategy', 'datacenter1': 1} AND tablets = {'enabled': false}"
    )
    session.execute(
        "CREATE TABLE ks.t (pk int PRIMARY KEY, v int) "
        "WITH cdc = {'enabled': true, 'postimage': true}"
    )
    yield session
    session.cluster.shutdown()


def test_default_reports(follow: Make, caplog: pytest.LogCaptureFixture) -> None:
    """By default late rows are counted and left out, if the log has a TTL.

    The next offset that moves has their number.
    """
    followed = follow()
    followed.run(120)
    followed.write(1, age=70)
    followed.write(2, age=80)
    followed.write(3)
    assert followed.run(120) == [3]
    [told] = [record for record in caplog.records if "late_rows" in record.getMessage()]
    assert "rows=4" in told.getMessage()  # with a delta and a postimage each
    assert told.levelname == "WARNING"
    offsets = [json.loads(offset) for offset in followed.offsets]
    assert all("late" not in offset for offset in offsets)
    moved = [last for last, offset in pairwise(offsets) if last != offset]
    assert len({offset["position"] for offset in moved}) == len(moved)
    assert [offset["lateRows"] for offset in offsets if "lateRows" in offset] == [4]


@pytest.mark.slow
def test_rows_in_time_are_not_reported(follow: Make, caplog: pytest.LogCaptureFixture) -> None:
    """Timely rows are delivered and not counted, however short the confidence window is."""
    followed = follow(confidenceWindow="0s")
    found = followed.run(40)
    for pk in range(30):
        followed.write(pk)
        found += followed.run(1)
    followed.write(500, age=40)
    assert sorted(found + followed.run(60)) == list(range(30))
    told = [line for line in caplog.messages if "event='late_rows'" in line]
    counts = [int(count) for line in told for count in re.findall(r"rows=(\d+)", line)]
    assert counts == [2]  # a delta and a postimage


def test_ignored(follow: Make, caplog: pytest.LogCaptureFixture) -> None:
    """With `ignore`, there is neither a search for late rows nor a log event."""
    followed = follow(lateRows="ignore")
    followed.run(120)
    followed.write(1, age=70)
    assert followed.run(120) == []
    assert "late_rows" not in caplog.text


@pytest.mark.slow
def test_micro_batch_done_again(follow: Make) -> None:
    """A repeated micro-batch contains the same rows. Rows arriving after its first run are late."""
    followed = follow(lateRows="deliver")
    followed.run(100)
    followed.write(1, age=60)
    followed.write(2)
    followed.clock.advance(35 * SECOND)
    start = followed.offsets[-1]
    first = followed.step()
    end = followed.offsets[-1]
    assert first == [1, 2]
    followed.write(3, age=70)  # behind the window
    followed.write(4, age=36)  # within the window
    for pause in (0, 1, 20, 90):
        followed.clock.advance(pause * SECOND)
        followed.start()
        assert followed.read(start, end) == first
    assert followed.run(200) == [3, 4]


@pytest.mark.slow
def test_more_than_one_micro_batch_may_have(follow: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Late rows beyond the limit are delivered in the next micro-batches, even after a restart."""
    monkeypatch.setattr(late_rows, "MOST", 4)
    followed = follow(lateRows="deliver")
    followed.run(130)
    for pk in range(11):
        followed.write(pk, age=90)
    followed.run(62)
    followed.start()
    followed.run(120)
    sizes = [len(batch) for batch in followed.batches if batch]
    assert sorted(pk for batch in followed.batches for pk in batch) == list(range(11))
    assert max(sizes) <= 5
    assert len(sizes) <= 6


def test_many_micro_batches_between_two_searches(
    follow: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An offset distinguishes a limited number of reads, but each row is delivered once."""
    monkeypatch.setattr(cursors, "_MOST_READS", 4)
    followed = follow(lateRows="deliver")
    followed.run(70)
    for pk in range(100):
        followed.write(pk)
        followed.run(1)
    followed.run(60)
    assert followed.delivered == list(range(100))
    offsets = [json.loads(offset) for offset in followed.offsets]
    assert max(len(each["late"]["reads"]) for each in offsets if "late" in each) <= 5


def test_a_backlog_of_late_rows(follow: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Offsets do not grow while more late rows are delivered than one micro-batch may have."""
    monkeypatch.setattr(late_rows, "MOST", 10)
    followed = follow(lateRows="deliver")
    followed.run(200)
    for pk in range(50):
        followed.write(pk, age=120)
        followed.clock.advance(SECOND // 100)
    followed.run(75)
    assert followed.delivered == list(range(50))
    states = [json.loads(offset).get("late") for offset in followed.offsets]
    assert max(len(late["known"]) for late in states if late) <= 40


@pytest.mark.parametrize("seconds", [30, 40])
def test_no_row_is_repeated_when_the_ttl_is_lowered(
    follow: Make, session: Session, seconds: int
) -> None:
    """The TTL in force until recently still shows when a row arrived."""
    followed = follow(lateRows="deliver")
    followed.run(120 + seconds)
    for pk in range(100):
        if pk == 60:
            cdc = "{'enabled': true, 'postimage': true, 'ttl': 43200}"
            session.execute(f"ALTER TABLE ks.t WITH cdc = {cdc}")
        followed.write(pk)
        followed.run(2)
    followed.run(100)
    assert followed.delivered == list(range(100))


@pytest.mark.parametrize("by", [600, pytest.param(3_600, marks=pytest.mark.slow)])
def test_a_micro_batch_done_again_after_the_ttl_was_lowered(
    follow: Make, clock: ManualClock, session: Session, by: int
) -> None:
    """It has the same rows: they are judged by the TTLs that were known when it was planned."""
    followed = follow(lateRows="deliver", onDataLoss="fail")
    for pk in range(60):
        clock.advance(10 * SECOND)
        followed.write(pk)
    clock.advance(MINUTE)
    followed.start()
    first = followed.step()
    assert first == [*range(60)]
    clock.advance(10 * SECOND)
    ttl = f"{{'enabled': true, 'postimage': true, 'ttl': {86_400 - by}}}"
    session.execute(f"ALTER TABLE ks.t WITH cdc = {ttl}")
    clock.advance(600 * SECOND)
    followed.start()
    assert followed.read(*followed.offsets[-2:]) == first


@pytest.mark.slow
@pytest.mark.parametrize("twice", [False, True])
def test_strays_are_delivered_once(follow: Make, cluster: EmbeddedScylla, twice: bool) -> None:
    """A stray without a twin is delivered once. A stray with a twin is not delivered."""
    followed = follow(lateRows="deliver")
    followed.run(60)
    written = followed.around_switch(cluster, twice=twice)
    assert followed.run(200) == written
    named = [json.loads(offset)["late"]["rows"] for offset in followed.offsets if "late" in offset]
    assert any(named) == (not twice)


@pytest.mark.nightly
@pytest.mark.parametrize("by", [-1, 1])
@pytest.mark.parametrize("twice", [False, True])
def test_strays_that_arrive_late_are_delivered_once(
    follow: Make, cluster: EmbeddedScylla, twice: bool, by: int
) -> None:
    """Sweeps find late strays on both sides of a change of generation."""
    followed = follow(lateRows="deliver")
    followed.run(100)
    before, after = followed.switch(cluster)
    own, other = (before, after) if by > 0 else (after, before)
    at = after.start_us - by * SECOND
    followed.run(100)
    followed.log_change(other.ranges[0].streams[0], 1, at)
    if twice:
        followed.log_change(own.ranges[0].streams[0], 1, at)
    assert followed.run(200) == [1]


@pytest.mark.slow
def test_a_stray_whose_twin_was_delivered_is_left_out(
    follow: Make, cluster: EmbeddedScylla
) -> None:
    """A stray that arrives after its twin was delivered is left out."""
    followed = follow(lateRows="deliver")
    followed.run(60)
    before, after = followed.switch(cluster)
    followed.run(20)
    written = followed.clock.now()
    followed.log_change(after.ranges[0].streams[0], 1, written)
    assert followed.run(60) == [1]
    followed.log_change(before.ranges[0].streams[0], 1, written)
    assert followed.run(200) == []


@pytest.mark.parametrize("restarts", [pytest.param(False, marks=pytest.mark.slow), True])
def test_a_twin_that_arrives_after_its_stray_was_delivered(
    follow: Make, cluster: EmbeddedScylla, restarts: bool
) -> None:
    """A twin that arrives after its stray was delivered is left out."""
    followed = follow(lateRows="deliver")
    followed.run(60)
    before, after = followed.switch(cluster)
    followed.run(20)
    written = followed.clock.now()
    followed.log_change(before.ranges[0].streams[0], 1, written)
    assert followed.run(120) == [1]
    followed.log_change(after.ranges[0].streams[0], 1, written)
    if restarts:
        followed.start()
    assert followed.run(200) == []


@pytest.mark.slow
@pytest.mark.parametrize("twice", [False, True])
def test_strays_of_a_micro_batch_done_again(
    follow: Make, cluster: EmbeddedScylla, twice: bool
) -> None:
    """A repeated micro-batch contains the same strays. New strays are in the next one."""
    followed = follow(lateRows="deliver")
    followed.run(60)
    cluster.join(vnodes=3)
    followed.run(70)
    followed.astray(cluster, 1, by=-1, twice=twice, age=60)
    followed.astray(cluster, 2, by=-1, twice=twice)
    followed.write(3)
    followed.clock.advance(35 * SECOND)
    start = followed.offsets[-1]
    first = followed.step()
    end = followed.offsets[-1]
    assert first == [1, 2, 3]
    followed.astray(cluster, 4, by=-1, twice=twice, age=90)
    followed.astray(cluster, 5, by=-1, twice=twice, age=36)
    for pause in (0, 1, 20, 90):
        followed.clock.advance(pause * SECOND)
        followed.start()
        assert followed.read(start, end) == first
    assert followed.run(200) == [4, 5]


@pytest.mark.nightly
@pytest.mark.parametrize("twice", [False, True])
def test_no_restart_repeats_or_loses_a_stray(
    follow: Make, cluster: EmbeddedScylla, twice: bool
) -> None:
    """A stray is neither lost nor repeated, whenever the query restarts."""
    followed = follow(lateRows="deliver")
    followed.run(100)
    cluster.join(vnodes=3)
    followed.run(110)
    for pk in range(10):
        age = 30 + 7 * pk if pk % 2 else 0
        followed.astray(cluster, pk, by=-1, twice=twice, age=age)
        followed.run(13)
        followed.step(commit=False)
        followed.start()
    followed.run(200)
    assert followed.delivered == list(range(10))


@pytest.mark.slow
def test_strays_of_one_partition(follow: Make, cluster: EmbeddedScylla) -> None:
    """With `partitionKey`, strays of other partitions are left out."""
    followed = follow(lateRows="deliver", partitionKey='{"pk": 3}')
    followed.run(60)
    followed.around_switch(cluster, twice=False)
    assert followed.run(200) == [3]


def test_more_strays_than_an_offset_may_name(
    follow: Make, cluster: EmbeddedScylla, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A window with too many strays ends early, and the next window starts with the rest."""
    monkeypatch.setattr(late_rows, "MOST", 4)
    followed = follow(lateRows="deliver")
    followed.run(60)
    cluster.join(vnodes=3)
    followed.clock.advance(2 * SECOND)
    for pk in range(11):
        followed.astray(cluster, pk, by=-1)
        followed.clock.advance(1)
    followed.run(150)
    assert followed.delivered == list(range(11))
    named = [json.loads(offset)["late"]["rows"] for offset in followed.offsets if "late" in offset]
    assert max(map(len, named)) == 4


def test_strays_are_reported(
    follow: Make, cluster: EmbeddedScylla, caplog: pytest.LogCaptureFixture
) -> None:
    """Each stray is counted once. A stray with a twin is counted only if it is late."""
    followed = follow()
    followed.run(100)
    followed.around_switch(cluster, twice=False)
    followed.astray(cluster, 77, by=-1, twice=True)
    assert followed.run(100) == [*range(0, 40, 2), 77]
    followed.astray(cluster, 88, by=-1, age=90)
    followed.astray(cluster, 99, by=-1, age=90, twice=True)
    assert followed.run(200) == []
    told = [line for line in caplog.messages if "event='late_rows'" in line]
    counts = [int(count) for line in told for count in re.findall(r"rows=(\d+)", line)]
    assert sum(counts) == 2 * (20 + 1 + 1)  # with a delta and a postimage each


@pytest.mark.slow
def test_behind_the_horizon(follow: Make) -> None:
    """Rows older than the late horizon, or older than the start of the query, are left out."""
    followed = follow(lateRows="deliver", lateHorizon="2m")
    followed.run(60)
    followed.write(1, age=100)
    assert followed.run(200) == []
    followed.write(2, age=200)
    followed.write(3, age=100)
    assert followed.run(100) == [3]


@pytest.mark.slow
def test_with_a_snapshot(follow: Make, clock: ManualClock) -> None:
    """A row that was written before the snapshot but arrives after it is delivered."""
    followed = follow(lateRows="deliver", snapshot="initial")
    followed.step()
    clock.advance(20 * SECOND)
    followed.write(1, age=100)
    assert followed.run(150) == [1]


@pytest.mark.slow
def test_turned_on_later(follow: Make, clock: ManualClock, session: Session) -> None:
    """If a restart sets `lateRows=deliver`, the search starts at the checkpoint's position."""
    before = follow(lateRows="ignore")
    before.run(100)
    before.write(1, age=60)
    before.run(60)
    after = follow(lateRows="deliver")
    after.offsets = before.offsets
    after.run(70)
    after.write(2, age=60)
    assert after.run(130) == [2]
    del clock, session


def test_available_now_ends(follow: Make) -> None:
    """A query with `availableNow` searches for late rows once, and ends."""
    followed = follow(lateRows="deliver")
    followed.run(100)
    followed.write(1, age=60)
    followed.clock.advance(80 * SECOND)
    followed.start()
    followed.reader.prepareForTriggerAvailableNow()
    steps = 0
    while followed.offsets[-1] != json.dumps(
        followed.reader.latestOffset(json.loads(followed.offsets[-1]), LIMIT)
    ):
        followed.step()
        followed.clock.advance(70 * SECOND)
        steps += 1
    assert steps <= 2
    assert [pk for batch in followed.batches for pk in batch] == [1]


def test_a_log_that_keeps_rows_for_good(follow: Make, session: Session) -> None:
    """Without a TTL, times of arrival are unknown, so `lateRows=deliver` is rejected."""
    session.execute("ALTER TABLE ks.t WITH cdc = {'enabled': true, 'postimage': true, 'ttl': 0}")
    followed = follow()
    followed.write(1)
    assert followed.run(150) == [1]
    with pytest.raises(ConfigurationError, match=r"lateRows is 'deliver'.*keeps rows forever"):
        follow(lateRows="deliver")


@pytest.mark.slow
@pytest.mark.parametrize("ttl", [600, 172_800])
def test_ttl_changed(follow: Make, session: Session, ttl: int) -> None:
    """After a change of the TTL, late rows and timely rows are still recognized."""
    followed = follow(lateRows="deliver")
    for pk in range(5):
        followed.write(pk)
        followed.run(20)
    cdc = f"{{'enabled': true, 'postimage': true, 'ttl': {ttl}}}"
    session.execute(f"ALTER TABLE ks.t WITH cdc = {cdc}")
    for pk in range(5, 10):
        followed.write(pk)
        followed.run(20)
    followed.run(60)
    followed.write(10, age=70)
    followed.run(130)
    assert sorted(pk for batch in followed.batches for pk in batch) == list(range(11))


@pytest.mark.nightly
@pytest.mark.parametrize("ttl", [600, 172_800])
def test_late_rows_from_before_a_change_of_the_ttl(
    follow: Make, session: Session, ttl: int
) -> None:
    """Late rows that arrive before and after a change of the TTL are delivered once.

    A micro-batch that is repeated after the change contains the same rows.
    """
    followed = follow(lateRows="deliver")
    followed.run(100)
    followed.write(1)
    followed.clock.advance(35 * SECOND)
    start, first = followed.offsets[-1], followed.step()
    end = followed.offsets[-1]
    followed.run(20)
    followed.write(2, age=60)
    followed.clock.advance(SECOND)
    cdc = f"{{'enabled': true, 'postimage': true, 'ttl': {ttl}}}"
    session.execute(f"ALTER TABLE ks.t WITH cdc = {cdc}")
    followed.write(3, age=60)
    followed.start()
    assert followed.read(start, end) == first == [1]
    found = followed.run(40)
    followed.start()
    assert sorted(found + followed.run(130)) == [2, 3]


TTL = 86_400
TTLS = TtlHistory(((0, TTL),))
CONFIDENCE, HORIZON = 30 * SECOND, 3_600 * SECOND
STREAM = StreamId(bytes(15) + b"\1")
SCHEMA = pa.schema(
    [
        (STREAM_ID, pa.binary()),
        (TIME, pa.string()),
        (BATCH_SEQ_NO, pa.int32()),
        (EXPIRY, pa.int64()),
    ]
)


@frozen
class Log:
    """A log of one stream, with the write time and the time of arrival of each row, in µs.

    The server's clock is `server` µs ahead of the reader's. The server measures TTLs in whole
    seconds.
    """

    rows: list[tuple[int, int]]
    clock: ManualClock
    server: int

    def read(
        self, task: Task | RangeTask, *, clock: Clock | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Return the rows that have arrived."""
        assert clock is self.clock
        now, found = self.clock.now(), []
        for number, (written, arrival) in enumerate(self.rows):
            if arrival <= now and written in task.window:
                time = timeuuid.make(written, number.to_bytes(8, "big"))
                lived = (now + self.server) // SECOND - (arrival + self.server) // SECOND
                found.append((bytes(STREAM), str(time), 0, now + (TTL - lived) * SECOND))
        columns = zip(*found, strict=True) if found else ()
        return iter([pa.record_batch(list(map(list, columns)), SCHEMA)] if found else [])

    def numbers(self, batches: Iterable[pa.RecordBatch]) -> list[int]:
        """Return the numbers of these rows."""
        return [int.from_bytes(key.time[8:]) for batch in batches for _, key in keys(batch)]


@frozen
class Round:
    """A micro-batch: the pause before it, and the durations of its plan and its read, in µs.

    For each row, `rows` contains the age on arrival, and the time from the plan to the arrival.
    """

    pause: int
    planning: int
    doing: int
    restarts: bool
    rows: list[tuple[int, int]]

    @property
    def length(self) -> int:
        return self.pause + self.planning + self.doing


AGES = st.one_of(
    st.integers(0, SECOND), st.integers(25 * SECOND, 60 * SECOND), st.integers(0, 150 * SECOND)
)
AFTER = st.one_of(st.integers(-20 * SECOND, 20 * SECOND), st.integers(-4 * SECOND, 0))
ROUNDS = st.builds(
    Round,
    st.integers(0, 80 * SECOND),
    st.integers(0, 5 * SECOND),
    st.integers(0, 90 * SECOND),
    st.booleans(),
    st.lists(st.tuples(AGES, AFTER), max_size=3),
)
LAST = [Round(70 * SECOND, 0, 0, restarts=False, rows=[])] * 6


@given(rounds=st.lists(ROUNDS, min_size=3, max_size=10), server=st.integers(0, SECOND))
@settings(max_examples=100)
def test_exactly_once(rounds: list[Round], server: int) -> None:
    """Each row is in exactly one micro-batch, and in every attempt at this micro-batch.

    This holds whenever rows are written and arrive, and whenever micro-batches are planned, run,
    repeated and resumed.
    """
    start = 1_800_000_000 * SECOND
    clock = ManualClock(start)
    log = Log([], clock, server)
    began = start
    for each in rounds:
        planned = began + each.pause + each.planning
        arrivals = ((age, max(planned + after, start + age)) for age, after in each.rows)
        log.rows.extend((arrival - age, arrival) for age, arrival in arrivals)
        began += each.length

    def groups(_start: int) -> list[StreamGroup]:
        return [StreamGroup(MAX_TOKEN, (STREAM,))]

    def read_keys() -> KeyReader:
        return KeyReader(KeyLog(log), FixedStreams(groups), clock, HORIZON)

    def watch() -> DeliveringWatch:
        return DeliveringWatch(read_keys, HORIZON, CONFIDENCE, clock)

    def attempt(told: LateRows, window: Window) -> list[int]:
        late = [int.from_bytes(key.time[8:]) for _, key in told.rows]
        if window.is_empty:
            return sorted(late)
        read = log.read(Task(window, (STREAM,)), clock=clock)
        planned = ArrivalFilter.of(Checkpoint(window.end, late=told.state, ttls=TTLS), window)
        assert planned is not None
        return sorted([*late, *log.numbers(planned.rows(read, clock))])

    delivered: list[int] = []
    watching, cursor = watch(), Checkpoint(start, ttls=TTLS)
    known, timeline = KnownGenerations(0, (0,)), Timeline((0,))
    for each in [*rounds, *LAST]:
        clock.advance(each.pause)
        window = Window(cursor.position, max(cursor.position, clock.now() - CONFIDENCE))
        clock.advance(each.planning)
        told = watching.next(partial(evolve, cursor), cursor, Step(window, known, timeline))
        if told.state == cursor.late and window.is_empty:
            clock.advance(each.doing)
            continue
        found = attempt(told, window)
        clock.advance(each.doing)
        assert attempt(told, window) == found
        delivered += found
        stored = cursor_to_json(evolve(cursor, late=told.state))
        cursor = cursor_from_json(json.loads(json.dumps(stored)), window.end, {})
        watching = watch() if each.restarts else watching
    assert sorted(delivered) == list(range(len(log.rows)))


STREAMS = st.binary(min_size=16, max_size=16).map(StreamId)
LOW = st.binary(min_size=8, max_size=8)
KEYS = st.builds(
    RowKey,
    st.builds(timeuuid.make, st.integers(timeuuid.MIN_MICROS, timeuuid.MAX_MICROS), LOW).map(
        lambda made: made.bytes
    ),
    st.integers(-(2**31), 2**31 - 1),
)
MOMENTS = st.integers(0, timeuuid.MAX_MICROS)
NAMES = st.frozensets(st.tuples(STREAMS, KEYS), max_size=5)
TIMES = st.lists(st.tuples(MOMENTS, MOMENTS), min_size=1, max_size=5)


@given(MOMENTS, TIMES, NAMES, NAMES)
def test_there_and_back(start: int, times: Any, known: Any, rows: Any) -> None:
    """The late rows of an offset survive serialization, which always yields the same text."""
    ends, reads = zip(*times, strict=True)
    cursor = Checkpoint(
        7, late=LateState(start, ends, reads, 5, reads[0], known), table_id=UUID(int=1)
    )
    told = Offset(cursor, "ks.t", rows=rows)
    text = json.dumps(told.to_json())
    assert Offset.from_json(json.loads(text)) == told
    assert json.dumps(Offset.from_json(json.loads(text)).to_json()) == text


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.skipif(not TELLS_START, reason="this Spark does not tell which trigger runs")
def test_in_spark(
    spark: SparkSession,
    scylla: Scylla,
    keyspace: str,
    load: Callable[..., DataFrame],
    tmp_path: Path,
) -> None:
    """A restarted query delivers, once, the rows that arrived late while it was stopped."""
    scylla.session.execute(
        f"CREATE TABLE {keyspace}.t (pk int PRIMARY KEY, v int) WITH cdc = {{'enabled': true}}"
    )

    def write(pk: int, at: int) -> None:
        scylla.session.execute(
            f"INSERT INTO {keyspace}.t (pk, v) VALUES (%s, 0) USING TIMESTAMP %s", (pk, at)
        )

    def run() -> list[int]:
        frame = load(stream=True, lateRows="deliver", confidenceWindow="0s")
        writer = frame.writeStream.format("parquet").option("path", str(tmp_path / "rows"))
        read_available(writer.option("checkpointLocation", str(tmp_path / "checkpoint")))
        return sorted(row["pk"] for row in spark.read.parquet(str(tmp_path / "rows")).collect())

    began = SystemClock().now()
    write(1, began)
    assert run() == [1]
    write(2, began)
    write(3, SystemClock().now())
    assert run() == [1, 2, 3]
    write(4, began)
    assert run() == [1, 2, 3, 4]
    assert run() == [1, 2, 3, 4]

"""The rules of reading a snapshot, each tested separately. The simulation tests them together."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Iterable
from datetime import timedelta
from typing import Any

import pytest
from attrs import evolve

from cdc_reader.cluster.log import CdcTable
from cdc_reader.cluster.values import murmur3
from cdc_reader.config import ReadConfig
from cdc_reader.cql.names import TableName
from cdc_reader.errors import (
    CheckpointError,
    DataLossError,
    RetriesExhaustedError,
    StoppedError,
    TableNotFoundError,
    TransientError,
)
from cdc_reader.reading.cursor import Checkpoint
from cdc_reader.reading.snapshot import (
    RangeComplete,
    SnapshotDelivery,
    SnapshotReader,
    SnapshotRows,
    begin_snapshot,
)
from cdc_reader.streams.ring import WHOLE_RING, TokenRange, TokenRanges
from cdc_reader.streams.shard import MAX_TOKEN, MIN_TOKEN, Shard
from cdc_reader.testing.in_process import RecordedQuery
from tests.cdc_reader.support.followed import EPOCH, SECOND, Followed
from tests.cdc_reader.support.tuned import tuned, tuning_of_module

_OF_ROWS = "AND token("
SMALL = ReadConfig(fetch_size=3, retry_deadline=timedelta(seconds=1))
AT_ONCE = 3

few_at_once = tuning_of_module(in_flight=AT_ONCE)


@pytest.fixture
def followed() -> Followed:
    """A table with 60 partitions of one row and one of 40 rows, read in pages of three."""
    followed = Followed(config=SMALL)
    for p in range(60):
        followed.insert(p, 1)
    for c in range(40):
        followed.insert(99, c)
    followed.clock.advance(60 * SECOND)
    return followed


def table_of(followed: Followed) -> CdcTable:
    """Return the table of the server."""
    return CdcTable(followed.connection(), TableName("ks", "t"))


def begin(followed: Followed, **changed: Any) -> Checkpoint:
    """Return the checkpoint of a snapshot that begins now."""
    return begin_snapshot(table_of(followed), followed.clock, evolve(SMALL, **changed))


def reader_of(
    followed: Followed, start: Checkpoint, shard: Shard | None = None, **changed: Any
) -> SnapshotReader:
    """Return a reader that continues a snapshot from the checkpoint `start`."""
    config = evolve(SMALL, **changed)
    return SnapshotReader(table_of(followed), followed.clock, config, start, shard)


def rows(deliveries: Iterable[SnapshotDelivery]) -> Counter[tuple[int, int, int]]:
    """Return how often each row was delivered."""
    return Counter(
        (row["p"], row["c"], row["v"])
        for delivery in deliveries
        if isinstance(delivery, SnapshotRows)
        for row in delivery.batch.to_pylist()
    )


WHOLE = Counter([*((p, 1, 1) for p in range(60)), *((99, c, c) for c in range(40))])


def test_each_row_comes_once(followed: Followed) -> None:
    """Each row is delivered once, and the completed ranges cover the ring."""
    reader = reader_of(followed, begin(followed))
    found = list(reader.deliveries())
    assert rows(found) == WHOLE
    ends = [each for each in found if isinstance(each, RangeComplete)]
    assert sum(each.tokens.size for each in ends) == WHOLE_RING.size
    last = ends[-1].checkpoint.snapshot
    assert last is not None
    assert (last.done, last.rows) == (WHOLE_RING, 100)
    assert (reader.share.share, reader.share.rows, reader.share.seconds_left) == (1.0, 100, 0.0)


def test_a_range_ends_with_the_token_of_its_end(followed: Followed) -> None:
    """A partition whose token is the end of a range belongs to that range."""
    token = murmur3((7).to_bytes(4, "big"))
    start = begin(followed)
    assert start.snapshot is not None
    halves = TokenRange(MIN_TOKEN, token), TokenRange(token, MAX_TOKEN)
    found = []
    for half in halves:
        done = WHOLE_RING.without(TokenRanges([half]))
        part = evolve(start, snapshot=evolve(start.snapshot, done=done))
        found.append(rows(reader_of(followed, part).deliveries()))
    assert [(7, 1, 1) in part for part in found] == [True, False]
    assert sum(found, Counter()) == WHOLE


def test_a_snapshot_begins_at_a_settled_position(followed: Followed) -> None:
    """A snapshot's position is one confidence window ago. The search for late rows starts now."""
    now = followed.clock.now()
    start = begin(followed, confidence_window="20s")
    assert start.position == now - 20 * SECOND
    assert start.snapshot is not None
    assert (start.snapshot.began, start.late) == (now, None)
    assert start.table_id == table_of(followed).state().id
    late = begin(followed, late_rows="deliver").late
    assert late is not None
    assert (late.searched_at, late.snapshot_at) == (now, now)


def test_a_snapshot_resumes_after_any_range(followed: Followed) -> None:
    """A snapshot resumes after any range.

    Completed ranges are skipped, and other ranges are read in full.
    """
    found = list(reader_of(followed, begin(followed)).deliveries())
    for at, each in enumerate(found):
        if not isinstance(each, RangeComplete):
            continue
        done = {d.reading for d in found[: at + 1] if isinstance(d, RangeComplete)}
        before = rows(d for d in found[:at] if isinstance(d, SnapshotRows) and d.reading in done)
        start = pickle.loads(pickle.dumps(each.checkpoint))
        rest = rows(reader_of(followed, start).deliveries())
        assert before + rest == WHOLE


def test_few_ranges_are_named_by_a_checkpoint(followed: Followed) -> None:
    """A checkpoint lists at most one span and the ranges in flight, even after many ranges."""
    found = list(reader_of(followed, begin(followed), fetch_size=1).deliveries())
    ends = [each for each in found if isinstance(each, RangeComplete)]
    assert len(ends) > 10
    for each in ends:
        assert each.checkpoint.snapshot is not None
        assert len(each.checkpoint.snapshot.done.ranges) <= AT_ONCE + 1


def test_several_ranges_are_read_at_a_time_and_a_large_partition_by_pages(
    followed: Followed,
) -> None:
    """At most `AT_ONCE` ranges are open, and a large partition is read page by page."""
    opened: set[TokenRange] = set()
    pages: Counter[tuple[object, ...]] = Counter()
    most = 0

    def note(asked: RecordedQuery) -> None:
        if _OF_ROWS in asked.query.cql:
            pages[asked.query.values] += 1
            opened.add(TokenRange(*asked.query.values))  # type: ignore[arg-type]

    followed.before = note
    for delivery in reader_of(followed, begin(followed)).deliveries():
        most = max(most, len(opened))
        if isinstance(delivery, RangeComplete):
            opened.discard(delivery.tokens)
        else:
            assert delivery.batch.num_rows <= 3
    assert most == AT_ONCE
    assert max(pages.values()) >= 40 // 3


@pytest.mark.parametrize("tablets", [False, True])
@pytest.mark.parametrize("count", [2, 3, 5])
def test_shards_divide_the_rows(tablets: bool, count: int) -> None:
    """Each row belongs to the same shard as its stream."""
    followed = Followed(config=SMALL, tablets=tablets)
    followed.clock.advance(60 * SECOND)
    for p in range(80):
        followed.insert(p, 1)
    start = begin(followed, confidence_window="0s")
    shards = [Shard(number, count) for number in range(1, count + 1)]
    found = [rows(reader_of(followed, start, shard).deliveries()) for shard in shards]
    assert sum(found, Counter()) == Counter((p, 1, 1) for p in range(80))
    logged = followed.follow(Checkpoint(EPOCH), followed.clock.now() + 1, confidence_window="0s")
    streams = {
        row["p"]: row["cdc$stream_id"]
        for delivery in logged
        if hasattr(delivery, "batch")
        for row in delivery.batch.to_pylist()
    }
    for shard, part in zip(shards, found, strict=True):
        for p, _, _ in part:
            assert int.from_bytes(streams[p][:8], "big", signed=True) in shard


def test_a_generation_that_is_gone_ends_a_shard(followed: Followed) -> None:
    """If the generation is gone, a whole table's snapshot can continue, but a shard's cannot."""
    start = begin(followed)
    assert start.snapshot is not None
    gone = evolve(start, snapshot=evolve(start.snapshot, generation=EPOCH - 5))
    message = r"that belong to shard 1/2, is gone; start all shards anew"
    with pytest.raises(CheckpointError, match=message):
        list(reader_of(followed, gone, Shard(1, 2)).deliveries())
    assert rows(reader_of(followed, gone).deliveries()) == WHOLE


def test_a_page_that_fails_is_requested_again(followed: Followed) -> None:
    """A failed page is requested again, and no row is lost or repeated."""
    failed: set[tuple[object, bytes | None]] = set()

    def fail_once(asked: RecordedQuery) -> None:
        key = asked.query.values, asked.paging_state
        if _OF_ROWS in asked.query.cql and key not in failed:
            failed.add(key)
            raise TransientError("no answer")

    followed.before = fail_once
    assert rows(reader_of(followed, begin(followed)).deliveries()) == WHOLE
    assert len(failed) > 20


def test_an_outage_beyond_the_deadline_is_raised(followed: Followed) -> None:
    """After the deadline, an error is raised with the last attempt's error as its cause."""
    start = begin(followed)

    def fail(asked: RecordedQuery) -> None:
        if _OF_ROWS in asked.query.cql:
            raise TransientError("no answer")

    followed.before = fail
    with pytest.raises(RetriesExhaustedError, match="no answer"):
        list(reader_of(followed, start).deliveries())


@pytest.mark.parametrize("statement", ["DROP v", "ADD w int"])
def test_schema_changes_during_a_snapshot(followed: Followed, statement: str) -> None:
    """Open ranges are read again if a column is dropped, and continue if a column is added."""
    reader = reader_of(followed, begin(followed))
    deliveries = reader.deliveries()
    first = [next(deliveries) for _ in range(4)]
    followed.execute(f"ALTER TABLE ks.t {statement}")
    rest = list(deliveries)
    keys = Counter(
        (row["p"], row["c"])
        for delivery in (*first, *rest)
        if isinstance(delivery, SnapshotRows)
        for row in delivery.batch.to_pylist()
    )
    assert set(keys) == {(p, c) for p, c, _ in WHOLE}
    ends = [each for each in (*first, *rest) if isinstance(each, RangeComplete)]
    assert sum(each.tokens.size for each in ends) == WHOLE_RING.size
    if statement.startswith("DROP"):
        assert [each for each in rest if isinstance(each, SnapshotRows)][
            -1
        ].schema.base.values == ()
    else:
        assert max(keys.values()) == 1


def test_a_table_that_is_dropped_ends_it(followed: Followed) -> None:
    """A snapshot of a dropped table ends, and cannot resume on a new table with the same name."""
    start = begin(followed)
    reader = reader_of(followed, start)
    deliveries = reader.deliveries()
    next(deliveries)
    followed.execute("DROP TABLE ks.t")
    with pytest.raises(TableNotFoundError, match="has been dropped"):
        list(deliveries)
    followed.execute("CREATE TABLE ks.t (p int PRIMARY KEY) WITH cdc = {'enabled': true}")
    with pytest.raises(CheckpointError, match="dropped and created again"):
        list(reader_of(followed, start).deliveries())


def test_expiry_during_a_snapshot_is_reported(followed: Followed) -> None:
    """If changes since the start expire, mode `fail` raises an error and mode `continue` goes on.

    The error is raised before the next range is read.
    """
    start = begin(followed, data_loss="fail")
    for mode in ("fail", "continue"):
        reader = reader_of(followed, start, data_loss=mode)
        deliveries = reader.deliveries()
        if mode == "continue":
            assert rows(deliveries) == WHOLE
            continue
        next(deliveries)
        followed.clock.advance(86_400 * SECOND * 2)
        with pytest.raises(DataLossError, match="snapshot to take less time than"):
            list(deliveries)


def test_stop_ends_a_snapshot(followed: Followed) -> None:
    """A stop ends a snapshot at once with an error, because rows are missing."""
    reader = reader_of(followed, begin(followed))
    deliveries = reader.deliveries()
    next(deliveries)
    reader.stop()
    with pytest.raises(StoppedError):
        next(deliveries)
    assert 0 <= reader.share.share < 1


def test_the_time_left_follows_from_the_pace(followed: Followed) -> None:
    """The estimate of the remaining time uses only the pace of this run."""
    start = begin(followed)
    with tuned(in_flight=1):
        reader = reader_of(followed, start)
    assert reader.share.seconds_left is None
    took = 0.0
    for delivery in reader.deliveries():
        took = (followed.clock.now() - EPOCH - 60 * SECOND) / SECOND
        if isinstance(delivery, RangeComplete) and took > 0:
            break
        followed.clock.advance(SECOND)
    share = reader.share
    assert share.seconds_left is not None
    assert share.seconds_left == pytest.approx(took * (1 - share.share) / share.share)


def test_a_checkpoint_without_a_snapshot_is_refused(followed: Followed) -> None:
    """A checkpoint without an unfinished snapshot is rejected."""
    with pytest.raises(ValueError, match="without a snapshot"):
        reader_of(followed, Checkpoint(1))

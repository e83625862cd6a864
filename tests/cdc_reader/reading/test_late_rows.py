"""Late rows are found, although their arrival times are known only to the second."""

from __future__ import annotations

from datetime import timedelta

import pyarrow as pa
import pytest
from attrs import evolve
from hypothesis import assume, given
from hypothesis import strategies as st

from cdc_reader._time import duration_micros
from cdc_reader.config import ReadConfig
from cdc_reader.cql import timeuuid
from cdc_reader.cql.schema import BATCH_SEQ_NO, STREAM_ID, TIME
from cdc_reader.reading.cursor import Checkpoint, KnownGenerations, LateState
from cdc_reader.reading.delivery import RowsRead, WindowComplete
from cdc_reader.reading.expiry import TtlHistory
from cdc_reader.reading.late.rows import DOUBT, _arrivals, arrived
from cdc_reader.reading.ports import EXPIRY
from tests.cdc_reader.support.followed import EPOCH, SECOND, Followed, cells, last_marks
from tests.cdc_reader.support.tuned import tuning_of_module

_POLL = timedelta(seconds=4.6)
_CONFIG = ReadConfig(
    confidence_window=timedelta(seconds=10),
    poll_interval=_POLL,
    late_rows="deliver",
)

pytestmark = pytest.mark.needs("faults")
searching_often = tuning_of_module(late_interval=duration_micros(_POLL))


@pytest.mark.parametrize("after", [10_000, 200_000, 400_000, 900_000])
def test_a_row_that_arrives_within_a_second_of_the_read_is_found_once(after: int) -> None:
    """A row that arrives within a second of the read is found once.

    TTLs count whole seconds, so the row may seem to have arrived before the read.
    """
    followed = Followed(config=_CONFIG)
    start = followed.clock.now()
    followed.clock.advance(60 * SECOND + SECOND // 2)
    follower = followed.follower(Checkpoint(start))
    deliveries = []
    written = followed.clock.now() - 20 * SECOND
    for delivery in follower.follow(followed.clock.now() + 30 * SECOND):
        deliveries.append(delivery)
        if len(deliveries) == 1:
            followed.clock.advance(after)
            followed.insert(1, 1, at=written)
    assert cells(deliveries, "p", "c") == [(1, 1)]


@pytest.mark.parametrize("late_scan_at", [None, 1])
def test_a_row_that_arrives_behind_a_mark_is_found(late_scan_at: int | None) -> None:
    """A row that arrives behind a mark is found after a restart, and no row is repeated.

    This holds whether or not the reader had searched for late rows before.
    """
    followed = Followed(config=evolve(_CONFIG, window=timedelta(minutes=5)))
    start = followed.clock.now()
    for c in (1, 2):
        followed.clock.advance(10 * SECOND)
        followed.insert(1, c)
    written = followed.clock.now() - 5 * SECOND
    followed.clock.advance(20 * SECOND)
    late_scan_at = late_scan_at and followed.clock.now()
    first = next(followed.follower(Checkpoint(start)).follow())
    assert cells([first], "c") == [(1,), (2,)]
    assert isinstance(first, RowsRead)
    marks = last_marks(first.batch)
    followed.clock.advance(30 * SECOND)
    followed.insert(1, 3, at=written)
    followed.clock.advance(30 * SECOND)
    known = KnownGenerations(start, (EPOCH,))
    late = None if late_scan_at is None else LateState.begin(start, late_scan_at, 10 * SECOND)
    resumed = Checkpoint(start, known, marks, late)
    deliveries = followed.follow(resumed, followed.clock.now() + 30 * SECOND)
    assert cells(deliveries, "c") == [(3,)]


@pytest.mark.parametrize("confidence", [10, 60])
def test_the_confidence_window_may_change_at_a_restart(confidence: int) -> None:
    """A row is late by the confidence window with which its window was read."""
    followed = Followed(config=_CONFIG)
    followed.clock.advance(180 * SECOND)
    reached, end = Checkpoint(followed.clock.now() - 180 * SECOND), followed.clock.now()
    for got in followed.follower(reached).follow(end + 600 * SECOND):
        if isinstance(got, WindowComplete) and not got.late and got.position >= end + 20 * SECOND:
            reached = got.checkpoint
            break
    followed.insert(1, 5, at=reached.position - 20 * SECOND)
    window = timedelta(seconds=confidence)
    rest = list(followed.follower(reached, confidence_window=window).follow(end + 300 * SECOND))
    assert cells(rest, "c") == [(5,)]


def test_a_search_does_not_lengthen_the_confidence_window_of_what_was_read() -> None:
    """A row that arrives after a search is late by the window with which its rows were read."""
    config = ReadConfig(late_rows="deliver", confidence_window="5s", poll_interval="1s")
    it = Followed(config=config)
    start = it.clock.now()
    delivered = it.follow(start, start + 113 * SECOND)
    *_, reached = (each.checkpoint for each in delivered if isinstance(each, WindowComplete))
    it.clock.advance(3 * SECOND)
    it.config = evolve(config, confidence_window=timedelta(seconds=60))
    is_written, until = False, it.clock.now() + 400 * SECOND
    for each in it.follower(reached).follow(until):
        delivered.append(each)
        if isinstance(each, WindowComplete) and each.late and not is_written:
            it.clock.advance(22 * SECOND)
            it.insert(7, 7, at=reached.position - 2 * SECOND)
            is_written = True
    assert cells(delivered, "p") == [(7,)]


def test_rows_acknowledged_within_the_first_window_are_not_repeated() -> None:
    """A checkpoint within the first window tells when its rows may have arrived."""
    followed = Followed(config=_CONFIG)
    start = followed.clock.now()
    followed.clock.advance(120 * SECOND)
    for c in (1, 2):
        followed.insert(1, c, at=start + c * SECOND)
    followed.clock.advance(120 * SECOND)
    follower = followed.follower(Checkpoint(start))
    first = next(follower.follow())
    assert isinstance(first, RowsRead)
    kept = follower.with_table_facts(Checkpoint(start, marks=last_marks(first.batch)))
    rest = followed.follow(kept, followed.clock.now() + 120 * SECOND)
    assert sorted(cells([first, *rest], "c")) == [(1,), (2,)]


def test_a_late_row_is_not_delivered_again_after_a_restart() -> None:
    """A checkpoint has what is known of late rows, so a restarted reader repeats none."""
    followed = Followed(config=_CONFIG)
    start, deliveries = followed.clock.now(), []
    followed.clock.advance(60 * SECOND)
    for got in followed.follower(Checkpoint(start)).follow(start + 240 * SECOND):
        deliveries.append(got)
        if isinstance(got, WindowComplete) and len(deliveries) < 8:
            followed.insert(1, len(deliveries), at=got.position - 10 * SECOND)
            followed.clock.advance(20 * SECOND)
    found = cells(deliveries, "c")
    assert len(found) == len(set(found)) > 3
    for count, got in enumerate(deliveries, start=1):
        if isinstance(got, WindowComplete):
            rest = followed.follow(got.checkpoint, start + 240 * SECOND)
            assert sorted(cells([*deliveries[:count], *rest], "c")) == sorted(found)


@pytest.mark.parametrize("ttl", [200, 86_400])
def test_a_late_row_is_found_once_though_the_ttl_changed_since(ttl: int) -> None:
    """A late row that arrived under an old TTL is found once, and no row is repeated."""
    followed = Followed(config=_CONFIG, options="'enabled': true, 'ttl': 3600")
    start = followed.clock.now()
    followed.clock.advance(60 * SECOND)
    followed.insert(1, 1)
    followed.clock.advance(60 * SECOND)
    follower = followed.follower(Checkpoint(start))
    deliveries = []
    for delivery in follower.follow(followed.clock.now() + 90 * SECOND):
        deliveries.append(delivery)
        if len(deliveries) == 3:
            followed.clock.advance(SECOND)
            followed.insert(1, 2, at=followed.clock.now() - 50 * SECOND)
            followed.clock.advance(SECOND)
            followed.execute(f"ALTER TABLE ks.t WITH cdc = {{'enabled': true, 'ttl': {ttl}}}")
        if len(deliveries) == 9:
            followed.insert(1, 3, at=followed.clock.now() - 50 * SECOND)
    assert cells(deliveries, "c") == [(1,), (2,), (3,)]


@given(
    old=st.integers(60, 100_000),
    new=st.integers(60, 100_000),
    arrived=st.integers(-60, 300),
    looked=st.integers(0, 400),
)
def test_arrival_times_are_never_underestimated(
    old: int, new: int, arrived: int, looked: int
) -> None:
    """Computed arrival times are never too early and, if the TTL is known, never much too late.

    The TTL changes at time 0. The row arrives before or after the change, and is read later.
    """
    since = 1_800_000_000
    ttls = TtlHistory((((since - 1_000) * SECOND, old), (since * SECOND, new)))
    now = since + max(arrived, 0) + looked
    remaining_ttl = (old if arrived < 0 else new) - (now - since - arrived)
    assume(remaining_ttl > 0)
    batch = pa.record_batch([pa.array([(now + remaining_ttl) * SECOND])], [EXPIRY])
    [found] = _arrivals(batch, ttls, now * SECOND).to_pylist()
    assert found >= (since + arrived) * SECOND
    is_plain = new >= old + 60 or remaining_ttl > new + 60
    assert not is_plain or found <= (since + arrived) * SECOND + 2 * DOUBT


@given(waited=st.integers(0, 1_000_000))
def test_a_batch_is_judged_by_when_it_was_received(waited: int) -> None:
    """A machine that is suspended before it uses a batch takes no row for a later one."""
    written, planned = 1_800_000_000 * SECOND, 1_800_000_090 * SECOND
    ttls, time = TtlHistory(((0, 86_400),)), timeuuid.make(written, bytes(8))

    def found(arrival: int) -> int:
        """Return the number of rows that are delivered, of one with this time of arrival."""
        batch = pa.record_batch(
            {
                STREAM_ID: pa.array([bytes(16)], pa.binary()),
                TIME: [str(time)],
                BATCH_SEQ_NO: pa.array([0], pa.int32()),
                EXPIRY: [arrival + 86_400 * SECOND],
            }
        )
        now = planned + waited * SECOND
        return len(arrived(batch, ttls, now, planned, frozenset()))

    assert found(written + SECOND) == 1
    assert found(planned + SECOND) == 0

"""Delivery in order of write time, with limited memory."""

from __future__ import annotations

from collections import defaultdict
from datetime import timedelta
from itertools import groupby
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cdc_reader.config import ReadConfig
from cdc_reader.reading.cursor import Checkpoint, Mark
from cdc_reader.reading.deduplication import keys
from cdc_reader.reading.delivery import Delivery, WindowComplete
from cdc_reader.testing.in_process import RecordedQuery
from tests.cdc_reader.support.followed import EPOCH, SECOND, Followed, cells, rows_read
from tests.cdc_reader.support.tuned import tuned, tuning_of_module

ORDERED = ReadConfig(window=timedelta(seconds=10), fetch_size=3, delivery="ordered")
STEPS = st.one_of(
    st.tuples(st.just("write"), st.integers(0, 30), st.sampled_from([0, 0, 1, 2, 700_000])),
    st.tuples(st.just("advance"), st.sampled_from([1, 5, SECOND, 90 * SECOND]), st.just(0)),
    st.tuples(st.just("join"), st.just(0), st.just(0)),
)

small_chunks = tuning_of_module(streams_per_query=4, in_flight=2)


def keys_of(deliveries: list[Delivery]) -> list[tuple[Any, Any]]:
    """Return the stream and the key of each row, in order of delivery."""
    return [name for read in rows_read(deliveries) for name in keys(read.batch)]


def history(followed: Followed, steps: list[tuple[str, int, int]]) -> int:
    """Write the rows of `steps`, let them settle, and return a time after the last write."""
    begun = followed.clock.now()
    for number, (kind, amount, back) in enumerate(steps):
        if kind == "join":
            followed.server.join(vnodes=2)
            begun = followed.clock.advance(30 * SECOND)
        elif kind == "advance":
            followed.clock.advance(amount)
        else:
            followed.insert(amount, number, max(begun, followed.clock.now() - back))
    end = followed.clock.advance(1)
    followed.clock.advance(60 * SECOND)
    return end


@settings(max_examples=15, deadline=None)
@given(st.lists(STEPS, max_size=60), st.sampled_from([1, 900, 5_000, 1 << 25]))
def test_rows_come_in_order_of_write_time(
    steps: list[tuple[str, int, int]], sorted_bytes: int
) -> None:
    """Rows are delivered in order of write time, and memory use stays within the limit.

    Rows with equal times are delivered stream by stream.
    """
    followed = Followed(config=ORDERED)
    end = history(followed, steps)
    with tuned(sorted_bytes=sorted_bytes):
        found = followed.follow(EPOCH, end)
    rows = keys_of(found)
    assert sorted(rows) == sorted(keys_of(followed.follow(EPOCH, end, delivery="settled")))
    times = [key.micros for _, key in rows]
    assert times == sorted(times)
    of_streams = defaultdict(list)
    for stream, key in rows:
        of_streams[stream].append(key)
    assert all(one == sorted(one) for one in of_streams.values())
    for _, tied in groupby(rows, lambda row: row[1].micros):
        streams = [stream for stream, _ in groupby(stream for stream, _ in tied)]
        assert len(streams) == len(set(streams))
    sizes: dict[Any, int] = defaultdict(int)
    for read in rows_read(found):
        sizes[read.window] += read.batch.nbytes
    assert all(size <= sorted_bytes or window.length == 1 for window, size in sizes.items())


def test_a_crowded_window_is_read_in_smaller_ones_that_grow_again() -> None:
    """A burst before an idle day is read in smaller windows, which then grow again."""
    followed = Followed(config=ORDERED)
    for c in range(400):
        followed.insert(c % 20, c)
        followed.clock.advance(10_000)
    end = followed.clock.advance(20 * 3600 * SECOND)
    followed.clock.advance(60 * SECOND)
    with tuned(sorted_bytes=6_000):
        found = followed.follow(EPOCH, end)
    assert cells(found, "c") == [(c,) for c in range(400)]
    windows = [each.window for each in found if isinstance(each, WindowComplete)]
    assert len(windows) < 60
    assert windows[-1].length > 3600 * SECOND


def test_rows_of_one_microsecond_are_not_held() -> None:
    """Rows with the same write time are not buffered, because there may be many of them.

    A bulk load may give all its rows the same timestamp.
    """
    followed = Followed(config=ORDERED)
    at = followed.clock.advance(SECOND)
    for c in range(100):
        followed.insert(c % 7, c, at)
    followed.clock.advance(60 * SECOND)
    with tuned(sorted_bytes=2_000):
        found = followed.follow(EPOCH, at + SECOND)
    assert sorted(cells(found, "c")) == [(c,) for c in range(100)]
    assert max(read.batch.num_rows for read in rows_read(found)) <= 3


def test_a_column_added_within_a_window_is_read() -> None:
    """A window is read again if columns change, because rows of two schemas cannot be sorted."""
    followed = Followed(config=ORDERED)
    for c in range(30):
        followed.insert(c % 10, c)
        followed.clock.advance(1_000)
    end = followed.clock.advance(1)
    followed.clock.advance(60 * SECOND)
    reads = 0

    def drop(asked: RecordedQuery) -> None:
        nonlocal reads
        reads += '"cdc$time" >=' in asked.query.cql
        if reads == 3:
            reads += 1
            followed.execute("ALTER TABLE ks.t DROP v")

    followed.before = drop
    found = followed.follow(EPOCH, end)
    assert cells(found, "c") == [(c,) for c in range(30)]
    schemas = {id(read.schema) for read in rows_read(found)}
    assert len(schemas) == 1


@pytest.mark.parametrize("printed", [0, 1, 17, 40])
def test_a_checkpoint_resumes_within_a_window(printed: int) -> None:
    """A run that resumes within a window delivers the remaining rows in order.

    Marks record which rows have been delivered.
    """
    followed = Followed(config=ORDERED)
    for c in range(40):
        followed.insert(c % 9, c)
        followed.clock.advance(1_000)
    end = followed.clock.advance(1)
    followed.clock.advance(60 * SECOND)
    names = keys_of(followed.follow(EPOCH, end))[:printed]
    marks = {stream: Mark(key) for stream, key in names}
    rest = followed.follow(Checkpoint(EPOCH, None, marks), end)
    assert cells(rest, "c") == [(c,) for c in range(printed, 40)]

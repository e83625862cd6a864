"""Plans are complete, without duplicates, balanced, and small at any size."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc_reader.streams.generation import Timeline
from cdc_reader.streams.window import Window
from pyspark_scylla_cdc.planning.plan import (
    MOST_QUERIES,
    SHORTEST_SLICE,
    StreamSpan,
    divide,
    slices,
    spans,
)
from tests.effort import calls

MINUTE = 60_000_000
HOUR = 60 * MINUTE
DAY = 24 * HOUR


def timeline(starts: list[int]) -> Timeline:
    """Return a timeline of generations that begin at 0 and at these times."""
    return Timeline((0, *starts))


def one_generation(streams: int, length: int) -> list[StreamSpan]:
    """Return the spans of one generation with this many streams, over `length` µs."""
    return spans(timeline([]), Window(0, length), lambda _: streams)


def length_of(share: Sequence[StreamSpan], stream: int) -> int:
    """Return the number of µs for which a share reads a stream."""
    return sum(span.window.length for span in share if span.first <= stream < span.last)


@given(
    starts=st.lists(st.integers(1, 99), unique=True, max_size=3),
    sizes=st.lists(st.integers(0, 9), min_size=4, max_size=4),
    filled=st.builds(Window, st.integers(0, 99), st.integers(0, 99)),
    at_least=st.integers(1, 12),
    more=st.integers(0, 12),
    count=st.integers(1, 24),
)
def test_each_stream_and_moment_once(
    starts: list[int], sizes: list[int], filled: Window, at_least: int, more: int, count: int
) -> None:
    """Together, the shares read each stream once for each µs that its generation is in force."""
    lengths = dict(zip([0, *sorted(starts)], sizes, strict=False))
    window, at_most = Window(10, 90), at_least + more
    parts = spans(timeline(starts), window, lengths.__getitem__, filled)
    shares = divide(parts, at_least, at_most, min(count, at_most))
    read = Counter(
        (span.generation, stream, moment)
        for share in shares
        for span in share
        for stream in range(span.first, span.last)
        for moment in range(span.window.start, span.window.end)
    )
    expected = Counter(
        (operates.start, stream, moment)
        for operates in timeline(starts).operating()
        for stream in range(lengths[operates.start])
        for moment in range(10, 90)
        if moment in operates
    )
    assert read == expected
    assert len(shares) <= at_most
    assert all(shares)


@given(
    switches=st.lists(st.integers(1, 23), unique=True, max_size=3),
    streams=st.integers(200, 2_000),
    since=st.integers(0, 20),
    at_most=st.integers(1, 16),
    count=st.integers(1, 16),
)
def test_shares_are_about_equal(
    switches: list[int], streams: int, since: int, at_most: int, count: int
) -> None:
    """Shares have about the same number of expected rows, for any generations and slices."""
    starts = [hour * HOUR for hour in switches]
    parts = spans(timeline(starts), Window(0, DAY), lambda _: streams, Window(since * HOUR, DAY))
    count = min(count, at_most)
    shares = divide(parts, 1, at_most, count)
    rows = [sum(span.streams * span.filled.length for span in share) for share in shares]
    assert len(shares) == at_most
    assert max(rows) - min(rows) <= 2 * DAY + sum(rows) / at_most / 50


@given(
    streams=st.integers(1, 2_000),
    at_most=st.integers(1, 16),
    count=st.integers(1, 16),
    around=st.floats(0, 0.999),
)
def test_a_hot_stream_is_spread_evenly(
    streams: int, at_most: int, count: int, around: float
) -> None:
    """The time of each stream is divided equally among `count` shares."""
    hot = int(streams * around)
    count = min(count, at_most)
    shares = divide(one_generation(streams, DAY), 1, at_most, count)
    lengths = [length for share in shares if (length := length_of(share, hot))]
    assert len(lengths) == count
    assert max(lengths) - min(lengths) <= 1


def test_a_stream_is_in_order_in_each_share() -> None:
    """The generations of a share are in order, and so are the times of each stream."""
    parts = spans(timeline([HOUR]), Window(0, DAY), lambda _: 3)
    for share in divide(parts, 1, 8, 8):
        for stream in range(3):
            windows = [s.window for s in share if s.first <= stream < s.last]
            assert windows == sorted(windows, key=lambda window: window.start)


def test_slices_lie_where_rows_are_expected() -> None:
    """If the log is younger than its streams, slices divide the log's own lifetime."""
    parts = spans(timeline([]), Window(0, DAY), lambda _: 1, Window(DAY - HOUR, DAY))
    shares = divide(parts, 1, 4, slices(parts, 4, 64))
    assert [span.window.end for share in shares for span in share] == [
        DAY - HOUR + quarter * HOUR // 4 for quarter in (1, 2, 3, 4)
    ]


@pytest.mark.parametrize(
    ("streams", "length", "at_most", "expected"),
    [
        (512, DAY, 1, 1),
        (512, DAY, 8, 8),
        (512, MINUTE, 8, 6),
        (512, SHORTEST_SLICE - 1, 8, 1),
        (512, DAY, 200, 19),
        (64_000, DAY, 8, 4),
        (1_600_000, DAY, 8, 1),
    ],
)
def test_slices_are_worth_their_queries(
    streams: int, length: int, at_most: int, expected: int
) -> None:
    """Each slice is long enough to be worth its queries, and the number of queries is bounded."""
    parts = one_generation(streams, length)
    found = slices(parts, at_most, 64)
    assert found == expected
    queries = sum(-(-s.streams // 64) for share in divide(parts, 1, at_most, found) for s in share)
    assert queries <= max(MOST_QUERIES, streams // 64 + at_most)


@pytest.mark.parametrize("count", [1, 2, 7, 32])
def test_as_many_partitions_as_requested(count: int) -> None:
    """With enough streams, the number of shares is the maximum, and their sizes are about equal."""
    shares = divide(one_generation(32, 9), 1, count)
    assert len(shares) == count
    streams = [sum(span.streams for span in share) for share in shares]
    assert max(streams) - min(streams) <= 1


def test_no_more_partitions_than_streams() -> None:
    """Three streams are divided into at most three shares unless the window is sliced."""
    assert len(divide(one_generation(3, 9), 1, 8)) == 3


def test_more_partitions_than_streams_if_requested() -> None:
    """If the minimum exceeds the number of streams, the window is sliced, however short it is."""
    shares = divide(one_generation(1, 900), 6, 8)
    windows = [(span.window.start, span.window.end) for share in shares for span in share]
    assert windows == list(pairwise(range(0, 901, 150)))


@given(st.integers(1, 400), st.integers(1, 400))
def test_streams_are_cut_no_finer_than_necessary(streams: int, more: int) -> None:
    """The shares are about equal and have few spans, because each span costs at least one query."""
    shares = divide(one_generation(streams, DAY), streams + more, 1_000)
    assert len(shares) == streams + more
    work = [sum(span.work for span in share) for share in shares]
    assert max(work) <= 1.5 * min(work)
    assert sum(map(len, shares)) == len(shares)


def test_work_is_streams_times_time() -> None:
    """Work is proportional to time: the longer a generation is in force, the more work it takes."""
    shares = divide(spans(timeline([90 * HOUR]), Window(0, 100 * HOUR), lambda _: 10), 1, 2)
    work = [sum(span.work for span in share) for share in shares]
    assert max(work) - min(work) <= 100 * HOUR


def test_queries_count_as_work() -> None:
    """In a short window, streams count equally, however long their generation is in force."""
    shares = divide(spans(timeline([1]), Window(0, 1_000_000), lambda _: 100), 1, 2)
    streams = [sum(span.streams for span in share) for share in shares]
    assert max(streams) - min(streams) <= 10


def test_nothing_to_read() -> None:
    """Without streams there are no shares."""
    assert divide([], 1, 8) == []


def test_millions_of_streams() -> None:
    """The work of planning does not grow with the number of streams."""

    def plan() -> list[list[StreamSpan]]:
        parts = spans(timeline([HOUR]), Window(0, DAY), lambda _: 1_600_000)
        return divide(parts, 1, 64, slices(parts, 64, 64))

    shares = plan()
    assert len(shares) == 64
    assert sum(span.streams for share in shares for span in share) == 3_200_000
    assert calls(plan) < 10_000

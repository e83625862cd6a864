"""Plans: nothing left out, nothing twice, work shared out evenly, and small whatever the size."""

from __future__ import annotations

import time
from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc_reader.generation import Timeline
from cdc_reader.window import Window
from pyspark_scylla_cdc.plan import divide, spans


def timeline(starts: list[int]) -> Timeline:
    """Generations that begin at 0 and at these times."""
    return Timeline((0, *starts))


@given(
    starts=st.lists(st.integers(1, 99), unique=True, max_size=3),
    sizes=st.lists(st.integers(0, 9), min_size=4, max_size=4),
    at_least=st.integers(1, 12),
    more=st.integers(0, 12),
)
def test_each_stream_and_moment_once(
    starts: list[int], sizes: list[int], at_least: int, more: int
) -> None:
    """Over all runs each stream of each generation is read once for each µs it operates in."""
    lengths = dict(zip([0, *sorted(starts)], sizes, strict=False))
    window = Window(10, 90)
    runs = divide(spans(timeline(starts), window, lengths.__getitem__), at_least, at_least + more)
    read = Counter(
        (span.generation, stream, moment)
        for run in runs
        for span in run
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
    assert len(runs) <= at_least + more
    assert all(runs)


@pytest.mark.parametrize("count", [1, 2, 7, 32])
def test_as_many_as_asked_for(count: int) -> None:
    """With enough streams there are exactly as many runs as allowed, about equally long."""
    runs = divide(spans(timeline([]), Window(0, 9), lambda _: 32), 1, count)
    assert len(runs) == count
    streams = [sum(span.streams for span in run) for run in runs]
    assert max(streams) - min(streams) <= 1


def test_no_more_than_streams() -> None:
    """Three streams make three runs, however many were allowed."""
    assert len(divide(spans(timeline([]), Window(0, 9), lambda _: 3), 1, 8)) == 3


def test_more_than_streams_where_that_is_wanted() -> None:
    """A minimum above the number of streams divides their time."""
    runs = divide(spans(timeline([]), Window(0, 900), lambda _: 1), 6, 8)
    windows = [(span.window.start, span.window.end) for run in runs for span in run]
    assert windows == list(pairwise(range(0, 901, 150)))


def test_work_is_streams_times_time() -> None:
    """A generation that ruled for long outweighs one that has just begun."""
    runs = divide(spans(timeline([90]), Window(0, 100), lambda _: 10), 1, 2)
    work = [sum(span.work for span in run) for run in runs]
    assert max(work) - min(work) <= 100


def test_nothing_to_read() -> None:
    """No streams make no run."""
    assert divide([], 1, 8) == []


def test_millions_of_streams() -> None:
    """The plan of a large cluster takes no time to speak of."""
    began = time.perf_counter()
    runs = divide(spans(timeline([50]), Window(0, 100), lambda _: 1_600_000), 1, 64)
    assert len(runs) == 64
    assert sum(span.streams for run in runs for span in run) == 3_200_000
    assert time.perf_counter() - began < 1

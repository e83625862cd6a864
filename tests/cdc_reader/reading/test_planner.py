"""Plans, by streams and by ranges, cover each window exactly."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest
from attrs import frozen
from hypothesis import given
from hypothesis import strategies as st

from cdc_reader._time import FOREVER
from cdc_reader.reading.windows.planner import Planner
from cdc_reader.streams.generation import Generation, StreamGroup, Timeline
from cdc_reader.streams.shard import Shard
from cdc_reader.streams.stream import StreamId
from cdc_reader.streams.window import Window
from tests.cdc_reader.support.tuned import tuned

MICROS = st.integers(0, 40)
WHOLE_RING = st.integers(-(1 << 63) + 1, (1 << 63) - 1)
Read = Counter[tuple[StreamId, int]]


@frozen
class History:
    """A `StreamSource` of these generations."""

    generations: tuple[Generation, ...]

    def groups(self, start: int) -> Sequence[StreamGroup]:
        return next(g.groups for g in self.generations if g.operates.start == start)


@st.composite
def histories(draw: st.DrawFn) -> History:
    """Draw a history of generations, each with its own vnodes, shards and streams."""
    starts = draw(st.lists(MICROS, min_size=1, max_size=4, unique=True))
    spans = enumerate(Timeline(tuple(starts)).operating())
    return History(tuple(Generation(span, draw(_groups(number))) for number, span in spans))


@st.composite
def _groups(draw: st.DrawFn, number: int) -> tuple[StreamGroup, ...]:
    ends = sorted(draw(st.lists(WHOLE_RING, max_size=5, unique=True)))
    return tuple(
        StreamGroup(
            end,
            tuple(
                StreamId.from_parts(draw(WHOLE_RING), number << 8 | shard, vnode)
                for shard in range(draw(st.integers(0, 5)))
            ),
        )
        for vnode, end in enumerate(ends)
    )


def planner_of(history: History, chunk_size: int, shard: Shard | None = None) -> Planner:
    """Return a planner for the generations of the history."""
    with tuned(streams_per_query=chunk_size):
        planner = Planner(history, shard)
    planner.use(Timeline(tuple(each.operates.start for each in history.generations)))
    return planner


def wanted(history: History, window: Window) -> Read:
    """Return the pairs of stream and microsecond for which the stream's generation is in force."""
    return Counter(
        (stream, micros)
        for generation in history.generations
        for stream in generation.streams()
        for micros in range(window.start, window.end)
        if micros in generation.operates
    )


def by_streams(planner: Planner, window: Window) -> Read:
    """Return the pairs of stream and microsecond that a plan by streams reads."""
    return Counter(
        (stream, micros)
        for task in planner.plan(window)
        for stream in task.streams
        for micros in range(task.window.start, task.window.end)
    )


def by_ranges(planner: Planner, window: Window, history: History) -> Read:
    """Return the pairs of stream and microsecond that a plan by ranges reads.

    Streams have rows only while their generation is in force.
    """
    rows = wanted(history, window)
    return Counter(
        (stream, micros)
        for task in planner.plan_ranges(window)
        for (stream, micros) in rows
        if task.start < stream.token <= task.end and micros in task.window
    )


@given(histories(), MICROS, MICROS, st.integers(1, 9), st.lists(st.floats(0, 9), max_size=40))
def test_tasks_partition_a_window_exactly_however_chunks_adapt(
    history: History, start: int, end: int, chunk_size: int, held: list[float]
) -> None:
    """Exactly one task reads each microsecond of each stream whose generation is in force.

    This holds however the chunks adapt.
    """
    window = Window(start, end)
    for read in (by_streams, lambda planner, span: by_ranges(planner, span, history)):
        planner = planner_of(history, chunk_size)
        for at in range(3):
            assert read(planner, window) == wanted(history, window)
            planner.adapt([held[(at + n) % len(held)] if held else 0.0 for n in range(200)])


@given(histories(), st.integers(1, 9))
def test_tasks_are_chunks_in_order(history: History, chunk_size: int) -> None:
    """Tasks are in order of generation and ring position. No chunk is empty or above the limit."""
    tasks = planner_of(history, chunk_size).plan(Window(0, FOREVER))
    assert all(0 < len(task.streams) <= chunk_size for task in tasks)
    assert [task.window.start for task in tasks] == sorted(task.window.start for task in tasks)
    in_order = sorted(history.generations, key=lambda generation: generation.operates.start)
    in_ring_order = [stream for generation in in_order for stream in generation.streams()]
    assert [stream for task in tasks for stream in task.streams] == in_ring_order


@given(histories(), st.integers(1, 5), st.integers(1, 9))
def test_shards_partition_the_streams(history: History, count: int, chunk_size: int) -> None:
    """Each stream of each generation belongs to one shard, with both strategies."""
    window = Window(0, 41)
    shards = [Shard(number, count) for number in range(1, count + 1)]
    planners = [planner_of(history, chunk_size, shard) for shard in shards]
    assert sum((by_streams(p, window) for p in planners), Read()) == wanted(history, window)
    found = (by_ranges(planner, window, history) for planner in planners)
    assert sum(found, Read()) == wanted(history, window)


def test_a_chunk_has_room_for_a_stream() -> None:
    """A chunk size of zero is rejected, because the plan would be empty."""
    generation = Generation(Window(0, FOREVER), (StreamGroup(0, (StreamId(bytes(16)),)),))
    with pytest.raises(ValueError, match="expected at least 1"):
        planner_of(History((generation,)), 0).plan(Window(0, 1))

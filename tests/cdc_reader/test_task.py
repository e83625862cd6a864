from __future__ import annotations

import pickle
from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc_reader.generation import Generation, StreamGroup, Timeline
from cdc_reader.ids import StreamId
from cdc_reader.task import Task, plan, split
from cdc_reader.window import FOREVER, Window

MICROS = st.integers(0, 40)


@st.composite
def clusters(draw: st.DrawFn) -> list[Generation]:
    """A history of generations, each with its own vnodes, shards and streams."""
    starts = draw(st.lists(MICROS, min_size=1, max_size=4, unique=True))
    return [
        Generation(span, draw(_groups(number)))
        for number, span in enumerate(Timeline(tuple(starts)).operating())
    ]


@st.composite
def _groups(draw: st.DrawFn, number: int) -> tuple[StreamGroup, ...]:
    shards = draw(st.lists(st.integers(0, 5), max_size=5))
    return tuple(
        StreamGroup(
            vnode * 1_000,
            tuple(StreamId.from_parts(vnode * 1_000 - s, number, vnode) for s in range(count)),
        )
        for vnode, count in enumerate(shards)
    )


@given(clusters(), MICROS, MICROS, st.integers(1, 9))
def test_tasks_partition_a_window_exactly(
    generations: list[Generation], start: int, end: int, chunk_size: int
) -> None:
    """Each microsecond of each stream that operated then is in one task; no other is in any."""
    window = Window(start, end)
    read = Counter(
        (stream, micros)
        for task in plan(generations, window, chunk_size)
        for stream in task.streams
        for micros in range(task.window.start, task.window.end)
    )
    assert read == Counter(
        (stream, micros)
        for micros in range(start, end)
        for generation in generations
        if micros in generation.operates
        for stream in generation.streams()
    )


@given(clusters(), st.integers(1, 9))
def test_tasks_are_chunks_in_order(generations: list[Generation], chunk_size: int) -> None:
    """Older generations first, then round the ring; no chunk is empty or too large."""
    tasks = plan(generations, Window(0, FOREVER), chunk_size)
    assert all(0 < len(task.streams) <= chunk_size for task in tasks)
    assert [task.window.start for task in tasks] == sorted(task.window.start for task in tasks)
    in_ring_order = [stream for generation in generations for stream in generation.streams()]
    assert [stream for task in tasks for stream in task.streams] == in_ring_order


@given(clusters(), st.integers(1, 5))
def test_small_groups_stay_whole(generations: list[Generation], spare: int) -> None:
    """One vnode's streams are neighbours on one node: a chunk holds all of them or none."""
    tasks = plan(generations, Window(0, FOREVER), 5 + spare)
    for generation in generations:
        for group in generation.groups:
            holders = [task for task in tasks if set(group.streams) & set(task.streams)]
            assert len(holders) <= 1


@given(st.integers(0, 30), st.integers(0, 9))
def test_a_split_keeps_all_tasks_in_order_and_even(tasks: int, count: int) -> None:
    """Runs differ by one task at most, and none is empty."""
    whole = [Task(Window(0, 1), (StreamId.from_parts(at, 0, 0),)) for at in range(tasks)]
    runs = split(whole, count)
    assert [task for run in runs for task in run] == (whole if count else [])
    assert len(runs) == min(tasks, count)
    sizes = {len(run) for run in runs}
    assert not sizes or (min(sizes) > 0 and max(sizes) - min(sizes) <= 1)


def test_a_chunk_has_room_for_a_stream() -> None:
    """A chunk size of nothing is a mistake, not an empty plan."""
    generation = Generation(Window(0, 1), (StreamGroup(0, (StreamId(bytes(16)),)),))
    with pytest.raises(ValueError, match="expected at least 1"):
        plan([generation], Window(0, 1), 0)


def test_a_task_pickles_and_prints_short() -> None:
    """It travels to other processes, and into logs."""
    task = Task(Window(0, 1), (StreamId(bytes(16)),) * 64)
    assert pickle.loads(pickle.dumps(task)) == task
    assert repr(task).endswith("streams=<64 streams>)")


@given(st.lists(MICROS, max_size=5), MICROS, MICROS)
def test_touched_generations_are_those_with_a_moment_in_the_window(
    starts: list[int], start: int, end: int
) -> None:
    """Timestamps may come unsorted and twice."""
    timeline, window = Timeline(tuple(starts)), Window(start, end)
    touched = timeline.touched(window)
    assert all(first.end == second.start for first, second in pairwise(touched))
    expected = {
        max(s for s in starts if s <= at) for at in range(start, end) if at >= min([*starts, 99])
    }
    assert {span.start for span in touched} == expected

from __future__ import annotations

import pickle
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from cdc_reader.streams.generation import Timeline
from cdc_reader.streams.stream import StreamId
from cdc_reader.streams.task import Task
from cdc_reader.streams.window import Window

MICROS = st.integers(0, 40)


def test_a_task_pickles_and_has_a_short_repr() -> None:
    """A task has a short repr and can be pickled for other processes."""
    task = Task(Window(0, 1), (StreamId(bytes(16)),) * 64)
    assert pickle.loads(pickle.dumps(task)) == task
    assert repr(task).endswith("streams=<64 streams>)")


@given(st.lists(MICROS, max_size=5), MICROS, MICROS)
def test_touched_generations_are_those_with_a_moment_in_the_window(
    starts: list[int], start: int, end: int
) -> None:
    """A generation touches a window if it is in force at any time in the window.

    The generations' timestamps may be unsorted and repeated.
    """
    timeline, window = Timeline(tuple(starts)), Window(start, end)
    touched = timeline.touched(window)
    assert all(first.end == second.start for first, second in pairwise(touched))
    expected = {
        max(s for s in starts if s <= at) for at in range(start, end) if at >= min([*starts, 99])
    }
    assert {span.start for span in touched} == expected

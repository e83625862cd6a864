"""The generations that an offset records: each row of a late-announced generation is read once."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from attrs import evolve, frozen
from hypothesis import given
from hypothesis import strategies as st

from cdc_reader._time import BEGINNING
from cdc_reader.checkpoints.encoding import cursor_from_json, cursor_to_json
from cdc_reader.reading.advance import known_at
from cdc_reader.reading.cursor import MOST_GENERATIONS, Checkpoint, KnownGenerations
from cdc_reader.streams.generation import Timeline
from cdc_reader.streams.window import Window
from pyspark_scylla_cdc.planning.plan import spans

END = 60


@frozen
class Poll:
    """A request for an offset: the distance to advance, and the generations that a node hides."""

    step: int
    hidden: frozenset[int]


POLLS = st.lists(
    st.builds(Poll, st.integers(0, 9), st.frozensets(st.integers(0, END), max_size=2)), max_size=20
)
ANNOUNCED = st.dictionaries(st.integers(1, END), st.integers(0, 20), max_size=15)


@given(st.integers(0, 20), ANNOUNCED, POLLS)
def test_each_row_is_read_once(begin: int, announced: dict[int, int], polls: list[Poll]) -> None:
    """Each write time is read once, in its generation, whatever the order of announcements.

    `announced` maps the start of each generation to the index of the poll before which the
    generation is announced. A lagging node may hide a generation that was visible earlier.
    """
    announced = {0: 0, **announced}
    ends = [*polls, *[Poll(0, frozenset())] * (21 - len(polls)), Poll(END, frozenset())]
    read: Counter[tuple[int, int]] = Counter()
    cursor = Checkpoint(begin)
    for number, poll in enumerate(ends):
        visible = [start for start, at in announced.items() if at <= number]
        shown = Timeline(start for start in visible if start not in poll.hidden or not start)
        position = cursor.position
        later = known_at(cursor, shown, BEGINNING)
        moved = evolve(cursor, generations=later)
        missed = later.missed(cursor.generations, cursor.first, position)
        window = Window(position, min(END, position + poll.step))
        if window.is_empty and not missed:
            continue
        for span in spans(
            Timeline(later.with_older(shown.starts)), window, lambda _: 1, missed=missed
        ):
            read.update((span.generation, at) for at in range(span.window.start, span.window.end))
        stored = json.loads(json.dumps(cursor_to_json(moved)))
        cursor = cursor_from_json(stored, window.end, {})
        assert cursor.generations == later
    operating = Timeline(announced).operating()
    every = {(span.start, at) for span in operating for at in range(END) if at in span}
    own = {name: times for name, times in read.items() if name in every}
    assert own == {(start, at): 1 for start, at in every if at >= begin}
    assert max(read.values(), default=1) == 1


def test_a_cursor_names_the_newest_generations() -> None:
    """A cursor lists the newest generations. Older ones count as known, but are still read."""
    visible = Timeline(range(0, 20_000, 10))
    known = KnownGenerations(0, ()).seeing(visible.starts, BEGINNING)
    assert known.starts == visible.starts[-MOST_GENERATIONS:]
    assert known.with_older(visible.starts) == visible.starts
    assert known.covers(19_985)
    assert not known.covers(500)
    later = known.seeing([*visible.starts, 5, 19_975], BEGINNING)
    assert later.missed(known, 0, 30_000) == {19_975: Window(19_975, 19_980)}
    assert later.missed(None, 0, 30_000) == {}


def test_a_cursor_drops_generations_whose_rows_have_expired() -> None:
    """A generation is dropped if it is older than all rows, and is not announced any more."""
    known = KnownGenerations(0, ()).seeing(range(0, 100, 10), 55)
    assert known.starts == tuple(range(0, 100, 10))
    known = known.seeing((30, 65, 90), 55)
    assert known.starts == (30, 40, 50, 60, 65, 70, 80, 90)
    assert known.seeing((10, 20, 90), 70).starts == (70, 80, 90)


@pytest.mark.parametrize("position", [0, 7])
def test_a_cluster_without_generations(position: int) -> None:
    """A cluster may have no generation at first, and announce its first one late."""
    known = KnownGenerations(3, ())
    later = known.seeing((5,), BEGINNING)
    assert later.missed(known, 3, position) == ({5: Window(5, 7)} if position == 7 else {})

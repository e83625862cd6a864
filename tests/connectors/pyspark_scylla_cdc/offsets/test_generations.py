"""The generations that an offset records: each row of a late-announced generation is read once."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from attrs import frozen
from hypothesis import given
from hypothesis import strategies as st

from cdc_reader.streams.generation import Timeline
from cdc_reader.streams.window import Window
from pyspark_scylla_cdc.offsets.generations import MOST, KnownGenerations
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
ANNOUNCED = st.dictionaries(st.integers(1, END), st.integers(0, 20), max_size=MOST - 1)


@given(st.integers(0, 20), ANNOUNCED, POLLS)
def test_each_row_is_read_once(begin: int, announced: dict[int, int], polls: list[Poll]) -> None:
    """Each write time is read once, in its generation, whatever the order of announcements.

    `announced` maps the start of each generation to the index of the poll before which the
    generation is announced. A lagging node may hide a generation that was visible earlier.
    """
    announced = {0: 0, **announced}
    ends = [*polls, *[Poll(0, frozenset())] * (21 - len(polls)), Poll(END, frozenset())]
    read: Counter[tuple[int, int]] = Counter()
    known: KnownGenerations | None = None
    position = begin
    for number, poll in enumerate(ends):
        visible = [start for start, at in announced.items() if at <= number]
        shown = Timeline(start for start in visible if start not in poll.hidden or not start)
        later = KnownGenerations.after(known, position, shown)
        missed = later.missed(known, position)
        window = Window(position, min(END, position + poll.step))
        if window.is_empty and not missed:
            continue
        for span in spans(later.timeline(shown), window, lambda _: 1, missed=missed):
            read.update((span.generation, at) for at in range(span.window.start, span.window.end))
        known = KnownGenerations.from_json(json.loads(json.dumps(later.to_json())))
        assert known == later
        position = window.end
    operating = Timeline(announced).operating()
    every = {(span.start, at) for span in operating for at in range(END) if at in span}
    own = {name: times for name, times in read.items() if name in every}
    assert own == {(start, at): 1 for start, at in every if at >= begin}
    assert max(read.values(), default=1) == 1


def test_an_offset_names_the_newest_generations() -> None:
    """An offset lists the newest generations. Older ones count as known, but are still read."""
    visible = Timeline(range(0, 1_000, 10))
    known = KnownGenerations.after(None, 0, visible)
    assert known.starts == visible.starts[-MOST:]
    assert known.timeline(visible) == visible
    assert known.covers(985)
    assert not known.covers(500)
    later = KnownGenerations.after(known, 2_000, Timeline([*visible.starts, 5, 975]))
    assert later.missed(known, 2_000) == {975: Window(975, 980)}
    assert later.missed(None, 2_000) == {}


@pytest.mark.parametrize("position", [0, 7])
def test_a_cluster_without_generations(position: int) -> None:
    """A cluster may have no generation at first, and announce its first one late."""
    known = KnownGenerations.after(None, 3, Timeline(()))
    later = KnownGenerations.after(known, position, Timeline((5,)))
    assert later.missed(known, position) == ({5: Window(5, 7)} if position == 7 else {})

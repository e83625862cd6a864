"""What is read next: windows, and generations that were announced late."""

from __future__ import annotations

from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from cdc_reader._time import FOREVER
from cdc_reader.reading.advance import Limits, View, advance
from cdc_reader.reading.cursor import Checkpoint, KnownGenerations, LateState
from cdc_reader.streams.generation import Timeline
from cdc_reader.streams.window import Window, WindowSize

TIMES = st.integers(min_value=-(10**15), max_value=4 * 10**15)
SPANS = st.integers(min_value=1, max_value=10**13)
LIMITS = st.builds(
    Limits, st.integers(min_value=0, max_value=10**10), end=TIMES, longest=SPANS, shortest=SPANS
)


def next_end(limits: Limits, position: int, now: int) -> int:
    """Return the end of the window that follows `position`."""
    step = advance(Checkpoint(position), View(now, Timeline((0,))), limits)
    assert step.window.start == position
    return step.window.end


@given(limits=LIMITS, position=TIMES, now=TIMES)
def test_never_back_and_never_past_the_horizon(limits: Limits, position: int, now: int) -> None:
    """The position never goes back, and never passes rows that have not settled."""
    end = next_end(limits, position, now)
    assert end >= position
    assert end == position or end <= min(now - limits.confidence, limits.end)
    assert end - position <= limits.longest


@given(limits=LIMITS, position=TIMES, now=TIMES, later=SPANS)
def test_a_bounded_query_ends(limits: Limits, position: int, now: int, later: int) -> None:
    """With `availableNow` the end stays fixed, and nothing is read after it."""
    bounded, steps = evolve(limits, end=limits.settled(now)), 0
    while (end := next_end(bounded, position, now + later)) > position:
        position, steps = end, steps + 1
        bounded = evolve(bounded, longest=FOREVER) if steps > 100 else bounded
    assert position >= bounded.end
    assert next_end(bounded, position, now + 2 * later) == position


def test_small_advances_wait() -> None:
    """However often Spark polls, each advance of the position is at least the minimum."""
    limits = Limits(30, shortest=10)
    ends = [next_end(limits, 100, now) for now in range(130, 145)]
    assert ends == [100] * 10 + [110, 111, 112, 113, 114]


def test_the_last_stretch_is_not_held_back() -> None:
    """The requested end is reached even if it is nearer than the minimum advance."""
    limits = Limits(0, end=105, shortest=10)
    assert next_end(limits, 100, 104) == 100
    assert next_end(limits, 100, 105) == 105


def test_an_unannounced_generation_is_waited_for() -> None:
    """No window passes the beginning of a generation that is only stored."""
    step = advance(Checkpoint(100), View(200, Timeline((0,)), unannounced=150), Limits(0))
    assert step.window.end == 150


@given(st.integers(0, 100), st.integers(1, 200), st.lists(st.booleans()))
def test_windows_adjoin_and_never_pass_the_horizon(
    start: int, span: int, emptiness: list[bool]
) -> None:
    """Windows are contiguous and never pass the horizon, whether or not they are empty."""
    position, size = start, WindowSize(base=3, limit=50)
    for empty in emptiness:
        if position >= start + span:
            break
        end = next_end(Limits(0, longest=size.current), position, start + span)
        assert position < end <= start + span
        position, size = end, size.after(empty=empty)


def test_windows_by_generation() -> None:
    """If strays are read, no window crosses into another generation, or into the first one."""
    view, limits = View(1_000, Timeline((100, 200))), Limits(0, reach=10, by_generation=True)
    ends = [advance(Checkpoint(at), view, limits).window.end for at in (50, 100, 150, 200)]
    assert ends == [100, 200, 200, 1_000]
    ends = [advance(Checkpoint(at), view, evolve(limits, reach=0)).window.end for at in (50, 100)]
    assert ends == [100, 1_000]


def test_a_generation_announced_late() -> None:
    """It is read from its beginning to the position, and counts as known after the step."""
    cursor = Checkpoint(500, KnownGenerations(50, (0, 400)))
    step = advance(cursor, View(1_000, Timeline((0, 300, 400))), Limits(0))
    assert step.missed == {300: Window(300, 400)}
    assert step.fresh == {300}
    assert (step.first, step.window) == (300, Window(500, 1_000))
    after = evolve(cursor, position=1_000, generations=step.generations)
    again = advance(after, View(2_000, Timeline((0, 300, 400))), Limits(0))
    assert not again.missed
    assert not again.fresh


def test_no_rows_before_the_start_are_missed() -> None:
    """A generation announced late is not read before the reader's start."""
    cursor = Checkpoint(500, KnownGenerations(350, (0, 400)))
    step = advance(cursor, View(1_000, Timeline((0, 300, 400))), Limits(0))
    assert step.missed == {300: Window(350, 400)}


def test_new_generations_may_have_strays() -> None:
    """A generation that begins soon after the position is new to a reader of strays."""
    known = KnownGenerations(0, (0,))
    cursor, view = (
        Checkpoint(500, known, late=LateState.begin(0, 0, 0)),
        View(600, Timeline((0, 520))),
    )
    assert advance(cursor, view, Limits(0, reach=10)).fresh == frozenset()
    step = advance(cursor, view, Limits(0, reach=30))
    assert step.fresh == {520}
    assert not step.missed
    assert step.behind(cursor, 30) == Window(470, 500)

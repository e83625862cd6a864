"""Measuring waiting time separately from processing time."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cdc_reader._time import Waiting
from cdc_reader.testing import ManualClock


def slow(clock: ManualClock, things: str) -> Iterator[str]:
    """Yield items, each after 5 µs, and end after another 5 µs."""
    for thing in things:
        clock.advance(5)
        yield thing
    clock.advance(5)


def test_only_waiting_is_measured() -> None:
    """Processing time is not counted."""
    clock = ManualClock(1_000)
    waiting = Waiting(clock)
    for _ in waiting.each(slow(clock, "abc")):
        clock.advance(1_000_000)
    assert waiting.took == 4 * 5


@pytest.mark.parametrize("taken", [0, 1, 3])
def test_the_time_waited_is_known_during_iteration(taken: int) -> None:
    """This includes iterators that are not exhausted."""
    clock = ManualClock(1_000)
    waiting = Waiting(clock)
    things = waiting.each(slow(clock, "abc"))
    assert "".join(next(things) for _ in range(taken)) == "abc"[:taken]
    assert waiting.took == 5 * taken

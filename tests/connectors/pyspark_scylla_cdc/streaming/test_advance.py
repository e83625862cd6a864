"""The rules by which a stream's position advances."""

from __future__ import annotations

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from cdc_reader._time import FOREVER
from cdc_reader.reading.advance import Limits, View, advance
from cdc_reader.reading.cursor import Checkpoint
from cdc_reader.streams.generation import Timeline
from pyspark_scylla_cdc.options.source_options import SourceOptions
from pyspark_scylla_cdc.streaming.micro_batch import limits_of

TIMES = st.integers(min_value=-(10**15), max_value=4 * 10**15)
GIVEN = {"hosts": "h", "keyspace": "k", "table": "t"}
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


def test_limits_of_options() -> None:
    """The durations given as options are converted to microseconds."""
    options = SourceOptions.parse(
        {
            **GIVEN,
            "confidenceWindow": "1s",
            "maxWindowPerTrigger": "3s",
            "endingTimestamp": "1795239000000",
        }
    )
    assert limits_of(options) == Limits(1_000_000, 1_795_239_000_000_000, 3_000_000, 1_000_000)


@pytest.mark.parametrize(
    ("confidence", "step"), [("0s", 1_000), ("200ms", 200_000), ("30s", 1_000_000)]
)
def test_the_step_follows_the_confidence_window(confidence: str, step: int) -> None:
    """Who shortens the confidence window wants rows sooner, so the step is no longer than it."""
    options = SourceOptions.parse({**GIVEN, "confidenceWindow": confidence})
    assert limits_of(options).shortest == step

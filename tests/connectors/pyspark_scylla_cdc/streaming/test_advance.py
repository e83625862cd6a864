"""The rules by which a stream's position advances."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_scylla_cdc.options.source_options import SourceOptions
from pyspark_scylla_cdc.streaming.advance import AdvancePolicy

TIMES = st.integers(min_value=-(10**15), max_value=4 * 10**15)
GIVEN = {"hosts": "h", "keyspace": "k", "table": "t"}
SPANS = st.integers(min_value=1, max_value=10**13)
PACES = st.builds(
    AdvancePolicy,
    confidence=st.integers(min_value=0, max_value=10**10),
    step=SPANS,
    max_window=SPANS,
    final=TIMES,
)


@given(pace=PACES, position=TIMES, now=TIMES, limited=st.booleans())
def test_never_back_and_never_past_the_horizon(
    pace: AdvancePolicy, position: int, now: int, *, limited: bool
) -> None:
    """The position never goes back, and never passes rows that have not settled."""
    end = pace.next(position, now, limited=limited)
    assert end >= position
    assert end == position or end <= min(now - pace.confidence, pace.final)
    assert not limited or end - position <= pace.max_window


@given(pace=PACES, position=TIMES, now=TIMES, later=SPANS)
def test_a_bounded_query_ends(pace: AdvancePolicy, position: int, now: int, later: int) -> None:
    """With `availableNow` the end stays fixed, and nothing is read after it."""
    bounded = pace.finishing(now)
    steps = 0
    while (end := bounded.next(position, now + later, limited=steps < 100)) > position:
        position, steps = end, steps + 1
    assert position >= bounded.final
    assert bounded.next(position, now + 2 * later, limited=True) == position


def test_small_advances_wait() -> None:
    """However often Spark polls, each advance of the position is at least the minimum."""
    pace = AdvancePolicy(confidence=30, step=10)
    ends = [pace.next(100, now, limited=True) for now in range(130, 145)]
    assert ends == [100] * 10 + [110, 111, 112, 113, 114]


def test_the_last_stretch_is_not_held_back() -> None:
    """The requested end is reached even if it is nearer than the minimum advance."""
    pace = AdvancePolicy(confidence=0, step=10, final=105)
    assert pace.next(100, 104, limited=True) == 100
    assert pace.next(100, 105, limited=True) == 105


def test_limit_is_ignored_when_spark_asks_for_all() -> None:
    """A trigger that requests everything gets everything in one micro-batch."""
    pace = AdvancePolicy(confidence=0, step=1, max_window=10)
    assert pace.next(0, 1_000, limited=True) == 10
    assert pace.next(0, 1_000, limited=False) == 1_000


@given(pace=PACES, position=TIMES, now=TIMES)
def test_a_limited_micro_batch_has_not_caught_up(
    pace: AdvancePolicy, position: int, now: int
) -> None:
    """A query has caught up only if it has read all settled rows and has no end."""
    end = pace.next(position, now, limited=True)
    is_cut = end < min(now - pace.confidence, pace.final)
    assert not (is_cut and pace.has_caught_up(end, now))
    assert not pace.finishing(now).has_caught_up(end, now)


def test_pace_of_options() -> None:
    """The durations given as options are converted to microseconds."""
    options = SourceOptions.parse(
        {
            **GIVEN,
            "confidenceWindow": "1s",
            "maxWindowPerTrigger": "3s",
            "endingTimestamp": "1795239000000",
        }
    )
    assert AdvancePolicy.of(options) == AdvancePolicy(
        1_000_000, 1_000_000, 3_000_000, 1_795_239_000_000_000
    )


@pytest.mark.parametrize(
    ("confidence", "step"), [("0s", 1_000), ("200ms", 200_000), ("30s", 1_000_000)]
)
def test_the_step_follows_the_confidence_window(confidence: str, step: int) -> None:
    """Who shortens the confidence window wants rows sooner, so the step is no longer than it."""
    assert (
        AdvancePolicy.of(SourceOptions.parse({**GIVEN, "confidenceWindow": confidence})).step
        == step
    )

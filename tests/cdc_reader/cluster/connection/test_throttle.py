"""The query rate: its limit, and how it falls and recovers after overload errors."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc_reader.cluster.throttle import RECOVERY, SLOWEST, Throttle
from cdc_reader.errors import StoppedError
from cdc_reader.reading.retry import NEVER, Stop
from tests.cdc_reader.support.seconds import Seconds, throttle

LIMITS = st.floats(0.5, 5_000)
TINY = 1e-6


def sent(clock: Seconds, limited: Throttle, pauses: Iterable[float]) -> list[float]:
    """Send a query after each pause, and return the times at which the queries were sent."""
    times = []
    for pause in pauses:
        clock.sleep(pause)
        times.append(limited.admit(NEVER.stop))
    return times


@given(LIMITS, st.lists(st.sampled_from([0.0, 0.0, 0.0, 0.001, 0.3, 20.0]), max_size=60))
def test_no_span_of_time_has_more_queries_than_the_limit_allows(
    limit: float, pauses: list[float]
) -> None:
    """No time span contains more queries than allowed, apart from a short burst after idle time.

    A burst contains at most the number of queries that the limit allows in a tenth of a second.
    """
    clock = Seconds()
    times = sent(clock, throttle(clock, limit), pauses)
    burst = max(1.0, limit / 10)
    for first, start in enumerate(times):
        for last, end in enumerate(times[first:], first):
            assert last - first + 1 <= limit * (end - start) + burst + TINY


@given(LIMITS, st.integers(1, 200))
def test_the_limit_is_used_up(limit: float, count: int) -> None:
    """Under constant demand, queries are sent at the limit, not below it."""
    clock = Seconds()
    times = sent(clock, throttle(clock, limit), [0.0] * count)
    assert times[-1] - times[0] <= (count - 1) / limit + TINY


def test_queries_do_not_wait_without_a_limit() -> None:
    """Without a limit, no query waits."""
    clock = Seconds()
    assert sent(clock, throttle(clock), [0.0] * 1_000) == [1_000.0] * 1_000


@given(
    st.none() | LIMITS,
    st.lists(st.tuples(st.floats(0, 40), st.booleans()), min_size=1, max_size=60),
)
def test_it_slows_down_within_bounds_and_recovers(
    limit: float | None, history: list[tuple[float, bool]]
) -> None:
    """The rate stays between the minimum and the limit, and recovers within the recovery time."""
    clock = Seconds()
    limited = throttle(clock, limit)
    highest = math.inf if limit is None else limit
    for pause, is_overloaded in history:
        clock.sleep(pause)
        at = limited.admit(NEVER.stop)
        if is_overloaded:
            before = limited.rate
            limited.overloaded(at)
            assert limited.rate <= before
        assert min(SLOWEST, highest) <= limited.rate <= highest
    clock.sleep(RECOVERY + TINY)
    assert limited.rate == highest


def test_one_overload_slows_down_once() -> None:
    """Overload errors of queries that were in flight together lower the rate once.

    The errors of later queries lower the rate again.
    """
    clock = Seconds()
    limited = throttle(clock, 1_000)
    under_way = sent(clock, limited, [0.0] * 5_000)[-8:]
    for at in under_way:
        limited.overloaded(at)
    rate = limited.rate
    assert rate == pytest.approx(500, rel=0.1)
    limited.overloaded(limited.admit(NEVER.stop))
    assert limited.rate == pytest.approx(rate, rel=0.1)
    later = sent(clock, limited, [0.0] * 1_000)[-1]
    rate = limited.rate
    limited.overloaded(later)
    assert limited.rate == pytest.approx(rate / 2, rel=0.1)


def test_a_rate_returns_to_what_it_was_step_by_step() -> None:
    """After an overload, the rate rises linearly to its earlier value in half of `RECOVERY`."""
    clock = Seconds()
    limited = throttle(clock, 100)
    limited.overloaded(sent(clock, limited, [0.0] * 1_000)[-1])
    rates = []
    for _ in range(4):
        rates.append(limited.rate)
        clock.sleep(RECOVERY / 8)
    assert rates == pytest.approx([50, 62.5, 75, 87.5], rel=0.02)
    assert limited.rate == pytest.approx(100, rel=0.02)


@pytest.mark.parametrize("capacity", [40, pytest.param(900, marks=pytest.mark.slow)])
def test_the_rate_settles_at_what_nodes_sustain(capacity: int) -> None:
    """Few queries are rejected, and at least half of the nodes' capacity is used.

    Without the throttle, nodes would reject most of the reader's 2,000 queries per second.
    """
    clock = Seconds()
    limited = throttle(clock)
    last_second: deque[float] = deque()
    served = refused = 0
    while clock.now < 1_000 + 10 * RECOVERY:
        at = limited.admit(NEVER.stop)
        while last_second and last_second[0] <= at - 1:
            last_second.popleft()
        if len(last_second) < capacity:
            last_second.append(at)
            served += 1
        else:
            refused += 1
            limited.overloaded(at)
        clock.sleep(1 / 2_000)
    assert served >= 0.5 * capacity * 10 * RECOVERY
    assert refused <= 0.02 * served


def test_a_stop_ends_the_wait() -> None:
    """A stop ends a wait at once, even if an hour remains."""
    stop = Stop()
    stop.set()
    limited = Throttle(1 / 3600)
    limited.admit(stop)
    with pytest.raises(StoppedError, match="waiting to send a query"):
        limited.admit(stop)

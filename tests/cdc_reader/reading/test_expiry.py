"""`TtlHistory`: rows that may have expired, compared with a simple row-by-row implementation."""

from __future__ import annotations

import json
import re
from uuid import UUID

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from cdc_reader._time import BEGINNING, FOREVER
from cdc_reader.config import DataLossMode
from cdc_reader.cql import timeuuid
from cdc_reader.cql.names import TableName
from cdc_reader.cql.schema import CdcOptions, TableState
from cdc_reader.errors import ConfigurationError, DataLossError
from cdc_reader.reading.expiry import MOST_CHANGES, TtlHistory
from cdc_reader.reading.loss import LossReporter, refuse_endless_snapshots, report_loss
from cdc_reader.streams.window import Window

SECOND = 1_000_000
GRACE, EARLY = 60, 10

moments = st.integers(-1_000, 1_000)
ttls = st.sampled_from([0, 1, 30, 300, 900])
histories = st.lists(st.tuples(moments, ttls), min_size=1, max_size=4).map(
    lambda changes: TtlHistory(sorted((since * SECOND, ttl) for since, ttl in changes))
)


def ttl_at(history: TtlHistory, second: int) -> int:
    """Return the TTL of a row written at `second`."""
    found = history.changes[0][1]
    for since, ttl in history.changes:
        if since <= second * SECOND:
            found = ttl
    return found


@given(histories, moments, st.integers(0, 3_000))
def test_each_row_expires_by_the_ttl_it_was_written_with(
    history: TtlHistory, position: int, now: int
) -> None:
    """The span of lost write times begins and ends with a row that may have expired.

    Nothing counts as lost until some row has certainly expired.
    """
    expiries = {
        second: second + ttl
        for second in range(position, now + EARLY)
        if (ttl := ttl_at(history, second))
    }
    gone = [second for second, at in expiries.items() if at - EARLY < now]
    expired = history.expired(position * SECOND, now * SECOND)
    assert expired.is_empty == (not gone)
    if gone:
        assert expired.start == gone[0] * SECOND
        assert expired.end - SECOND <= gone[-1] * SECOND < expired.end
    lost = history.lost(position * SECOND, now * SECOND)
    is_sure = any(at + GRACE < now for at in expiries.values())
    assert lost == (expired if is_sure else Window(position * SECOND, position * SECOND))


@given(histories, st.integers(0, 3_000))
def test_the_oldest_row_that_lives(history: TtlHistory, now: int) -> None:
    """All rows written before `kept_since` have expired."""
    since = history.kept_since(now * SECOND)
    seconds = range(-5_000, 4_000)
    alive = [s for s in seconds if not (ttl := ttl_at(history, s)) or s + ttl >= now]
    if history.changes[0][1] == 0:
        assert since == BEGINNING
    else:
        assert alive[0] * SECOND == since
    assert history.oldest_kept(now * SECOND) == history.kept_since((now - GRACE) * SECOND)


@given(histories, moments)
def test_the_first_row_to_expire(history: TtlHistory, position: int) -> None:
    """`expires` returns the earliest expiry of all rows written at or after the position."""
    times = [s + ttl for s in range(position, 3_000) if (ttl := ttl_at(history, s))]
    expected = min(times) * SECOND if times else FOREVER
    assert history.expires(position * SECOND) == expected


def test_a_change_counts_from_when_the_table_was_altered() -> None:
    """A new TTL applies from the time at which the table was altered.

    If that time is unknown, the new TTL applies from the time at which it is first seen. Earlier
    entries of the history do not change.
    """
    seen = TtlHistory().seen(60, now=100, altered=50)
    assert seen.changes == ((50, 60),)
    assert seen.seen(60, now=200, altered=150) is seen
    assert seen.seen(90, now=200, altered=150).changes == ((50, 60), (150, 90))
    assert seen.seen(90, now=200).changes == ((50, 60), (200, 90))
    assert seen.seen(90, now=200, altered=10).changes == ((50, 60), (51, 90))


def test_without_a_history_nothing_expires() -> None:
    """Without a history, no row counts as lost or expired."""
    nothing = TtlHistory()
    assert nothing.lost(5, 10**18).is_empty
    assert (nothing.kept_since(7), nothing.expires(5)) == (BEGINNING, FOREVER)
    assert nothing.seconds == 0


def test_the_last_changes_are_kept() -> None:
    """A history has at most `MOST_CHANGES` changes; the first one stands for older ones."""
    history = TtlHistory()
    for number in range(MOST_CHANGES + 10):
        history = history.seen(number + 1, now=number)
    assert history.changes == tuple((n, n + 1) for n in range(10, MOST_CHANGES + 10))
    assert history.at(0) == 11


@given(st.integers(0, 2_000 * SECOND), st.integers(1, 10_000))
def test_a_ttl_is_refused_if_rows_are_endangered_at_once(needed: int, ttl: int) -> None:
    """The error for a TTL that is too short shows the shortest TTL that is accepted."""
    history, now = TtlHistory([(0, ttl)]), 10_000 * SECOND
    if history.endangered(now - needed, now).is_empty and needed % SECOND:
        refuse_endless_snapshots("data_loss", ttl, needed)
        return
    if not history.endangered(now - needed, now).is_empty:
        with pytest.raises(ConfigurationError, match=r"cdc ttl to \d+ or more") as refused:
            refuse_endless_snapshots("data_loss", ttl, needed)
        [shortest] = re.findall(r"ttl to (\d+) or", str(refused.value))
        refuse_endless_snapshots("data_loss", int(shortest), needed)
        assert TtlHistory([(0, int(shortest))]).endangered(now - needed, now).is_empty
    refuse_endless_snapshots("data_loss", 0, needed)


LOGS = [timeuuid.make(at * SECOND, bytes(8)) for at in (10, 20, 30)]


@given(st.integers(1, 3), st.integers(0, 40), st.integers(0, 1_000))
def test_rows_of_a_dropped_log_are_gone(count: int, position: int, ttl: int) -> None:
    """If the log was recreated, all rows written before its re-creation are lost."""
    history = TtlHistory([(0, ttl)], LOGS[:count])
    at, last = position * SECOND, 10 * count * SECOND
    gone = Window(at, last if count > 1 and at < last else at)
    now = 31 * SECOND
    for find in (history.lost, history.expired, history.endangered, history.unpromised):
        assert gone.intersect(find(at, now)) == gone
    if not gone.is_empty:
        assert history.expires(at) == last <= history.kept_since(now)
        with pytest.raises(DataLossError, match="created again"):
            report_loss(gone, TABLE, history, DataLossMode.FAIL, "start over")


def test_the_id_of_a_log_is_recorded_once() -> None:
    """An unknown log id does not change the history. A new id means that the log was recreated."""
    state = TableState(UUID(int=0), CdcOptions(ttl=60), 5)
    known = TtlHistory().updated(evolve(state, log_id=LOGS[0]), 7, 6)
    assert known == TtlHistory([(5, 60)], LOGS[:1])
    assert known.updated(state, 8, 6) == known
    assert known.updated(evolve(state, log_id=LOGS[0]), 8, 6) == known
    again = known.updated(evolve(state, log_id=LOGS[1]), 9, 6)
    assert (again.logs, again.created, again.log_lost) == (
        tuple(LOGS[:2]),
        10 * SECOND,
        20 * SECOND,
    )
    third = again.updated(evolve(state, log_id=LOGS[2]), 10, 6)
    assert (third.logs, third.log_lost) == (tuple(LOGS[1:]), 30 * SECOND)


@given(st.permutations(LOGS), st.integers(0, 40 * SECOND), st.integers(0, 40 * SECOND))
def test_another_log_is_a_loss_whatever_its_time(
    logs: list[UUID], position: int, later: int
) -> None:
    """A recreated log counts as a loss, even if its id shows an earlier time.

    The clock of the node that created the log may be behind.
    """
    history = TtlHistory(logs=logs[:1])
    for log_id in logs[1:]:
        history = history.updated(TableState(UUID(int=0), CdcOptions(), 5, log_id), 9, position)
    created = max(timeuuid.micros(log_id.bytes) for log_id in logs[1:])
    assert history.lost(position, 9) == Window(position, max(created, position + 1))
    for stored in (
        history,
        TtlHistory.from_json([], json.loads(json.dumps(history.logs_to_json()))),
    ):
        assert stored.lost(later, 9) == history.lost(later, 9)


@pytest.mark.parametrize("given", [[(1,)], [(1, -1)], [(2, 1), (1, 1)], [(1, "2")], [(True, 1)]])
def test_malformed_histories_are_refused(given: list[tuple[int, int]]) -> None:
    """A malformed history, for example in stored text, is rejected."""
    with pytest.raises(ValueError, match=r"history|unpack"):
        TtlHistory(given)


TABLE = TableName("ks", "t")


def reporter() -> tuple[LossReporter, list[Window]]:
    """Return a reporter and the list that receives its reports."""
    told: list[Window] = []
    return LossReporter(DataLossMode.CONTINUE, "", told.append), told


def test_a_loss_that_grows_is_named_as_far_as_it_is_new() -> None:
    """A new loss is reported. If it grows by a minute or more, the new part is reported."""
    losses, told = reporter()
    minute, nothing = 60 * SECOND, Window(0, 0)
    for lost in (nothing, Window(0, 100), Window(0, 101), Window(0, 100 + minute), nothing):
        losses.report_unread(lost, TABLE, TtlHistory())
    assert told == [Window(0, 100), Window(100, 100 + minute)]
    losses.report_unread(Window(2 * minute, 2 * minute + 5), TABLE, TtlHistory())
    assert told[2:] == [Window(2 * minute, 2 * minute + 5)]


@given(histories, st.lists(st.integers(1, 300), min_size=1, max_size=8), st.integers(0, 600))
def test_each_row_that_may_have_expired_before_it_was_read_is_named_once(
    history: TtlHistory, lengths: list[int], pace: int
) -> None:
    """A row that may have expired before it was read is reported once, after its window is read."""
    losses, told = reporter()
    start, now, expected = -500, 0, set[int]()
    for length in lengths:
        now += pace
        window = Window(start * SECOND, (start + length) * SECOND)
        losses.check_read(window, history, now * SECOND, TABLE)
        expired = history.expired(window.start, now * SECOND).intersect(window)
        expected |= {s for s in range(start, start + length) if s * SECOND in expired}
        start += length
    named = [s for lost in told for s in range(-500, start) if s * SECOND in lost]
    assert sorted(named) == sorted(expected)


def test_a_generation_that_is_read_late_is_told_of_what_is_new() -> None:
    """Expired rows of a generation that is read late are reported.

    This holds even if rows of other generations with the same write times were read in time. Time
    spans that have already been reported are not reported again.
    """
    history, now = TtlHistory([(0, 60)]), 1_000 * SECOND
    losses, told = reporter()
    losses.check_read(Window(700 * SECOND, 800 * SECOND), history, 800 * SECOND, TABLE)
    named = told[-1].end
    losses.check_read(Window(850 * SECOND, 870 * SECOND), history, now, TABLE)
    del told[:]
    losses.check_late(Window(600 * SECOND, 900 * SECOND), history, now, TABLE)
    untold = Window(named, 850 * SECOND), Window(870 * SECOND, 900 * SECOND)
    assert told == [Window(600 * SECOND, 700 * SECOND), *untold]
    losses.check_late(Window(600 * SECOND, 900 * SECOND), history, now, TABLE)
    assert told[3:] == []


@pytest.mark.parametrize(("ttl", "soon"), [(60, 30), (600, 60), (3_600, 360), (86_400, 600)])
def test_a_read_from_the_oldest_row_is_told_of_rows_that_it_could_have_read(
    ttl: int, soon: int
) -> None:
    """A read from the oldest row does not report rows that expire soon after the read begins."""
    history, now = TtlHistory([(0, ttl)]), 1_000_000 * SECOND
    promised = now - (ttl - 10 - soon) * SECOND
    losses, told = reporter()
    losses.begin(BEGINNING, history, now, at_oldest=True)
    losses.check_read(Window(BEGINNING, now), history, now + soon * SECOND, TABLE)
    assert told == []
    losses.check_read(Window(BEGINNING, now), history, now + (soon + 1) * SECOND, TABLE)
    assert told == [Window(promised, promised + SECOND)]


@pytest.mark.parametrize("late", [1, 59, 61, 3_600])
def test_a_read_from_a_chosen_start_is_told_of_each_row_that_may_have_expired(late: int) -> None:
    """A read from a chosen start reports each row that may have expired.

    Rows that had certainly expired when the read began have already been reported.
    """
    history, now = TtlHistory([(0, 3_600)]), 1_000_000 * SECOND
    start, expired = now - (3_600 + late) * SECOND, now - 3_590 * SECOND
    losses, told = reporter()
    losses.begin(start, history, now, at_oldest=False)
    losses.check_read(Window(start, now), history, now, TABLE)
    assert told == ([Window(start, expired)] if late < 60 else [])
    losses.check_read(Window(start, now), history, now + SECOND, TABLE)
    assert told[-1] == Window(expired, expired + SECOND)

"""The schedule of polls: no chunk is polled too often or forgotten."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from cdc_reader.streams.polling import PollSchedule
from cdc_reader.streams.task import RangeTask
from cdc_reader.streams.window import Window

MILLISECOND = 1_000
SECOND = 1_000_000
EPOCH = 1_700_000_000 * SECOND
INTERVAL, LONGEST = 30 * MILLISECOND, 240 * MILLISECOND
WHOLE, NEWEST = Window(0, 100), Window(90, 100)
CHUNKS = [RangeTask(WHOLE, start, start + 1) for start in range(4)]

finds = st.lists(st.sets(st.integers(0, len(CHUNKS) - 1)), min_size=1, max_size=60)


def polled(
    schedule: PollSchedule, now: int, chunks: Sequence[RangeTask] = CHUNKS
) -> dict[int, bool]:
    """Return the start of each chunk polled now, and whether its whole window is read."""
    chosen = schedule.due(chunks, now, NEWEST.start)
    assert all(task.window in (WHOLE, NEWEST) for task in chosen)
    return {task.start: task.window == WHOLE for task in chosen}


@given(finds)
def test_a_chunk_is_never_polled_too_often_nor_forgotten(found: list[set[int]]) -> None:
    """A chunk is polled at most once per interval, and at least once in eight intervals."""
    schedule, now = PollSchedule(INTERVAL), EPOCH
    assert polled(schedule, now) == dict.fromkeys(range(len(CHUNKS)), True)
    last = dict.fromkeys(range(len(CHUNKS)), now)
    whole = dict(last)
    for with_rows in found:
        wait = schedule.until_next(now)
        assert 0 < wait <= LONGEST
        now += wait
        chosen = polled(schedule, now)
        assert chosen
        for start, is_whole in chosen.items():
            assert INTERVAL <= now - last[start] <= LONGEST
            last[start] = now
            if is_whole:
                whole[start] = now
            if start in with_rows:
                schedule.found_rows(CHUNKS[start], now)
                assert schedule.until_next(now) <= INTERVAL
        assert max(now - at for at in whole.values()) <= SECOND + LONGEST


def test_whole_windows_are_read_in_turn() -> None:
    """After the first poll, the whole windows of the chunks are read one at a time."""
    schedule, now = PollSchedule(INTERVAL), EPOCH
    polled(schedule, now)
    chosen: list[int] = []
    while len(chosen) < 12:
        now += schedule.until_next(now)
        whole = [start for start, is_whole in polled(schedule, now).items() if is_whole]
        assert len(whole) <= 1
        chosen += whole
    assert chosen == [0, 1, 2, 3] * 3
    assert now < EPOCH + 5 * SECOND


def test_polls_continue_if_the_clock_steps_back() -> None:
    """After the clock steps back, all chunks are polled at once, and then as often as before."""
    schedule, now = PollSchedule(INTERVAL), EPOCH
    for _ in range(10):
        polled(schedule, now)
        schedule.found_rows(CHUNKS[0], now)
        now += schedule.until_next(now)
    now -= 20 * SECOND
    assert schedule.until_next(now) == INTERVAL
    assert polled(schedule, now) == dict.fromkeys(range(len(CHUNKS)), True)
    times = dict.fromkeys(range(len(CHUNKS)), 0)
    end = now + 5 * SECOND
    while (now := now + schedule.until_next(now)) < end:
        for start in polled(schedule, now):
            times[start] += 1
    assert all(
        5 * SECOND // LONGEST - 1 <= count <= 5 * SECOND // INTERVAL for count in times.values()
    )
    assert times[1] <= 5 * SECOND // LONGEST


def test_a_long_interval_is_kept() -> None:
    """Idle chunks wait for at most a second, unless the poll interval is longer."""
    for interval, longest in ((400 * MILLISECOND, SECOND), (5 * SECOND, 5 * SECOND)):
        schedule = PollSchedule(interval)
        polled(schedule, EPOCH)
        assert schedule.until_next(EPOCH) == longest


def test_chunks_that_are_gone_do_not_count() -> None:
    """Chunks that no longer exist do not affect the schedule.

    Chunks are split, merged, and replaced with chunks of another generation.
    """
    schedule = PollSchedule(INTERVAL)
    polled(schedule, EPOCH, CHUNKS[:2])
    later = EPOCH + LONGEST // 2
    assert polled(schedule, later, CHUNKS[2:]) == {2: True, 3: True}
    assert schedule.until_next(later) == LONGEST


def test_chunks_without_newest_rows_wait_for_their_whole_window() -> None:
    """A chunk of an earlier generation has no new rows and is polled only for its whole window."""
    schedule = PollSchedule(INTERVAL)
    old = [RangeTask(Window(0, 50), 0, 1)]
    assert schedule.due(old, EPOCH, NEWEST.start) == old
    assert schedule.due(old, EPOCH + LONGEST, NEWEST.start) == []
    assert schedule.due(old, EPOCH + SECOND + LONGEST, NEWEST.start) == old

"""The schedule of polls: no chunk is polled too often or forgotten."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cdc_reader.streams.polling import PollSchedule
from cdc_reader.streams.task import RangeTask
from cdc_reader.streams.window import Window

MILLISECOND = 1_000
SECOND = 1_000_000
EPOCH = 1_700_000_000 * SECOND
INTERVAL, LONGEST = 50 * MILLISECOND, 250 * MILLISECOND
CHUNKS = [RangeTask(Window(0, 1), start, start + 1) for start in range(4)]

finds = st.lists(st.sets(st.integers(0, len(CHUNKS) - 1)), min_size=1, max_size=60)


@given(finds)
def test_a_chunk_is_never_polled_too_often_nor_forgotten(found: list[set[int]]) -> None:
    """A chunk is polled at most once per interval, and at least once in five intervals."""
    schedule, now = PollSchedule(INTERVAL), EPOCH
    schedule.all(CHUNKS, now)
    polled = dict.fromkeys(range(len(CHUNKS)), now)
    for with_rows in found:
        wait = schedule.until_next(now)
        assert 0 < wait <= LONGEST
        now += wait
        chosen = schedule.due(CHUNKS, now)
        assert chosen
        for task in chosen:
            assert INTERVAL <= now - polled[task.start] <= LONGEST
            polled[task.start] = now
            if task.start in with_rows:
                schedule.found_rows(task, now)
                assert schedule.until_next(now) <= INTERVAL


def test_a_long_interval_is_kept() -> None:
    """Idle chunks wait for at most a second, unless the interval is longer."""
    for interval, longest in ((400 * MILLISECOND, SECOND), (5 * SECOND, 5 * SECOND)):
        schedule = PollSchedule(interval)
        schedule.all(CHUNKS, EPOCH)
        assert schedule.until_next(EPOCH) == longest


def test_chunks_that_are_gone_do_not_count() -> None:
    """Chunks that no longer exist do not affect the schedule.

    Chunks are split, merged, and replaced with those of another generation.
    """
    schedule = PollSchedule(INTERVAL)
    schedule.all(CHUNKS[:2], EPOCH)
    later = EPOCH + LONGEST
    assert schedule.due(CHUNKS[2:], later) == CHUNKS[2:]
    assert schedule.until_next(later) == LONGEST

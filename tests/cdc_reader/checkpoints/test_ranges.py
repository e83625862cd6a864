"""A snapshot's checkpoint lists exactly the ranges whose rows are all acknowledged."""

from __future__ import annotations

import random

import pytest

from cdc_reader.checkpoints.ranges import RangeAcknowledgements
from cdc_reader.cql.names import TableName
from cdc_reader.cql.schema import LogSchema, TableSchema
from cdc_reader.reading.cursor import Checkpoint, SnapshotProgress
from cdc_reader.reading.snapshot import RangeComplete
from cdc_reader.streams.ring import TokenRange, TokenRanges

SCHEMA = LogSchema(TableSchema(TableName("ks", "t"), ()), ())
START = Checkpoint(7, snapshot=SnapshotProgress(9, 5))


def completed(reading: int, rows: int) -> RangeComplete:
    """Return the event that completes read number `reading`, which found `rows` rows."""
    return RangeComplete(SCHEMA, reading, TokenRange(reading, reading + 1), rows, START)


def taken(tracker: RangeAcknowledgements) -> SnapshotProgress:
    """Return the progress in the checkpoint to save."""
    checkpoint = tracker.take()
    assert checkpoint is not None
    assert checkpoint.snapshot is not None
    assert (checkpoint.position, checkpoint.snapshot.began) == (7, 9)
    return checkpoint.snapshot


def test_a_range_is_done_with_its_last_row() -> None:
    """A range is done when it has been read and all its rows are acknowledged."""
    tracker = RangeAcknowledgements(START)
    tracker.deliver(1, 2)
    tracker.deliver(2)
    tracker.complete(completed(1, 2))
    tracker.acknowledge(1)
    tracker.acknowledge(2)
    assert tracker.take() is None
    tracker.acknowledge(1)
    assert taken(tracker).done == TokenRanges([TokenRange(1, 2)])
    assert tracker.take() is None
    tracker.complete(completed(2, 1))
    last = taken(tracker)
    assert (last.done, last.rows) == (TokenRanges([TokenRange(1, 3)]), 3)


def test_rows_of_an_abandoned_reading_do_not_complete_a_range() -> None:
    """Rows of an abandoned read do not complete a range, even if all are acknowledged."""
    tracker = RangeAcknowledgements(START)
    tracker.deliver(1, 5)
    for _ in range(5):
        tracker.acknowledge(1)
    assert tracker.take() is None


def test_an_empty_range_is_done_at_once() -> None:
    """An empty range is done at once, because it has no rows to acknowledge."""
    tracker = RangeAcknowledgements(START)
    tracker.complete(completed(4, 0))
    assert taken(tracker).done == TokenRanges([TokenRange(4, 5)])


@pytest.mark.parametrize("seed", range(20))
def test_rows_may_be_acknowledged_in_any_order(seed: int) -> None:
    """Rows may be acknowledged in any order, before or after their range has been read."""
    draw, tracker = random.Random(seed), RangeAcknowledgements(START)
    left = {reading: draw.randrange(4) for reading in range(1, 9)}
    rows = dict(left)
    for reading, count in left.items():
        tracker.deliver(reading, count)
    acts = [reading for reading, count in left.items() for _ in range(count)]
    acts += [-reading for reading in left]
    draw.shuffle(acts)
    complete: set[int] = set()
    done = TokenRanges()
    for act in acts:
        if act < 0:
            tracker.complete(completed(-act, rows[-act]))
            complete.add(-act)
        else:
            tracker.acknowledge(act)
            left[act] -= 1
        expected = [TokenRange(r, r + 1) for r in complete if not left[r]]
        if (checkpoint := tracker.take()) is not None and checkpoint.snapshot is not None:
            done = checkpoint.snapshot.done
        assert done == TokenRanges(expected)

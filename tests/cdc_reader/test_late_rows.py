"""When a row arrived is known to the second only: no row is late and not found for that."""

from __future__ import annotations

from datetime import timedelta

import pytest
from attrs import evolve

from cdc_reader.config import ReadConfig
from cdc_reader.progress import Checkpoint
from tests.cdc_reader.followed import SECOND, Followed, cells, last_marks

_POLL = timedelta(seconds=4.6)
_CONFIG = ReadConfig(
    confidence_window=timedelta(seconds=10),
    poll_interval=_POLL,
    late_rows="deliver",
    late_interval=_POLL,
)

pytestmark = pytest.mark.needs("faults")


@pytest.mark.parametrize("after", [10_000, 200_000, 400_000, 900_000])
def test_a_row_that_comes_within_a_second_of_the_read_is_found_once(after: int) -> None:
    """The server counts whole seconds: by them it may seem to have been there before."""
    followed = Followed(config=_CONFIG)
    start = followed.clock.now()
    followed.clock.advance(60 * SECOND + SECOND // 2)
    follower = followed.follower(Checkpoint(start))
    deliveries = []
    written = followed.clock.now() - 20 * SECOND
    for delivery in follower.follow(followed.clock.now() + 30 * SECOND):
        deliveries.append(delivery)
        if len(deliveries) == 1:
            followed.clock.advance(after)
            followed.insert(1, 1, at=written)
    assert cells(deliveries, "p", "c") == [(1, 1)]


@pytest.mark.parametrize("swept", [None, 1])
def test_a_row_that_comes_behind_a_mark_is_found(swept: int | None) -> None:
    """After a restart its stream is read anew, without what comes before the mark; be it that
    late rows had been sought, or not yet.
    """
    followed = Followed(config=evolve(_CONFIG, window=timedelta(minutes=5)))
    start = followed.clock.now()
    for c in (1, 2):
        followed.clock.advance(10 * SECOND)
        followed.insert(1, c)
    written = followed.clock.now() - 5 * SECOND
    followed.clock.advance(20 * SECOND)
    swept = swept and followed.clock.now()
    first = next(followed.follower(Checkpoint(start)).follow())
    assert cells([first], "c") == [(1,), (2,)]
    marks = last_marks(first.batch)
    followed.clock.advance(30 * SECOND)
    followed.insert(1, 3, at=written)
    followed.clock.advance(30 * SECOND)
    resumed = Checkpoint(start, start, marks, swept)
    deliveries = followed.follow(resumed, followed.clock.now() + 30 * SECOND)
    assert cells(deliveries, "c") == [(3,)]

"""When a row arrived is known to the second only: no row is late and not found for that."""

from __future__ import annotations

from datetime import timedelta

import pytest

from cdc_reader.config import ReadConfig
from cdc_reader.progress import Checkpoint
from tests.cdc_reader.followed import SECOND, Followed, cells

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

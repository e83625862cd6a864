"""Following a log through the recorded events of a real cluster, with a manual clock."""

from __future__ import annotations

import uuid
from collections import defaultdict
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest

from cdc_reader._time import FOREVER, duration_micros
from cdc_reader.config import DeliveryMode, ReadConfig
from cdc_reader.cql.timeuuid import micros as written_at
from cdc_reader.cql.timeuuid import order_key
from tests.cdc_reader.support.followed import rows_read
from tests.cdc_reader.support.recorded_life import Followed, Recorded, follow, generations, switch
from tests.cdc_reader.support.tuned import tuning_of_module

_CONFIDENCE = timedelta(seconds=30)
_POLL = timedelta(seconds=1)

pytestmark = pytest.mark.needs("faults", "topology")


small_chunks = tuning_of_module(strategy="streams", streams_per_query=8, settle_interval=1_000_000)


@pytest.mark.parametrize("delivery", ["settled", pytest.param("eager", marks=pytest.mark.slow)])
@pytest.mark.parametrize("life", [switch, generations])
def test_every_row_comes_once_while_generations_come_and_go(life: Any, delivery: str) -> None:
    """Each row is delivered once. Only eager delivery may break the order across streams.

    Each generation is read only for the time during which it was known to be in force.
    """
    recorded = life()
    config = ReadConfig(
        window=timedelta(seconds=3),
        confidence_window=_CONFIDENCE,
        poll_interval=_POLL,
        fetch_size=100,
        delivery=delivery,
    )
    followed = follow(recorded, config)
    _check_rows(recorded, followed, in_order=delivery != DeliveryMode.EAGER)
    _check_generations(recorded, followed)


def _check_rows(recorded: Recorded, followed: Followed, *, in_order: bool) -> None:
    rows = [row for read in rows_read(followed.deliveries) for row in read.batch.to_pylist()]
    found = [(row["cdc$stream_id"], uuid.UUID(row["cdc$time"]).bytes) for row in rows]
    assert sorted(found) == sorted(
        (bytes(r[0] or b""), bytes(r[1] or b"")) for r in recorded.log.rows
    )
    times: dict[Any, list[Any]] = defaultdict(list)
    for row, (stream, time) in zip(rows, found, strict=True):
        if in_order:
            times[row["pk"]].append(written_at(time))
            times[stream].append(order_key(time))
    assert all(each == sorted(each) for each in times.values())


def _check_generations(recorded: Recorded, followed: Followed) -> None:
    """Check that generations are read only for times at which they were known to be in force.

    A generation must not be read long before it begins or long after it has ended.
    """
    patience, poll = duration_micros(_CONFIDENCE), 2 * duration_micros(_POLL)
    for start, end in pairwise([*sorted(recorded.streams), FOREVER]):
        readings = [r for r in followed.readings if r.streams & recorded.streams[start]]
        known = recorded.announced.get(end, FOREVER) + poll
        assert all(r.streams <= recorded.streams[start] for r in readings)
        assert all(start <= r.window.start for r in readings)
        assert all(r.window.end <= end or r.at <= known for r in readings)
        assert start - patience <= min(r.at for r in readings)
        assert max(r.at for r in readings) <= end + patience + poll
    first = recorded.announced[min(recorded.streams)]
    known_streams = frozenset().union(*recorded.streams.values())
    assert all(r.at <= first + poll for r in followed.readings if not r.streams & known_streams)

"""Rows in streams that the server no longer names.

With tablets, the server removes the sets of streams that are older than the log's TTL. Rows written
before the TTL was lowered outlive their sets.
"""

from __future__ import annotations

import pytest
from attrs import evolve

from cdc_reader._time import BEGINNING
from cdc_reader.cluster import CdcTable
from cdc_reader.config import DataLossMode, DeliveryMode, ReadConfig
from cdc_reader.cql.names import TableName
from cdc_reader.reading.cursor import Checkpoint
from cdc_reader.reading.delivery import Delivery, WindowComplete
from cdc_reader.reading.windows.window_reader import LogReader
from cdc_reader.streams.shard import Shard
from cdc_reader.streams.window import Window
from tests.cdc_reader.support.followed import EPOCH, SECOND, Followed, cells, read_to

pytestmark = pytest.mark.needs("topology")

CONFIG = ReadConfig(data_loss=DataLossMode.FAIL, confidence_window="0s")
HOUR = 3_600 * SECOND
LOWERED = "ALTER TABLE ks.t WITH cdc = {'enabled': true, 'ttl': 600}"


def with_removed_set(config: ReadConfig = CONFIG) -> tuple[Followed, Checkpoint]:
    """Return a log whose rows 20 to 39 are in removed streams, and a checkpoint before them."""
    followed = Followed(config=config, tablets=True, options="'enabled': true, 'ttl': 86400")
    start = followed.clock.now()
    followed.clock.advance(20 * SECOND)
    for p in range(20):
        followed.insert(p, p)
    followed.clock.advance(SECOND)
    last = followed.follow(start, followed.clock.now())[-1]
    assert isinstance(last, WindowComplete)
    for p in range(20, 40):
        followed.insert(p, p)
    followed.clock.advance(SECOND)
    followed.server.split_tablets("ks", "t")
    followed.clock.advance(HOUR)
    for p in range(40, 60):
        followed.insert(p, p)
    followed.clock.advance(HOUR)
    followed.execute(LOWERED)
    followed.clock.advance(60 * SECOND)
    return followed, last.checkpoint


@pytest.mark.parametrize("delivery", DeliveryMode)
def test_a_resumed_reader_reads_them(delivery: DeliveryMode) -> None:
    """A reader that resumes at a checkpoint loses and repeats none of them, in any shard."""
    followed, checkpoint = with_removed_set(evolve(CONFIG, delivery=delivery))
    end = followed.clock.now()
    read = [
        [c for (c,) in cells(followed.follow(checkpoint, end, shard=Shard.of(shard)), "c")]
        for shard in ("1/2", "2/2")
    ]
    assert all(read)
    assert sorted(c for part in read for c in part) == [*range(20, 60)]


def test_a_bounded_read_reads_them() -> None:
    """A bounded read returns all rows of the log."""
    followed, _ = with_removed_set()
    table = CdcTable(followed.connection(), TableName("ks", "t"))
    schema = table.schema()
    reader = LogReader(table.source(schema), table.generations, CONFIG, followed.clock)
    batches = reader.batches(Window(BEGINNING, followed.clock.now()))
    assert sorted(c for batch in batches for c in batch.column("c").to_pylist()) == [*range(60)]


def test_a_running_reader_reads_nothing_twice() -> None:
    """A reader that runs while the server removes a set has read its rows already."""
    followed = Followed(config=CONFIG, tablets=True)
    deliveries, read = followed.follower(followed.clock.now()).follow(), list[Delivery]()
    for number in range(8):
        followed.insert(number, number)
        followed.clock.advance(60 * SECOND)
        read += read_to(followed.clock.now(), deliveries)
        if number == 3:
            followed.server.split_tablets("ks", "t")
            followed.clock.advance(HOUR)
            followed.execute(LOWERED)
    assert [c for (c,) in cells(read, "c")] == [*range(8)]
    table = CdcTable(followed.connection(), TableName("ks", "t"))
    assert min(table.generations.timestamps()) < EPOCH

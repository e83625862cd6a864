"""A generation is announced after the position has passed it, and the log's TTL has changed."""

from __future__ import annotations

import pytest

from cdc_reader.checkpoints.encoding import pack_cursor, unpack_cursor
from cdc_reader.config import DataLossMode, ReadConfig
from cdc_reader.cql.names import TableName
from cdc_reader.errors import DataLossError
from cdc_reader.reading.cursor import Checkpoint
from cdc_reader.reading.delivery import Delivery, WindowComplete
from tests.cdc_reader.support.followed import SECOND, Followed, cells

CONFIG = ReadConfig(data_loss=DataLossMode.FAIL, late_rows="ignore")
TIMES = "system_distributed.cdc_generation_timestamps"


def restarted(delivered: list[Delivery]) -> Checkpoint:
    """Return the last checkpoint, as a store returns it."""
    *_, last = (each.checkpoint for each in delivered if isinstance(each, WindowComplete))
    return unpack_cursor(pack_cursor(last), last.position, {}, TableName("ks", "t"))


@pytest.mark.parametrize("ended", [False, True])
@pytest.mark.parametrize("raised", [False, True])
def test_rows_that_expired_are_reported(raised: bool, ended: bool) -> None:
    """The loss is reported after a restart, even if the TTL was raised after rows were written.

    It is also reported if the generation has `ended`, and no row of its streams is left.
    """
    it = Followed(config=CONFIG, options="'enabled': true, 'ttl': 600")
    it.server.cluster.ring_delay_ms = 0
    start = it.clock.now()
    it.clock.advance(20 * SECOND)
    it.server.hold_publication(0)
    it.server.join(vnodes=3)
    it.clock.advance(SECOND)
    it.insert(1, 1)
    it.clock.advance(60 * SECOND)
    if ended:
        it.server.resume_publication()
        it.server.join(vnodes=2)
    checkpoint = restarted(it.follow(start, it.clock.now() - 30 * SECOND))
    if raised:
        it.execute("ALTER TABLE ks.t WITH cdc = {'enabled': true, 'ttl': 86400}")
    for _ in range(4):
        it.clock.advance(300 * SECOND)
        checkpoint = restarted(it.follow(checkpoint, it.clock.now() - 30 * SECOND))
    it.server.complete_publication()
    with pytest.raises(DataLossError, match="expired before they were read"):
        it.follow(checkpoint, it.clock.now())


@pytest.mark.parametrize("chosen", [True, False])
def test_an_oldest_generation(chosen: bool) -> None:
    """The oldest generation is read if it is announced after a newer one."""
    it = Followed(config=CONFIG)
    it.server.cluster.ring_delay_ms = 0
    start = it.clock.now() - 600 * SECOND if chosen else 0
    it.clock.advance(20 * SECOND)
    it.insert(1, 1)
    it.clock.advance(60 * SECOND)
    it.server.join(vnodes=3)
    it.clock.advance(SECOND)
    it.insert(2, 2)
    it.clock.advance(700 * SECOND)  # longer than any wait
    oldest = it.server.cluster.generations[0].timestamp
    it.execute(f"DELETE FROM {TIMES} WHERE key = 'timestamps' AND time = {oldest}")
    found = it.follow(start, it.clock.now() - 60 * SECOND)
    it.execute(f"INSERT INTO {TIMES} (key, time) VALUES ('timestamps', {oldest})")
    it.clock.advance(100 * SECOND)
    found += it.follow(restarted(found), it.clock.now() - 60 * SECOND)
    assert sorted(cells(found, "p")) == [(1,), (2,)]

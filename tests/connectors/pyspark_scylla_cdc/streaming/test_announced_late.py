"""A generation is announced late, and the log's TTL, the start or the options change meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from cassandra.cluster import Session

from cdc_reader.errors import DataLossError
from cdc_reader.testing import EmbeddedScylla, ManualClock
from pyspark_scylla_cdc.clusters import cluster_of
from pyspark_scylla_cdc.options.source_options import SourceOptions
from tests.connectors.pyspark_scylla_cdc.streaming.test_new_generation import unannounced, written
from tests.connectors.pyspark_scylla_cdc.support.followed_log import FollowedLog, create_table
from tests.connectors.pyspark_scylla_cdc.support.readers import batch_reader

SECOND = 1_000_000
DAY = 86_400
TIMES = "system_distributed.cdc_generation_timestamps"

Make = Callable[..., FollowedLog]


@pytest.fixture
def table(session: Session, clock: ManualClock) -> Callable[[int], None]:
    """Create the table, with vnodes; return a function that sets its log's TTL, in seconds."""
    clock.advance(600 * SECOND)
    create_table(session, tablets="{'enabled': false}")

    def set_ttl(seconds: int) -> None:
        cdc = f"{{'enabled': true, 'postimage': true, 'ttl': {seconds}}}"
        session.execute(f"ALTER TABLE ks.t WITH cdc = {cdc}")

    return set_ttl


@pytest.mark.parametrize("raised", [False, True])
def test_rows_that_expired_are_reported(
    cluster: EmbeddedScylla,
    clock: ManualClock,
    table: Callable[[int], None],
    follow: Make,
    raised: bool,
) -> None:
    """The loss of rows is reported, even if the TTL was raised after they were written."""
    table(600)
    followed = follow(onDataLoss="fail")
    unannounced(cluster, clock)
    written(followed, 1, 2)
    if raised:
        table(DAY)
    followed.run(900)
    cluster.complete_publication()
    with pytest.raises(DataLossError, match="their TTL was 600 s"):
        followed.run(100)


def test_all_rows_expired_before_the_announcement(
    cluster: EmbeddedScylla, clock: ManualClock, table: Callable[[int], None], follow: Make
) -> None:
    """The loss of a generation that has ended, and of which no row is left, is reported."""
    table(600)
    followed = follow(onDataLoss="fail")
    unannounced(cluster, clock)
    written(followed, 1, 2)
    cluster.resume_publication()
    cluster.join(vnodes=2)
    followed.run(900)
    cluster.complete_publication()
    with pytest.raises(DataLossError, match="their TTL was 600 s"):
        followed.run(100)


def test_rows_from_before_the_ttl_was_lowered(
    cluster: EmbeddedScylla, clock: ManualClock, table: Callable[[int], None], follow: Make
) -> None:
    """Rows that keep their longer TTL are read, and no loss is reported."""
    table(DAY)
    followed = follow(onDataLoss="fail")
    unannounced(cluster, clock)
    written(followed, 1, 2)
    cluster.resume_publication()
    cluster.join(vnodes=2)
    clock.advance(SECOND)
    written(followed, 3, 4)
    table(600)
    followed.run(1_800)
    cluster.complete_publication()
    followed.run(100)
    assert followed.delivered == [1, 2, 3, 4]


def test_an_oldest_generation(
    cluster: EmbeddedScylla,
    clock: ManualClock,
    session: Session,
    table: Callable[[int], None],
    follow: Make,
) -> None:
    """The oldest generation is read if it is announced after a newer one."""
    del table
    followed = follow()
    followed.write(1)
    clock.advance(60 * SECOND)
    cluster.join(vnodes=3)
    clock.advance(SECOND)
    followed.write(2)
    clock.advance(700 * SECOND)  # longer than any wait
    oldest = cluster.cluster.generations[0].timestamp
    session.execute(f"DELETE FROM {TIMES} WHERE key = 'timestamps' AND time = {oldest}")
    followed = follow(startingTimestamp="-30m")
    followed.run(100)
    session.execute(f"INSERT INTO {TIMES} (key, time) VALUES ('timestamps', {oldest})")
    followed.write(3)
    followed.run(100)
    assert followed.delivered == [1, 2, 3]


@pytest.fixture
def before(
    cluster: EmbeddedScylla, clock: ManualClock, table: Callable[[int], None], follow: Make
) -> FollowedLog:
    """A query whose last offset is past two rows of a generation that is announced afterwards."""
    del table
    before = follow()
    unannounced(cluster, clock)
    written(before, 1, 2)
    before.run(100)
    assert before.delivered == []
    cluster.complete_publication()
    before.write(3)
    clock.advance(60 * SECOND)
    return before


def test_a_batch_that_starts_at_an_offset(
    cluster: EmbeddedScylla, clock: ManualClock, before: FollowedLog
) -> None:
    """A batch reads what a stream from this offset would read."""
    known: dict[str, Any] = {"hosts": cluster.contact_point, "keyspace": "ks", "table": "t"}
    more = {"consistencyLevel": "ONE", "format": "changes", "startingOffsets": before.offsets[-1]}
    options = SourceOptions.parse({**known, **more})
    batch = batch_reader(options, clock)
    rows = [row for part in batch.partitions() for each in batch.read(part) for row in each["pk"]]
    cluster_of(options.connection(), options.read).connection.close()
    assert sorted(row.as_py() for row in rows) == [1, 2, 3]


def test_a_repeated_first_micro_batch(before: FollowedLog, follow: Make) -> None:
    """The first micro-batch has the same rows if `startingOffsets` is left out on a restart."""
    begun = follow(startingOffsets=before.offsets[-1])
    assert begun.step() == [1, 2, 3]
    again = follow(startingTimestamp="latest")
    assert again.read(again.offsets[0], begun.offsets[-1]) == [1, 2, 3]

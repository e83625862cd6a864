"""Spark reads rows whose set of streams the server has removed, because the TTL was lowered."""

from __future__ import annotations

from typing import Any

import pytest
from cassandra.cluster import Session

from cdc_reader.testing import EmbeddedScylla, ManualClock
from pyspark_scylla_cdc import sessions
from pyspark_scylla_cdc.clusters import cluster_of
from pyspark_scylla_cdc.options.source_options import SourceOptions
from pyspark_scylla_cdc.planning import partition
from pyspark_scylla_cdc.spark_versions import ReadMaxFiles
from tests.connectors.pyspark_scylla_cdc.support.readers import batch_reader, stream_reader

SECOND = 1_000_000
HOUR = 3_600 * SECOND
TABLE = "CREATE TABLE ks.t (pk int PRIMARY KEY, v int) WITH cdc = {'enabled': true}"
LOWERED = "ALTER TABLE ks.t WITH cdc = {'enabled': true, 'ttl': 600}"


@pytest.mark.parametrize("more", [{}, {"minPartitions": "3"}])
def test_they_are_read_once(
    cluster: EmbeddedScylla, session: Session, clock: ManualClock, more: dict[str, str]
) -> None:
    """A stream that resumes before them, and a batch, read each row once."""
    session.execute(
        "CREATE KEYSPACE ks WITH replication = "
        "{'class': 'NetworkTopologyStrategy', 'datacenter1': 1} AND tablets = {'initial': 4}"
    )
    session.execute(TABLE)
    known = {"hosts": cluster.contact_point, "keyspace": "ks", "table": "t", **more}
    options = SourceOptions.parse({**known, "consistencyLevel": "ONE", "onDataLoss": "fail"})
    stream = stream_reader(options, clock)
    start = stream.initialOffset()
    clock.advance(20 * SECOND)
    write(session, range(20))
    clock.advance(HOUR)
    first = stream.latestOffset(start, ReadMaxFiles(1))
    assert read(stream, start, first) == [*range(20)]
    write(session, range(20, 40))
    clock.advance(SECOND)  # a set of streams begins at a whole millisecond
    cluster.split_tablets("ks", "t")
    clock.advance(HOUR)
    write(session, range(40, 60))
    clock.advance(HOUR)
    session.execute(LOWERED)
    clock.advance(60 * SECOND)
    stream = stream_reader(options, clock)
    assert read(stream, first, stream.latestOffset(first, ReadMaxFiles(1))) == [*range(20, 60)]
    batch = batch_reader(SourceOptions.parse({**known, "startingTimestamp": "-1d"}), clock)
    assert read(batch) == [*range(60)]
    cluster_of(options.connection(), options.read).connection.close()


def write(session: Session, keys: range) -> None:
    """Insert a row for each key."""
    for pk in keys:
        session.execute("INSERT INTO ks.t (pk, v) VALUES (%s, 0)", (pk,))


def read(reader: Any, *offsets: object) -> list[int]:
    """Return the keys of all rows that a reader plans, in order."""
    parts = reader.partitions(*offsets)
    batches = [batch for part in parts for batch in reader.read(part)]
    return sorted(row["pk"] for batch in batches for row in batch.to_pylist())


def test_their_streams_may_change_between_plan_and_tasks(
    cluster: EmbeddedScylla, session: Session, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Executors that load the streams themselves find others, and read each row once."""
    monkeypatch.setattr(partition, "INLINE", 0)  # as for more streams than a plan may contain
    session.execute(
        "CREATE KEYSPACE ks WITH replication = "
        "{'class': 'NetworkTopologyStrategy', 'datacenter1': 1} AND tablets = {'initial': 4}"
    )
    session.execute(TABLE)
    known = {"hosts": cluster.contact_point, "keyspace": "ks", "table": "t"}
    more = {"consistencyLevel": "ONE", "onDataLoss": "fail", "maxPartitions": "4"}
    options = SourceOptions.parse({**known, **more})
    stream = stream_reader(options, clock)
    start = stream.initialOffset()
    clock.advance(20 * SECOND)
    write(session, range(40))
    clock.advance(SECOND)  # a set of streams begins at a whole millisecond
    cluster.split_tablets("ks", "t")
    clock.advance(2 * HOUR)
    session.execute(LOWERED)
    clock.advance(60 * SECOND)
    stream = stream_reader(options, clock)
    parts = stream.partitions(start, stream.latestOffset(start, ReadMaxFiles(1)))
    write(session, range(40, 80))  # the first rows of some of the streams
    sessions._streams_of.cache_clear()  # as in another process
    batches = [batch for part in parts for batch in stream.read(part)]
    assert sorted(row["pk"] for batch in batches for row in batch.to_pylist()) == [*range(40)]
    cluster_of(options.connection(), options.read).connection.close()

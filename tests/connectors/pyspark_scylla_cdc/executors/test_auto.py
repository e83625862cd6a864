"""The choice of a strategy in a stream: the queries that it sends, and the rows that it reads."""

from __future__ import annotations

import struct
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cdc_reader._time import SystemClock, format_timestamp
from cdc_reader.testing import EmbeddedScylla, Fault, ManualClock
from tests.connectors.pyspark_scylla_cdc.support.available_now import read_available

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SECOND = 1_000_000
LOG = "ks.t_scylla_cdc_log"
PARTITIONS, QUERIES = 8, 16
"""Partitions per micro-batch, and queries per partition of 1,024 streams with `streams`."""
SPARSE, DENSE, KEYS = 10, 2, 900
"""Seconds of writes to one key, seconds of writes to many keys, and the number of these keys."""

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.fixture
def clock() -> ManualClock:
    """The cluster's clock, which starts ten minutes in the past."""
    return ManualClock(SystemClock().now() - 600 * SECOND)


@pytest.fixture
def cluster(clock: ManualClock) -> Iterator[EmbeddedScylla]:
    """A cluster with a table that has no rows yet."""
    with EmbeddedScylla(clock=clock, vnodes=256, shards=32) as server:
        server.execute(
            "CREATE KEYSPACE ks WITH replication = {'class': 'NetworkTopologyStrategy', "
            "'datacenter1': 1} AND tablets = {'enabled': false}"
        )
        server.execute(
            "CREATE TABLE ks.t (pk int PRIMARY KEY) WITH cdc = {'enabled': true, 'ttl': 0}"
        )
        yield server


def write(cluster: EmbeddedScylla, clock: ManualClock, seconds: int, keys: int) -> int:
    """Write `keys` rows per second for `seconds` seconds, and return the time at the end."""
    for _ in range(seconds):
        for key in range(keys):
            cluster.execute("INSERT INTO ks.t (pk) VALUES (?)", [struct.pack(">i", key)])
        clock.advance(SECOND)
    return clock.now()


@pytest.mark.nightly
def test_auto_chooses_by_measurements(
    spark: SparkSession, cluster: EmbeddedScylla, clock: ManualClock, tmp_path: Path
) -> None:
    """Reads select token ranges until most streams have rows, and then select streams.

    Each row is read once.
    """
    start = clock.now()
    quiet = write(cluster, clock, SPARSE, 1)
    busy = write(cluster, clock, DENSE, KEYS)
    clock.advance(SystemClock().now() - clock.now())  # all rows have settled
    by_streams, by_ranges = asked(spark, cluster, tmp_path, start, quiet)
    assert by_streams + by_ranges * QUERIES == SPARSE * PARTITIONS * QUERIES
    assert by_streams >= 20 * QUERIES
    assert by_ranges >= PARTITIONS
    by_streams, by_ranges = asked(spark, cluster, tmp_path, start, busy)
    assert by_streams + by_ranges * QUERIES == DENSE * PARTITIONS * QUERIES
    assert by_ranges <= PARTITIONS
    rows = spark.read.parquet(str(tmp_path / "rows"))
    found = Counter(
        (bytes(row[0]), uuid.UUID(row[1]))
        for row in rows.select("cdc$stream_id", "cdc$time").collect()
    )
    kept = cluster.execute(f'SELECT "cdc$stream_id", "cdc$time" FROM {LOG}')
    assert found == Counter((stream, uuid.UUID(bytes=time)) for stream, time in kept)
    assert found.total() == SPARSE + DENSE * KEYS


def asked(
    spark: SparkSession, cluster: EmbeddedScylla, folder: Path, start: int, end: int
) -> tuple[int, int]:
    """Read the log up to `end`, with one second of write time per micro-batch.

    Return the number of queries that select streams, and the number that select token ranges.
    """
    ways = [
        Fault("delay", f"{LOG} WHERE {by}", times=None, seconds=1e-6)
        for by in ("cdc$stream_id IN", "token(cdc$stream_id)")
    ]
    options = {
        "hosts": cluster.contact_point,
        "keyspace": "ks",
        "table": "t",
        "consistencyLevel": "ONE",
        "maxPartitions": str(PARTITIONS),
        "maxWindowPerTrigger": "1s",
        "startingTimestamp": format_timestamp(start),
        "endingTimestamp": format_timestamp(end),
    }
    with cluster.faults.during(*ways):
        writer = spark.readStream.format("scylla_cdc").options(**options).load().writeStream
        writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
        read_available(writer.format("parquet").option("path", str(folder / "rows")))
        return cluster.faults.struck(ways[0]), cluster.faults.struck(ways[1])

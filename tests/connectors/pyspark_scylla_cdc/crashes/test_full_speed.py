"""A streaming query that follows a table to which rows are written at full speed.

Server, writer and query run in separate processes on one machine. The test counts rows, and
compares the last measurements with the first ones, so the result does not depend on the speed and
the load of the machine.
"""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions

from cdc_reader._time import SystemClock
from cdc_reader.testing.cql_session import open_session
from tests.cdc_reader.cli.test_serve import serving
from tests.connectors.pyspark_scylla_cdc.support.followed_query import (
    FollowedQuery,
    MicroBatch,
    Role,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SECONDS = float(os.environ.get("SOAK_SECONDS", "10"))
WARM_UP, AT_LEAST = 5, 15  # micro-batches to warm up, and the minimum number to measure
WRITER = Path(__file__).with_name("full_speed_writer.py")
Sample = dict[str, float]
"""Measurements at the end of a micro-batch: rows, MB of each role, and MB of the JVM's heap."""
LIMITS: dict[str, Callable[[float], float]] = {
    "rows": lambda first: 2 * first + 50_000,
    "driver": lambda first: first + 50,
    "source": lambda first: first + 50,
    "tasks": lambda first: first + 50,
    "jvm": lambda first: first + 150,
    "heap": lambda first: first + 100,
}
"""The largest allowed value of each measurement at the end, computed from its first value."""
KEYSPACE = (
    "CREATE KEYSPACE ks WITH replication = "
    "{'class': 'NetworkTopologyStrategy', 'datacenter1': 1} AND tablets = {'enabled': false}"
)
TABLE = "CREATE TABLE ks.t (pk int PRIMARY KEY, number int, note text) WITH cdc = {'enabled': true}"

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.fixture
def address() -> Iterator[tuple[str, int]]:
    """The address of a server that runs in a separate process and has an empty table."""
    with serving("--vnodes", "8", "--ring-delay", "0") as (_, line):
        host, _, port = line.split()[-1].rpartition(":")
        session = open_session(host, int(port))
        session.execute(KEYSPACE)
        session.execute(TABLE)
        session.cluster.shutdown()
        yield host, int(port)


@pytest.mark.nightly
@pytest.mark.timeout(300 + 3 * SECONDS)
def test_keeps_up(spark: SparkSession, address: tuple[str, int], tmp_path: Path) -> None:
    """Each row is delivered once, and neither micro-batches nor memory use keeps growing.

    Growing micro-batches would mean that the query falls behind.
    """
    host, port = address
    options = {
        "hosts": f"{host}:{port}",
        "keyspace": "ks",
        "table": "t",
        "consistencyLevel": "ONE",
        "confidenceWindow": "1s",
        "maxPartitions": "2",
    }
    with FollowedQuery(tmp_path, options) as query:
        query.next_batch()  # Spark has started
        with writing(host, port) as writer:
            samples = list(sampled(query))
            written = int(writer.communicate()[0]) + 1
        query.await_written(lambda at: write(host, port, written - 1, at))
    print(f"{written:,} rows, {len(samples)} micro-batches")

    number = functions.col("number")
    found = spark.read.parquet(str(tmp_path / "rows")).agg(
        functions.count(number),
        functions.count_distinct(number),
        functions.min(number),
        functions.max(number),
    )
    assert tuple(found.collect()[0]) == (written, written, 0, written - 1)
    assert query.failures == []
    assert_steady(samples)


def write(host: str, port: int, number: int, at: int) -> None:
    """Write one row with this timestamp."""
    session = open_session(host, port)
    values = f"(0, {number}, '')"
    session.execute(f"INSERT INTO ks.t (pk, number, note) VALUES {values} USING TIMESTAMP {at}")
    session.cluster.shutdown()


@contextmanager
def writing(host: str, port: int) -> Iterator[subprocess.Popen[str]]:
    """Run the writer process, which writes until its standard input ends."""
    command = [sys.executable, str(WRITER), host, str(port)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as writer:
        try:
            yield writer
        finally:
            writer.kill()


def sampled(query: FollowedQuery) -> Iterator[Sample]:
    """Yield a sample for each micro-batch after the warm-up, for at least `SECONDS`."""
    clock = SystemClock()
    for _ in range(WARM_UP):
        query.next_batch()
    enough = clock.now() + SECONDS * 1e6
    for number in itertools.count():
        if number >= AT_LEAST and clock.now() > enough:
            return
        yield sample(query, query.next_batch())


def sample(query: FollowedQuery, batch: MicroBatch) -> Sample:
    """Return the measurements at the end of this micro-batch."""
    resident = {role.name.lower(): query.resident_mb(role) for role in Role}
    return {"rows": batch.rows, "heap": batch.heap, **resident}


def assert_steady(samples: Sequence[Sample]) -> None:
    """Check that the medians of the last third of the samples do not exceed `LIMITS`.

    The limits are computed from the medians of the first third.
    """
    third = len(samples) // 3
    first, last = samples[:third], samples[-third:]
    grown = {}
    for name, limit in LIMITS.items():
        at_first, at_last = (median(each[name] for each in part) for part in (first, last))
        most = max(each[name] for each in samples)
        print(f"{name}: {at_first:.1f} at first, {at_last:.1f} at last, {most:.1f} at most")
        if at_last > limit(at_first):
            grown[name] = at_first, at_last
    assert not grown

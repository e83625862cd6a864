"""The cost of an idle streaming query: micro-batches and CQL queries per minute."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from attrs import frozen
from pyspark.sql import SparkSession

from pyspark_scylla_cdc.local_session import local_session
from tests.benchmarks.figure import Figure
from tests.benchmarks.serving import KEYSPACE, Served, serving

TRIGGER, MEASURED = 2, {"looking": 60, "not looking": 30}
"""Seconds between triggers, and seconds for which each query is measured."""
BEHIND = {"maxWindowPerTrigger": f"{TRIGGER * 1_000 - 100}ms"}
"""Options that keep a query from catching up, so that it advances without checking for rows."""
TABLE = "idle"


@frozen
class Cost:
    """The number of micro-batches and of CQL queries per minute."""

    micro_batches: float
    queries: float


def figures(_times: int) -> Iterator[Figure]:
    """Compare two idle streaming queries, of which only one checks for rows before it advances."""
    with tempfile.TemporaryDirectory() as name, serving(vnodes=16, shards=2) as served:
        served.execute(
            f"CREATE TABLE {KEYSPACE}.{TABLE} (pk int PRIMARY KEY, v int) "
            "WITH cdc = {'enabled': true}"
        )
        spark = local_session("benchmarks", Path(name) / "spark.log")
        try:
            before = _cost(spark, served, MEASURED["not looking"], **BEHIND)
            now = _cost(spark, served, MEASURED["looking"])
        finally:
            spark.stop()
    against, note = "a micro-batch each trigger", f"nothing written, a trigger each {TRIGGER} s"
    yield Figure(
        "spark_idle",
        now.micro_batches,
        "micro-batches/min",
        before.micro_batches,
        against,
        at_most=0.1,
        note=note,
    )
    yield Figure(
        "spark_idle_queries", now.queries, "queries/min", before.queries, against, at_most=1
    )


def _cost(spark: SparkSession, served: Served, seconds: int, **more: str) -> Cost:
    options = {
        "hosts": f"127.0.0.1:{served.port}",
        "keyspace": KEYSPACE,
        "table": TABLE,
        "consistencyLevel": "ONE",
        "startingTimestamp": "latest",
        "confidenceWindow": "0s",
        **more,
    }
    frame = spark.readStream.format("scylla_cdc").options(**options).load()
    writer = frame.writeStream.format("noop").trigger(processingTime=f"{TRIGGER} seconds")
    with tempfile.TemporaryDirectory() as checkpoint:
        query = writer.option("checkpointLocation", checkpoint).start()
        try:
            while not query.recentProgress:  # until Spark has started and fixed the start position
                time.sleep(0.1)
            time.sleep(2 * TRIGGER)
            first, asked = _last(Path(checkpoint)), served.asked()
            time.sleep(seconds)
            last, asked = _last(Path(checkpoint)), served.asked() - asked
        finally:
            query.stop()
    return Cost((last - first) * 60 / seconds, asked * 60 / seconds)


def _last(checkpoint: Path) -> int:
    """Return the number of the last micro-batch that was started."""
    return max(int(path.name) for path in (checkpoint / "offsets").glob("[0-9]*"))

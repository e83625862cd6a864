"""The Spark source compared with Python data sources that do no work of their own."""

from __future__ import annotations

import statistics
import struct
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pyarrow as pa
from attrs import frozen
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from pyspark_scylla_cdc.local_session import local_session
from pyspark_scylla_cdc.options.source_options import SourceOptions
from pyspark_scylla_cdc.sessions import row_format, schema_of
from tests.benchmarks.executors import scale_figures
from tests.benchmarks.figure import Figure
from tests.benchmarks.logs import FLAT, fill, fill_images, log_of
from tests.benchmarks.serving import KEYSPACE, Served, serving
from tests.benchmarks.spark_sources import Ready
from tests.benchmarks.turns import take_turns

PAGE_ROWS = 8_000
"""The number of rows in nearly 1 MiB, the largest page that a server returns for one stream."""
PAGES = 1_250
"""The number of pages, so large that the time to start a read is negligible."""
ROWS = PAGES * PAGE_ROWS
IMAGE_ROWS = 4_999
"""Rows per page of the log with images. A page ends with a complete change, so it can be repeated.
"""
PARTITIONS, MICRO_BATCHES = 2, 8
"""Partitions per micro-batch, and micro-batches measured per query after two that warm up."""


@frozen
class Bench:
    """A Spark session, a server, and a working directory."""

    spark: SparkSession
    served: Served
    folder: Path

    def ours(self, table: str) -> dict[str, str]:
        """Return the options of this project's source."""
        return {
            "hosts": f"127.0.0.1:{self.served.port}",
            "keyspace": KEYSPACE,
            "table": table,
            "consistencyLevel": "ONE",
            "maxPartitions": str(PARTITIONS),
            "confidenceWindow": "0s",
        }

    def ready(self, frame: DataFrame, rows: int) -> dict[str, str]:
        """Return the options of a source that returns the first rows of a frame, as one batch."""
        [batch] = frame.limit(rows).toArrow().combine_chunks().to_batches()
        path = self.folder / f"{rows}.arrow"
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, batch.schema) as writer:
            writer.write_batch(batch)
        return {
            "path": str(path),
            "schema": frame.schema.json(),
            "times": str(PAGES),
            "partitions": str(PARTITIONS),
            "kind": "batches",
        }


def figures(times: int) -> Iterator[Figure]:
    """Measure reads of ten million rows, nearly empty micro-batches, and several executors."""
    with tempfile.TemporaryDirectory() as name, serving() as one, serving(vnodes=16) as many:
        folder = Path(name)
        # The JVM optimizes code as in production, and has finished when the measurement begins.
        optimised = {"spark.driver.extraJavaOptions": "-XX:+UseParallelGC"}
        spark = local_session("benchmarks", folder / "spark.log", **optimised)
        spark.dataSource.register(Ready)
        try:
            yield from _batch_figures(Bench(spark, one, folder), times)
            yield from _format_figures(Bench(spark, one, folder), times)
            yield from _stream_figures(Bench(spark, many, folder), times)
        finally:
            spark.stop()
    yield from scale_figures(times)


def _batch_figures(bench: Bench, times: int) -> Iterator[Figure]:
    fill(bench.served, PAGE_ROWS)
    bench.served.replay(log_of(FLAT), PAGES, PAGE_ROWS)

    def ours() -> DataFrame:
        # One partition, like the rival, because the server replays all pages to every reader.
        options = {**bench.ours(FLAT), "maxPartitions": "1", "fetchSize": str(PAGE_ROWS)}
        return bench.spark.read.format("scylla_cdc").options(**options).load()

    ready = bench.ready(ours(), PAGE_ROWS)

    def rival(kind: str) -> DataFrame:
        return bench.spark.read.format("ready").options(**{**ready, "kind": kind}).load()

    assert ours().schema == rival("batches").schema
    assert ours().count() == ROWS
    found = take_turns(
        {
            "ours": lambda: _drain(ours()),
            "batches": lambda: _drain(rival("batches")),
            "tuples": lambda: _drain(rival("tuples")),
        },
        times,
    )
    rate = {way: ROWS / turn.wall for way, turn in found.items()}
    for name, kind, target in (("spark_ceiling", "batches", 0.7), ("spark_rows", "tuples", 5)):
        against = f"a source of ready-made {kind}"
        yield Figure(
            name,
            rate["ours"],
            "rows/s",
            rate[kind],
            against,
            at_least=target,
            note=f"{ROWS:,} rows a read",
        )


def _format_figures(bench: Bench, times: int) -> Iterator[Figure]:
    """Compare the formats `changes` and `envelope` with `log`, each with the columns it reads."""
    rows = PAGES * IMAGE_ROWS
    frames: dict[str, DataFrame] = {}
    for shape in ("log", "changes", "envelope"):
        table = f"images_{shape}"
        fill_images(bench.served, table)
        options = {
            **bench.ours(table),
            "maxPartitions": "1",
            "fetchSize": str(IMAGE_ROWS),
            "format": shape,
        }
        bench.served.replay_columns(log_of(table), _columns(options), PAGES, IMAGE_ROWS)
        frames[shape] = bench.spark.read.format("scylla_cdc").options(**options).load()
    assert frames["log"].count() == rows
    found = take_turns({shape: partial(_drain, frame) for shape, frame in frames.items()}, times)
    rate = {shape: rows / turn.wall for shape, turn in found.items()}
    for shape in ("changes", "envelope"):
        yield Figure(
            f"spark_{shape}",
            rate[shape],
            "log rows/s",
            rate["log"],
            "format log",
            at_least=0.5,
            note=f"{rows:,} log rows a read, with images",
        )


def _columns(given: dict[str, str]) -> list[str]:
    """Return the log columns that a query with these options reads."""
    options = SourceOptions.parse(given)
    output = row_format(options, schema_of(options))
    return [column.name for column in output.log_columns(output.schema.names)]


def _drain(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


def _stream_figures(bench: Bench, times: int) -> Iterator[Figure]:
    """Compare the median durations of the micro-batches of two queries, which run alternately."""
    table = "stream"
    bench.served.execute(
        f"CREATE TABLE {KEYSPACE}.{table} (pk int PRIMARY KEY, v int) "
        "WITH cdc = {'enabled': true}"
    )
    write = _writer(bench.served, table)
    write()
    options = bench.ours(table)
    like = bench.spark.read.format("scylla_cdc").options(**options).load()
    formats = {"scylla_cdc": options, "ready": bench.ready(like, 1)}
    taken: dict[str, list[float]] = {name: [] for name in formats}
    for _ in range(times):
        for name, given in formats.items():
            taken[name] += _micro_batches(bench, name, given, write)
    ours, theirs = (statistics.median(taken[name]) for name in formats)
    yield Figure(
        "stream_overhead",
        ours,
        "ms",
        theirs,
        "a trivial Python source",
        at_most=1.3,
        note=f"{PARTITIONS} partitions, medians of {len(taken['ready'])} micro-batches",
    )


def _writer(served: Served, table: str) -> Callable[[], None]:
    cql = f"INSERT INTO {KEYSPACE}.{table} (pk, v) VALUES (?, ?)"
    return lambda: served.execute(cql, [(struct.pack(">i", time.time_ns() % 10_000), bytes(4))])


def _micro_batches(
    bench: Bench, name: str, options: dict[str, str], write: Callable[[], None]
) -> list[float]:
    """Run a query for enough micro-batches. Return their durations in ms, without the warm-up."""
    query = (
        bench.spark.readStream.format(name)
        .options(**options)
        .load()
        .writeStream.format("noop")
        .option("checkpointLocation", tempfile.mkdtemp(dir=bench.folder))
        .start()
    )
    try:
        while len(found := _durations(query)) < MICRO_BATCHES + 2:
            assert query.isActive, query.exception()
            write()
            time.sleep(0.05)
    finally:
        query.stop()
    return found[2:]


def _durations(query: StreamingQuery) -> list[float]:
    """Return the duration of each micro-batch that ran, in order. Idle polls are left out."""
    ran = {
        progress.batchId: progress.durationMs["triggerExecution"]
        for progress in query.recentProgress
        if "addBatch" in progress.durationMs
    }
    return [ran[number] for number in sorted(ran)]

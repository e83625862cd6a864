"""How the cost of a micro-batch grows with the copy: `mirror` against a hand-written merge.

A micro-batch of 1,000 changes, whose keys are spread over the whole table, is merged into copies of
1, 4 and 16 million rows. The hand-written merge is that of the suite `mirror`, into a Delta table
that was written in the order of the keys. Both copies are written in parts of a million rows.

The first copy is measured too: rows per second of the first and of the last million of 5,000,000.
"""

from __future__ import annotations

import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from pathlib import Path

import deltalake
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from pyspark_scylla_cdc.local_session import local_session
from pyspark_scylla_cdc.tables.delta import DeltaLakeSink
from pyspark_scylla_cdc.tables.layout import Layout, layout_of
from pyspark_scylla_cdc.tables.sink import MicroBatch
from pyspark_scylla_cdc.tables.update import update
from tests.benchmarks.figure import Figure
from tests.benchmarks.serving import KEYSPACE, Served, serving
from tests.benchmarks.suites.mirror import as_cell, merge_by_hand, options_of
from tests.benchmarks.turns import take_turns

MILLION = 1_000_000
SIZES = (1, 4, 16)
"""Rows of the copies, in millions."""
CHANGES, IN_PARTITION = 1_000, 100
SNAPSHOT = 5
QUERY = "benchmark"


def figures(times: int) -> Iterator[Figure]:
    """Measure a micro-batch on copies of several sizes, and the growth of a first copy."""
    with tempfile.TemporaryDirectory() as name, serving() as served:
        folder = Path(name)
        for size in SIZES:
            _write(served, size)
        optimised = {"spark.driver.extraJavaOptions": "-XX:+UseParallelGC"}
        spark = local_session("benchmarks", folder / "spark.log", **optimised)
        try:
            for size in SIZES:
                yield _growth(spark, served, folder / str(size), size, times)
            yield _snapshot(spark, served, folder / "snapshot")
        finally:
            spark.stop()


def _growth(spark: SparkSession, served: Served, folder: Path, size: int, times: int) -> Figure:
    """Measure the merge of the same micro-batch again and again."""
    folder.mkdir()
    options = options_of(served, f"grown_{size}")
    changes = spark.read.format("scylla_cdc").options(**options).load()
    sink, layout, theirs = _copies(spark, changes, folder, size)
    numbers = count(size)
    ways: dict[str, Callable[[], object]] = {
        "ours": lambda: update(sink, layout, changes, MicroBatch(QUERY, next(numbers), plan=0)),
        "by hand": partial(merge_by_hand, changes, theirs),
    }
    found = take_turns(ways, times)
    return Figure(
        f"mirror_growth_{size}",
        found["ours"].wall,
        "s",
        found["by hand"].wall,
        "a hand-written foreachBatch that merges the last rows",
        note=f"{CHANGES:,} changes of {size} million rows in one micro-batch, by deltalake",
    )


def _copies(
    spark: SparkSession, changes: DataFrame, folder: Path, size: int
) -> tuple[DeltaLakeSink, Layout, str]:
    """Write both copies, in parts of a million rows; return the sink, its layout, and the other."""
    sink = DeltaLakeSink(str(folder / "ours"))
    layout = sink.prepare(layout_of(changes))
    theirs = str(folder / "theirs")
    for part in range(size):
        rows = _rows(spark, part)
        sink.append(MicroBatch(QUERY, part, plan=0), rows.withColumn(layout.marker, sf.lit(True)))
        deltalake.write_deltalake(theirs, rows.toArrow(), mode="append")
    return sink, layout, theirs


def _snapshot(spark: SparkSession, served: Served, folder: Path) -> Figure:
    """Measure how fast the first rows of a copy are appended, at its beginning and at its end."""
    changes = spark.read.format("scylla_cdc").options(**options_of(served, "grown_1")).load()
    sink = DeltaLakeSink(str(folder))
    layout, seconds = sink.prepare(layout_of(changes)), []
    for part in range(SNAPSHOT):
        rows = _rows(spark, part).withColumn(layout.marker, sf.lit(True))
        began = time.perf_counter()
        sink.append(MicroBatch(QUERY, part, plan=0), rows)
        seconds.append(time.perf_counter() - began)
    first, last = statistics.median(seconds[:2]), seconds[-1]
    note = f"the last million of {SNAPSHOT} million rows of a first copy, by deltalake"
    return Figure(
        "mirror_snapshot", MILLION / last, "rows/s", MILLION / first, "the first rows", note=note
    )


def _rows(spark: SparkSession, part: int) -> DataFrame:
    """Return a million rows of the table."""
    number = sf.col("id").cast("int")
    return spark.range(part * MILLION, (part + 1) * MILLION).select(
        (number / IN_PARTITION).cast("int").alias("pk"),
        number.alias("ck"),
        number.alias("v"),
        sf.lit("some text").alias("w"),
    )


def _write(served: Served, size: int) -> None:
    """Write the changes of keys in a table of this many million rows, of which it has no others."""
    table = f"{KEYSPACE}.grown_{size}"
    served.execute(
        f"CREATE TABLE {table} (pk int, ck int, v int, w text, PRIMARY KEY (pk, ck)) "
        "WITH cdc = {'enabled': true}"
    )
    keys = random.Random(7).sample(range(size * MILLION), CHANGES)
    cells = [[*map(as_cell, (key // IN_PARTITION, key, 7)), b"other text"] for key in keys]
    served.execute(f"INSERT INTO {table} (pk, ck, v, w) VALUES (?, ?, ?, ?)", cells)

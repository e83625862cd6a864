"""Copying changes to a Delta table, compared with merging the same changes from Parquet files."""

from __future__ import annotations

import struct
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from pyspark_scylla_cdc.local_session import local_session
from pyspark_scylla_cdc.tables.delta import DeltaLakeSink
from pyspark_scylla_cdc.tables.mirror import layout_of, update
from pyspark_scylla_cdc.tables.sink import MicroBatch
from tests.benchmarks.figure import Figure
from tests.benchmarks.serving import KEYSPACE, Served, serving
from tests.benchmarks.turns import take_turns

TABLE = "mirrored"
ROWS, CHANGES = 20_000, 10_000
"""Rows inserted, and rows changed later. One micro-batch contains all of these changes."""


def figures(times: int) -> Iterator[Figure]:
    """Measure the merge of one micro-batch into an empty Delta table."""
    with tempfile.TemporaryDirectory() as name, serving() as served:
        folder = Path(name)
        _write(served)
        optimised = {"spark.driver.extraJavaOptions": "-XX:+UseParallelGC"}
        spark = local_session("benchmarks", folder / "spark.log", **optimised)
        try:
            yield _figure(spark, served, folder, times)
        finally:
            spark.stop()


def _figure(spark: SparkSession, served: Served, folder: Path, times: int) -> Figure:
    options = {
        "hosts": f"127.0.0.1:{served.port}",
        "keyspace": KEYSPACE,
        "table": TABLE,
        "consistencyLevel": "ONE",
        "format": "changes",
        "includeDelta": "true",
        "rangeDeletes": "emit",
        "confidenceWindow": "0s",
    }
    ours = spark.read.format("scylla_cdc").options(**options).load()
    ours.write.parquet(str(folder / "changes"))
    theirs = spark.read.parquet(str(folder / "changes"))
    assert theirs.count() == ROWS + CHANGES
    numbers = count()
    found = take_turns(
        {
            "ours": partial(_merge, ours, folder, numbers),
            "parquet": partial(_merge, theirs, folder, numbers),
        },
        times,
    )
    rate = {way: (ROWS + CHANGES) / turn.wall for way, turn in found.items()}
    return Figure(
        "mirror_delta",
        rate["ours"],
        "rows/s",
        rate["parquet"],
        "the same merge from Parquet files",
        at_least=0.5,
        note=f"{ROWS + CHANGES:,} changes of {ROWS:,} rows in one micro-batch, by deltalake",
    )


def _merge(changes: DataFrame, folder: Path, numbers: Iterator[int]) -> None:
    sink, layout = DeltaLakeSink(str(folder / f"copy-{next(numbers)}")), layout_of(changes)
    sink.prepare(layout)
    update(sink, layout, changes, MicroBatch("benchmark", 0, plan=0))


def _write(served: Served) -> None:
    served.execute(
        f"CREATE TABLE {KEYSPACE}.{TABLE} (pk int, ck int, v int, w text, PRIMARY KEY (pk, ck)) "
        "WITH cdc = {'enabled': true}"
    )
    insert: Callable[..., object] = partial(
        served.execute, f"INSERT INTO {KEYSPACE}.{TABLE} (pk, ck, v, w) VALUES (?, ?, ?, ?)"
    )
    cells = [[_int(n % 500), _int(n), _int(n), b"some text"] for n in range(ROWS)]
    insert(cells)
    insert([[*row[:2], _int(7), b"other text"] for row in cells[:CHANGES]])


def _int(number: int) -> bytes:
    return struct.pack(">i", number)

"""Copying changes to a Delta table, compared with a hand-written merge of the same changes.

The hand-written merge is what a ``foreachBatch`` needs at least: it keeps the last change of each
row, and inserts, updates or deletes the row. Unlike `mirror`, it ignores deletes of ranges and
partitions, applies no changes of single columns, and would repeat a micro-batch after a crash.

Merging the changes from Parquet files, with the code of `mirror`, shows the share of the read.
"""

from __future__ import annotations

import struct
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from pathlib import Path

from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as sf

from pyspark_scylla_cdc.local_session import local_session
from pyspark_scylla_cdc.tables.delta import DeltaLakeSink
from pyspark_scylla_cdc.tables.layout import layout_of
from pyspark_scylla_cdc.tables.sink import MicroBatch
from pyspark_scylla_cdc.tables.update import update
from tests.benchmarks.figure import Figure
from tests.benchmarks.serving import KEYSPACE, Served, serving
from tests.benchmarks.turns import take_turns

TABLE = "mirrored"
ROWS, CHANGES = 20_000, 10_000
"""Rows inserted, and rows changed later. One micro-batch contains all of these changes."""


def figures(times: int) -> Iterator[Figure]:
    """Measure the merge of one micro-batch into an empty Delta table, in three ways."""
    with tempfile.TemporaryDirectory() as name, serving() as served:
        folder = Path(name)
        _write(served)
        optimised = {"spark.driver.extraJavaOptions": "-XX:+UseParallelGC"}
        spark = local_session("benchmarks", folder / "spark.log", **optimised)
        try:
            yield from _figures(spark, served, folder, times)
        finally:
            spark.stop()


def _figures(spark: SparkSession, served: Served, folder: Path, times: int) -> Iterator[Figure]:
    ours = spark.read.format("scylla_cdc").options(**options_of(served, TABLE)).load()
    ours.write.parquet(str(folder / "changes"))
    theirs = spark.read.parquet(str(folder / "changes"))
    assert theirs.count() == ROWS + CHANGES
    numbers = count()
    found = take_turns(
        {
            "ours": partial(_merge, ours, folder, numbers),
            "by hand": lambda: merge_by_hand(ours, _new_table(ours, folder, numbers)),
            "parquet": partial(_merge, theirs, folder, numbers),
        },
        times,
    )
    rate = {way: (ROWS + CHANGES) / turn.wall for way, turn in found.items()}
    note = f"{ROWS + CHANGES:,} changes of {ROWS:,} rows in one micro-batch, by deltalake"
    against = {
        "mirror_merge": ("by hand", "a hand-written foreachBatch that merges the last rows", 1),
        "mirror_delta": ("parquet", "the same merge from Parquet files", 0.5),
    }
    for name, (way, rival, least) in against.items():
        yield Figure(name, rate["ours"], "rows/s", rate[way], rival, at_least=least, note=note)


def _merge(changes: DataFrame, folder: Path, numbers: Iterator[int]) -> None:
    sink = DeltaLakeSink(str(folder / f"copy-{next(numbers)}"))
    layout = sink.prepare(layout_of(changes))
    update(sink, layout, changes, MicroBatch("benchmark", 0, plan=0))


def options_of(served: Served, table: str) -> dict[str, str]:
    """Return the options with which `mirror` reads the table."""
    return {
        "hosts": f"127.0.0.1:{served.port}",
        "keyspace": KEYSPACE,
        "table": table,
        "consistencyLevel": "ONE",
        "format": "changes",
        "includeDelta": "true",
        "rangeDeletes": "emit",
        "confidenceWindow": "0s",
    }


def _new_table(changes: DataFrame, folder: Path, numbers: Iterator[int]) -> str:
    """Create a table for the hand-written merge; return its path."""
    columns = "pk int, ck int, v int, w string"
    path = str(folder / f"copy-{next(numbers)}")
    schema = changes.sparkSession.createDataFrame([], columns).toArrow().schema
    DeltaTable.create(path, schema=schema)
    return path


def merge_by_hand(changes: DataFrame, path: str) -> None:
    """Merge the last change of each row, as users without `mirror` would."""
    order = sf.col("_commit_version").desc(), sf.col("_sequence").desc()
    place = sf.row_number().over(Window.partitionBy("pk", "ck").orderBy(*order))
    is_delete = sf.col("_change_type") == "delete"
    last = changes.withColumn("place", place).where("place = 1").withColumn("gone", is_delete)
    (
        DeltaTable(path)
        .merge(
            last.select("pk", "ck", "v", "w", "gone").toArrow(),
            "t.pk = s.pk AND t.ck = s.ck",
            source_alias="s",
            target_alias="t",
        )
        .when_matched_delete("s.gone")
        .when_matched_update_all(except_cols=["gone"])
        .when_not_matched_insert_all("NOT s.gone", except_cols=["gone"])
        .execute()
    )


def _write(served: Served) -> None:
    served.execute(
        f"CREATE TABLE {KEYSPACE}.{TABLE} (pk int, ck int, v int, w text, PRIMARY KEY (pk, ck)) "
        "WITH cdc = {'enabled': true}"
    )
    insert: Callable[..., object] = partial(
        served.execute, f"INSERT INTO {KEYSPACE}.{TABLE} (pk, ck, v, w) VALUES (?, ?, ?, ?)"
    )
    cells = [[as_cell(n % 500), as_cell(n), as_cell(n), b"some text"] for n in range(ROWS)]
    insert(cells)
    insert([[*row[:2], as_cell(7), b"other text"] for row in cells[:CHANGES]])


def as_cell(number: int) -> bytes:
    """Return an int as CQL sends it."""
    return struct.pack(">i", number)

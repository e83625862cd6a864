"""How the cost of a micro-batch grows with the copy: `mirror` against a hand-written merge.

A micro-batch of 1,000 changes is merged into copies of 1, 4 and 16 million rows, in each format
that the session can write: by deltalake, and on older versions of Spark by Delta Lake's library and
in Iceberg. The changed keys are ``spread`` over the whole table, or ``near`` each other: in a
twentieth of the copy's buckets. The hand-written merge has the same engine, and a table that was
written in the order of the keys. Both copies are written in parts of a million rows, and `mirror`
then maintains its own, as it does by default. For each merge, the bytes are counted that all
processes read, and those in the files that it adds.

The first copy is measured too: rows per second of the first and of the last million of 5,000,000.
"""

from __future__ import annotations

import os
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from itertools import count
from pathlib import Path

import deltalake
from attrs import evolve, frozen
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from pyspark_scylla_cdc.local_session import local_session
from pyspark_scylla_cdc.tables.buckets import bucket_of, wanted
from pyspark_scylla_cdc.tables.delta import DeltaLakeSink
from pyspark_scylla_cdc.tables.layout import Layout, layout_of
from pyspark_scylla_cdc.tables.maintenance import Maintenance, is_due
from pyspark_scylla_cdc.tables.merge import DeltaSparkSink, IcebergSink
from pyspark_scylla_cdc.tables.sink import MicroBatch, Sink
from pyspark_scylla_cdc.tables.update import update
from tests.benchmarks.figure import Figure
from tests.benchmarks.serving import KEYSPACE, Served, serving
from tests.benchmarks.suites.mirror import as_cell, merge_by_hand, options_of
from tests.benchmarks.suites.mirror_in_spark import append_by_hand, merge_by_hand_in_spark
from tests.benchmarks.turns import take_turns
from tests.connectors.pyspark_scylla_cdc.support.lakehouse import CATALOG, settings

MILLION = 1_000_000
SIZES = (1, 4, 16)
"""Rows of the copies, in millions."""
CHANGES, IN_PARTITION = 1_000, 100
NEAR = 20
"""The share of the buckets in which the keys are that are near each other."""
SNAPSHOT = 5
QUERY = "benchmark"
RIVAL = "a hand-written foreachBatch that merges the last rows"


@frozen
class Engine:
    """A format, and how to merge into it by hand."""

    name: str
    sink: Callable[[SparkSession, str], Sink]
    append: Callable[[DataFrame, str], object]
    merge: Callable[[DataFrame, str], object]
    in_catalog: bool = False

    def target(self, folder: Path) -> str:
        """Return the path of a table in the folder, or its name in the catalog."""
        return f"{CATALOG}.{'.'.join(folder.parts[-2:])}" if self.in_catalog else str(folder)


def figures(times: int) -> Iterator[Figure]:
    """Measure a micro-batch on copies of several sizes, and the growth of a first copy."""
    with tempfile.TemporaryDirectory() as name, serving() as served:
        folder = Path(name)
        given = {
            **settings(folder),
            "spark.driver.extraJavaOptions": "-XX:+UseParallelGC",
            "spark.driver.memory": "4g",
        }
        spark = local_session("benchmarks", folder / "spark.log", **given)
        try:
            for engine in _engines(spark):
                for size in SIZES:
                    place = folder / f"{engine.name}_{size}"
                    yield from _growth(spark, served, engine, place, times)
            yield _snapshot(spark, served, folder / "snapshot")
        finally:
            spark.stop()


def _engines(spark: SparkSession) -> Iterator[Engine]:
    yield Engine("deltalake", lambda _, path: DeltaLakeSink(path), _append_by_hand, merge_by_hand)
    conf = spark.conf
    if "io.delta" in (conf.get("spark.sql.extensions", None) or ""):
        yield _in_spark("delta", DeltaSparkSink)
    if conf.get(f"spark.sql.catalog.{CATALOG}", None):
        yield _in_spark("iceberg", IcebergSink, in_catalog=True)


def _in_spark(
    name: str, sink: Callable[[SparkSession, str], Sink], *, in_catalog: bool = False
) -> Engine:
    append, merge = (
        partial(by_hand, provider=name) for by_hand in (append_by_hand, merge_by_hand_in_spark)
    )
    return Engine(name, sink, append, merge, in_catalog)


def _growth(
    spark: SparkSession, served: Served, engine: Engine, folder: Path, times: int
) -> Iterator[Figure]:
    """Measure the merge of the same micro-batch again and again."""
    size = int(folder.name.rpartition("_")[2])
    names = {kind: f"{folder.name}_{kind}" for kind in ("near", "spread")}
    for kind, name in names.items():
        _write(served, name, _keys(spark, size, kind))
    changes = {kind: _changes(spark, served, name) for kind, name in names.items()}
    sink, layout, theirs = _copies(spark, changes["near"], engine, folder, size)
    numbers = count(size)
    _merge(sink, layout, changes["spread"], numbers)
    _maintain(sink, layout, spark)
    for kind, given in changes.items():
        ways: dict[str, Callable[[], object]] = {
            "ours": partial(_merge, sink, layout, given, numbers),
            "by hand": partial(engine.merge, given, theirs),
        }
        used = {way: _bytes(run, folder) for way, run in ways.items()}
        found = take_turns(ways, times)
        texts = (
            f"{way} read {used[way][0]:.0f} MB and wrote {used[way][1]:.1f} MB" for way in ways
        )
        note = f"{CHANGES:,} changes of {size} million rows in one micro-batch; {'; '.join(texts)}"
        yield Figure(
            f"mirror_growth_{engine.name}_{kind}_{size}",
            found["ours"].wall,
            "s",
            found["by hand"].wall,
            RIVAL,
            at_most=1.0,
            note=note,
        )


def _merge(sink: Sink, layout: Layout, changes: DataFrame, numbers: Iterator[int]) -> None:
    update(sink, layout, changes, MicroBatch(QUERY, next(numbers), plan=0))


def _maintain(sink: Sink, layout: Layout, spark: SparkSession) -> None:
    """Do what `mirror` does between micro-batches, until nothing is due."""
    for _ in range(sink.buckets()):
        Maintenance().after(0, sink, layout, spark)
        if not any(map(is_due, sink.files(spark).values())):
            return
    raise AssertionError("the maintenance of the copy does not end")


def _changes(spark: SparkSession, served: Served, table: str) -> DataFrame:
    """Return the changes of the table until now."""
    options = {**options_of(served, table), "endingTimestamp": datetime.now(UTC).isoformat()}
    return spark.read.format("scylla_cdc").options(**options).load()


def _copies(
    spark: SparkSession, changes: DataFrame, engine: Engine, folder: Path, size: int
) -> tuple[Sink, Layout, str]:
    """Write both copies, in parts of a million rows; return the sink, its layout, and the other."""
    sink, theirs = (engine.target(folder / name) for name in ("ours", "theirs"))
    ours = engine.sink(spark, sink)
    layout = ours.prepare(layout_of(changes))
    ours.set_buckets(wanted(size * MILLION), spark)
    layout = evolve(layout, buckets=ours.buckets())
    for part in range(size):
        rows = _rows(spark, part)
        marked = rows.withColumn(layout.state, sf.lit(None).cast("string")).repartition(
            2, *map(sf.expr, layout.place())
        )
        ours.append(MicroBatch(QUERY, part, plan=0), layout, layout.placed(marked))
        engine.append(rows, theirs)
    return ours, layout, theirs


def _append_by_hand(rows: DataFrame, path: str) -> None:
    deltalake.write_deltalake(path, rows.toArrow(), mode="append")


def _bytes(run: Callable[[], object], folder: Path) -> tuple[float, float]:
    """Return how many megabytes a run reads, and how many it writes into the folder."""
    read, there = _read(), _sizes(folder)
    run()
    written = sum(size for path, size in _sizes(folder).items() if path not in there)
    return (_read() - read) / MILLION, written / MILLION


def _read() -> int:
    """Return how many bytes this process and those that it has started have read."""
    parents = dict(_processes())
    return sum(_read_by(pid) for pid in parents if _is_ours(pid, parents))


def _processes() -> Iterator[tuple[int, int]]:
    """Yield the number of each process, and that of its parent."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            yield int(path.parent.name), int(path.read_text().rpartition(")")[2].split()[1])
        except OSError:  # it has ended
            continue


def _is_ours(pid: int, parents: Mapping[int, int]) -> bool:
    while pid in parents and pid != os.getpid():
        pid = parents[pid]
    return pid == os.getpid()


def _read_by(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/io").read_text().split()[1])
    except OSError:
        return 0


def _sizes(folder: Path) -> dict[Path, int]:
    return {path: path.stat().st_size for path in folder.rglob("*") if path.is_file()}


def _snapshot(spark: SparkSession, served: Served, folder: Path) -> Figure:
    """Measure how fast the first rows of a copy are appended, at its beginning and at its end."""
    changes = _changes(spark, served, f"deltalake_{SIZES[0]}_near")
    sink = DeltaLakeSink(str(folder))
    layout, seconds = sink.prepare(layout_of(changes)), []
    sink.set_buckets(wanted(SNAPSHOT * MILLION), spark)
    layout = evolve(layout, buckets=sink.buckets())
    for part in range(SNAPSHOT):
        rows = layout.placed(
            _rows(spark, part).withColumn(layout.state, sf.lit(None).cast("string"))
        )
        began = time.perf_counter()
        sink.append(MicroBatch(QUERY, part, plan=0), layout, rows)
        seconds.append(time.perf_counter() - began)
    first, last = statistics.median(seconds[:2]), seconds[-1]
    note = f"the last million of {SNAPSHOT} million rows of a first copy, by deltalake"
    return Figure(
        "mirror_snapshot",
        MILLION / last,
        "rows/s",
        MILLION / first,
        "the first rows",
        at_least=0.9,
        note=note,
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


def _keys(spark: SparkSession, size: int, kind: str) -> Sequence[int]:
    """Return the numbers of the rows that change."""
    rows: Sequence[int] = range(size * MILLION)
    if kind == "near":
        buckets = wanted(len(rows))
        keys = spark.range(len(rows) // IN_PARTITION).withColumn("pk", sf.col("id").cast("int"))
        near = keys.where(sf.expr(bucket_of(["pk"], buckets)) < max(1, buckets // NEAR))
        rows = [row.pk * IN_PARTITION + at for row in near.collect() for at in range(IN_PARTITION)]
    return random.Random(7).sample(rows, CHANGES)


def _write(served: Served, name: str, keys: Sequence[int]) -> None:
    """Write changes of these rows into a table, which has no others."""
    table = f"{KEYSPACE}.{name}"
    served.execute(
        f"CREATE TABLE {table} (pk int, ck int, v int, w text, PRIMARY KEY (pk, ck)) "
        "WITH cdc = {'enabled': true}"
    )
    cells = [[*map(as_cell, (key // IN_PARTITION, key, 7)), b"other text"] for key in keys]
    served.execute(f"INSERT INTO {table} (pk, ck, v, w) VALUES (?, ?, ?, ?)", cells)

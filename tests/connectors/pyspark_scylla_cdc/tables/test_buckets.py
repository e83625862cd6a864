"""Copies lie in buckets: merges open few files, and maintenance adds and compacts buckets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import deltalake
import pytest
from pyspark.sql import functions as sf

from cdc_reader.copies.properties import BUCKET
from cdc_reader.errors import SchemaError
from pyspark_scylla_cdc import Mirror
from pyspark_scylla_cdc.tables import buckets, maintenance
from pyspark_scylla_cdc.tables.buckets import bucket_of, split_by, wanted
from pyspark_scylla_cdc.tables.layout import column
from pyspark_scylla_cdc.tables.maintenance import Maintenance
from pyspark_scylla_cdc.tables.sink import Sink

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

Execute = Callable[..., None]
Start = Callable[..., Mirror]
DELTALAKE = pytest.mark.parametrize("place", ["deltalake"], indirect=True)
CREATE = (
    "CREATE TABLE {t} (pk int, ck int, v int, PRIMARY KEY (pk, ck)) WITH cdc = {'enabled': true}"
)


def inserts(keys: range, value: int) -> Sequence[str]:
    """Return statements that write a row for each key."""
    return [f"INSERT INTO {{t}} (pk, ck, v) VALUES ({pk}, 0, {value})" for pk in keys]


@pytest.fixture
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give copies of a few rows several buckets, and look at their files all the time."""
    monkeypatch.setattr(buckets, "ROWS_OF_ONE", 1)
    monkeypatch.setattr(maintenance, "EVERY", 1)


def test_a_new_bucket_takes_rows_from_one_other(spark: SparkSession) -> None:
    """All rows that do not move into the new bucket stay where they are."""
    counts = range(1, 34)
    keys = spark.range(500).withColumn("text", sf.col("id").cast("string"))
    rows = keys.selectExpr(*(bucket_of(["id", "text"], count) for count in counts)).collect()
    for at, count in enumerate(counts[:-1]):
        moved = {(row[at], row[at + 1]) for row in rows if row[at] != row[at + 1]}
        assert moved == {(split_by(count), count)}, count
        assert {row[at] for row in rows} == {*range(count)}


def test_buckets_grow_with_the_square_root_of_the_rows() -> None:
    """Four times the rows have twice the buckets."""
    found = [wanted(rows) for rows in (0, 4096, 1_000_000, 16_000_000, 10**12)]
    assert found == [1, 1, 15, 62, 4096]


@pytest.mark.usefixtures("_small")
def test_buckets_are_added_as_the_copy_grows(
    spark: SparkSession, execute: Execute, start: Start, place: dict[str, str]
) -> None:
    """The first snapshot sets their number; later ones take rows of others, and merges find all."""
    execute(CREATE, *inserts(range(9), 1))
    copy = start(**place)
    assert copy.awaitTermination()
    sink = copy._copies[0].sink
    assert sink.buckets() == 3
    execute(*inserts(range(9, 50), 2))
    assert start(**place).awaitTermination()
    assert sink.buckets() == 7
    execute(
        *inserts(range(50), 3)[::3],
        *(f"DELETE FROM {{t}} WHERE pk = {pk}" for pk in range(0, 50, 5)),
        *(f"DELETE FROM {{t}} WHERE pk = {pk} AND ck >= 0" for pk in range(1, 50, 10)),
    )
    copy = start(**place)
    assert copy.awaitTermination()
    assert copy.compare().is_equal
    assert check_places(spark, copy, sink) > 20


@pytest.mark.slow
@DELTALAKE
@pytest.mark.usefixtures("_small")
def test_dropped_columns_in_new_buckets(
    execute: Execute, start: Start, place: dict[str, str]
) -> None:
    """Rows that move into another bucket keep the values of columns that the table has dropped."""
    execute(CREATE, *inserts(range(9), 1))
    assert start(**place).awaitTermination()
    execute(
        "ALTER TABLE {t} DROP v",
        *(f"INSERT INTO {{t}} (pk, ck) VALUES ({pk}, 0)" for pk in range(9, 50)),
    )
    copy = start(**place)
    assert copy.awaitTermination()
    assert copy._copies[0].sink.buckets() == 7
    assert copy.read().where("pk < 9 AND v = 1").count() == 9
    assert copy.read().count() == 50


def check_places(spark: SparkSession, copy: Mirror, sink: Sink) -> int:
    """Check that each row is in its bucket; return the number of rows."""
    found = 0
    for number in range(sink.buckets()):
        rows = sink.rows(spark, [number]).selectExpr(bucket_of(["pk"], sink.buckets())).collect()
        assert {row[0] for row in rows} <= {number}
        found += len(rows)
    assert found == copy.read().count()
    return found


@DELTALAKE
@pytest.mark.usefixtures("_small")
def test_a_merge_opens_the_files_of_its_buckets(
    execute: Execute, start: Start, place: dict[str, str]
) -> None:
    """The files of all other buckets stay as they are."""
    execute(CREATE, *inserts(range(100), 1))
    assert start(**place).awaitTermination()
    table = deltalake.DeltaTable(place["target"])
    before = {*table.file_uris()}
    execute(*inserts(range(1), 2), "DELETE FROM {t} WHERE pk = 0 AND ck > 5")
    copy = start(**place)
    assert copy.awaitTermination()
    table.update_incremental()
    assert len(before - {*table.file_uris()}) == 1
    last = next(each for each in table.history() if each["operation"] == "MERGE")
    assert last["operationMetrics"]["num_target_files_skipped_during_scan"] == len(before) - 1
    assert copy.compare().is_equal


@pytest.mark.slow
@pytest.mark.usefixtures("_small")
def test_buckets_are_compacted(
    spark: SparkSession,
    execute: Execute,
    start: Start,
    place: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Small files become one, and files with deleted rows go, by a few tasks."""
    monkeypatch.setattr(maintenance, "MOST_FILES", 2)
    execute(CREATE, *inserts(range(4), 1))
    for value in range(3):
        execute(*inserts(range(value, 8), value))
        assert start(maintain=False, **place).awaitTermination()
    execute(*inserts(range(8, 9), 1))
    copy = start(maintain=False, **place)
    assert copy.awaitTermination()
    sink = copy._copies[0].sink
    rows = Counter(map(tuple, copy.read().collect()))
    monkeypatch.setattr(maintenance, "MOST_FILES", 0)
    layout = copy._copies[0]._layout
    assert layout is not None
    spark.sparkContext.setJobGroup(sink.target, "maintenance")
    Maintenance().after(0, sink, layout, spark)
    assert max(tasks_of(spark, sink.target), default=0) <= 50
    files = sink.files(spark)
    assert {*files} == {0, 1, 2}
    assert all(each.count == 1 for each in files.values())
    assert sum(each.rows for each in files.values()) == 9
    assert Counter(map(tuple, copy.read().collect())) == rows
    execute(*inserts(range(9, 10), 1))
    copy = start(**place)  # the compaction did not hide the last micro-batch
    assert copy.awaitTermination()
    assert copy.compare().is_equal


def tasks_of(spark: SparkSession, group: str) -> list[int]:
    """Return the number of tasks of each stage that Spark ran for a group of jobs."""
    tracker = spark.sparkContext.statusTracker()
    jobs = [tracker.getJobInfo(number) for number in tracker.getJobIdsForGroup(group)]
    stages = [tracker.getStageInfo(stage) for job in jobs if job for stage in job.stageIds]
    return [stage.numTasks for stage in stages if stage]


@DELTALAKE
@pytest.mark.usefixtures("_small")
def test_maintenance_that_fails(
    execute: Execute, start: Start, place: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The copy goes on without it."""

    def fail(*_: object) -> None:
        failed.append(1)
        raise OSError("no space left")

    failed: list[int] = []
    monkeypatch.setattr("pyspark_scylla_cdc.tables.delta.DeltaLakeSink.clean", fail)
    execute(CREATE, *inserts(range(9), 1))
    copy = start(**place)
    assert copy.awaitTermination()
    assert failed
    assert copy.read().count() == 9


@DELTALAKE
def test_a_copy_of_an_earlier_version(
    execute: Execute, start: Start, place: dict[str, str]
) -> None:
    """A copy whose own columns are not those of this version is refused."""
    execute(CREATE, *inserts(range(2), 1))
    assert start(**place).awaitTermination()
    table = deltalake.DeltaTable(place["target"])
    table.alter.set_table_properties({BUCKET: ""}, raise_if_not_exists=False)
    with pytest.raises(SchemaError, match="made by an earlier version, with other columns"):
        start(**place)


def test_columns_of_its_own(execute: Execute, start: Start, place: dict[str, str]) -> None:
    """Readers see at most two more columns than the table has, and `read` leaves them out."""
    execute("CREATE TABLE {t} (pk int PRIMARY KEY, \"_bucket\" int) WITH cdc = {'enabled': true}")
    execute('INSERT INTO {t} (pk, "_bucket") VALUES (1, 7)')
    copy = start(**place)
    assert copy.awaitTermination()
    assert copy.read().columns == ["pk", "_bucket"]
    stored = copy._copies[0].sink.rows(copy._copies[0].spark)
    assert {*stored.columns} - {"pk", "_bucket"} <= {"__state", "__bucket"}
    assert stored.where(column("_bucket") == 7).count() == 1

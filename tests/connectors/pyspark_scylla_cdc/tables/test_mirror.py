"""Copies made by `mirror` equal the table, through crashes, restarts and new columns."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException

from cdc_reader._time import SystemClock
from cdc_reader.errors import ConfigurationError
from pyspark_scylla_cdc import Mirror, mirror
from pyspark_scylla_cdc.spark_versions import TELLS_START
from pyspark_scylla_cdc.tables import mirror as mirroring
from pyspark_scylla_cdc.tables.delta import DeltaLakeSink
from pyspark_scylla_cdc.tables.sink import Layout, Sink
from tests.connectors.pyspark_scylla_cdc.tables.test_fold import (
    ADAPTIVE,
    IMAGES,
    TABLE,
    rows_of,
    statement,
    table_of,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from cdc_reader.testing import Scylla

pytestmark = pytest.mark.spark

Execute = Callable[..., None]
Start = Callable[..., Mirror]
HISTORIES = int(os.environ.get("MIRROR_HISTORIES", "1"))
CRASHES = int(os.environ.get("MIRROR_CRASHES", "2"))
ROUND = 15
"""The number of statements between two crashes."""
FORMATS = ["delta", "parquet"]


@pytest.fixture(autouse=True)
def one_job_a_fold(spark: SparkSession) -> Iterator[None]:
    """Plan each fold once; adaptive execution would start a job for each exchange."""
    spark.conf.set(ADAPTIVE, "false")
    yield
    spark.conf.unset(ADAPTIVE)


class Crash(Exception):
    """A crash before a merge, or between the merge and Spark's commit."""


class Crashing:
    """A sink that crashes once, before or after a commit."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self.crash: str | None = None

    def prepare(self, layout: Layout) -> None:
        self._sink.prepare(layout)

    def has(self, batch: int) -> bool:
        return self._sink.has(batch)

    def rows(self, spark: SparkSession) -> DataFrame:
        return self._sink.rows(spark)

    def commit(self, batch: int, layout: Layout, before: DataFrame, after: DataFrame) -> None:
        crash, self.crash = self.crash, None
        if crash == "before":
            raise Crash
        self._sink.commit(batch, layout, before, after)
        if crash == "after":
            raise Crash


@pytest.fixture
def crashes(monkeypatch: pytest.MonkeyPatch) -> Callable[[str | None], None]:
    """Sets the point at which copies started later will crash; None means no crash."""
    made = mirroring._sink
    planned: list[str | None] = [None]

    def sink(*values: Any) -> Crashing:
        crashing = Crashing(made(*values))
        crashing.crash = planned[0]
        return crashing

    def plan(crash: str | None) -> None:
        planned[0] = crash

    monkeypatch.setattr(mirroring, "_sink", sink)
    return plan


@pytest.fixture
def start(spark: SparkSession, options: dict[str, str], tmp_path: Path) -> Start:
    """Starts a copy that ends when it has read all available rows."""

    def start(**more: Any) -> Mirror:
        source = {**options, "confidenceWindow": "0s", "maxPartitions": "2"}
        if "onDataLoss" in more:
            source["onDataLoss"] = more.pop("onDataLoss")
        settings = {"target": str(tmp_path / "copy"), "trigger": {"availableNow": True}, **more}
        return mirror(spark, source, **settings)

    return start


def known(rows: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], set[tuple[int, Any]]]:
    """Return the rows with values, and the static values. Other rows may differ (see `fold`)."""
    statics = {(row["pk"], row["s"]) for row in rows if row["s"] is not None}
    return [row for row in rows if row["v"] is not None or row["w"]], statics


@pytest.mark.slow
@pytest.mark.parametrize("format_name", FORMATS)
@pytest.mark.parametrize("_history", range(HISTORIES))
@pytest.mark.timeout(300 + 120 * CRASHES)
def test_a_copy_is_the_table_through_crashes(
    scylla: Scylla,
    keyspace: str,
    execute: Execute,
    start: Start,
    crashes: Callable[[str | None], None],
    _history: int,
    format_name: str,
) -> None:
    """A copy that starts with rows that are not in the log equals the table after crashes.

    Each micro-batch is merged once.
    """
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    draw = random.Random(seed)
    execute(TABLE.partition(" AND cdc")[0], *statements(draw, 2 * ROUND))
    execute(f"ALTER TABLE {{t}} WITH cdc = {IMAGES['full images']}")
    for number in range(CRASHES):
        crashes("after" if number % 2 == 0 else "before")
        with pytest.raises(StreamingQueryException, match="Crash"):
            start(format=format_name).awaitTermination()
        execute(*statements(draw, ROUND))
        if not TELLS_START:  # each run has one micro-batch; this run repeats it
            crashes(None)
            assert start(format=format_name).awaitTermination()
    crashes(None)
    copy = start(format=format_name)
    assert copy.awaitTermination()
    assert known(rows_of(copy.read())) == known(table_of(scylla, f"{keyspace}.t"))


def statements(draw: random.Random, count: int) -> list[str]:
    """Draw statements without explicit timestamps."""
    found: list[str] = []
    while len(found) < count:
        text = statement(draw, SystemClock().now())
        if "TIMESTAMP" not in text:
            found.append(text)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("format_name", FORMATS)
def test_new_columns_come_along(execute: Execute, start: Start, format_name: str) -> None:
    """Columns may be added between and during runs. A dropped column stays in the copy."""
    execute(
        "CREATE TABLE {t} (pk int PRIMARY KEY, v int, w int) WITH cdc = {'enabled': true}",
        "INSERT INTO {t} (pk, v, w) VALUES (1, 1, 1)",
    )
    assert start(format=format_name).awaitTermination()
    execute(
        'ALTER TABLE {t} ADD "Odd na.me" frozen<map<text, frozen<set<int>>>>',
        "INSERT INTO {t} (pk, \"Odd na.me\") VALUES (2, {'k': {1}})",
    )
    copy = start(format=format_name, trigger={"processingTime": "0 seconds"})
    while len(rows_of(copy.read())) < 2:
        copy.awaitTermination(timeout=1)
    execute(
        "ALTER TABLE {t} ADD x text",
        "ALTER TABLE {t} DROP w",
        "INSERT INTO {t} (pk, x) VALUES (3, 'x')",
    )
    while len(rows_of(copy.read())) < 3:
        copy.awaitTermination(timeout=1)
    copy.stop()
    found = {row["pk"]: row for row in rows_of(copy.read())}
    assert (found[1]["w"], found[2]["Odd na.me"], found[3]["x"]) == (1, {"k": [1]}, "x")
    assert found[3] == {"pk": 3, "v": None, "w": None, "Odd na.me": None, "x": "x"}


def test_several_tables_in_one_call(
    scylla: Scylla, keyspace: str, execute: Execute, start: Start, tmp_path: Path
) -> None:
    """Each table has its own copy and checkpoint. A copy without its checkpoint is rejected."""
    names = [f"{keyspace}.t", f"{keyspace}.other"]
    for number, name in enumerate(names):
        scylla.session.execute(
            f"CREATE TABLE {name} (pk int PRIMARY KEY) WITH cdc = {{'enabled': true}}"
        )
        scylla.session.execute(f"INSERT INTO {name} (pk) VALUES ({number})")
    copy = start(tables=names, format="delta", checkpoint=str(tmp_path / "positions"))
    assert copy.awaitTermination()
    assert [rows_of(copy.read(number)) for number in (0, 1)] == [[{"pk": 0}], [{"pk": 1}]]
    assert (tmp_path / "copy" / keyspace / "other" / "_delta_log").is_dir()
    assert len(copy.queries) == len(list((tmp_path / "positions" / keyspace).iterdir())) == 2
    execute("INSERT INTO {t} (pk) VALUES (7)")
    target = str(tmp_path / "copy" / keyspace / "t")
    shutil.rmtree(target)
    copy = start(target=target, checkpoint=str(tmp_path / "positions" / keyspace / "t"))
    with pytest.raises(StreamingQueryException, match=r"micro-batch \d does not follow none"):
        copy.awaitTermination()


@pytest.mark.slow
def test_a_new_snapshot_replaces_the_rows(
    execute: Execute, start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a loss, a new snapshot removes rows from the copy that are no longer in the table."""
    execute(
        "CREATE TABLE {t} (pk int PRIMARY KEY) WITH cdc = {'enabled': true}",
        "INSERT INTO {t} (pk) VALUES (1)",
        "INSERT INTO {t} (pk) VALUES (2)",
    )
    assert start().awaitTermination()
    execute("TRUNCATE {t}", "INSERT INTO {t} (pk) VALUES (2)")
    monkeypatch.setattr(DeltaLakeSink, "has", lambda _sink, _batch: False)
    copy = start(checkpoint=str(tmp_path / "other"), onDataLoss="resnapshot")
    assert copy.awaitTermination()
    assert rows_of(copy.read()) == [{"pk": 2}]


def test_wrong_values_are_told(start: Start) -> None:
    """Wrong values raise an error before any row is read."""
    for values, message in (
        ({"format": "csv"}, "format is 'csv': give one of delta, parquet"),
        ({"tables": ["t"]}, "table"),
    ):
        with pytest.raises(ConfigurationError, match=message):
            start(**values)

"""A query that starts with the existing rows, and continues with the log."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from cdc_reader._time import SystemClock
from cdc_reader.errors import ConfigurationError
from pyspark_scylla_cdc import fold
from pyspark_scylla_cdc.options.source_options import SourceOptions
from pyspark_scylla_cdc.spark_versions import TELLS_START
from tests.cdc_reader.support.trusted_clock import TrustedClock
from tests.connectors.pyspark_scylla_cdc.support.readers import stream_reader
from tests.connectors.pyspark_scylla_cdc.tables.test_fold import folded, in_order, table_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from cdc_reader.testing import Scylla

pytestmark = pytest.mark.spark

Execute = Callable[..., None]
Load = Callable[..., "DataFrame"]
Rows = Callable[..., list[dict[str, Any]]]
TABLE = (
    "CREATE TABLE {t} (pk int, ck int, s int static, v int, l list<int>, PRIMARY KEY (pk, ck)) "
    "WITH cdc = {'enabled': false}"
)
LOGGED = "ALTER TABLE {t} WITH cdc = {'enabled': true, 'preimage': 'full', 'postimage': true}"
SNAPSHOT = {
    "format": "changes",
    "snapshot": "initial",
    "includeDelta": "true",
    "maxPartitions": "2",
}


@pytest.fixture
def table(execute: Execute) -> None:
    """A table with rows older than its log, and with later changes."""
    execute(
        TABLE,
        *[
            f"INSERT INTO {{t}} (pk, ck, v, l) VALUES ({n % 40}, {n}, {n}, [{n}])"
            for n in range(99)
        ],
        *[f"UPDATE {{t}} SET s = {n} WHERE pk = {n}" for n in (1, 2, 77)],
        LOGGED,
        "UPDATE {t} SET v = 1000 WHERE pk = 3 AND ck = 3",
        "DELETE FROM {t} WHERE pk = 4 AND ck = 4",
        "INSERT INTO {t} (pk, ck, s, v) VALUES (5, 1, 2, 3)",
    )


@pytest.mark.usefixtures("table")
def test_rows_of_a_snapshot(rows: Rows) -> None:
    """Each row is an insert at the snapshot's position. Static columns are separate rows."""
    found = [row for row in rows(**SNAPSHOT) if row["_sequence"] == 0 and row["_inserted"]]
    found = [row for row in found if row["_commit_version"].endswith("-" + "0" * 16)]
    assert {row["_change_type"] for row in found} == {"insert"}
    assert len({row["_commit_timestamp"] for row in found}) == 1
    statics = sorted((row["pk"], row["s"]) for row in found if row["ck"] is None)
    assert statics == [(1, 1), (2, 2), (5, 2), (77, 77)]
    regular = [row for row in found if row["ck"] is not None]
    assert len(regular) == len({(row["pk"], row["ck"]) for row in regular}) == 99
    assert {row["s"] for row in regular} == {None}
    assert all(row["_modified_columns"] == ["l", "v"] for row in regular)
    assert {row["_modified_columns"] == ["s"] for row in found if row["ck"] is None} == {True}


@pytest.mark.slow
@pytest.mark.usefixtures("table")
def test_folded(scylla: Scylla, keyspace: str, load: Load) -> None:
    """Folding the snapshot and the log produces the table. Folding the log alone does not."""
    assert folded(load(**SNAPSHOT)) == table_of(scylla, f"{keyspace}.t")
    assert len(folded(load(format="changes", includeDelta="true", maxPartitions="2"))) < 10


@pytest.mark.slow
@pytest.mark.usefixtures("table")
@pytest.mark.parametrize(
    "limit",
    [pytest.param(None, marks=pytest.mark.slow, id="unlimited"), pytest.param(30, id="limited")],
)
def test_streamed(
    spark: SparkSession,
    scylla: Scylla,
    keyspace: str,
    execute: Execute,
    load: Load,
    tmp_path: Path,
    limit: int | None,
) -> None:
    """Micro-batches within the limit read the whole table. After a restart, the log follows.

    With `availableNow`, one run of the query executes all of these micro-batches. In Spark 4.0 and
    4.1, a run executes only one.
    """
    limits = {} if limit is None else {"maxRowsPerTrigger": str(limit)}
    checkpoint = tmp_path / "checkpoint"

    def run() -> int:
        frame = load(stream=True, confidenceWindow="0s", **SNAPSHOT, **limits)
        query = (
            frame.writeStream.format("parquet")
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .start(str(tmp_path / "rows"))
        )
        query.awaitTermination()
        return len(list((checkpoint / "commits").glob("[0-9]*")))

    done = run()
    if limit is not None:
        while not TELLS_START and done < (done := run()):
            pass
    execute(
        "UPDATE {t} SET v = 7 WHERE pk = 6 AND ck = 6", "DELETE FROM {t} WHERE pk = 7 AND ck = 7"
    )
    assert run() > done
    found = spark.read.parquet(str(tmp_path / "rows"))
    rows = found.where("_change_type = 'insert' and _commit_version like '%-0000000000000000'")
    assert rows.count() == rows.select("pk", "ck").distinct().count() == 99 + 4
    frame = fold(found)
    result = in_order(row.asDict(recursive=True) for row in frame.collect())
    assert result == table_of(scylla, f"{keyspace}.t")
    offsets = [
        json.loads((checkpoint / "offsets" / str(number)).read_text().splitlines()[-1])
        for number in range(done)
    ]
    tokens = [offset["token"] for offset in offsets if "token" in offset]
    assert len(tokens) == (0 if limit is None else 4)
    assert tokens == sorted(tokens)
    assert offsets[len(tokens)]["snapshot"] == "done"


@pytest.mark.slow
@pytest.mark.usefixtures("table")
def test_fold_begins_anew_with_a_snapshot(
    spark: SparkSession, scylla: Scylla, keyspace: str, options: dict[str, str], load: Load
) -> None:
    """Folding drops all rows before `snapshot_begin`, so deleted rows leave the copy."""
    given = {**SNAPSHOT, "onDataLoss": "resnapshot"}
    clock = TrustedClock(SystemClock().now() + 60_000_000)
    parsed = SourceOptions.parse({**options, **given})
    reader = stream_reader(parsed, clock)
    end = reader.latestOffset(start := reader.initialOffset(), reader.getDefaultReadLimit())
    parts = reader.partitions(start, end)
    found = pa.Table.from_batches([batch for part in parts for batch in reader.read(part)])
    frame = load(stream=True, **given)
    changes = spark.createDataFrame(found).to(frame.schema)
    kinds = Counter(row["_change_type"] for row in changes.collect())
    assert kinds == {"insert": 99 + 4, "snapshot_begin": 1, "snapshot_complete": 1}
    before = fold(changes)
    gone = before.withColumn("pk", before["pk"] + 1_000)
    result = in_order(row.asDict(recursive=True) for row in fold(changes, onto=gone).collect())
    assert result == table_of(scylla, f"{keyspace}.t")


@pytest.mark.slow
@pytest.mark.usefixtures("table")
def test_streamed_after_a_loss(
    spark: SparkSession,
    scylla: Scylla,
    keyspace: str,
    load: Load,
    options: dict[str, str],
    tmp_path: Path,
) -> None:
    """A query whose position has expired reads the table again.

    The rows come between a `snapshot_begin` and a `snapshot_complete`.
    """
    position = SystemClock().now() - 2 * 86_400_000_000
    given = {name: value for name, value in SNAPSHOT.items() if name != "snapshot"}
    parsed = SourceOptions.parse({**options, **given})
    started = stream_reader(parsed, SystemClock()).initialOffset()
    frame = load(
        stream=True,
        confidenceWindow="0s",
        startingOffsets=json.dumps({**started, "position": position}),
        onDataLoss="resnapshot",
        **given,
    )
    query = (
        frame.writeStream.format("parquet")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(tmp_path / "rows"))
    )
    query.awaitTermination()
    found = spark.read.parquet(str(tmp_path / "rows"))
    kinds = Counter(row["_change_type"] for row in found.collect())
    assert kinds["snapshot_begin"] == kinds["snapshot_complete"] == 1
    assert kinds["insert"] >= 99 + 4
    result = in_order(row.asDict(recursive=True) for row in fold(found).collect())
    assert result == table_of(scylla, f"{keyspace}.t")
    offset = json.loads((tmp_path / "checkpoint/offsets/0").read_text().splitlines()[-1])
    assert offset["began"] == offset["lost"][0] == position


@pytest.mark.usefixtures("table")
def test_offsets(options: dict[str, str]) -> None:
    """A small table fits in the first micro-batch, which can be planned again."""
    # The clock is ahead, so that the server's first generation begins before the snapshot.
    clock = TrustedClock(SystemClock().now() + 60_000_000)
    parsed = SourceOptions.parse({**options, **SNAPSHOT})
    reader = stream_reader(parsed, clock)
    start = reader.initialOffset()
    assert (start["position"], start["snapshot"]) == (clock.now() - 30_000_000, "pending")
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    assert end == start | {"snapshot": "done", "began": start["position"]}
    parts = reader.partitions(start, end)
    assert len(parts) == 2
    clock.advance(3_600_000_000)
    restarted = stream_reader(parsed, clock)
    again = restarted.partitions(restarted.initialOffset(), end)
    assert [repr(part) for part in again] == [repr(part) for part in parts]
    found = [row for part in again for batch in reader.read(part) for row in batch.to_pylist()]
    assert len(found) == 99 + 4
    assert reader.partitions(end, end) == []


@pytest.mark.usefixtures("table")
def test_envelopes(rows: Rows) -> None:
    """Rows of the table become envelopes with the operation `r` (read) and all columns."""
    found = [row for row in rows(format="envelope", snapshot="initial") if row["op"] == "r"]
    assert len(found) == 99 + 4
    assert {(row["before"], row["source"]["snapshot"]) for row in found} == {(None, "true")}
    (row,) = [row for row in found if row["after"]["ck"] == 8]
    assert row["after"] == {
        "pk": 8,
        "ck": 8,
        "s": None,
        "l": [8],
        "v": 8,
    }


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (
            {"format": "log", "includeDelta": "false"},
            "snapshot is 'initial': a snapshot has rows of the table, not of its log",
        ),
        ({"startingTimestamp": "latest"}, "startingTimestamp .* as it is now: leave it out"),
        ({"partitionKey": '{"pk": 1}'}, "partitionKey .* the whole table as it is now"),
    ],
)
def test_refused(options: dict[str, str], given: dict[str, str], expected: str) -> None:
    """Options that exclude a snapshot are rejected."""
    with pytest.raises(ConfigurationError, match=expected):
        SourceOptions.parse({**options, **SNAPSHOT, **given})

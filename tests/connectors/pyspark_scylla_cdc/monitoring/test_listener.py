"""The listener, called by Spark, or by tests that pass the same events."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

import pytest
from attrs import evolve
from prometheus_client import CollectorRegistry
from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.listener import (
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
)

from cdc_reader.cql import timeuuid
from cdc_reader.cql.names import TableName
from cdc_reader.reading.cursor import Checkpoint, KnownGenerations, LateState, RowKey
from cdc_reader.reading.expiry import TtlHistory
from cdc_reader.streams.shard import MIN_TOKEN
from cdc_reader.streams.stream import StreamId
from cdc_reader.streams.window import Window
from cdc_reader.testing import ManualClock
from pyspark_scylla_cdc import ScyllaCdcListener
from pyspark_scylla_cdc.offsets.offset import Offset, snapshot_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    Execute = Callable[..., None]
    Load = Callable[..., DataFrame]
    Json = dict[str, Any]

SECOND = 1_000_000
NOW = 1_790_000_000 * SECOND
TABLE = TableName("shop", "orders")
LABELS = {"query": "copy", "keyspace": "shop", "table": "orders"}
NO_TABLE = {"query": "copy", "keyspace": "", "table": ""}
FAILURES = "scylla_cdc_spark_failures_total"
LOST = "SparkException: cannot plan: cdc_reader.errors.DataLossError: rows of shop.orders ..."
DAY = 86_400
START = Offset(
    Checkpoint(NOW - 90 * SECOND, table_id=uuid4(), ttls=TtlHistory(((0, DAY),))), str(TABLE)
)
COPY = uuid4()


def at(offset: Offset, **changed: Any) -> Offset:
    """Return the offset with another cursor."""
    return evolve(offset, cursor=evolve(offset.cursor, **changed))


END = at(START, position=NOW - 30 * SECOND)


def source(start: str | Json, end: str | Json, rows: int) -> dict[str, Any]:
    """Return what Spark reports about a source."""
    return {
        "description": "a source",
        "startOffset": start,
        "endOffset": end,
        "latestOffset": end,
        "numInputRows": rows,
        "inputRowsPerSecond": 1.0,
        "processedRowsPerSecond": 8.0,
        "metrics": {},
    }


def text(offset: Offset) -> str:
    """Return the offset in the form in which Spark stores it."""
    return json.dumps(offset.to_json())


def event(
    *sources: dict[str, Any], batch: int = 3, run: UUID = COPY, name: str | None = "copy"
) -> QueryProgressEvent:
    """Return the event that Spark passes to a listener after a micro-batch."""
    progress = {
        "id": str(COPY),
        "runId": str(run),
        "name": name,
        "timestamp": "2026-09-21T13:46:40.000Z",
        "batchId": batch,
        "batchDuration": 500,
        "durationMs": {"triggerExecution": 500, "latestOffset": 10},
        "stateOperators": [],
        "sources": list(sources),
        "sink": {"description": "a sink", "numOutputRows": -1, "metrics": {}},
    }
    return QueryProgressEvent.fromJson({"progress": progress})


def started(run: UUID, name: str | None = "copy") -> QueryStartedEvent:
    """Return the event that Spark passes to a listener when a query starts."""
    facts = {"id": str(COPY), "runId": str(run), "name": name}
    return QueryStartedEvent.fromJson({**facts, "timestamp": "2026-09-21T13:46:40.000Z"})


def ended(run: UUID = COPY, exception: str | None = None) -> QueryTerminatedEvent:
    """Return the event that Spark passes to a listener when a query ends."""
    return QueryTerminatedEvent(COPY, run, exception, None)


@pytest.fixture
def clock() -> ManualClock:
    """The listener's clock."""
    return ManualClock(NOW)


@pytest.fixture
def registry() -> CollectorRegistry:
    """The Prometheus registry that the listener uses."""
    return CollectorRegistry()


@pytest.fixture
def listener(clock: ManualClock, registry: CollectorRegistry) -> ScyllaCdcListener:
    """A listener that exports to the registry."""
    return ScyllaCdcListener(registry, clock=clock)


@pytest.mark.parametrize("shown", [text, Offset.to_json], ids=["JSON", "text of a dict"])
def test_the_figures_of_a_micro_batch(
    listener: ScyllaCdcListener, shown: Callable[[Offset], str | Json]
) -> None:
    """The listener reports rows and durations. Lag and headroom are in seconds.

    Spark Connect passes an offset as the text of a dict.
    """
    listener.onQueryProgress(event(source(shown(START), shown(END), 4)))
    (status,) = listener.streams
    assert (status.query, status.table, status.batch) == ("copy", TABLE, 3)
    assert (status.rows, status.rows_per_second, status.seconds) == (4, 8.0, 0.5)
    assert status.position == datetime.fromtimestamp(NOW // SECOND - 30, UTC)
    assert status.lag_seconds == 30
    assert status.retention_headroom_seconds == DAY - 30
    assert status.late_rows == 0
    assert status.generation is None


def test_lag_grows_without_progress(
    listener: ScyllaCdcListener, clock: ManualClock, registry: CollectorRegistry
) -> None:
    """Without progress the lag grows and the headroom shrinks, in `streams` and in each scrape."""
    listener.onQueryProgress(event(source(text(START), text(END), 4)))
    clock.advance(3_600 * SECOND)
    (status,) = listener.streams
    assert (status.lag_seconds, status.retention_headroom_seconds) == (3_630, DAY - 3_630)
    assert registry.get_sample_value("scylla_cdc_spark_lag_seconds", LABELS) == 3_630
    headroom = "scylla_cdc_spark_retention_headroom_seconds"
    assert registry.get_sample_value(headroom, LABELS) == DAY - 3_630


def test_a_log_without_a_ttl_keeps_rows_for_good(
    listener: ScyllaCdcListener, registry: CollectorRegistry
) -> None:
    """If the log has no TTL, the headroom is infinite."""
    end = at(END, ttls=TtlHistory(((0, 0),)))
    listener.onQueryProgress(event(source(text(START), text(end), 4)))
    assert listener.streams[0].retention_headroom_seconds == math.inf
    headroom = "scylla_cdc_spark_retention_headroom_seconds"
    assert registry.get_sample_value(headroom, LABELS) == math.inf


def test_the_share_of_a_snapshot(
    listener: ScyllaCdcListener, clock: ManualClock, registry: CollectorRegistry
) -> None:
    """The offset's token determines the share of the table that has been read.

    The share and the elapsed time determine the time left.
    """
    pending = evolve(
        at(START, snapshot=snapshot_until(MIN_TOKEN, START.position)), has_snapshot=True
    )
    first, second = (
        at(pending, snapshot=snapshot_until((quarter - 2) << 62, START.position))
        for quarter in (1, 2)
    )
    done = evolve(START, has_snapshot=True)
    found = []
    for start, end in [(None, first), (first, second), (second, done), (done, done)]:
        ours = source(text(START), text(end), 4) | {"startOffset": text(start) if start else None}
        listener.onQueryProgress(event(ours))
        (status,) = listener.streams
        found.append((status.snapshot_share, status.snapshot_seconds_left))
        share = registry.get_sample_value("scylla_cdc_spark_snapshot_share", LABELS)
        assert share == status.snapshot_share
        clock.advance(60 * SECOND)
    assert found == [(0.25, 3 * 90), (0.5, 150), (1.0, 0), (None, None)]


def test_a_new_snapshot_names_what_was_lost(
    listener: ScyllaCdcListener, caplog: pytest.LogCaptureFixture
) -> None:
    """A new snapshot's first micro-batch reports the lost span in its log event and `streams`."""
    caplog.set_level("INFO")
    lost = Window(NOW - 9_000 * SECOND, NOW - 5_400 * SECOND)
    begun = at(END, snapshot=snapshot_until(0, END.position))
    first = evolve(begun, has_snapshot=True, lost=lost)
    listener.onQueryProgress(event(source(text(START), text(first), 4)))
    (status,) = listener.streams
    assert status.lost == tuple(
        datetime.fromtimestamp(at // SECOND, UTC) for at in (lost.start, lost.end)
    )
    assert status.snapshot_share == pytest.approx(0.5)
    assert "lost='2026-" in caplog.text
    listener.onQueryProgress(
        event(source(text(first), text(at(first, snapshot=snapshot_until(5, END.position))), 4))
    )
    assert listener.streams[0].lost is None


@pytest.mark.parametrize(
    "other", ["0", "null", '{"position": 3}', '{"orders":{"0":23}}', "None", "x"]
)
def test_other_sources_are_passed_over(listener: ScyllaCdcListener, other: str) -> None:
    """The listener ignores other sources and their offsets, even in a query with `scylla_cdc`."""
    listener.onQueryProgress(event(source(other, other, 9)))
    assert not listener.streams
    ours = source(text(START), text(END), 4)
    listener.onQueryProgress(event(source(other, other, 9), ours))
    assert [status.rows for status in listener.streams] == [4]


def test_a_query_without_a_name_goes_by_its_id(listener: ScyllaCdcListener) -> None:
    """A query without a name is identified by its id, which stays the same across restarts."""
    listener.onQueryProgress(event(source(text(START), text(END), 4), name=None))
    assert listener.streams[0].query == str(COPY)


def test_counters_sum_up_over_restarts(
    listener: ScyllaCdcListener, registry: CollectorRegistry
) -> None:
    """A query that has ended has no lag, but it keeps its counters, including its failures."""
    first, second = uuid4(), uuid4()
    for number, run in enumerate((first, first, second)):
        ours = source(text(START), text(END), 4)
        listener.onQueryProgress(event(ours, batch=number, run=run))
        if run is first and number:
            listener.onQueryTerminated(ended(first, "it failed"))
    assert registry.get_sample_value("scylla_cdc_spark_rows_total", LABELS) == 12
    assert registry.get_sample_value("scylla_cdc_spark_micro_batches_total", LABELS) == 3
    assert registry.get_sample_value("scylla_cdc_spark_micro_batch_seconds_total", LABELS) == 1.5
    listener.onQueryTerminated(ended(second))
    assert not listener.streams
    assert registry.get_sample_value("scylla_cdc_spark_lag_seconds", LABELS) is None
    assert registry.get_sample_value("scylla_cdc_spark_rows_total", LABELS) == 12
    assert registry.get_sample_value("scylla_cdc_spark_failures_total", LABELS) == 1


def test_a_restart_that_fails_at_once_is_a_failure_too(
    listener: ScyllaCdcListener, registry: CollectorRegistry
) -> None:
    """A run that fails before its first micro-batch counts as a failure of its query."""
    listener.onQueryProgress(event(source(text(START), text(END), 4)))
    listener.onQueryTerminated(ended())
    listener.onQueryTerminated(ended(uuid4(), "it failed"))
    assert registry.get_sample_value("scylla_cdc_spark_failures_total", LABELS) == 1


def test_a_query_that_fails_at_its_first_start_is_counted(
    listener: ScyllaCdcListener, registry: CollectorRegistry
) -> None:
    """A failure before the first micro-batch counts under the query's name, without a table.

    Once the query has finished a micro-batch, its failures count for its table.
    """
    for _ in range(2):
        run = uuid4()
        listener.onQueryStarted(started(run))
        listener.onQueryTerminated(ended(run, LOST))
    assert registry.get_sample_value(FAILURES, NO_TABLE) == 2
    assert registry.get_sample_value("scylla_cdc_spark_micro_batches_total", NO_TABLE) == 0
    run = uuid4()
    listener.onQueryStarted(started(run))
    ours = source(text(START), text(END), 4)
    listener.onQueryProgress(event(ours, ours, run=run))
    assert registry.get_sample_value(FAILURES, NO_TABLE) is None
    assert registry.get_sample_value(FAILURES, LABELS) == 2
    listener.onQueryTerminated(ended(run, "it failed"))
    assert registry.get_sample_value(FAILURES, LABELS) == 3


def test_an_unnamed_query_that_fails_at_its_start_goes_by_its_id(
    listener: ScyllaCdcListener, registry: CollectorRegistry
) -> None:
    """Without a name, a query that fails before its first micro-batch is identified by its id."""
    listener.onQueryStarted(started(COPY, name=None))
    listener.onQueryTerminated(ended(COPY, LOST))
    assert registry.get_sample_value(FAILURES, {**NO_TABLE, "query": str(COPY)}) == 1


@pytest.mark.parametrize("exception", [None, "KafkaException: no broker"])
def test_queries_of_other_sources_that_end_are_not_counted(
    listener: ScyllaCdcListener, registry: CollectorRegistry, exception: str | None
) -> None:
    """Until a query has finished a micro-batch, only this source's errors count as failures."""
    listener.onQueryStarted(started(COPY))
    listener.onQueryTerminated(ended(COPY, exception))
    assert registry.get_sample_value(FAILURES, NO_TABLE) is None


def test_the_later_of_two_sources_of_one_table_counts(
    listener: ScyllaCdcListener, registry: CollectorRegistry
) -> None:
    """If two sources read one table, Prometheus gets the larger lag. `streams` contains both."""
    behind = at(END, position=NOW - 60 * SECOND)
    sources = [source(text(START), text(end), 4) for end in (behind, END)]
    listener.onQueryProgress(event(*sources))
    assert [status.lag_seconds for status in listener.streams] == [60, 30]
    assert registry.get_sample_value("scylla_cdc_spark_lag_seconds", LABELS) == 60
    assert registry.get_sample_value("scylla_cdc_spark_rows_total", LABELS) == 8


def test_late_rows(listener: ScyllaCdcListener, registry: CollectorRegistry) -> None:
    """The offset lists the late rows that a micro-batch delivers, or has the number found."""
    row = (StreamId(bytes(16)), RowKey(timeuuid.make(START.position, bytes(8)).bytes, 0))
    late = LateState.begin(END.position, NOW, 0)
    delivered = evolve(at(END, late=late), rows=frozenset({row}))
    found = evolve(END, late_rows=5)
    for start, end in [(START, delivered), (START, found), (found, found)]:
        listener.onQueryProgress(event(source(text(start), text(end), 4)))
    assert registry.get_sample_value("scylla_cdc_spark_late_rows_total", LABELS) == 6


def test_the_newest_generation(listener: ScyllaCdcListener, registry: CollectorRegistry) -> None:
    """The offset contains the start of the newest generation."""
    known = KnownGenerations(START.position, (NOW - 2 * DAY * SECOND, NOW - DAY * SECOND))
    end = at(END, generations=known)
    listener.onQueryProgress(event(source(text(START), text(end), 4)))
    (status,) = listener.streams
    assert status.generation == datetime.fromtimestamp(NOW // SECOND - DAY, UTC)
    generation = "scylla_cdc_spark_generation_timestamp_seconds"
    assert registry.get_sample_value(generation, LABELS) == NOW // SECOND - DAY


def test_the_log_line(listener: ScyllaCdcListener, caplog: pytest.LogCaptureFixture) -> None:
    """Each micro-batch is logged as one event, which leaves out unknown values."""
    known = KnownGenerations(START.position, (NOW - DAY * SECOND,))
    with caplog.at_level("INFO", "pyspark_scylla_cdc"):
        for end in (END, at(END, generations=known)):
            listener.onQueryProgress(event(source(text(START), text(end), 4)))
    short, long = [record.message for record in caplog.records]
    assert short.startswith("event='micro_batch' query='copy' table='shop.orders' batch=3 rows=4")
    assert "lag_seconds=30.0 retention_headroom_seconds=86370.0" in short
    assert "generation" not in short
    assert "generation='2026-" in long


@pytest.mark.spark
def test_a_query_in_spark(
    spark: SparkSession,
    load: Load,
    execute: Execute,
    keyspace: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Spark calls the listener after each micro-batch."""
    execute(
        "CREATE TABLE {t} (pk int PRIMARY KEY, v int) WITH cdc = {'enabled': true}",
        *(f"INSERT INTO {{t}} (pk, v) VALUES ({pk}, 0)" for pk in range(10)),
    )
    registry = CollectorRegistry()
    listener = ScyllaCdcListener(registry)
    spark.streams.addListener(listener)
    caplog.set_level("INFO", "pyspark_scylla_cdc")
    query = (
        load(stream=True, confidenceWindow="0s")
        .writeStream.format("noop")
        .queryName("copy")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )
    try:
        query.processAllAvailable()
        spark._jsc.sc().listenerBus().waitUntilEmpty()
        (status,) = listener.streams
    finally:
        query.stop()
        spark._jsc.sc().listenerBus().waitUntilEmpty()
        spark.streams.removeListener(listener)
    labels = {"query": "copy", "keyspace": keyspace, "table": "t"}
    assert (status.query, str(status.table)) == ("copy", f"{keyspace}.t")
    assert 0 <= status.lag_seconds < 3_600
    assert 0 < status.retention_headroom_seconds <= DAY
    assert status.generation is not None
    assert registry.get_sample_value("scylla_cdc_spark_rows_total", labels) == 10
    assert registry.get_sample_value("scylla_cdc_spark_lag_seconds", labels) is None
    told = [record.message for record in caplog.records if "micro_batch" in record.message]
    batches = registry.get_sample_value("scylla_cdc_spark_micro_batches_total", labels)
    assert len(told) == batches
    assert any(" rows=10 " in line for line in told)


@pytest.mark.slow
@pytest.mark.spark
def test_a_query_that_fails_in_spark_before_its_first_micro_batch(
    spark: SparkSession, load: Load, execute: Execute, tmp_path: Path
) -> None:
    """Spark's text of the error shows that the source raised it, so the listener counts it."""
    table = "CREATE TABLE {t} (pk int PRIMARY KEY, v int) WITH cdc = {'enabled': true}"
    execute(table, "INSERT INTO {t} (pk, v) VALUES (1, 0)")

    def start() -> StreamingQuery:
        loaded = load(stream=True, confidenceWindow="0s")
        writer = loaded.writeStream.format("noop").queryName("copy")
        return writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()

    query = start()
    query.processAllAvailable()
    query.stop()
    execute("DROP TABLE {t}", table)
    registry = CollectorRegistry()
    listener = ScyllaCdcListener(registry)
    spark.streams.addListener(listener)
    try:
        with pytest.raises(StreamingQueryException, match="created again"):
            start().awaitTermination()
        spark._jsc.sc().listenerBus().waitUntilEmpty()
    finally:
        spark.streams.removeListener(listener)
    assert registry.get_sample_value(FAILURES, NO_TABLE) == 1

"""Streaming queries in each version of Spark: triggers, limits, and repeated micro-batches.

Spark 4.0 and 4.1 do not pass a reader the start of a micro-batch, so they get a special reader.
Tests that do not start Spark call that reader directly, as Spark would. All tests run with every
Spark version.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyspark
import pytest
from pyspark.errors import StreamingQueryException

from cdc_reader._time import SystemClock
from cdc_reader.errors import ConfigurationError
from cdc_reader.testing.clock import ManualClock
from pyspark_scylla_cdc.options.source_options import SourceOptions
from pyspark_scylla_cdc.spark_versions import TELLS_START, WithoutStart
from tests.cdc_reader.support.trusted_clock import TrustedClock
from tests.connectors.pyspark_scylla_cdc.support.readers import stream_reader

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    Execute = Callable[..., None]
    Load = Callable[..., DataFrame]
    Make = Callable[..., WithoutStart]
    Batches = dict[int, list[int]]

SECOND = 1_000_000
SNAPSHOT = {"snapshot": "initial", "format": "changes", "includeDelta": "true"}
WRAPPER = "spark.sql.streaming.triggerAvailableNowWrapper.enabled"


@pytest.fixture
def clock() -> ManualClock:
    """A clock an hour ahead, so that all rows written by the tests have settled."""
    return TrustedClock(SystemClock().now() + 3_600 * SECOND)


@pytest.fixture(autouse=True)
def _table(execute: Execute) -> None:
    execute(
        "CREATE TABLE {t} (pk int PRIMARY KEY, v int) WITH cdc = {'enabled': true, 'ttl': 0}",
        *(f"INSERT INTO {{t}} (pk, v) VALUES ({pk}, 0)" for pk in range(10)),
    )


@pytest.fixture
def make(options: dict[str, str], clock: ManualClock) -> Make:
    """Creates readers for Spark versions that do not pass the start of a micro-batch."""

    def make(**more: str) -> WithoutStart:
        parsed = SourceOptions.parse({**options, **more})
        return WithoutStart(stream_reader(parsed, clock), parsed.limits)

    return make


def plan(reader: WithoutStart, start: dict[str, Any], end: dict[str, Any]) -> list[int]:
    """Plan and read a micro-batch. Return the keys of its rows."""
    batches = (batch for part in reader.partitions(start, end) for batch in reader.read(part))
    return sorted(row["pk"] for batch in batches for row in batch.to_pylist())


def test_the_next_micro_batch_starts_where_the_last_one_planned_ends(
    make: Make, clock: ManualClock
) -> None:
    """`latestOffset` returns the same offset until Spark plans a micro-batch that ends at it.

    Spark may request an offset only for a report.
    """
    reader = make()
    first = reader.latestOffset()
    clock.advance(60 * SECOND)
    assert reader.latestOffset() == first
    assert plan(reader, reader.initialOffset(), first) == list(range(10))
    assert reader.latestOffset() == first  # no two empty micro-batches in a row
    second = reader.latestOffset()
    assert second["position"] == clock.now() - 30 * SECOND
    assert plan(reader, first, second) == []
    assert reader.latestOffset() == second


def test_a_restart_resumes_from_the_checkpoint(make: Make, clock: ManualClock) -> None:
    """After a restart, the reader resumes at the empty micro-batch that Spark plans first."""
    before = make()
    first = before.latestOffset()
    clock.advance(60 * SECOND)
    after = make()
    assert after.partitions(first, first) == []
    second = after.latestOffset()
    assert (second["position"], "began" in second) == (clock.now() - 30 * SECOND, False)


def test_limits_hold(make: Make) -> None:
    """Limits always apply, because the trigger is unknown."""
    reader = make(maxWindowPerTrigger="1s")
    offsets = [reader.initialOffset()]
    for _ in range(3):
        offsets.append(reader.latestOffset())
        reader.partitions(*offsets[-2:])
    positions = [offset["position"] for offset in offsets]
    assert [b - a for a, b in pairwise(positions)] == [SECOND] * 3


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({}, None),
        ({"maxRowsPerTrigger": "1000", "maxWindowPerTrigger": "1000d"}, None),
        ({"maxRowsPerTrigger": "3"}, "maxRowsPerTrigger"),
        (
            {"maxWindowPerTrigger": "1s", "maxBytesPerTrigger": "1g"},
            "maxWindowPerTrigger, maxBytes",
        ),
        (
            {**SNAPSHOT, "maxRowsPerTrigger": "3"},
            "maxRowsPerTrigger",
        ),
    ],
    ids=["none", "enough", "rows", "time", "snapshot"],
)
def test_a_run_that_leaves_rows_unread_is_reported(
    make: Make, caplog: pytest.LogCaptureFixture, given: dict[str, str], named: str | None
) -> None:
    """A query warns once if a run with `availableNow` would end before all rows are read.

    The warning names the version of Spark, the options, and what to do.
    """
    reader = make(**given)
    start = reader.initialOffset()
    for _ in range(2):
        end = reader.latestOffset()
        reader.partitions(start, end)
        start = end
    found = [record.getMessage() for record in caplog.records if "one_micro" in record.getMessage()]
    assert len(found) == (named is not None)
    for message in found:
        assert f"spark='{pyspark.__version__}' options='{named}" in message
        assert "use trigger processingTime, or run the query again" in message


def test_late_rows_are_sought_once_a_minute(
    make: Make, clock: ManualClock, execute: Execute
) -> None:
    """Late rows are searched for once a minute.

    This holds with `availableNow` too, because the reader does not know the trigger.
    """
    execute("ALTER TABLE {t} WITH cdc = {'enabled': true, 'ttl': 86400}")
    before = make(lateRows="deliver", lateHorizon="2h")
    first = before.latestOffset()
    before.partitions(before.initialOffset(), first)
    execute("INSERT INTO {t} (pk, v) VALUES (10, 0)")
    after = make(lateRows="deliver", lateHorizon="2h")
    after.partitions(first, first)
    assert after.latestOffset() == first
    clock.advance(60 * SECOND)
    assert plan(after, first, after.latestOffset()) == [10]


def test_an_offset_requested_too_early_ends_the_query(make: Make, clock: ManualClock) -> None:
    """An offset that is requested before Spark passes the checkpoint ends the query.

    Such an offset could be earlier than the checkpoint.
    """
    first = make().latestOffset()
    clock.advance(60 * SECOND)
    reader = make()
    reader.latestOffset()
    with pytest.raises(ConfigurationError, match=WRAPPER):
        reader.partitions(first, first)


@pytest.fixture
def run(load: Load, tmp_path: Path) -> Callable[..., Batches]:
    """Run a query from its checkpoint, and return the keys of each non-empty micro-batch."""

    def run(*, available_now: bool = True, fails: bool = False, **more: str) -> Batches:
        found: Batches = {}

        def keep(frame: DataFrame, number: int) -> None:
            if keys := sorted(row["pk"] for row in frame.collect()):
                found[number] = keys
            if fails:
                raise OSError("the sink is gone")

        frame = load(stream=True, **{"confidenceWindow": "0s", **more})
        writer = frame.writeStream.foreachBatch(keep)
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
        if available_now:
            writer.trigger(availableNow=True).start().awaitTermination()
        else:
            query = writer.start()
            try:
                query.processAllAvailable()
            finally:
                query.stop()
        return found

    return run


@pytest.mark.slow
@pytest.mark.spark
def test_available_now(run: Callable[..., Batches], execute: Execute) -> None:
    """With `availableNow`, each run reads all settled rows, and ends."""
    assert run() == {0: list(range(10))}
    assert run() == {}
    execute("INSERT INTO {t} (pk, v) VALUES (10, 0)")
    assert list(run().values()) == [[10]]


@pytest.mark.slow
@pytest.mark.spark
def test_the_first_micro_batch_is_repeated(run: Callable[..., Batches], execute: Execute) -> None:
    """The first micro-batch is repeated unchanged, although only its end was recorded."""
    with pytest.raises(StreamingQueryException, match="the sink is gone"):
        run(fails=True)
    execute("INSERT INTO {t} (pk, v) VALUES (10, 0)")
    again = run(startingTimestamp="latest")
    assert again.pop(0) == list(range(10))
    again |= run()
    assert list(again.values()) == [[10]]


@pytest.mark.slow
@pytest.mark.spark
def test_a_limit_by_time(run: Callable[..., Batches], execute: Execute) -> None:
    """Rows that are `maxWindowPerTrigger` apart are in separate micro-batches."""
    base = SystemClock().now() // 1_000 - 200
    for number in range(5):
        execute(
            f"INSERT INTO {{t}} (pk, v) VALUES ({100 + number}, 1) "
            f"USING TIMESTAMP {(base + 40 * number) * 1_000}"
        )
    span = {"startingTimestamp": str(base), "endingTimestamp": str(base + 200)}
    limited = {**span, "maxWindowPerTrigger": "40ms"}
    batches = run(available_now=False, **limited).values()
    found = [[key for key in keys if key >= 100] for keys in batches]
    assert [keys for keys in found if keys] == [[100], [101], [102], [103], [104]]


@pytest.mark.slow
@pytest.mark.spark
def test_a_limit_of_available_now(run: Callable[..., Batches]) -> None:
    """Spark 4.2 reads all rows in several micro-batches. In older versions, a run has only one.

    No run is empty before all rows have been read.
    """
    limited = {"maxRowsPerTrigger": "3"}
    first = run(**limited)
    assert (len(first) > 1) == TELLS_START
    found = [key for keys in first.values() for key in keys]
    while batches := run(**limited):
        found += [key for keys in batches.values() for key in keys]
    assert sorted(found) == list(range(10))


@pytest.mark.spark
@pytest.mark.skipif(TELLS_START, reason="Spark 4.2 and later tell where a micro-batch starts")
def test_sparks_wrapper_of_available_now(
    spark: SparkSession, run: Callable[..., Batches], execute: Execute
) -> None:
    """While Spark wraps the source, a query fails and leaves its checkpoint unchanged."""
    assert run() == {0: list(range(10))}
    execute("INSERT INTO {t} (pk, v) VALUES (10, 0)")
    spark.conf.set(WRAPPER, "true")
    try:
        with pytest.raises(StreamingQueryException, match=f"{WRAPPER}.* Spark {spark.version}"):
            run()
    finally:
        spark.conf.unset(WRAPPER)
    assert list(run().values()) == [[10]]

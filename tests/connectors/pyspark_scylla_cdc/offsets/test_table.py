"""An offset belongs to a table, to a query with or without a snapshot, and to a TTL history."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from attrs import frozen
from pyspark.errors import StreamingQueryException

from cdc_reader._time import SystemClock, format_timestamp
from cdc_reader.errors import CheckpointError, ConfigurationError, DataLossError
from cdc_reader.testing import EmbeddedScylla, ManualClock
from pyspark_scylla_cdc.batch import BatchReader
from pyspark_scylla_cdc.options.source_options import SourceOptions
from pyspark_scylla_cdc.spark_versions import ReadMaxFiles
from pyspark_scylla_cdc.streaming.stream import StreamReader
from tests.connectors.pyspark_scylla_cdc.support.readers import (
    batch_reader,
    offset_at,
    stream_reader,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.datasource import InputPartition

    from cdc_reader.testing import Scylla

SECOND = 1_000_000
HOUR = 3_600 * SECOND
EPOCH = 1_700_000_000 * SECOND
LIMIT = ReadMaxFiles(1)
CHANGES = {"format": "changes", "includeDelta": "true"}
SNAPSHOT = {**CHANGES, "snapshot": "initial"}
Stored = dict[str, Any]


@frozen
class Tables:
    """The tables of a server, and queries that read them. Server and queries use `clock`."""

    server: EmbeddedScylla
    clock: ManualClock

    def create(self, name: str = "t", ttl: int = 3_600) -> None:
        """Create a table with a log."""
        cdc = f"{{'enabled': true, 'ttl': {ttl}}}"
        self.server.execute(f"CREATE TABLE ks.{name} (pk int PRIMARY KEY, v int) WITH cdc = {cdc}")

    def query(self, table: str = "t", **more: str) -> StreamReader:
        """Return the stream reader of a new query."""
        where = {"hosts": self.server.contact_point, "keyspace": "ks", "table": table}
        return stream_reader(SourceOptions.parse({**where, **more}), self.clock)

    def batch(self, **more: str) -> BatchReader:
        """Return the reader of a batch query of ``ks.t``."""
        where = {"hosts": self.server.contact_point, "keyspace": "ks", "table": "t"}
        return batch_reader(SourceOptions.parse({**where, **more}), self.clock)

    def advanced(self, stream: StreamReader) -> Stored:
        """Return the offset of a query that has read all settled rows."""
        start = stream.initialOffset()
        self.clock.advance(120 * SECOND)
        return stream.latestOffset(start, LIMIT)


def keys(stream: StreamReader) -> list[int]:
    """Return the keys of the rows in the first micro-batch of a new query."""
    start = stream.initialOffset()
    return read(stream, stream.partitions(start, stream.latestOffset(start, LIMIT)))


def batch_keys(batch: BatchReader) -> list[int]:
    """Return the keys of the rows of a batch query."""
    return read(batch, batch.partitions())


def read(reader: StreamReader | BatchReader, parts: Sequence[InputPartition]) -> list[int]:
    """Return the keys of the rows in these partitions."""
    return [key for part in parts for batch in reader.read(part) for key in batch["pk"].to_pylist()]


@pytest.fixture
def tables() -> Iterator[Tables]:
    """A server with a keyspace and no tables."""
    clock = ManualClock(EPOCH)
    with EmbeddedScylla(clock=clock, ring_delay_ms=0) as server:
        server.execute(
            "CREATE KEYSPACE ks WITH replication = "
            "{'class': 'NetworkTopologyStrategy', 'replication_factor': 1}"
        )
        yield Tables(server, clock)


def refused(stream: StreamReader, start: Stored, message: str) -> None:
    """Check that each method with which Spark may begin raises the one-line error."""
    for ask in (lambda: stream.latestOffset(start, LIMIT), lambda: stream.partitions(start, start)):
        with pytest.raises(CheckpointError, match=message) as error:
            ask()
        assert "\n" not in str(error.value)


def test_an_offset_names_its_table(tables: Tables) -> None:
    """An offset contains the table, its id, and the history of its log's TTL."""
    tables.create()
    offset = tables.advanced(tables.query())
    assert list(offset) == [
        *("version", "position", "table", "id", "snapshot", "ttl", "logs", "generations", "began")
    ]
    assert (offset["version"], offset["table"], offset["snapshot"]) == (1, "ks.t", "none")
    assert offset["ttl"] == [[EPOCH, 3_600]]


def test_an_offset_at_rest_stays_as_it_is(tables: Tables) -> None:
    """An offset that does not advance stays unchanged, even if the table has changed."""
    tables.create()
    offset = tables.advanced(tables.query())
    tables.server.execute("ALTER TABLE ks.t WITH cdc = {'enabled': true, 'ttl': 60}")
    assert json.dumps(tables.query().latestOffset(offset, LIMIT)) == json.dumps(offset)


def test_a_checkpoint_of_another_table_is_refused(tables: Tables) -> None:
    """A checkpoint of another table is rejected: the position has no meaning in this table."""
    tables.create("t1")
    tables.create("t2")
    offset = tables.advanced(tables.query("t1"))
    message = (
        r"^checkpointLocation: the offset belongs to table ks\.t1, but the query reads ks\.t2: "
        r"start with a new checkpointLocation$"
    )
    refused(tables.query("t2"), offset, message)


def test_a_table_created_again_is_refused(tables: Tables) -> None:
    """If a table is created again, a restarted query and a running query end with an error."""
    tables.create()
    running = tables.query()
    offset = tables.advanced(running)
    tables.server.execute("DROP TABLE ks.t")
    tables.create()
    message = r"^checkpointLocation: .* ks\.t with id .*, which was dropped and created again"
    refused(tables.query(), offset, message)
    tables.server.execute("INSERT INTO ks.t (pk, v) VALUES (1, 1)")
    tables.clock.advance(120 * SECOND)
    with pytest.raises(CheckpointError, match=message):
        running.latestOffset(offset, LIMIT)
    with pytest.raises(CheckpointError, match=message):
        running.partitions(offset, offset | {"position": tables.clock.now()})


def create_log_again(tables: Tables, behind: int = 0) -> int:
    """Drop the table's log and create it again, as turning CDC off and on did before ScyllaDB 5.1.

    Return the time of creation. Row 2 is only in the old log, and row 3 only in the new one. The
    clock of the node that creates the log is `behind` µs behind.
    """
    node = tables.server.nodes[0]
    tables.server.execute("INSERT INTO ks.t (pk, v) VALUES (2, 2)")
    tables.clock.advance(SECOND)
    tables.server.execute("ALTER TABLE ks.t WITH cdc = {'enabled': false}")
    tables.server.execute("DROP TABLE ks.t_scylla_cdc_log")
    tables.server.skew_clock(node, -behind)
    tables.server.execute("ALTER TABLE ks.t WITH cdc = {'enabled': true, 'ttl': 3600}")
    tables.server.skew_clock(node, 0)
    tables.server.execute("INSERT INTO ks.t (pk, v) VALUES (3, 3)")
    created = tables.clock.now()
    tables.clock.advance(120 * SECOND)
    return created


GONE = "the log was dropped, and created again at .*; onDataLoss is 'fail': give 'continue'"


def test_a_log_created_again_is_a_loss(tables: Tables, caplog: pytest.LogCaptureFixture) -> None:
    """If a log is dropped and created again, queries report the loss of rows.

    This holds for running and restarted queries, and for queries with starting offsets.
    """
    tables.create()
    running = tables.query()
    offset = tables.advanced(running)
    created = create_log_again(tables)
    given = {"startingOffsets": json.dumps(offset)}
    for stream in (running, tables.query(), tables.query(**given)):
        end = stream.latestOffset(offset, LIMIT)
        with pytest.raises(DataLossError, match=GONE) as raised:
            stream.partitions(offset, end)
        assert (raised.value.start, raised.value.end) == (offset["position"], created)
    with pytest.raises(DataLossError, match=GONE):
        tables.batch(**given).partitions()
    assert "rows_lost" not in caplog.text
    lenient = tables.query(onDataLoss="continue")
    end = lenient.latestOffset(offset, LIMIT)
    assert end["logs"] != offset["logs"]
    assert read(lenient, lenient.partitions(offset, end)) == [3]
    assert caplog.text.count("rows_lost") == 1


def test_a_log_created_again_within_a_window(
    tables: Tables, caplog: pytest.LogCaptureFixture
) -> None:
    """Each micro-batch that starts before the log's creation reports lost rows."""
    tables.create()
    stream = tables.query(onDataLoss="continue", maxWindowPerTrigger="10s")
    offset = tables.advanced(stream)
    tables.clock.advance(2 * SECOND)
    created = create_log_again(tables)
    found: list[int] = []
    for _ in range(1_000):
        end = stream.latestOffset(offset, LIMIT)
        if end == offset:
            break
        found += read(stream, stream.partitions(offset, end))
        offset = end
    assert found == [3]
    assert offset["position"] > created
    assert len(offset["logs"]) == 2
    assert caplog.text.count("rows_lost") > 1


def test_a_first_micro_batch_done_again_in_another_log(tables: Tables) -> None:
    """The end offset of a micro-batch contains the id of the log for which the plan was made."""
    tables.create()
    start = {"startingTimestamp": format_timestamp(tables.clock.now())}
    stream = tables.query(**start)
    first = stream.initialOffset()
    tables.server.execute("INSERT INTO ks.t (pk, v) VALUES (1, 1)")
    tables.clock.advance(120 * SECOND)
    end = stream.latestOffset(first, LIMIT)
    create_log_again(tables)
    again = tables.query(**start)
    with pytest.raises(DataLossError, match=GONE):
        again.partitions(again.initialOffset(), end)


@pytest.mark.parametrize("behind", [0, HOUR])
def test_a_log_created_again_after_the_plan(
    tables: Tables, caplog: pytest.LogCaptureFixture, behind: int
) -> None:
    """If the log is created again after the plan, the tasks report the loss.

    This holds even if the clock of the node that creates the log is behind.
    """
    tables.clock.advance(2 * HOUR)
    tables.create()
    modes = ("fail", "resnapshot", "continue")
    streams = [tables.query(**CHANGES, onDataLoss=mode) for mode in modes]
    start = {"startingTimestamp": format_timestamp(tables.clock.now())}
    batches = [tables.batch(), tables.batch(**start), tables.batch(onDataLoss="continue")]
    offset = tables.advanced(streams[0])
    tables.server.execute("INSERT INTO ks.t (pk, v) VALUES (1, 1)")
    tables.clock.advance(120 * SECOND)
    end = streams[0].latestOffset(offset, LIMIT)
    plans: list[tuple[StreamReader | BatchReader, Sequence[InputPartition]]]
    plans = [(stream, stream.partitions(offset, end)) for stream in streams]
    plans += [(batch, batch.partitions()) for batch in batches]
    create_log_again(tables, behind)
    remedies = [
        "onDataLoss is 'fail': give 'continue' to do without them, or start over",
        "start the query again, and it reads the table again",
        "",
        *["onDataLoss is 'fail': give 'continue' to do without them, or start over"] * 2,
        "",
    ]
    assert "rows_lost" not in caplog.text
    for (reader, parts), remedy in zip(plans, remedies, strict=True):
        if remedy:
            with pytest.raises(DataLossError, match=f"created again at [^ ]*; {remedy}$"):
                read(reader, parts)
        else:
            assert read(reader, parts) == ([] if reader in streams else [3])
            assert "rows_lost" in caplog.text
            caplog.clear()
    anew = tables.query(**CHANGES, onDataLoss="resnapshot")
    assert read(anew, anew.partitions(offset, end)) == []
    again = anew.latestOffset(end, LIMIT)
    assert sorted(key for key in read(anew, anew.partitions(end, again)) if key) == [1, 2, 3]


def test_late_rows_of_a_log_created_again_after_the_plan(
    tables: Tables, caplog: pytest.LogCaptureFixture
) -> None:
    """A task raises an error if late rows listed in its plan are gone."""
    tables.create()
    stream, lenient, anew = (
        tables.query(**CHANGES, lateRows="deliver", onDataLoss=mode)
        for mode in ("fail", "continue", "resnapshot")
    )
    offset = tables.advanced(stream)
    written = tables.clock.now() - 60 * SECOND
    tables.server.execute(f"INSERT INTO ks.t (pk, v) VALUES (1, 1) USING TIMESTAMP {written}")
    tables.clock.advance(120 * SECOND)
    end = stream.latestOffset(offset, LIMIT)
    plans = [[p for p in s.partitions(offset, end) if "Late" in repr(p)] for s in (stream, lenient)]
    assert read(stream, plans[0]) == [1]
    create_log_again(tables)
    with pytest.raises(DataLossError, match=r"^1 late rows of ks\.t .* are gone: .* start over$"):
        read(stream, plans[0])
    assert "rows_lost" not in caplog.text
    assert read(anew, plans[0]) == []
    assert "rows_lost" not in caplog.text
    assert read(lenient, plans[1]) == []
    assert caplog.text.count("rows_lost") == 1


def test_a_log_created_again_and_a_new_snapshot(tables: Tables) -> None:
    """If the log is created again, ``resnapshot`` begins a snapshot in the next micro-batch."""
    tables.create()
    anew = {**CHANGES, "onDataLoss": "resnapshot"}
    offset = tables.advanced(tables.query(**anew))
    created = create_log_again(tables)
    stream = tables.query(**anew)
    end = stream.latestOffset(offset, LIMIT)
    assert end["lost"] == [offset["position"], created]
    assert sorted(key for key in read(stream, stream.partitions(offset, end)) if key) == [2, 3]


def test_a_ttl_too_short_for_new_snapshots_is_refused(tables: Tables) -> None:
    """A TTL that is too short for a new snapshot is rejected at `load()` and after a loss."""
    tables.create(ttl=3_600)
    anew = {**CHANGES, "onDataLoss": "resnapshot"}
    stream = tables.query(**anew)
    offset = tables.advanced(stream)
    tables.server.execute("INSERT INTO ks.t (pk, v) VALUES (1, 1)")
    tables.clock.advance(HOUR)
    tables.server.execute("ALTER TABLE ks.t WITH cdc = {'enabled': true, 'ttl': 100}")
    tables.server.execute("INSERT INTO ks.t (pk, v) VALUES (2, 2)")
    tables.clock.advance(60 * SECOND)
    message = "onDataLoss is 'resnapshot': the log keeps changes for 100 s, .* to 134 or more"
    with pytest.raises(ConfigurationError, match=message):
        stream.latestOffset(offset, LIMIT)
    with pytest.raises(ConfigurationError, match=message):
        tables.query(**anew)


def test_a_snapshot_cannot_be_added_later(tables: Tables) -> None:
    """A snapshot cannot be added to a query later, nor left out while it is pending.

    After the snapshot, the option `snapshot` is ignored.
    """
    tables.create()
    message = (
        "^snapshot is 'initial', but the query of this checkpointLocation began without a snapshot"
    )
    refused(tables.query(**SNAPSHOT), tables.advanced(tables.query()), message)
    stream = tables.query(**SNAPSHOT)
    start = stream.initialOffset()
    assert start["snapshot"] == "pending"
    refused(
        tables.query(**CHANGES),
        start,
        "^snapshot is 'none', .* has not read all of its snapshot: give 'initial'",
    )
    done = stream.latestOffset(start, LIMIT)
    assert done["snapshot"] == "done"
    for again in (tables.query(**SNAPSHOT), tables.query(**CHANGES)):
        again.partitions(start | {"snapshot": "done"}, done)
        assert again.latestOffset(done, LIMIT)["snapshot"] == "done"


def expired(tables: Tables, later_ttl: int) -> dict[str, Any]:
    """Return an offset before row 2. Row 2 expires after an hour, and row 3 is written later.

    When row 3 is written, the TTL is `later_ttl` seconds.
    """
    tables.create(ttl=3_600)
    offset = tables.advanced(tables.query())
    tables.server.execute("INSERT INTO ks.t (pk, v) VALUES (2, 2)")
    tables.clock.advance(2 * HOUR)
    if later_ttl != 3_600:
        cdc = f"{{'enabled': true, 'ttl': {later_ttl}}}"
        tables.server.execute(f"ALTER TABLE ks.t WITH cdc = {cdc}")
    tables.clock.advance(HOUR)
    tables.server.execute("INSERT INTO ks.t (pk, v) VALUES (3, 3)")
    return offset


@pytest.mark.parametrize("later_ttl", [3_600, 86_400])
def test_starting_offsets_whose_rows_expired(
    tables: Tables, caplog: pytest.LogCaptureFixture, later_ttl: int
) -> None:
    """Expired starting offsets are treated like expired checkpoints."""
    given = expired(tables, later_ttl)
    tables.clock.advance(120 * SECOND)
    strict = tables.query(startingOffsets=json.dumps(given))
    start = strict.initialOffset()
    assert start["position"] == given["position"]
    message = r"TTL was 3600 s.* onDataLoss .* with startingOffsets 'earliest' and a new"
    with pytest.raises(DataLossError, match=message):
        strict.partitions(start, strict.latestOffset(start, LIMIT))
    lenient = tables.query(startingOffsets=json.dumps(given), onDataLoss="continue")
    assert keys(lenient) == [3]
    assert "rows_lost" in caplog.text
    caplog.clear()
    assert keys(tables.query(startingOffsets="earliest")) == [3]
    assert "rows_lost" not in caplog.text


@pytest.mark.parametrize("later_ttl", [3_600, 86_400])
def test_a_batch_from_offsets_whose_rows_expired(
    tables: Tables, caplog: pytest.LogCaptureFixture, later_ttl: int
) -> None:
    """A batch that starts at expired offsets follows the rules for streams."""
    given = expired(tables, later_ttl)
    starting = {"startingOffsets": json.dumps(given)}
    message = r"TTL was 3600 s, .*onDataLoss .*, or leave startingOffsets out$"
    with pytest.raises(DataLossError, match=message):
        tables.batch(**starting).partitions()
    assert batch_keys(tables.batch(**starting, onDataLoss="continue")) == [3]
    assert "rows_lost" in caplog.text
    caplog.clear()
    assert batch_keys(tables.batch()) == [3]
    assert "rows_lost" not in caplog.text


@pytest.mark.parametrize("has_end", [False, True])
def test_a_starting_timestamp_whose_rows_expired(
    tables: Tables, caplog: pytest.LogCaptureFixture, *, has_end: bool
) -> None:
    """If rows have expired, a batch and a stream log a warning and read the remaining rows."""
    tables.create(ttl=3_600)
    starting = {"startingTimestamp": format_timestamp(tables.clock.now())}
    if has_end:
        starting["endingTimestamp"] = format_timestamp(tables.clock.now() + HOUR)
    tables.server.execute("INSERT INTO ks.t (pk, v) VALUES (2, 2)")
    tables.clock.advance(3 * HOUR)
    tables.server.execute("INSERT INTO ks.t (pk, v) VALUES (3, 3)")
    tables.clock.advance(60 * SECOND)
    assert batch_keys(tables.batch(**starting)) == ([] if has_end else [3])
    assert caplog.text.count("rows_lost") == 1
    if not has_end:
        assert keys(tables.query(**starting)) == [3]
        assert caplog.text.count("rows_lost") == 2


def test_a_start_in_the_future_is_told(tables: Tables, caplog: pytest.LogCaptureFixture) -> None:
    """If the start is in the future, a batch is empty, a stream waits, and both log a warning."""
    tables.create()
    start = tables.clock.now() + HOUR
    starting = {"startingTimestamp": format_timestamp(start)}
    assert batch_keys(tables.batch(**starting)) == []
    assert caplog.text.count("start_in_the_future") == 1
    offset = offset_at(tables.query(), start)
    for given in (starting, {"startingOffsets": json.dumps(offset)}):
        caplog.clear()
        stream = tables.query(**given)
        for _ in range(2):
            first = stream.initialOffset()
            assert stream.latestOffset(first, LIMIT) == first
        assert caplog.text.count("start_in_the_future") == 1


def test_a_starting_timestamp_before_the_table(
    tables: Tables, caplog: pytest.LogCaptureFixture
) -> None:
    """A log that is younger than its TTL has lost no rows."""
    tables.clock.advance(SystemClock().now() - tables.clock.now())
    tables.create(ttl=3_600)
    tables.clock.advance(HOUR // 2)
    tables.server.execute("INSERT INTO ks.t (pk, v) VALUES (3, 3)")
    tables.clock.advance(60 * SECOND)
    starting = {"startingTimestamp": "2020-01-01"}
    assert batch_keys(tables.batch(**starting)) == keys(tables.query(**starting)) == [3]
    assert "rows_lost" not in caplog.text


def test_a_table_made_anew_has_lost_nothing(
    tables: Tables, caplog: pytest.LogCaptureFixture
) -> None:
    """If a table is created again, only the age of its new log determines what was lost."""
    tables.clock.advance(SystemClock().now() - tables.clock.now())
    tables.create(ttl=3_600)
    tables.clock.advance(3 * HOUR)
    starting = {"startingTimestamp": "2020-01-01"}
    assert batch_keys(tables.batch(**starting)) == []
    assert caplog.text.count("rows_lost") == 1
    tables.server.execute("DROP TABLE ks.t")
    tables.create(ttl=3_600)
    tables.server.execute("INSERT INTO ks.t (pk, v) VALUES (3, 3)")
    tables.clock.advance(120 * SECOND)
    assert batch_keys(tables.batch(**starting)) == keys(tables.query(**starting)) == [3]
    assert caplog.text.count("rows_lost") == 1


def test_rows_with_a_write_time_before_the_table(
    tables: Tables, caplog: pytest.LogCaptureFixture
) -> None:
    """Rows with write times before the table's creation are lost if they expire before a read."""
    tables.clock.advance(SystemClock().now() - tables.clock.now())
    tables.create(ttl=3_600)
    made = tables.clock.now()
    written = made - 30 * SECOND
    tables.server.execute(f"INSERT INTO ks.t (pk, v) VALUES (1, 1) USING TIMESTAMP {written}")
    tables.clock.advance(120 * SECOND)
    span = {
        "startingTimestamp": format_timestamp(made - 50 * SECOND),
        "endingTimestamp": format_timestamp(made - 10 * SECOND),
    }
    batch = tables.batch(**span)
    parts = batch.partitions()
    assert read(batch, parts) == [1]
    tables.clock.advance(2 * HOUR)
    with pytest.raises(DataLossError, match="passed while the query read them"):
        read(batch, parts)
    assert batch_keys(tables.batch(**span)) == []
    assert caplog.text.count("rows_lost") == 1


def test_starting_offsets_that_expire_before_the_first_commit(tables: Tables) -> None:
    """A query that stops in its first micro-batch reports rows that expire before its restart."""
    tables.create(ttl=3_600)
    given = json.dumps(tables.advanced(tables.query()))
    tables.server.execute("INSERT INTO ks.t (pk, v) VALUES (2, 2)")
    tables.clock.advance(120 * SECOND)
    stream = tables.query(startingOffsets=given)
    assert keys(stream) == [2]
    end = stream.latestOffset(stream.initialOffset(), LIMIT)
    tables.clock.advance(2 * HOUR)
    restarted = tables.query(startingOffsets=given)
    with pytest.raises(DataLossError, match="expired before they were read"):
        restarted.partitions(restarted.initialOffset(), end)


def test_starting_offsets_of_another_table(tables: Tables) -> None:
    """Offsets of another table are rejected at `load()`."""
    tables.create("t1")
    tables.create("t2")
    given = json.dumps(tables.query("t1").reportLatestOffset())
    with pytest.raises(
        CheckpointError, match=r"^startingOffsets: .* ks\.t1, .* reads ks\.t2: give"
    ):
        tables.query("t2", startingOffsets=given)
    tables.server.execute("DROP TABLE ks.t1")
    tables.create("t1")
    with pytest.raises(
        CheckpointError, match=r"^startingOffsets: .* was dropped and created again"
    ):
        tables.query("t1", startingOffsets=given)


def test_raising_the_ttl_does_not_hide_a_loss(tables: Tables) -> None:
    """Raising the TTL does not hide a loss, because older rows keep the old TTL."""
    tables.create(ttl=3_600)
    offset = tables.advanced(tables.query())
    tables.server.execute("INSERT INTO ks.t (pk, v) VALUES (1, 1)")
    tables.clock.advance(2 * HOUR)
    tables.server.execute("ALTER TABLE ks.t WITH cdc = {'enabled': true, 'ttl': 86400}")
    tables.clock.advance(HOUR)
    stream = tables.query()
    end = stream.latestOffset(offset, LIMIT)
    with pytest.raises(DataLossError, match=r"TTL was 3600 s, and onDataLoss"):
        stream.partitions(offset, end)
    assert [seconds for _, seconds in end["ttl"]] == [3_600, 86_400]
    assert end["ttl"][1][0] == EPOCH + 2 * HOUR + 120 * SECOND


def test_lowering_the_ttl_is_no_loss(tables: Tables) -> None:
    """Lowering the TTL loses no older rows, because the new TTL applies only to newer rows."""
    tables.create(ttl=86_400)
    stream = tables.query(startingTimestamp="latest")
    offset = tables.advanced(stream)
    tables.server.execute("INSERT INTO ks.t (pk, v) VALUES (1, 1)")
    tables.clock.advance(2 * HOUR)
    tables.server.execute("ALTER TABLE ks.t WITH cdc = {'enabled': true, 'ttl': 600}")
    tables.clock.advance(60 * SECOND)
    for each in (stream, tables.query()):
        parts = each.partitions(offset, each.latestOffset(offset, LIMIT))
        rows = [row for part in parts for batch in each.read(part) for row in batch.to_pylist()]
        assert [row["pk"] for row in rows] == [1]
    tables.clock.advance(HOUR)
    for each in (stream, tables.query()):
        with pytest.raises(DataLossError, match="TTL was 600 s"):
            each.partitions(offset, each.latestOffset(offset, LIMIT))


def planned(tables: Tables, **more: str) -> tuple[StreamReader, Sequence[InputPartition]]:
    """Return a query and the partitions of its second micro-batch.

    The micro-batch contains row 1, which expires after an hour.
    """
    tables.create(ttl=3_600)
    stream = tables.query(**more)
    offset = tables.advanced(stream)
    tables.server.execute("INSERT INTO ks.t (pk, v) VALUES (1, 1)")
    tables.clock.advance(120 * SECOND)
    return stream, stream.partitions(offset, stream.latestOffset(offset, LIMIT))


@pytest.mark.parametrize("late_rows", ["ignore", "deliver"])
def test_rows_that_expire_before_their_task_reads_them(tables: Tables, late_rows: str) -> None:
    """A task that reads rows after they have expired raises an error."""
    stream, parts = planned(tables, lateRows=late_rows)
    sent = pickle.loads(pickle.dumps(parts))
    assert read(stream, sent) == [1]
    tables.clock.advance(2 * HOUR)
    message = r"^rows of ks\.t written in .* expired before .* the log's TTL of 3600 s passed while"
    with pytest.raises(DataLossError, match=message) as error:
        read(stream, sent)
    assert "\n" not in str(error.value)


def test_a_task_that_comes_too_late_may_go_on(
    tables: Tables, caplog: pytest.LogCaptureFixture
) -> None:
    """With `onDataLoss=continue`, a late task logs the write times of the expired rows."""
    stream, parts = planned(tables, onDataLoss="continue")
    assert "rows_lost" not in caplog.text
    tables.clock.advance(2 * HOUR)
    assert read(stream, parts) == []
    assert f"start='{format_timestamp(EPOCH + 90 * SECOND)}'" in caplog.text


@pytest.mark.parametrize(
    ("start", "is_error"),
    [
        ({}, False),
        ({"startingTimestamp": format_timestamp(EPOCH)}, True),
        ({"startingOffsets": "given"}, True),
    ],
)
def test_rows_that_expire_before_a_batch_reads_them(
    tables: Tables, caplog: pytest.LogCaptureFixture, start: dict[str, str], is_error: bool
) -> None:
    """If rows expire before a batch reads them, a batch with a start fails.

    A batch without a start logs a warning and reads the remaining rows.
    """
    tables.create(ttl=3_600)
    given = json.dumps(tables.advanced(tables.query()))
    tables.server.execute("INSERT INTO ks.t (pk, v) VALUES (1, 1)")
    tables.clock.advance(120 * SECOND)
    batch = tables.batch(
        **{name: given if text == "given" else text for name, text in start.items()}
    )
    parts = batch.partitions()
    assert read(batch, parts) == [1]
    tables.clock.advance(2 * HOUR)
    if is_error:
        with pytest.raises(DataLossError, match="passed while the query read them"):
            read(batch, parts)
    else:
        assert read(batch, parts) == []
        assert "rows_lost" in caplog.text


@pytest.mark.parametrize("start", [{}, {"startingTimestamp": format_timestamp(EPOCH)}])
def test_the_oldest_rows_of_an_old_log(
    tables: Tables, caplog: pytest.LogCaptureFixture, start: dict[str, str]
) -> None:
    """A read from the oldest row of an old log reports no loss, although rows expire meanwhile."""
    tables.create(ttl=3_600)
    tables.clock.advance(2 * HOUR)
    tables.server.execute("INSERT INTO ks.t (pk, v) VALUES (1, 1)")
    tables.clock.advance(120 * SECOND)
    stream, batch = tables.query(**start), tables.batch(**start)
    first = stream.initialOffset()
    parts = stream.partitions(first, stream.latestOffset(first, LIMIT))
    whole = batch.partitions()
    caplog.clear()
    tables.clock.advance(300 * SECOND)
    assert read(stream, parts) == read(batch, whole) == [1]
    assert "rows_lost" not in caplog.text


@pytest.mark.slow
@pytest.mark.spark
def test_spark_ends_a_stream_whose_rows_expired(
    execute: Callable[..., None], load: Callable[..., DataFrame], tmp_path: Path
) -> None:
    """Spark ends a query if rows expired while the query was stopped.

    On Spark 4.0 and 4.1, the query must find a row to read.
    """
    cdc = "{'enabled': true, 'ttl': 5}"
    execute(f"CREATE TABLE {{t}} (pk int PRIMARY KEY) WITH cdc = {cdc}")

    def run() -> None:
        frame = load(stream=True, confidenceWindow="0s")
        writer = frame.writeStream.format("noop").trigger(availableNow=True)
        writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start().awaitTermination()

    start = format_timestamp(SystemClock().now())
    execute("INSERT INTO {t} (pk) VALUES (1)")
    run()
    execute("INSERT INTO {t} (pk) VALUES (2)")
    while load(startingTimestamp=start, onDataLoss="continue").count():
        pass  # until both rows have expired
    execute("INSERT INTO {t} (pk) VALUES (3)")
    message = r"rows of .*\.t written in .* expired before they were read; the log's TTL of 5 s"
    with pytest.raises(StreamingQueryException, match=message):
        run()


@pytest.mark.slow
@pytest.mark.spark
def test_spark_shows_the_error(
    spark: SparkSession,  # noqa: ARG001 - load() needs it
    scylla: Scylla,
    keyspace: str,
    load: Callable[..., DataFrame],
    tmp_path: Path,
) -> None:
    """This project's error is the last part of Spark's message."""

    def run(name: str) -> None:
        frame = load(stream=True, table=name, confidenceWindow="0s")
        writer = frame.writeStream.format("noop").trigger(availableNow=True)
        writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start().awaitTermination()

    def create(name: str) -> None:
        scylla.session.execute(
            f"CREATE TABLE {keyspace}.{name} (pk int PRIMARY KEY) WITH cdc = {{'enabled': true}}"
        )

    create("t1")
    create("t2")
    run("t1")
    run("t1")
    with pytest.raises(StreamingQueryException, match=r"\.t1, but the query reads .*\.t2: start"):
        run("t2")
    scylla.session.execute(f"DROP TABLE {keyspace}.t1")
    create("t1")
    with pytest.raises(StreamingQueryException, match="was dropped and created again with"):
        run("t1")

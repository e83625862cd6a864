"""A copy of one table: the streaming query that maintains it, started again when that is needed."""

from __future__ import annotations

import time
import zlib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from attrs import define, field
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructField, StructType

from cdc_reader._log import get_logger
from cdc_reader.checkpoints.spark import NAME_FILE
from cdc_reader.errors import CdcError
from pyspark_scylla_cdc.executors.reread import rereader
from pyspark_scylla_cdc.mirroring.failures import mirror_error
from pyspark_scylla_cdc.mirroring.lease import Lease
from pyspark_scylla_cdc.mirroring.runs import RepeatedRuns, needs_repeats
from pyspark_scylla_cdc.mirroring.status import CopyStatus, copy_files, status_of
from pyspark_scylla_cdc.mirroring.stored_file import StoredFile
from pyspark_scylla_cdc.monitoring.known import ALTERED, COPIES, LISTENERS, RESTARTED
from pyspark_scylla_cdc.offsets.offset import Offset
from pyspark_scylla_cdc.offsets.spark_checkpoint import planned_last
from pyspark_scylla_cdc.options.source_options import SourceOptions
from pyspark_scylla_cdc.sessions import schema_of
from pyspark_scylla_cdc.source import ScyllaCdcDataSource
from pyspark_scylla_cdc.streaming.snapshot_end import SnapshotEnd
from pyspark_scylla_cdc.tables.expiry import Expiry
from pyspark_scylla_cdc.tables.layout import Layout, layout_of
from pyspark_scylla_cdc.tables.maintenance import Maintenance
from pyspark_scylla_cdc.tables.sink import MicroBatch, Sink
from pyspark_scylla_cdc.tables.update import update

log = get_logger(__name__)

_LOOK, _LOOK_REMOTELY = 5.0, 60.0
"""Seconds between two looks at the table's columns: one query, or in a Spark Connect session, which
may not reach the cluster itself, a ``load()``."""

_BUSY = "Python worker failed to connect back"
"""What Spark says if a busy machine does not start a Python process in time."""
_BUSY_RESTARTS, _BUSY_PERIOD = 3, 600.0
"""How often a query is started again because of that, within this many seconds."""

_STOPPED = "its query was stopped from outside; call mirror again to continue"


@define(eq=False)
class Copy:
    """One table, its target and, after the start, the query between them."""

    spark: SparkSession
    options: Mapping[str, str]
    sink: Sink
    checkpoint: str
    trigger: Mapping[str, Any]
    history: bool
    name: str | None = None
    lease: Lease | None = None
    maintain: bool = True
    query: StreamingQuery | None = field(default=None, init=False)
    _is_stopped: bool = field(default=False, init=False)
    _layout: Layout | None = field(default=None, init=False)
    _schema: StructType = field(factory=StructType, init=False)
    _looked: float = field(default=0.0, init=False)
    _raised: list[Exception] = field(factory=list, init=False)
    _runs: RepeatedRuns | None = field(default=None, init=False)
    _busy: list[float] = field(factory=list, init=False)
    # These two outlive a query that is started again, which Spark 4.0 and 4.1 need for each
    # micro-batch of the trigger ``availableNow``.
    _maintenance: Maintenance = field(factory=Maintenance, init=False)
    _expiry: Expiry = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._expiry = Expiry(partial(_read_again, self.options))
        if needs_repeats(self.trigger):
            self._runs = RepeatedRuns(self.spark, self.options, self.checkpoint)

    def start(self) -> None:
        """Load the table with its current columns, prepare the target, and start the query."""
        options = self.options if self._runs is None else self._runs.begin()
        frame = self.spark.readStream.format("scylla_cdc").options(**options).load()
        if self.lease is not None:
            self.lease.take()
        layout = self.sink.prepare(layout_of(frame, history=self.history))
        self._layout, self._schema, self._looked = layout, frame.schema, time.monotonic()
        sink, checkpoint, expected = self.sink, self.checkpoint, partial(_rows_of, self.options)
        raised = self._raised = []
        maintenance, expiry = self._maintenance if self.maintain else None, self._expiry

        def write(changes: DataFrame, number: int) -> None:
            # `self` refers to the query, and the query to this function: across Python and the JVM,
            # no garbage collector would find such a cycle. A Spark Connect session runs a copy of
            # this function in another process.
            try:
                batch = planned_batch(changes.sparkSession, checkpoint, number)
                update(sink, layout, changes, batch, expected, expiry)
                if maintenance is not None:
                    maintenance.after(number, sink, layout, changes.sparkSession)
                    COPIES[batch.query] = copy_files(maintenance.files)
            except Exception as error:
                raised.append(error)
                raise

        for listener in LISTENERS:
            listener.expect(self.spark, checkpoint)
        writer = frame.writeStream.foreachBatch(write)
        writer = writer.option("checkpointLocation", checkpoint).trigger(**self.trigger)
        self.query = (writer if self.name is None else writer.queryName(self.name)).start()
        self._note_name()
        RESTARTED.add(self.query.id)
        if self._is_stopped:  # meanwhile
            self.query.stop()

    def _note_name(self) -> None:
        """Write the query's name into the checkpoint, for `scylla-cdc status`; Spark does not."""
        if self.name is None or self._is_remote:
            return
        with suppress(Py4JJavaError):  # the status then shows the query's id
            StoredFile(f"{self.checkpoint.rstrip('/')}/{NAME_FILE}", self.spark).write(self.name)

    def rows(self) -> DataFrame:
        """Return the rows of the copy as it is now, with the table's columns."""
        assert self._layout is not None  # noqa: S101 - the copy was started
        return self.sink.rows(self.spark).drop(self._layout.state)

    def status(self) -> CopyStatus:
        """Return the state of the copy."""
        files = copy_files(self.sink.files(self.spark))
        return status_of(self.spark, self.checkpoint, self.sink.target, files)

    def stop(self) -> None:
        """Stop the query; it is not started again."""
        self._is_stopped = True
        if self.query is not None:
            self.query.stop()

    def end(self) -> None:
        """Stop the query, and let others write to the target."""
        self.stop()
        if self.lease is not None:
            self.lease.release()

    @property
    def _is_remote(self) -> bool:
        """Whether the session is one of Spark Connect."""
        return not hasattr(self.spark, "_jsparkSession")

    def goes_on(self) -> bool:
        """Return whether the query is running; start it again if it ended too early.

        It reads no further, or ends, if the columns changed. On Spark 4.0 and 4.1 it ends after
        each micro-batch of the trigger ``availableNow``. Raises MirrorError for a query that
        failed.
        """
        query = self.query
        if query is None:
            return False
        if self.lease is not None:
            self.lease.renew()
        if query.isActive:
            if self._may_look() and not query.status["isTriggerActive"]:
                self._begin_again_if_altered()
            return True
        error = query.exception()
        if error is None:
            return self._begin_again_if_altered() or self._repeats() or self._has_ended()
        if _BUSY in str(error) and self._starts_again_when_busy():
            return True
        if ALTERED not in str(error):
            raised = self._raised.pop() if self._raised else None
            raise mirror_error(self.sink.target, error, raised)
        if not self._begin_again_if_altered():
            self.start()
        return True

    def _starts_again_when_busy(self) -> bool:
        """Start the query again unless that has not helped; return whether it was."""
        now = time.monotonic()
        self._busy = [at for at in self._busy if now - at < _BUSY_PERIOD]
        if self._is_stopped or len(self._busy) == _BUSY_RESTARTS:
            return False
        self._busy.append(now)
        told = "Spark could not start a Python process in time; the query is started again"
        log.warning("copy_restarted", target=self.sink.target, told=told)
        self.start()
        return True

    def _may_look(self) -> bool:
        """Return whether it is time to look at the table's columns."""
        since = time.monotonic() - self._looked
        return since >= (_LOOK_REMOTELY if self._is_remote else _LOOK)

    def _begin_again_if_altered(self) -> bool:
        """Start the query again if the table has other columns; return whether it has."""
        if self._is_stopped:
            return False
        self._looked = time.monotonic()
        try:
            now = self._current_schema()
        except (CdcError, PySparkException):
            return False  # the query meets the same error, and tells or repeats it
        texts = [*_differences(self._schema, now)]
        if not texts:
            return False
        told = "; ".join([*texts, "the query is started again"])
        log.warning("columns_changed", target=self.sink.target, told=told)
        if self.query is not None:
            self.query.stop()
        self.start()
        return True

    def _current_schema(self) -> StructType:
        """Return the schema that the table's changes have now."""
        if not self._is_remote:
            return ScyllaCdcDataSource({**self.options}).schema()
        return self.spark.readStream.format("scylla_cdc").options(**self.options).load().schema

    def _repeats(self) -> bool:
        """Start the query again if a further run is needed; return whether it is."""
        if self._is_stopped or self._runs is None or self._runs.is_last():
            return False
        self.start()
        return True

    def _has_ended(self) -> bool:
        """Return False; tell of an end that neither the trigger nor `stop` brought about."""
        if not self._is_stopped and "processingTime" in self.trigger:
            log.warning("copy_stopped", target=self.sink.target, told=_STOPPED)
        return False


def _differences(old: StructType, new: StructType) -> Iterator[str]:
    """Yield in words which columns were added and dropped, and which have another type."""
    before, after = ({field.name: field.dataType for field in each} for each in (old, new))
    changed = [name for name in before.keys() & after.keys() if before[name] != after[name]]
    for text, names in (
        ("columns added", [name for name in after if name not in before]),
        ("columns dropped", [name for name in before if name not in after]),
        ("types changed", sorted(changed)),
    ):
        if names:
            yield f"{text}: {', '.join(names)}"


def _rows_of(options: Mapping[str, str]) -> int:
    """Return the estimated number of rows in the table."""
    parsed = SourceOptions.parse(options)
    with parsed.as_option_errors():
        return SnapshotEnd(parsed, schema_of(parsed)).rows()


def _read_again(options: Mapping[str, str], keys: DataFrame, changes: DataFrame) -> DataFrame:
    """Return the partitions with these keys as they are now, as changes; see `Rereading`."""
    *key, _ = keys.columns
    fields = StructType(
        [StructField(f"c{at}", it.dataType) for at, it in enumerate(changes.schema)]
    )
    read = rereader(options, changes.columns, key)
    numbered = keys.toDF(*(f"c{place}" for place in range(len(keys.columns))))
    return numbered.mapInArrow(read, fields).toDF(*changes.columns)


def planned_batch(spark: SparkSession, checkpoint: str, number: int) -> MicroBatch:
    """Return the micro-batch with this number, with a digest of its plan."""
    plan, *before = planned_last(spark, checkpoint, number, 2)
    [end] = plan.ends
    since = before[0].ends[0] if before else None
    is_of_snapshot = end.is_before_snapshot or _completes_snapshot(since, end)
    snapshot = end.position if is_of_snapshot else None
    position = None if since is None else since.position
    return MicroBatch(plan.query, number, zlib.crc32(plan.content), snapshot, position)


def _completes_snapshot(since: Offset | None, end: Offset) -> bool:
    """Return whether the micro-batch up to `end` has the last rows of a snapshot, and no others.

    Without a limit, Spark 4.0 and 4.1 read rows of the log in the same micro-batch.
    """
    if since is None:
        return end.has_snapshot and end.began == end.position
    return since.is_before_snapshot and since.position == end.position

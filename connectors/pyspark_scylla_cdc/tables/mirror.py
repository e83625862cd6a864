"""`mirror` maintains copies of tables in a lakehouse."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any

from attrs import define, field
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import BooleanType, StructField, StructType, TimestampType

from cdc_reader._log import get_logger
from cdc_reader._settings import is_text, member
from cdc_reader.changes.frames import columns as names
from cdc_reader.config import LateRowsMode
from cdc_reader.cql.names import TableName, without_case
from cdc_reader.errors import ConfigurationError, MirrorError, TableAlteredError
from pyspark_scylla_cdc.tables.delta import DeltaLakeSink
from pyspark_scylla_cdc.tables.differences import fitted
from pyspark_scylla_cdc.tables.failures import mirror_error
from pyspark_scylla_cdc.tables.fold import Fold
from pyspark_scylla_cdc.tables.history import versions
from pyspark_scylla_cdc.tables.keys import refuse_equal_names, refuse_keys
from pyspark_scylla_cdc.tables.merge import DeltaSparkSink, IcebergSink
from pyspark_scylla_cdc.tables.ranges import column, quoted
from pyspark_scylla_cdc.tables.runs import RepeatedRuns, needs_repeats
from pyspark_scylla_cdc.tables.sink import (
    IS_CURRENT,
    VALID_FROM,
    VALID_TO,
    VERSION,
    Layout,
    MicroBatch,
    Sink,
    has,
)
from pyspark_scylla_cdc.tables.spark_checkpoint import planned_batch

log = get_logger(__name__)

_SET = {
    "format": "changes",
    "includedelta": "true",
    "rangedeletes": "emit",
    "snapshot": "initial",
    "schemamode": "fail",
}
"""Source options that a copy needs; users cannot set them."""
_ALTERED = f"{TableAlteredError.__module__}.{TableAlteredError.__qualname__}: "
"""What Spark's text of an error contains if this error has ended the query."""
_TRIGGER = {"processingTime": "1 minute"}
_TICK = 0.2
"""Seconds between checks of the queries of several tables."""


class Format(StrEnum):
    """The format of a copy."""

    DELTA = "delta"
    ICEBERG = "iceberg"


@define(eq=False)
class _Copy:
    """One table, its target and, after the start, the query between them."""

    spark: SparkSession
    options: Mapping[str, str]
    sink: Sink
    checkpoint: str
    trigger: Mapping[str, Any]
    history: bool
    query: StreamingQuery | None = field(default=None, init=False)
    _is_stopped: bool = field(default=False, init=False)
    _marker: str = field(default="", init=False)
    _raised: list[Exception] = field(factory=list, init=False)
    _runs: RepeatedRuns | None = field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        if needs_repeats(self.trigger):
            self._runs = RepeatedRuns(self.spark, self.options, self.checkpoint)

    def start(self) -> None:
        """Load the table with its current columns, prepare the target, and start the query."""
        options = self.options if self._runs is None else self._runs.begin()
        frame = self.spark.readStream.format("scylla_cdc").options(**options).load()
        layout = self.sink.prepare(layout_of(frame, history=self.history))
        self._marker = layout.marker
        sink, checkpoint = self.sink, self.checkpoint
        raised = self._raised = []

        def write(changes: DataFrame, number: int) -> None:
            # `self` refers to the query, and the query to this function: across Python and the JVM,
            # no garbage collector would find such a cycle. A Spark Connect session runs a copy of
            # this function in another process.
            try:
                batch = planned_batch(changes.sparkSession, checkpoint, number)
                update(sink, layout, changes, batch)
            except Exception as error:
                raised.append(error)
                raise

        writer = frame.writeStream.foreachBatch(write)
        writer = writer.option("checkpointLocation", self.checkpoint)
        self.query = writer.trigger(**self.trigger).start()
        if self._is_stopped:  # meanwhile
            self.query.stop()

    def rows(self) -> DataFrame:
        """Return the rows of the copy as it is now, with the table's columns."""
        return self.sink.rows(self.spark).drop(self._marker)

    def stop(self) -> None:
        """Stop the query; it is not started again."""
        self._is_stopped = True
        if self.query is not None:
            self.query.stop()

    def goes_on(self) -> bool:
        """Return whether the query is running; start it again if it ended too early.

        It ends early if the columns changed, and on Spark 4.0 and 4.1 after each micro-batch of the
        trigger ``availableNow``. Raises MirrorError for a query that failed.
        """
        query = self.query
        if query is None or query.isActive:
            return query is not None
        error = query.exception()
        if error is None:
            return self._repeats()
        if _ALTERED not in str(error):
            raised = self._raised.pop() if self._raised else None
            raise mirror_error(self.sink.target, error, raised)
        log.info("columns_changed", checkpoint=self.checkpoint)
        self.start()
        return True

    def _repeats(self) -> bool:
        """Start the query again if a further run is needed; return whether it is."""
        if self._is_stopped or self._runs is None or self._runs.is_last():
            return False
        self.start()
        return True


@define(eq=False)
class Mirror:
    """Copies that streaming queries maintain; see `mirror`."""

    _copies: Sequence[_Copy]

    @property
    def queries(self) -> list[StreamingQuery]:
        """The streaming queries, one for each table.

        When a query is started again, it is replaced: see `awaitTermination`.
        """
        return [copy.query for copy in self._copies if copy.query is not None]

    def start(self) -> None:
        """Start all queries; if one fails to start, stop the others."""
        try:
            for copy in self._copies:
                copy.start()
        except BaseException:
            self.stop()
            raise

    def awaitTermination(self, timeout: float | None = None) -> bool:  # noqa: N802 - Spark's name
        """Wait until all queries have ended; return False if `timeout` seconds pass first.

        If a query fails, the others are stopped and MirrorError is raised. A query that ends
        because the table gained or lost columns is restarted with the new columns. On Spark 4.0 and
        4.1, a query with the trigger ``availableNow`` ends after each micro-batch, and is restarted
        until it has read everything that had settled when it was first started.
        """
        end = None if timeout is None else time.monotonic() + timeout
        try:
            while any([copy.goes_on() for copy in self._copies]):  # noqa: C419 - each must be called
                if end is not None and time.monotonic() >= end:
                    return False
                time.sleep(_TICK)
        except MirrorError as error:
            self.stop()
            raise error.with_traceback(None)  # noqa: B904 - it has its cause
        except BaseException:
            self.stop()
            raise
        return True

    def stop(self) -> None:
        """Stop the queries; a later call to `mirror` continues where they stopped."""
        for copy in self._copies:
            copy.stop()

    def read(self, number: int = 0) -> DataFrame:
        """Return the rows of a copy as it is now; `number` is the index of its table, from 0."""
        return self._copies[number].rows()


def mirror(
    spark: SparkSession,
    options: Mapping[str, str],
    *,
    target: str,
    format: str = "delta",  # noqa: A002 - Spark's name
    tables: Sequence[str] | None = None,
    checkpoint: str | None = None,
    trigger: Mapping[str, Any] | None = None,
    history: bool = False,
) -> Mirror:
    """Start maintaining copies of one or several tables; return the running `Mirror`.

        mirror(spark, options, target="/data/orders").awaitTermination()

    The copy begins with a snapshot of the table. Then each micro-batch of changes is merged into
    the copy in one commit, exactly once. The copy has the table's columns, including new columns.
    Its rows equal the result of a SELECT, with some exceptions: for example, expired cells remain
    in the copy. See the how-to "Keep a table current".

    Args:
        spark: the session.
        options: the options of the source: hosts, keyspace, table and so on. The copy sets
            ``format``, ``includeDelta``, ``rangeDeletes``, ``snapshot`` and ``schemaMode`` itself.
            ``lateRows`` cannot be ``deliver``: a late row would overwrite newer values.
        target: the path of the copy; for ``iceberg``, its name in SQL, which begins with the name
            of a catalog. With `tables`, the directory, catalog or namespace that contains the
            copies: the copy of ``shop.orders`` is ``target/shop/orders`` or ``target.shop.orders``.
        format: with ``delta``, the copy is a Delta table, written by Delta Lake if the session has
            its extension, otherwise by deltalake. With ``iceberg``, the copy is an Iceberg table.
        tables: several tables, each as ``keyspace.table``, instead of the one in `options`.
        checkpoint: the directory for Spark's checkpoint, or for the checkpoints of several tables.
            The default is `target` with the suffix ``.checkpoint``; ``iceberg`` has no default. The
            checkpoint belongs to the copy: delete both to start over.
        trigger: as for `DataStreamWriter.trigger`, such as ``{"availableNow": True}``. The default
            is a micro-batch each minute, because each one writes files. On Spark 4.0 and 4.1, a
            query with ``availableNow`` reads everything only in `awaitTermination`.
        history: keep all versions of each row. The copy then has three more columns: ``valid_from``
            and ``valid_to`` (null for a current version), and ``is_current``.

    Raises ConfigurationError for values that cannot be used, and the errors of ``load()``.
    """
    _check_options(options)
    if format == "parquet":
        remedy = "give delta, whose files are Parquet, or write read() of the copy as Parquet"
        raise ConfigurationError("format", format, remedy)
    kind = member("format", format, Format)
    if not is_text(target):
        raise ConfigurationError("target", target, "give the copy's path or, for iceberg, its name")
    if kind is Format.ICEBERG and checkpoint is None:
        remedy = "give a directory for the checkpoint, which cannot be stored in a catalog"
        raise ConfigurationError("checkpoint", None, remedy)
    copies = [
        _Copy(spark, _source(options, table), sink, place, dict(trigger or _TRIGGER), history)
        for table, sink, place in _places(spark, kind, target, tables, checkpoint)
    ]
    running = Mirror(copies)
    running.start()
    return running


def _check_options(options: Mapping[str, str]) -> None:
    """Raise ConfigurationError for options of the source that a copy cannot have."""
    for name, value in options.items():
        if name.lower() in _SET:
            raise ConfigurationError(name, value, "mirror sets this option itself: leave it out")
        if name.lower() == "laterows" and str(value).lower() == LateRowsMode.DELIVER:
            remedy = (
                "a late row would overwrite newer values in the copy: give 'report' or 'ignore'"
            )
            raise ConfigurationError("lateRows", value, remedy)


def _source(options: Mapping[str, str], table: TableName | None) -> dict[str, str]:
    """Return the options of the source for a copy."""
    if table is None:
        return {**options, **_SET}
    kept = {name: value for name, value in options.items() if name.lower() != "path"}
    return {**kept, **_SET, "keyspace": table.keyspace, "table": table.name}


def _places(
    spark: SparkSession,
    kind: Format,
    target: str,
    tables: Sequence[str] | None,
    checkpoint: str | None,
) -> list[tuple[TableName | None, Sink, str]]:
    """Return the tables, each with its target and the directory of its checkpoint."""
    folder = checkpoint or f"{target.rstrip('/')}.checkpoint"
    if tables is None:
        return [(None, _sink(spark, kind, target), folder)]
    found: list[tuple[TableName | None, Sink, str]] = []
    for name in map(TableName.parse, tables):
        path, place = (f"{it.rstrip('/')}/{name.keyspace}/{name.name}" for it in (target, folder))
        if kind is Format.ICEBERG:
            path = f"{target}.{quoted(name.keyspace)}.{quoted(name.name)}"
        found.append((name, _sink(spark, kind, path), place))
    return found


def _sink(spark: SparkSession, kind: Format, target: str) -> Sink:
    has_delta_lake = "io.delta" in (spark.conf.get("spark.sql.extensions", None) or "")
    if kind is Format.DELTA and not has_delta_lake:
        return DeltaLakeSink(target)
    if not hasattr(spark, "_jsparkSession"):
        library = "Delta Lake's extension" if kind is Format.DELTA else "Iceberg"
        remedy = (
            f"Spark Connect gives no access to {library}: give format 'delta' in a session without "
            "this extension, or call mirror in a job on the cluster"
        )
        raise ConfigurationError("format", str(kind), remedy)
    return IcebergSink(spark, target) if kind is Format.ICEBERG else DeltaSparkSink(spark, target)


def layout_of(changes: DataFrame, *, history: bool = False) -> Layout:
    """Return the layout of a copy, from the schema of a table's changes.

    Raises ConfigurationError if the table has a column whose name the history needs, and
    SchemaError if Spark cannot compare its keys.
    """
    fields = [each for each in changes.schema if each.name not in names.ALL]
    kinds = {each.name: each.metadata.get("cql.kind") for each in fields}
    plain = [StructField(each.name, each.dataType) for each in fields]
    partition, clustering = (
        [name for name, found in kinds.items() if found == kind]
        for kind in ("partition_key", "clustering")
    )
    refuse_equal_names(fields)
    refuse_keys(field for field in fields if field.name in {*partition, *clustering})
    if not history:
        return Layout(StructType(plain), partition, clustering)
    if taken := [name for name in kinds if without_case(name) in VERSION]:
        remedy = (
            f"the table has a column {taken[0]}, a name that the history needs: leave history out"
        )
        raise ConfigurationError("history", history, remedy)
    types = {VALID_FROM: TimestampType(), VALID_TO: TimestampType(), IS_CURRENT: BooleanType()}
    plain += [StructField(name, types[name]) for name in VERSION]
    return Layout(StructType(plain), partition, [*clustering, VALID_FROM], history)


def update(sink: Sink, layout: Layout, changes: DataFrame, batch: MicroBatch) -> None:
    """Merge a micro-batch into the copy, unless the copy already contains it."""
    if has(sink, batch, changes.sparkSession):
        return
    sink.add_columns(layout)  # only now, because `has` rejects a copy of another table
    changes.persist()  # each fold reads the changes more than once
    try:
        touched = changes.select(*map(quoted, layout.partition)).distinct()
        rows = sink.rows(changes.sparkSession)
        columns = fitted(rows, layout.stored)
        there = rows.select(*(each.alias(name) for name, each in columns.items()))
        if layout.history:
            there = there.where(column(IS_CURRENT))
        before = there.join(touched, [*layout.partition], "left_semi")
        if _begins_anew(changes):
            before = there
        after = (
            versions(changes, before, layout.marker)
            if layout.history
            else Fold(changes, marker=layout.marker).result(before)
        )
        sink.commit(batch, layout, before, after)
    finally:
        changes.unpersist()


def _begins_anew(changes: DataFrame) -> bool:
    """Return whether these changes begin a new snapshot, which replaces all rows of the copy."""
    kind = changes.schema[names.CHANGE_TYPE]
    if kind.metadata.get("cql.marks") != "true":
        return False
    return not changes.where(column(names.CHANGE_TYPE) == names.SNAPSHOT_BEGIN).isEmpty()

"""`mirror` maintains copies of tables in a lakehouse."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from enum import StrEnum
from typing import Any

from attrs import define, field, frozen
from py4j.protocol import Py4JError
from pyspark import InheritableThread
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from cdc_reader._log import get_logger
from cdc_reader._settings import is_text, member
from cdc_reader.copies.columns import quoted
from cdc_reader.cql.discovery import Discovery
from cdc_reader.cql.names import TableName, tables_or_patterns
from cdc_reader.errors import CdcError, ConfigurationError, MirrorError
from pyspark_scylla_cdc.mirroring.capacity import check_capacity
from pyspark_scylla_cdc.mirroring.comparison import CopyComparison, compare
from pyspark_scylla_cdc.mirroring.copy import Copy
from pyspark_scylla_cdc.mirroring.found import FoundCopies
from pyspark_scylla_cdc.mirroring.lease import Lease
from pyspark_scylla_cdc.mirroring.status import CopyStatuses
from pyspark_scylla_cdc.mirroring.stored_file import StoredFile
from pyspark_scylla_cdc.options.late_rows import LateRowsChoice
from pyspark_scylla_cdc.options.source_options import SourceOptions
from pyspark_scylla_cdc.tables.delta import DeltaLakeSink
from pyspark_scylla_cdc.tables.merge import DeltaSparkSink, IcebergSink
from pyspark_scylla_cdc.tables.sink import Sink

log = get_logger(__name__)

_SET = {
    "format": "changes",
    "includedelta": "true",
    "rangedeletes": "emit",
    "snapshot": "initial",
    "schemamode": "hold",
}
"""Source options that a copy needs; users cannot set them."""
_TRIGGER = {"processingTime": "1 minute"}
_TICK = 0.2
"""Seconds between checks of the queries of several tables."""


class Format(StrEnum):
    """The format of a copy."""

    DELTA = "delta"
    ICEBERG = "iceberg"


@define(eq=False)
class Mirror:
    """Copies that streaming queries maintain; see `mirror`.

    A thread watches the queries, whether or not the program waits in `awaitTermination`. A query is
    started again with the new columns if its table gained or lost columns. On Spark 4.0 and 4.1, a
    query with the trigger ``availableNow`` ends after each micro-batch, and is started again until
    it has read everything that had settled when it was first started. If a query fails, the others
    are stopped.

    If tables are given by a pattern, the thread also starts a copy of each table that appears
    later, unless the trigger ends by itself. A table that is dropped does not stop the others.
    """

    _copies: list[Copy]
    _found: FoundCopies | None = None
    _thread: threading.Thread | None = field(default=None, init=False)
    _wake: threading.Event = field(factory=threading.Event, init=False)
    _error: BaseException | None = field(default=None, init=False)
    _is_awaited: bool = field(default=False, init=False)

    @property
    def queries(self) -> list[StreamingQuery]:
        """The streaming queries, one for each table.

        A query that is started again is replaced.
        """
        return [copy.query for copy in self._copies if copy.query is not None]

    def start(self) -> None:
        """Start all queries; if one fails to start, stop the others."""
        try:
            for copy in self._copies:
                copy.start()
            self._start_found()
        except BaseException:
            self._end()
            raise
        first = self._found or next(iter(self._copies), None)
        session = None if first is None else first.spark
        self._thread = InheritableThread(self._watch, session=session, daemon=True)
        self._thread.start()

    def awaitTermination(self, timeout: float | None = None) -> bool:  # noqa: N802 - Spark's name
        """Wait until all queries have ended; return False if `timeout` seconds pass first.

        Raises MirrorError if a query has failed, and LeaseLostError if another writer has taken
        over a target. If waiting is interrupted, as by Ctrl-C, the queries are stopped.
        """
        assert self._thread is not None  # noqa: S101 - it was started
        self._is_awaited = True
        try:
            self._thread.join(timeout)
        except BaseException:
            self.stop()
            raise
        finally:
            self._is_awaited = False
        if self._error is not None:
            raise self._error.with_traceback(None)
        return not self._thread.is_alive()

    def stop(self) -> None:
        """Stop the queries; a later call to `mirror` continues where they stopped."""
        self._wake.set()
        for copy in [*self._copies]:
            copy.stop()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def status(self) -> CopyStatuses:
        """Return the state of each copy: rows, files, and how far behind its table it is.

        The result is a sequence, which ``print`` and notebooks show as a table.
        """
        return CopyStatuses([copy.status() for copy in [*self._copies]])

    def compare(self, number: int = 0, *, limit: int = 20) -> CopyComparison:
        """Compare a copy with its table, row by row; for `number`, see `read`.

        ::

            found = copy.compare()
            print(found)
            assert found.is_equal

        All rows of the table are read. Rows that were changed after the copy's position do not
        count as different. At most `limit` of the rows that differ are listed. Raises
        CheckpointError if the copy does not have all rows of its snapshot yet.
        """
        it = self._copies[number]
        return compare(it.spark, it.options, it.sink, it.checkpoint, limit)

    def _watch(self) -> None:
        """Watch the queries until all have ended."""
        try:
            going = [*self._copies]
            while going or self._may_find:
                self._wake.wait(_TICK)
                going = [*filter(self._goes_on, going), *self._new_copies()]
        except (Py4JError, OSError) as error:
            self._error = error  # Spark has ended, and with it the queries
            return
        except BaseException as error:  # noqa: BLE001 - raised by `awaitTermination`
            self._error = error
            if not self._is_awaited:
                log.error("copy_failed", error=str(error))  # noqa: TRY400 - the error has no frames
        with suppress(Py4JError, OSError):
            self._end()

    def _goes_on(self, copy: Copy) -> bool:
        try:
            return copy.goes_on()
        except MirrorError as error:
            if self._found is None or not self._found.leaves_out(copy, error):
                raise
            return False

    @property
    def _may_find(self) -> bool:
        """Whether copies of further tables may be started."""
        return self._found is not None and self._found.goes_on and not self._wake.is_set()

    def _new_copies(self) -> list[Copy]:
        """Look for tables, if it is time, and start copies of them; return these copies."""
        if self._found is None or not self._may_find or not self._found.is_due():
            return []
        with suppress(CdcError):  # the queries meet the same error, and tell or repeat it
            self._found.look()
        return self._start_found()

    def _start_found(self) -> list[Copy]:
        """Start copies of the tables that the last look has found; return these copies."""
        before = len(self._copies)
        if self._found is not None and self._found.new:
            for copy in self._found.started(sum(query.isActive for query in self.queries)):
                self._copies.append(copy)
                if self._wake.is_set():  # meanwhile
                    copy.stop()
        return self._copies[before:]

    def _end(self) -> None:
        for copy in self._copies:
            copy.end()

    def read(self, number: int = 0) -> DataFrame:
        """Return the rows of a copy as it is now; `number` is the index of its table, from 0.

        Tables that patterns found come after the others, in the order in which they were found.
        """
        return self._copies[number].rows()


def mirror(
    spark: SparkSession,
    options: Mapping[str, str],
    *,
    target: str,
    format: str = "delta",  # noqa: A002 - Spark's name
    tables: str | Sequence[str] | None = None,
    checkpoint: str | None = None,
    trigger: Mapping[str, Any] | None = None,
    history: bool = False,
    name: str | None = None,
    maintain: bool = True,
) -> Mirror:
    """Start maintaining copies of one or several tables; return the running `Mirror`.

        mirror(spark, options, target="/data/orders").awaitTermination()

    The copy begins with a snapshot of the table. Then each micro-batch of changes is merged into
    the copy in one commit, exactly once. The copy has the table's columns, including new columns.
    Its rows equal the result of a SELECT, with few exceptions; what expires goes from the copy
    too. See the how-to "Keep a table current".

    Args:
        spark: the session.
        options: the options of the source: hosts, keyspace, table and so on. The copy sets
            ``format``, ``includeDelta``, ``rangeDeletes``, ``snapshot`` and ``schemaMode`` itself.
            With ``lateRows=deliver``, the partitions of late rows are read again from the table.
        target: the path of the copy; for ``iceberg``, its name in SQL, which begins with the name
            of a catalog. With `tables`, the directory, catalog or namespace that contains the
            copies: the copy of ``shop.orders`` is ``target/shop/orders`` or ``target.shop.orders``.
        format: with ``delta``, the copy is a Delta table, written by Delta Lake if the session has
            its extension, otherwise by deltalake. With ``iceberg``, the copy is an Iceberg table.
        tables: several tables, each as ``keyspace.table``, or patterns such as ``shop.*``, instead
            of the one in `options`. A pattern stands for the tables of its keyspace that have a
            log, also for those that appear later: they are looked for every few seconds, unless the
            trigger ends by itself. A table that a pattern finds and that cannot be copied is left
            out with a warning (``table_left_out``).
        checkpoint: the directory for Spark's checkpoint, or for the checkpoints of several tables.
            The default is `target` with the suffix ``.checkpoint``; ``iceberg`` has no default. The
            checkpoint belongs to the copy: delete both to start over.
        trigger: as for `DataStreamWriter.trigger`, such as ``{"availableNow": True}``. The default
            is a micro-batch each minute, because each one writes files.
        history: keep all versions of each row. The copy then has three more columns: ``valid_from``
            and ``valid_to`` (null for a current version), and ``is_current``.
        name: the name of the query, by which logs, metrics and other writers know the copy. With
            `tables`, the query of ``shop.orders`` is called ``name.shop.orders``.
        maintain: compact the copy's files, add buckets as it grows, and remove files that are older
            than the format's retention. This takes about ten seconds after every eighth micro-batch
            at most.

    Raises ConfigurationError for values that cannot be used, and for more tables than the driver
    has memory for (an estimate; 50 if its memory is unknown), LeaseHeldError if another process, or
    this one, maintains a copy at the target, and the errors of ``load()``.
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
    folder, trigger = checkpoint or f"{target.rstrip('/')}.checkpoint", dict(trigger or _TRIGGER)

    def copy_of(table: TableName | None) -> Copy:
        place = _place(spark, kind, target, table, folder)
        query = place.named(name)
        return Copy(
            spark,
            _source(options, table),
            place.sink,
            place.checkpoint,
            trigger,
            history,
            query,
            _lease(spark, place, kind, query),
            maintain,
        )

    if tables is None:
        running = Mirror([copy_of(None)])
    else:
        goes_on = "processingTime" in trigger
        running = _of_several(spark, options, tables, copy_of, goes_on=goes_on)
    running.start()
    return running


def _of_several(
    spark: SparkSession,
    options: Mapping[str, str],
    tables: str | Sequence[str],
    copy_of: Callable[[TableName], Copy],
    *,
    goes_on: bool,
) -> Mirror:
    """Return copies that are not started; `goes_on` says whether tables are looked for later."""
    names, found = tables_or_patterns(tables), None
    named, discovery = [each for each in names if not each.is_pattern], Discovery(names)
    if discovery.patterns:
        parsed = SourceOptions.parse(_source(options, names[0]))
        found = FoundCopies(spark, parsed, discovery, copy_of, goes_on)
        found.look()
    check_capacity(spark, tables, len(named) + len(found.new if found else ()))
    return Mirror([*map(copy_of, named)], found)


def _check_options(options: Mapping[str, str]) -> None:
    """Raise ConfigurationError for options of the source that a copy cannot have."""
    for name, value in options.items():
        if name.lower() in _SET:
            raise ConfigurationError(name, value, "mirror sets this option itself: leave it out")


def _source(options: Mapping[str, str], table: TableName | None) -> dict[str, str]:
    """Return the options of the source for a copy.

    A late row would overwrite newer values, so its partition is read again from the table.
    """
    given = {name: _reread(name, value) for name, value in options.items()}
    if table is None:
        return {**given, **_SET}
    kept = {name: value for name, value in given.items() if name.lower() != "path"}
    return {**kept, **_SET, "keyspace": table.keyspace, "table": table.name}


def _reread(name: str, value: str) -> str:
    is_delivering = name.lower() == "laterows" and str(value).lower() == LateRowsChoice.DELIVER
    return LateRowsChoice.REREAD if is_delivering else value


@frozen
class _Place:
    """A table (None for the only one), its target, and the directory of its checkpoint."""

    table: TableName | None
    sink: Sink
    checkpoint: str

    def named(self, name: str | None) -> str | None:
        """Return the name of this table's query."""
        return name if name is None or self.table is None else f"{name}.{self.table}"


def _place(
    spark: SparkSession, kind: Format, target: str, name: TableName | None, folder: str
) -> _Place:
    if name is None:
        return _Place(None, _sink(spark, kind, target), folder)
    path, place = (f"{it.rstrip('/')}/{name.keyspace}/{name.name}" for it in (target, folder))
    if kind is Format.ICEBERG:
        path = f"{target}.{quoted(name.keyspace)}.{quoted(name.name)}"
    return _Place(name, _sink(spark, kind, path), place)


def _lease(spark: SparkSession, place: _Place, kind: Format, name: str | None) -> Lease | None:
    """Return the lease on the target, or None in a Spark Connect session, which cannot write files.

    The lease on a Delta table is a file beside its directory. An Iceberg table may have none that
    Spark can write, so there it is beside the checkpoint.
    """
    if not hasattr(spark, "_jsparkSession"):
        return None
    target = place.sink.target
    beside = place.checkpoint if kind is Format.ICEBERG else target
    return Lease(target, name, StoredFile(f"{beside.rstrip('/')}.lease", spark))


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

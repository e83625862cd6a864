"""`TableReader` reads the log of one table as Arrow batches or as changes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa
from attrs import evolve

from cdc_reader._settings import member
from cdc_reader._time import (
    BEGINNING,
    FOREVER,
    Clock,
    Micros,
    Moment,
    SystemClock,
    check_order,
    end_micros,
    is_relative,
    start_micros,
)
from cdc_reader.cluster import CdcTable, ClusterClock, Connection
from cdc_reader.config import DataLossMode, ReadConfig, SnapshotMode
from cdc_reader.cql.names import TableName
from cdc_reader.cql.schema import LogSchema
from cdc_reader.decoding import Entries, arrow_schema
from cdc_reader.errors import (
    CheckpointError,
    ConfigurationError,
    QueryRefusedError,
    StoppedError,
)
from cdc_reader.reading.advance import begin_following
from cdc_reader.reading.bounded import BoundedRead
from cdc_reader.reading.cursor import Checkpoint
from cdc_reader.reading.delivery import Delivery
from cdc_reader.reading.expiry import TtlHistory
from cdc_reader.reading.follower import Follower
from cdc_reader.reading.loss import OnLoss, lost_since
from cdc_reader.reading.ports import LogSource, SnapshotTable
from cdc_reader.reading.retry import Stop, each_stopped_by, each_until, stopped_by
from cdc_reader.reading.snapshot import SnapshotDelivery, SnapshotReader, begin_snapshot
from cdc_reader.reading.window_reader import LogReader
from cdc_reader.streams.shard import Shard
from cdc_reader.streams.task import Task
from cdc_reader.streams.window import Window
from cdc_reader.table_snapshot import TableSnapshot

if TYPE_CHECKING:  # the formats are imported when they are used
    from cdc_reader.changes.change import Change
    from cdc_reader.changes.formatting import Formatting
    from cdc_reader.changes.frames import ChangeFormat, Format

T = TypeVar("T")


class TableReader:
    """Reads the CDC log of one base table over a connection, which it does not own.

    Queries the cluster lazily, on first use. Each bounded read, plan and snapshot uses the columns
    that the table has when the operation begins. If `schema` is given, the schema is not queried,
    so a worker process can read tasks that another process planned (schemas can be pickled). Not
    thread-safe, except for `stop`. Methods raise only errors of `cdc_reader.errors`.
    """

    def __init__(
        self,
        connection: Connection,
        name: str | TableName,
        *,
        config: ReadConfig | None = None,
        schema: LogSchema | None = None,
        clock: Clock | None = None,
        shard: str | Shard | None = None,
    ) -> None:
        self.name = TableName.of(name)
        self._table = CdcTable(connection, self.name)
        self._hosts = connection.hosts
        self._config = config or ReadConfig()
        self._clock = ClusterClock.of(connection, clock or SystemClock())
        self._schema, self._is_given = schema, schema is not None
        self._version: str | None = None
        self._ttls = TtlHistory()
        self._refreshed_at = BEGINNING
        self._log_reader: LogReader | None = None
        self._shard = Shard.of(shard)
        self._stop = Stop()
        self._oldest: Checkpoint | None = None
        """The last checkpoint that `begin` returned for a start at the oldest row."""

    @property
    def schema(self) -> LogSchema:
        """The log's columns as last read, in the server's order.

        They are read on first use, which raises TableNotFoundError, CdcNotEnabledError or
        UnsupportedTableError if the table cannot be followed.
        """
        return self._refreshed() if self._schema is None else self._schema

    @property
    def known_schema(self) -> LogSchema | None:
        """The log's columns as last read, without a query, or None if they were never read."""
        return self._schema

    @property
    def arrow_schema(self) -> pa.Schema:
        """The schema of the batches of `read` and `batches`."""
        return arrow_schema(self.schema.columns)

    def first_timestamp(self) -> Micros | None:
        """Return the start of the oldest generation, in µs since 1970, or None if there is none.

        No row of the log is older.
        """
        with stopped_by(self._stop):
            return self._log.first_timestamp()

    def plan(self, window: Window) -> list[Task]:
        """Return tasks that together cover exactly the rows of `window`, older generations first.

        Queries the cluster's generations first, and waits up to ten minutes for generations
        that have streams but are not announced yet. Tasks can be pickled and read in any process.
        """
        with stopped_by(self._stop):
            self._refreshed()
            return self._log.plan(window)

    def read(self, tasks: Iterable[Task]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of `tasks`, one batch per page, each stream in the server's order."""
        return each_stopped_by(self._stop, self._log.read(tasks))

    def batches(
        self, start: Moment | None = None, end: Moment | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield all log rows written in [start, end) that exist now; by default, all rows.

        A moment is a datetime with a time zone, text (``2026-11-21T05:30:00Z``, ``-10m`` for ten
        minutes ago, ``now``, or milliseconds since 1970) or an int of µs since 1970. The newest
        rows may be incomplete: only rows older than the confidence window are settled. Logs a
        warning or raises DataLossError, depending on `data_loss`, if rows written since `start`
        have expired or expire before they are read. Waits up to ten minutes for a generation
        that has streams but is not announced yet. Raises ConfigurationError for a moment in any
        other form, and if `start` is after `end`.
        """
        window = self._window(start, end)
        return each_stopped_by(self._stop, self._bounded(window))

    def change_batches(
        self,
        start: Moment | None = None,
        end: Moment | None = None,
        format: ChangeFormat | str = "changes",  # noqa: A002 - Spark's name
    ) -> pa.RecordBatchReader:
        """Return the rows of `batches` in the given format, as Arrow.

            reader.table.change_batches("-1h", format=ChangeFormat(include_delta=True))

        `format` is a `ChangeFormat`, or the name of a format with all defaults. The result is a
        ``pyarrow.RecordBatchReader``, which polars, DuckDB and pandas accept.

        The log is read while the result is iterated, and only a few pages are in memory. To stop
        early, drop the result; `stop` and `CdcReader.close` end the iteration with StoppedError.
        Iterating the result in Python raises errors of `cdc_reader.errors`. A tool that reads the
        result through Arrow's C interface raises its own error, which contains the message.

        Raises ConfigurationError for a format that cannot be used, and UnsupportedTableError if
        the table's log lacks images that the format needs.
        """
        from cdc_reader.changes.frames import change_format, format_of, project

        wanted, window = change_format(format), self._window(start, end)
        schema = self._refreshed()
        row_format = format_of(wanted, project(schema, wanted.columns))
        rows = each_stopped_by(self._stop, self._converted(row_format, schema, window))
        return pa.RecordBatchReader.from_batches(row_format.schema, rows)

    def changes(self, start: Moment | None = None, end: Moment | None = None) -> Iterator[Change]:
        """Yield the rows of `batches` as changes, each stream in order."""
        stop, window = self._stop, self._window(start, end)
        return each_until(stop, self._changes(window, stop))

    def follow(
        self, start: Moment | Checkpoint | None = None, end: Moment | None = None
    ) -> Iterator[Delivery]:
        """Follow the log from `start`, window after window, to `end` or until `stop`.

        Windows are adjacent, and each ends at least one confidence window before the present. Each
        window yields any number of `RowsRead`, and then a `WindowComplete` with the checkpoint from
        which to restart. Without a start, everything that the log still contains is delivered.
        Logs a warning or raises DataLossError, depending on `data_loss`, if rows written since
        `start` have expired. For moments, see `batches`.

        Raises ConfigurationError if `start` is a moment after `end`. From a checkpoint that has
        already reached `end`, nothing is delivered.
        """
        return self._follow(self._table, start, end)

    def follow_change_batches(
        self,
        start: Moment | Checkpoint | None = None,
        end: Moment | None = None,
        format: ChangeFormat | str = "changes",  # noqa: A002 - Spark's name
        *,
        snapshot: SnapshotMode | str = SnapshotMode.NONE,
    ) -> Iterator[Delivery | SnapshotDelivery]:
        """Follow the log as `follow` does, with batches in one of the formats of `change_batches`.

            for delivery in reader.table.follow_change_batches(stored, snapshot="initial"):
                match delivery:
                    case SnapshotRows() | RowsRead():
                        apply(delivery.batch)
                    case RangeComplete() | WindowComplete():
                        commit(delivery.checkpoint)

        Without a start, ``snapshot="initial"`` first delivers the existing rows of the table as
        inserts, in `SnapshotRows`, with a `RangeComplete` after the last rows of each range. Then
        the log is followed from a position before the first row was read. From the checkpoint of a
        `RangeComplete`, the snapshot continues with the remaining ranges. If one transaction stores
        both a checkpoint and the effects of the batches before it, each change of the log has its
        effect exactly once, even after a crash, unless `delivery` is ``eager``. Rows of unfinished
        ranges are delivered again.

        If the table's columns change, the columns of later batches change too. The formats and
        errors are the same as for `change_batches` and `follow`. Also raises ConfigurationError if
        `start` is a moment and `snapshot` is ``initial``.
        """
        from cdc_reader.changes.formatting import Formatting
        from cdc_reader.changes.frames import change_format

        formatting = Formatting(change_format(format))
        is_initial = member("snapshot", snapshot, SnapshotMode) is SnapshotMode.INITIAL
        if is_initial and not (start is None or isinstance(start, Checkpoint)):
            remedy = "leave out start, which the snapshot determines, or give a checkpoint"
            raise ConfigurationError("snapshot", str(snapshot), remedy)
        formatting.check(self._refreshed(), snapshot=is_initial)
        if start is None and is_initial:
            start = self.begin_snapshot()
        return self._formatted(formatting, start, end)

    def _follow(
        self, table: CdcTable, start: Moment | Checkpoint | None, end: Moment | None
    ) -> Iterator[Delivery]:
        if isinstance(start, Checkpoint):
            return self._follower(start, table=table).follow(end_micros(end, self._now(end)))
        window = self._window(start, end)
        follower = self._follower(Checkpoint(window.start), table=table)
        return self._followed(window, follower.follow(window.end))

    def _follower(
        self,
        start: Moment | Checkpoint | None = None,
        on_loss: OnLoss | None = None,
        *,
        table: CdcTable | None = None,
    ) -> Follower:
        """Return the follower that `follow` runs, for `CdcConsumer`, which monitors it.

        The follower calls `on_loss` after it has warned of rows that expired before they were read.
        `stop` ends the follower.
        """
        if not isinstance(start, Checkpoint):
            start = Checkpoint(start_micros(start, self._now(start)))
        start.check()
        return Follower(
            table or self._table,
            self._clock,
            self._config,
            start,
            self._shard,
            self._stop,
            on_loss,
            at_oldest=start == self._oldest,
        )

    def lost(self, start: Checkpoint) -> Window:
        """Return the span of write times, from a checkpoint on, whose rows have been lost.

        The span begins no earlier than the checkpoint's position.
        """
        if start.position == BEGINNING:
            return Window(BEGINNING, BEGINNING)
        with stopped_by(self._stop):
            now, state = self._clock.now(), self._table.state()
            start = evolve(start, ttls=start.ttls.updated(state, now, start.position))
            return lost_since(start, now, self._config.data_loss)

    def begin(self, start: Moment | None = None) -> Checkpoint:
        """Return the checkpoint at which `follow(start)` begins.

        If the caller saves the checkpoint before following from it, a restart begins at the same
        position. Raises DataLossError if `data_loss` is ``fail`` and rows written since `start`
        have expired. With any other `data_loss`, the follower reports the loss.
        """
        with stopped_by(self._stop):
            now = self._clock.now()
            first = start_micros(start, now)
            if self._config.data_loss is DataLossMode.FAIL and first > BEGINNING:
                self._read(self._refreshed()).begin(Window(first, FOREVER))
            begun = begin_following(self._table, now, first)
        self._oldest = begun if first == BEGINNING else None
        return begun

    def snapshot(self, start: Checkpoint | None = None) -> TableSnapshot:
        """Return a snapshot of the table's existing rows; later changes are in the log.

        Fixes the position from which to follow the log afterwards, with a few small queries.
        To continue a snapshot, pass its `TableSnapshot.checkpoint`, or the checkpoint of a
        `RangeComplete`, as `start`. Raises CheckpointError if `start` has no snapshot.
        """
        with stopped_by(self._stop):
            if start is None:
                start = begin_snapshot(self._table, self._clock, self._config)
            if start.snapshot is None:
                raise CheckpointError(
                    f"the snapshot of {self.name} was completed before this checkpoint: follow "
                    "the log from it, or leave it out for a new snapshot"
                )
            schema = self._refreshed()
            return TableSnapshot(self._table, schema, start, partial(self._rows, start))

    def _snapshot_reader(self, start: Checkpoint) -> SnapshotReader:
        """Return the reader of a snapshot's rows and TTLs, for `CdcConsumer`, which monitors it.

        Raises ValueError if the checkpoint has no snapshot.
        """
        return self._rows(start, self._table, cells=True)

    def begin_snapshot(self) -> Checkpoint:
        """Return the checkpoint of a snapshot that begins now; see `snapshot`."""
        with stopped_by(self._stop):
            return begin_snapshot(self._table, self._clock, self._config)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name} at {self._hosts}>"

    def stop(self) -> None:
        """End all running reads immediately. Thread-safe.

        `follow` ends without an error, and does not report an interrupted window as complete. A
        bounded read raises StoppedError, because its rows are incomplete. Does not wait for retries
        or pending responses. Reads that begin later are not affected.
        """
        stop, self._stop = self._stop, Stop()
        stop.set()

    def _window(self, start: Moment | None, end: Moment | None) -> Window:
        """Return the window between two moments; raise ConfigurationError if they are reversed."""
        now = self._now(start, end)
        window = Window(start_micros(start, now), end_micros(end, now))
        check_order(window.start, window.end)
        return window

    def _now(self, *moments: object) -> Micros:
        """Return the cluster's time if a moment is relative; otherwise return BEGINNING."""
        with stopped_by(self._stop):
            return self._clock.now() if any(map(is_relative, moments)) else BEGINNING

    def _followed(self, window: Window, deliveries: Iterator[Delivery]) -> Iterator[Delivery]:
        with suppress(StoppedError):
            yield from self._kept(window, deliveries, self._read(self._refreshed()))

    def _refreshed(self) -> LogSchema:
        """Return the schema, which is read again if the cluster's schema has changed.

        Records the log's TTL and id, so that a later read can detect rows that have been lost.
        """
        schema = self._current()
        with stopped_by(self._stop):
            now = self._clock.now()
        self._ttls = self._ttls.updated(schema.base, now, self._refreshed_at)
        self._refreshed_at = now
        return schema

    def _current(self) -> LogSchema:
        if self._is_given and self._schema is not None:
            return self._schema
        with stopped_by(self._stop):
            if self._schema is not None and self._table.schema_versions() == {self._version}:
                return self._schema
            schema = self._table.schema()
        if schema != self._schema:
            self._schema, self._log_reader = schema, None
        self._version = schema.version
        return schema

    def _bounded(
        self, window: Window, schema: LogSchema | None = None, source: LogSource | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of `window`, and report rows that expire before they are read.

        Without a `schema`, the current schema is used. For `source`, see `LogReader.read`.
        """
        read = self._read(schema or self._refreshed())
        yield from self._kept(window, self._log.batches(window, source, read.done), read)
        read.finish()

    def _kept(self, window: Window, items: Iterator[T], read: BoundedRead) -> Iterator[T]:
        """Yield the items read from `window`; first check that its rows have not expired."""
        with stopped_by(self._stop):
            read.begin(window)
        try:
            yield from items
        except QueryRefusedError:
            with stopped_by(self._stop):
                self._table.schema()  # raises a clearer error if the table was dropped
                read.refused(window)
            raise

    def _formatted(
        self, formatting: Formatting, start: Moment | Checkpoint | None, end: Moment | None
    ) -> Iterator[Delivery | SnapshotDelivery]:
        """Yield the rest of the snapshot, if `start` has one, and then the log."""
        table = self._table.tolerant() if formatting.is_tolerant else self._table
        if isinstance(start, Checkpoint) and start.snapshot is not None:
            stop, rows = self._stop, self._rows(start, table, cells=False)
            with suppress(StoppedError):
                yield from formatting.snapshot(rows.deliveries())
            if stop.is_set():
                return
            start = rows.complete
        yield from formatting.log(self._follow(table, start, end))

    def _read(self, schema: LogSchema) -> BoundedRead:
        mode, name = self._config.data_loss, schema.base.name
        return BoundedRead(self._table, name, self._ttls, mode, self._clock)

    def _converted(
        self, row_format: Format, log_schema: LogSchema, window: Window
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of `window` in a format; read only the log columns that it needs."""
        schema = row_format.schema
        read = evolve(log_schema, columns=row_format.log_columns(schema.names))
        source = self._table.source(read, tolerant=row_format.is_tolerant)
        batches = self._bounded(window, log_schema, source)
        return row_format.convert(batches, schema)

    def _changes(self, window: Window, stop: Stop) -> Iterator[Entries[Change]]:
        """Yield the changes of each page."""
        from cdc_reader.changes.grouping import Grouping

        schema = self._refreshed()
        grouping = Grouping(schema)
        for batch in each_stopped_by(stop, self._bounded(window, schema)):
            yield grouping.each(batch)
        yield grouping.rest()

    def _rows(self, start: Checkpoint, table: SnapshotTable, *, cells: bool) -> SnapshotReader:
        start.check()
        return SnapshotReader(
            table, self._clock, self._config, start, self._shard, self._stop, cells=cells
        )

    @property
    def _log(self) -> LogReader:
        """The reader of the log, with the columns of `schema`."""
        if self._log_reader is None:
            source, generations = self._table.source(self.schema), self._table.generations
            self._log_reader = LogReader(
                source, generations, self._config, self._clock, self._shard
            )
        return self._log_reader

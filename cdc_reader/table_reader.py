"""`TableReader` reads the log of one table as Arrow batches or as changes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
from attrs import define, evolve

from cdc_reader._settings import member
from cdc_reader._time import (
    BEGINNING,
    FOREVER,
    Clock,
    Micros,
    Moment,
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
from cdc_reader.reading.advance import Limits, View, advance, begin_following
from cdc_reader.reading.bounded import BoundedRead
from cdc_reader.reading.cursor import Checkpoint
from cdc_reader.reading.delivery import Delivery
from cdc_reader.reading.expiry import TtlHistory
from cdc_reader.reading.follower import Follower
from cdc_reader.reading.loss import OnLoss, lost_since
from cdc_reader.reading.ports import TTLS_AND_TIMES, LogSource, SnapshotTable
from cdc_reader.reading.retry import NEVER, Interruption, Stop, each_until
from cdc_reader.reading.snapshot import SnapshotDelivery, SnapshotReader, begin_snapshot
from cdc_reader.reading.windows.window_reader import LogReader
from cdc_reader.streams.generation import Timeline
from cdc_reader.streams.shard import Shard
from cdc_reader.streams.task import Task
from cdc_reader.streams.window import Window
from cdc_reader.table_snapshot import TableSnapshot

if TYPE_CHECKING:  # the formats are imported when they are used
    from cdc_reader.changes.change import Change
    from cdc_reader.changes.formatting import Formatting
    from cdc_reader.changes.frames import ChangeFormat, Format


@define(eq=False)
class _Access:
    """The table, its log and the clock, for reads that `stop` ends.

    All accesses of a reader share what they learn of the cluster, except for `log`, which is made
    when it is needed.
    """

    stop: Stop
    table: CdcTable
    clock: ClusterClock
    log: tuple[LogSchema, LogReader] | None = None

    def interrupted_by(self, interruption: Interruption) -> _Access:
        """Return access for reads that `interruption` ends."""
        table = self.table.interrupted_by(interruption)
        return _Access(interruption.stop, table, self.clock.interrupted_by(interruption))

    def window(self, start: Moment | None, end: Moment | None) -> Window:
        """Return the window between two moments; raise ConfigurationError if they are reversed."""
        now = self.now(start, end)
        window = Window(start_micros(start, now), end_micros(end, now))
        check_order(window.start, window.end)
        return window

    def now(self, *moments: object) -> Micros:
        """Return the cluster's time if a moment is relative; otherwise return BEGINNING."""
        return self.clock.now() if any(map(is_relative, moments)) else BEGINNING


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
        self._hosts = connection.hosts
        self._config = config or ReadConfig()
        table, its = CdcTable(connection, self.name), ClusterClock.of(connection, clock)
        self._access = _Access(NEVER.stop, table, its).interrupted_by(Interruption(Stop()))
        self._schema, self._is_given = schema, schema is not None
        self._version: str | None = None
        self._ttls = TtlHistory()
        self._refreshed_at = BEGINNING
        self._shard = Shard.of(shard)
        self._oldest: Checkpoint | None = None
        """The last checkpoint that `begin` returned for a start at the oldest row."""

    @property
    def schema(self) -> LogSchema:
        """The log's columns as last read, in the server's order.

        They are read on first use, which raises TableNotFoundError, CdcNotEnabledError or
        UnsupportedTableError if the table cannot be followed.
        """
        return self._refreshed(self._access) if self._schema is None else self._schema

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
        return self._log(self._access).first_timestamp()

    def plan(self, window: Window) -> list[Task]:
        """Return tasks that together cover exactly the rows of `window`, older generations first.

        Queries the cluster's generations first, and waits up to ten minutes for generations
        that have streams but are not announced yet. Tasks can be pickled and read in any process.
        """
        access = self._access
        self._refreshed(access)
        return self._log(access).plan(window)

    def read(self, tasks: Iterable[Task]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of `tasks`, one batch per page, each stream in the server's order."""
        return self._log(self._access).read(tasks)

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
        access = self._access
        return self._bounded(access, access.window(start, end))

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

        access, wanted = self._access, change_format(format)
        window, schema = access.window(start, end), self._refreshed(access)
        row_format = format_of(wanted, project(schema, wanted.columns))
        rows = self._converted(access, row_format, schema, window)
        return pa.RecordBatchReader.from_batches(row_format.schema, rows)

    def changes(self, start: Moment | None = None, end: Moment | None = None) -> Iterator[Change]:
        """Yield the rows of `batches` as changes, each stream in order."""
        access = self._access
        return each_until(access.stop, self._changes(access, access.window(start, end)))

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
        return self._follow(self._access, start, end)

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

        access, formatting = self._access, Formatting(change_format(format))
        is_initial = member("snapshot", snapshot, SnapshotMode) is SnapshotMode.INITIAL
        if is_initial and not (start is None or isinstance(start, Checkpoint)):
            remedy = "leave out start, which the snapshot determines, or give a checkpoint"
            raise ConfigurationError("snapshot", str(snapshot), remedy)
        formatting.check(self._refreshed(access), snapshot=is_initial)
        if start is None and is_initial:
            start = self.begin_snapshot()
        return self._formatted(access, formatting, start, end)

    def _follow(
        self, access: _Access, start: Moment | Checkpoint | None, end: Moment | None
    ) -> Iterator[Delivery]:
        if isinstance(start, Checkpoint):
            return self._follower_over(access, start).follow(end_micros(end, access.now(end)))
        window = access.window(start, end)
        follower = self._follower_over(access, Checkpoint(window.start))
        return self._followed(access, window, follower.follow(window.end))

    def _follower(
        self, start: Checkpoint, on_loss: OnLoss, on_retry: Callable[[], object], *, tolerant: bool
    ) -> Follower:
        """Return a follower for `CdcConsumer`, which monitors it; `stop` ends the follower.

        The follower calls `on_loss` after it has warned of rows that expired before they were read,
        and `on_retry` before it repeats a request.
        """
        access = self._monitored(on_retry, tolerant=tolerant)
        return self._follower_over(access, start, on_loss)

    def _follower_over(
        self, access: _Access, start: Checkpoint, on_loss: OnLoss | None = None
    ) -> Follower:
        start.check()
        return Follower(
            access.table,
            access.clock,
            self._config,
            start,
            self._shard,
            access.stop,
            on_loss,
            at_oldest=start == self._oldest,
        )

    def _monitored(self, on_retry: Callable[[], object], *, tolerant: bool) -> _Access:
        access = self._access
        if tolerant:
            access = evolve(access, table=access.table.tolerant())
        return access.interrupted_by(Interruption(access.stop, on_retry=on_retry))

    def lost(self, start: Checkpoint) -> Window:
        """Return the span of write times, from a checkpoint on, whose rows have been lost.

        The span begins no earlier than the checkpoint's position, or than the start of a generation
        that was announced late.
        """
        if start.position == BEGINNING:
            return Window(BEGINNING, BEGINNING)
        access = self._access
        now, state = access.clock.now(), access.table.state()
        start = evolve(start, ttls=start.ttls.updated(state, now, start.position))
        view = View(now, Timeline(access.table.generations.timestamps()))
        missed = advance(start, view, Limits(confidence=0)).missed
        return lost_since(start, now, self._config.data_loss, missed.values())

    def begin(self, start: Moment | None = None) -> Checkpoint:
        """Return the checkpoint at which `follow(start)` begins.

        If the caller saves the checkpoint before following from it, a restart begins at the same
        position. Raises DataLossError if `data_loss` is ``fail`` and rows written since `start`
        have expired. With any other `data_loss`, the follower reports the loss.
        """
        access = self._access
        now = access.clock.now()
        first = start_micros(start, now)
        if self._config.data_loss is DataLossMode.FAIL and first > BEGINNING:
            self._read(access, self._refreshed(access)).begin(Window(first, FOREVER))
        begun = begin_following(access.table, now, first)
        self._oldest = begun if first == BEGINNING else None
        return begun

    def snapshot(self, start: Checkpoint | None = None) -> TableSnapshot:
        """Return a snapshot of the table's existing rows; later changes are in the log.

        Fixes the position from which to follow the log afterwards, with a few small queries.
        To continue a snapshot, pass its `TableSnapshot.checkpoint`, or the checkpoint of a
        `RangeComplete`, as `start`. Raises CheckpointError if `start` has no snapshot.
        """
        access = self._access
        if start is None:
            start = begin_snapshot(access.table, access.clock, self._config)
        if start.snapshot is None:
            raise CheckpointError(
                f"the snapshot of {self.name} was completed before this checkpoint: follow "
                "the log from it, or leave it out for a new snapshot"
            )
        return TableSnapshot(self._refreshed(access), start, partial(self._rows_as, start))

    def _snapshot_reader(
        self, start: Checkpoint, on_retry: Callable[[], object], *, tolerant: bool
    ) -> SnapshotReader:
        """Return the reader of a snapshot's rows and TTLs, for `CdcConsumer`, which monitors it.

        The reader calls `on_retry` before it repeats a request. Raises ValueError if the checkpoint
        has no snapshot.
        """
        access = self._monitored(on_retry, tolerant=tolerant)
        return self._rows(access, start, access.table, cells=TTLS_AND_TIMES)

    def _rows_source(self) -> tuple[SnapshotTable, Clock]:
        """Return the table and the clock, for copies, which read single partitions."""
        access = self._access
        return access.table, access.clock

    def begin_snapshot(self) -> Checkpoint:
        """Return the checkpoint of a snapshot that begins now; see `snapshot`."""
        access = self._access
        return begin_snapshot(access.table, access.clock, self._config)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name} at {self._hosts}>"

    def stop(self) -> None:
        """End all running reads immediately. Thread-safe.

        `follow` ends without an error, and does not report an interrupted window as complete. A
        bounded read raises StoppedError, because its rows are incomplete. Does not wait for retries
        or pending responses. Reads that begin later are not affected.
        """
        ended, self._access = self._access, self._access.interrupted_by(Interruption(Stop()))
        ended.stop.set()

    def _followed(
        self, access: _Access, window: Window, deliveries: Iterator[Delivery]
    ) -> Iterator[Delivery]:
        with suppress(StoppedError), self._reading(access, window, self._refreshed(access)):
            yield from deliveries

    def _refreshed(self, access: _Access) -> LogSchema:
        """Return the schema, which is read again if the cluster's schema has changed.

        Records the log's TTL and id, so that a later read can detect rows that have been lost.
        """
        schema, now = self._current(access), access.clock.now()
        self._ttls = self._ttls.updated(schema.base, now, self._refreshed_at)
        self._refreshed_at = now
        return schema

    def _current(self, access: _Access) -> LogSchema:
        if self._is_given and self._schema is not None:
            return self._schema
        if self._schema is not None and access.table.schema_versions() == {self._version}:
            return self._schema
        schema = access.table.schema()
        if schema != self._schema:
            self._schema = schema
        self._version = schema.version
        return schema

    def _bounded(
        self,
        access: _Access,
        window: Window,
        schema: LogSchema | None = None,
        source: LogSource | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of `window`, and report rows that expire before they are read.

        Without a `schema`, the current schema is used. For `source`, see `LogReader.read`.
        """
        with self._reading(access, window, schema or self._refreshed(access)) as read:
            yield from self._log(access).batches(window, source, read.done)

    @contextmanager
    def _reading(self, access: _Access, window: Window, schema: LogSchema) -> Iterator[BoundedRead]:
        """Check for lost rows before and after `window` is read, and if a query is refused."""
        read = self._read(access, schema)
        read.begin(window)
        try:
            yield read
        except QueryRefusedError:
            access.table.schema()  # raises a clearer error if the table was dropped
            read.refused(window)
            raise
        read.finish()

    def _formatted(
        self,
        access: _Access,
        formatting: Formatting,
        start: Moment | Checkpoint | None,
        end: Moment | None,
    ) -> Iterator[Delivery | SnapshotDelivery]:
        """Yield the rest of the snapshot, if `start` has one, and then the log."""
        if formatting.is_tolerant:
            access = evolve(access, table=access.table.tolerant())
        if isinstance(start, Checkpoint) and start.snapshot is not None:
            rows = self._rows(access, start, access.table, cells=formatting.cells)
            with suppress(StoppedError):
                yield from formatting.snapshot(rows.deliveries())
            if access.stop.is_set():
                return
            start = rows.complete
        yield from formatting.log(self._follow(access, start, end))

    def _read(self, access: _Access, schema: LogSchema) -> BoundedRead:
        mode, name = self._config.data_loss, schema.base.name
        return BoundedRead(access.table, name, self._ttls, mode, access.clock)

    def _converted(
        self, access: _Access, row_format: Format, log_schema: LogSchema, window: Window
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of `window` in a format; read only the log columns that it needs."""
        schema = row_format.schema
        read = evolve(log_schema, columns=row_format.log_columns(schema.names))
        source = access.table.source(read, tolerant=row_format.is_tolerant)
        batches = self._bounded(access, window, log_schema, source)
        for batch in row_format.convert(batches, schema):
            access.stop.check()  # a page that was read before may yield several batches
            yield batch

    def _changes(self, access: _Access, window: Window) -> Iterator[Entries[Change]]:
        """Yield the changes of each page."""
        from cdc_reader.changes.grouping import Grouping

        schema = self._refreshed(access)
        grouping = Grouping(schema)
        for batch in self._bounded(access, window, schema):
            yield grouping.each(batch)
        yield grouping.rest()

    def _rows_as(
        self,
        start: Checkpoint,
        change: Callable[[CdcTable], SnapshotTable],
        *,
        cells: Sequence[str],
    ) -> SnapshotReader:
        """Return the reader of the rows of `change(table)`, which the next `stop` ends."""
        access = self._access
        return self._rows(access, start, change(access.table), cells=cells)

    def _rows(
        self, access: _Access, start: Checkpoint, table: SnapshotTable, *, cells: Sequence[str]
    ) -> SnapshotReader:
        start.check()
        return SnapshotReader(
            table, access.clock, self._config, start, self._shard, access.stop, cells=cells
        )

    def _log(self, access: _Access) -> LogReader:
        """Return the reader of the log, with the columns of `schema`."""
        schema, table = self._schema or self._refreshed(access), access.table
        if access.log is None or access.log[0] is not schema:
            source, its = table.source(schema), (self._config, access.clock, self._shard)
            access.log = schema, LogReader(source, table.generations, *its, access.stop)
        return access.log[1]

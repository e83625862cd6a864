"""`CdcReader` and `TableReader`: the logs of tables, as Arrow batches and as changes.

Most users need only `CdcReader`. It has a `TableReader` for each of its tables, and merges their
deliveries.
"""

from __future__ import annotations

import queue
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cached_property, partial
from itertools import chain
from types import TracebackType
from typing import Generic, Literal, Self, TypeVar

import pyarrow as pa
from attrs import evolve

from cdc_reader._settings import expect
from cdc_reader._time import (
    Clock,
    Micros,
    Moment,
    SystemClock,
    end_micros,
    format_timestamp,
    start_micros,
)
from cdc_reader.changes.change import Change
from cdc_reader.changes.frames import Format, FormatOptions, ValueTypes, format_of, project
from cdc_reader.changes.grouping import Grouping
from cdc_reader.cluster import CdcTable, Connection
from cdc_reader.config import ConnectionConfig, ReadConfig
from cdc_reader.cql.names import TableName, table_names
from cdc_reader.cql.schema import LogSchema
from cdc_reader.decoding import arrow_schema
from cdc_reader.errors import ConfigurationError, StoppedError
from cdc_reader.reading.delivery import Delivery, RowsRead, WindowComplete
from cdc_reader.reading.fetch import LogReader
from cdc_reader.reading.follower import Follower
from cdc_reader.reading.ports import GenerationSource
from cdc_reader.reading.progress import Checkpoint
from cdc_reader.reading.retry import Stop, each_stopped_by, each_until, stopped_by
from cdc_reader.streams.shard import Shard
from cdc_reader.streams.task import RangeTask, Task
from cdc_reader.streams.window import Window

T = TypeVar("T")

_Item = tuple[str, object]


class TableChanges:
    """Groups the rows of one table's deliveries into changes; late rows separately."""

    def __init__(self) -> None:
        self._schema: LogSchema | None = None
        self._groupings: dict[bool, Grouping] = {}

    def feed(self, delivery: Delivery) -> list[Change]:
        """The changes completed by this delivery; at the end of a window, all remaining ones."""
        if isinstance(delivery, WindowComplete):
            return self._finish()
        return self._of_schema_before(delivery) + self._grouping(delivery).feed(delivery.batch)

    def each(self, delivery: Delivery) -> Iterator[Change]:
        """Like `feed`, but make the changes lazily; see `Grouping.each`."""
        if isinstance(delivery, WindowComplete):
            return iter(self._finish())
        left = self._of_schema_before(delivery)
        return chain(left, self._grouping(delivery).each(delivery.batch))

    def _of_schema_before(self, delivery: RowsRead) -> list[Change]:
        """Return the changes still held of the previous schema: no record spans two schemas."""
        if delivery.schema is self._schema:
            return []
        self._schema = delivery.schema
        return self._finish()

    def _grouping(self, delivery: RowsRead) -> Grouping:
        if delivery.late not in self._groupings:
            self._groupings[delivery.late] = Grouping(delivery.schema, late=delivery.late)
        return self._groupings[delivery.late]

    def _finish(self) -> list[Change]:
        left = [change for grouping in self._groupings.values() for change in grouping.finish()]
        self._groupings = {}
        return left


class TableReader:
    """Reads the CDC log of one base table over a connection, which it does not own.

    Queries the cluster lazily, on first use. With `schema` given, it does not query the schema: a
    worker process can thus read tasks that another process planned (schemas can be pickled). Not
    thread safe, except for `stop`. Methods raise only errors of `cdc_reader.errors`.
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
        self._config = expect("config", config or ReadConfig(), ReadConfig)
        self._clock = clock or SystemClock()
        self._known_schema = schema
        self._shard = Shard.of(shard)
        self._stop = Stop()

    @cached_property
    def schema(self) -> LogSchema:
        """The log's columns, in the server's order, as read on first use.

        Raises TableNotFoundError, CdcNotEnabledError, UnsupportedTableError.
        """
        with stopped_by(self._stop):
            return self._known_schema or self._table.schema()

    @cached_property
    def arrow_schema(self) -> pa.Schema:
        """The schema of the batches of `read` and `batches`."""
        return arrow_schema(self.schema.columns)

    @property
    def generations(self) -> GenerationSource:
        """The source of the table's generations, for custom planners."""
        return self._table.generations

    def first_timestamp(self) -> Micros | None:
        """Return the start of the oldest generation, in µs since 1970; None if there is none yet.

        No row of the log is older.
        """
        with stopped_by(self._stop):
            return self._log.first_timestamp()

    def plan(self, window: Window) -> list[Task]:
        """Return tasks that together hold exactly the rows of `window`, older generations first.

        Queries the cluster's generations first. Tasks can be pickled and read in any process.
        """
        with stopped_by(self._stop):
            return self._log.plan(window)

    def read(self, tasks: Iterable[Task | RangeTask]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of `tasks`, one batch per page, each stream in the server's order."""
        return each_stopped_by(self._stop, self._log.read(tasks))

    def batches(
        self, start: Moment | None = None, end: Moment | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield all log rows written in [start, end) that exist now; both ends are open by default.

        A moment is a datetime with a time zone, text (``2026-11-21T05:30:00Z``, ``-10m`` for ten
        minutes ago, ``now``, or milliseconds since 1970) or an int of µs since 1970. The newest
        rows may be incomplete: only rows older than the confidence window are settled. Raises
        ConfigurationError for other moments, and if start is after end.
        """
        return each_stopped_by(self._stop, self._log.batches(self._window(start, end)))

    def change_batches(
        self,
        start: Moment | None = None,
        end: Moment | None = None,
        *,
        format: Literal["log", "changes", "envelope"] = "changes",  # noqa: A002 - Spark's name
        columns: Sequence[str] | None = None,
        include_delta: bool = False,
        range_deletes: Literal["fail", "emit", "skip"] = "fail",
        preimages: Literal["auto", "none", "require"] = "auto",
        decimal_type: str = "string",
        on_bad_record: Literal["fail", "skip", "quarantine"] = "fail",
    ) -> pa.RecordBatchReader:
        """Return the rows of `batches` in one of the formats of the Spark source, as Arrow.

        The result is a ``pyarrow.RecordBatchReader``, which polars, DuckDB and pandas accept.
        Format `log` is the rows of the log and `_commit_timestamp`, the time of each write;
        `changes` is the changed rows of the base table, before and after each change; `envelope`
        is changes as the Debezium connector writes them. The options are those of the Spark
        source: see ``docs/reference/spark-options.md``. `columns` are columns of the base table
        to read beside its key.

        A row that cannot be converted, such as one with a number that does not fit `decimal_type`,
        raises an error. With `on_bad_record` `skip` it is left out and logged; with `quarantine` it
        is returned with null for what cannot be converted, and column `_bad_record`.

        Reads as the result is iterated, and holds a few pages at a time. Stop early by dropping the
        result; `stop` and `CdcReader.close` end it with StoppedError. Iterating it in Python raises
        errors of `cdc_reader.errors`; a tool that reads it through Arrow's C interface raises its
        own error, which contains the message.

        Raises ConfigurationError for options that cannot be used, and UnsupportedTableError if
        the table's log lacks images that the format needs.
        """
        window = self._window(start, end)
        options = FormatOptions.of(
            format=format,
            include_delta=include_delta,
            range_deletes=range_deletes,
            preimages=preimages,
            on_bad_record=on_bad_record,
        )
        types = ValueTypes.parse(decimal_type, "decimal_type")
        shape = format_of(options, project(self.schema, columns), types)
        rows = each_stopped_by(self._stop, self._shaped(shape, types, window))
        return pa.RecordBatchReader.from_batches(shape.schema, rows)

    def changes(self, start: Moment | None = None, end: Moment | None = None) -> Iterator[Change]:
        """Yield the rows of `batches` as changes, each stream in order."""
        return each_until(self._stop, self._changes(self.batches(start, end)))

    def follow(
        self, start: Moment | Checkpoint | None = None, end: Moment | None = None
    ) -> Iterator[Delivery]:
        """Follow the log from `start`, window after window, to `end` or until `stop`.

        Windows are adjacent; none ends after now - confidence window. Each window yields any
        number of `RowsRead`, then a `WindowComplete` with the checkpoint to restart from. Without
        a start, everything the log still holds is delivered. For moments, see `batches`.
        """
        return self.follower(start).follow(end_micros(end, self._clock.now()))

    def follower(self, start: Moment | Checkpoint | None = None) -> Follower:
        """Return a follower as `follow` runs it, for callers that monitor it; `stop` ends it."""
        if not isinstance(start, Checkpoint):
            start = Checkpoint(start_micros(start, self._clock.now()))
        return Follower(self._table, self._clock, self._config, start, self._shard, self._stop)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name} at {self._hosts}>"

    def stop(self) -> None:
        """End all running reads at once. Thread safe.

        `follow` ends without an error; an interrupted window is not reported complete. A bounded
        read raises StoppedError, because its rows are incomplete. Retries end, and pending
        responses are not waited for. Reads that begin later are not affected.
        """
        stop, self._stop = self._stop, Stop()
        stop.set()

    def _window(self, start: Moment | None, end: Moment | None) -> Window:
        """Return the window between two moments; raise ConfigurationError if there is none."""
        now = self._clock.now()
        first, last = start_micros(start, now), end_micros(end, now)
        if first > last:
            remedy = f"give a start before the end, {format_timestamp(last)}"
            raise ConfigurationError("start", format_timestamp(first), remedy)
        return Window(first, last)

    def _shaped(self, shape: Format, types: ValueTypes, window: Window) -> Iterator[pa.RecordBatch]:
        """Yield the rows of `window` in a format, reading only the columns of the log it needs."""
        read = evolve(self.schema, columns=shape.log_columns(shape.schema.names))
        source = self._table.source(read, tolerant=shape.is_tolerant)
        batches = self._log.batches(window, source)
        return shape.convert(types.convert(batches, read.columns), shape.schema)

    def _changes(self, batches: Iterable[pa.RecordBatch]) -> Iterator[Change]:
        grouping = Grouping(self.schema)
        for batch in batches:
            yield from grouping.each(batch)
        yield from grouping.finish()

    @cached_property
    def _log(self) -> LogReader:
        source = self._table.source(self.schema)
        return LogReader(source, self.generations, self._config, self._shard)


class Merging(Generic[T]):
    """Merges several sources, each read in its own thread; keeps the order within a source.

    At most `limit` items are buffered; then sources block. If one source fails, `stop` is called
    to end the others, and the error is raised. Closing the iterator early stops them too.
    """

    def __init__(
        self, sources: Sequence[Callable[[], Iterator[T]]], limit: int, stop: Callable[[], None]
    ) -> None:
        self._sources = sources
        self._stop = stop
        self._items: queue.Queue[_Item] = queue.Queue(limit)
        self._left = threading.Event()

    def __iter__(self) -> Iterator[T]:
        threads = [
            threading.Thread(target=self._drain, args=(source,), name="cdc-table", daemon=True)
            for source in self._sources
        ]
        for thread in threads:
            thread.start()
        try:
            yield from self._merged(len(threads))
        finally:
            self._leave(threads)

    def _merged(self, running: int) -> Iterator[T]:
        while running:
            kind, item = self._items.get()
            if kind == "item":
                yield item  # type: ignore[misc]  # only items are queued with this tag
            elif isinstance(item, BaseException):
                raise item
            else:
                running -= 1

    def _drain(self, source: Callable[[], Iterator[T]]) -> None:
        end: BaseException | None = None
        try:
            for item in source():
                self._items.put(("item", item))
                if self._left.is_set():
                    break
        except BaseException as error:  # noqa: BLE001 - raised in the thread that iterates
            end = error
        self._items.put(("end", end))

    def _leave(self, threads: Sequence[threading.Thread]) -> None:
        self._left.set()
        self._stop()
        while any(thread.is_alive() for thread in threads):
            try:
                self._items.get(timeout=0.05)  # makes room for a blocked source
            except queue.Empty:
                continue


class CdcReader:
    """Reads the CDC logs of base tables, each named as ``keyspace.table``.

        with CdcReader("scylla.example.com", "shop.orders") as reader:
            for change in reader.changes():
                print(change)

    The cluster is given as contact points or a `ConnectionConfig`. The reader connects on first
    use, so creating one costs nothing. Use it as a context manager, or call `close`. Not thread
    safe, except for `stop`. Methods raise only errors of `cdc_reader.errors`.
    """

    def __init__(
        self,
        connection: ConnectionConfig | str,
        *tables: str | TableName,
        config: ReadConfig | None = None,
        clock: Clock | None = None,
        shard: str | Shard | None = None,
    ) -> None:
        names = table_names(tables)
        self.config = expect("config", config or ReadConfig(), ReadConfig)
        self._connection = Connection(connection, self.config)
        self._tables = {
            name: TableReader(self._connection, name, config=self.config, clock=clock, shard=shard)
            for name in names
        }
        self._stop = Stop()

    @property
    def tables(self) -> tuple[TableReader, ...]:
        """A reader for each table, in the order given."""
        return tuple(self._tables.values())

    @property
    def table(self) -> TableReader:
        """The reader of the only table. Raises ConfigurationError if there are several."""
        if len(self._tables) > 1:
            names = ", ".join(map(str, self._tables))
            raise ConfigurationError("tables", names, "use `tables`: there is more than one")
        return self.tables[0]

    def batches(
        self, start: Moment | None = None, end: Moment | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of all tables, table after table; see `TableReader.batches`."""
        return chain.from_iterable([table.batches(start, end) for table in self.tables])

    def change_batches(
        self,
        start: Moment | None = None,
        end: Moment | None = None,
        *,
        format: Literal["log", "changes", "envelope"] = "changes",  # noqa: A002 - Spark's name
        columns: Sequence[str] | None = None,
        include_delta: bool = False,
        range_deletes: Literal["fail", "emit", "skip"] = "fail",
        preimages: Literal["auto", "none", "require"] = "auto",
        decimal_type: str = "string",
        on_bad_record: Literal["fail", "skip", "quarantine"] = "fail",
    ) -> pa.RecordBatchReader:
        """Return the changes of the only table as Arrow; see `TableReader.change_batches`.

        Raises ConfigurationError if there are several tables, because their columns differ.
        """
        return self.table.change_batches(
            start,
            end,
            format=format,
            columns=columns,
            include_delta=include_delta,
            range_deletes=range_deletes,
            preimages=preimages,
            decimal_type=decimal_type,
            on_bad_record=on_bad_record,
        )

    def changes(self, start: Moment | None = None, end: Moment | None = None) -> Iterator[Change]:
        """Yield the changes of all tables, table after table; see `TableReader.changes`."""
        return chain.from_iterable([table.changes(start, end) for table in self.tables])

    def follow(self, start: Moment | None = None, end: Moment | None = None) -> Iterator[Delivery]:
        """Follow all tables, each in its own thread; see `TableReader.follow`.

        A delivery names its table. There is no order between tables.
        """
        if len(self._tables) == 1:
            return self.table.follow(start, end)
        follows = [partial(table.follow, start, end) for table in self.tables]
        return iter(Merging(follows, self.config.in_flight, self.stop))

    def follow_changes(
        self, start: Moment | None = None, end: Moment | None = None
    ) -> Iterator[Change]:
        """Like `follow`, as changes: a window's changes are yielded once its rows are read."""
        changes: dict[TableName, TableChanges] = defaultdict(TableChanges)
        stop = self._stop
        with suppress(StoppedError):
            for delivery in self.follow(start, end):
                yield from each_until(stop, changes[delivery.table].each(delivery))

    def __repr__(self) -> str:
        names = ", ".join(map(str, self._tables))
        return f"<{type(self).__name__} {names} at {self._connection.hosts}>"

    def stop(self) -> None:
        """End all running reads at once; see `TableReader.stop`. Thread safe."""
        stop, self._stop = self._stop, Stop()
        stop.set()
        for table in self.tables:
            table.stop()

    def close(self) -> None:
        """Stop all reads and close the connection; using the reader again opens a new one."""
        self.stop()
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

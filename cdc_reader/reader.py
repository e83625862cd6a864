"""`CdcReader` reads the logs of several tables over one connection.

It has a `TableReader` for each of its tables, and merges their deliveries.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import chain
from types import TracebackType
from typing import TYPE_CHECKING, Self

import pyarrow as pa

from cdc_reader._html import html_table
from cdc_reader._merging import merged
from cdc_reader._time import Clock, Micros, Moment, SystemClock
from cdc_reader.cluster import ClusterClock, Connection
from cdc_reader.config import ConnectionConfig, ReadConfig, SnapshotMode
from cdc_reader.cql.names import TableName, table_names
from cdc_reader.errors import ConfigurationError
from cdc_reader.reading.cursor import Checkpoint
from cdc_reader.reading.delivery import Delivery
from cdc_reader.reading.retry import Interruption, Stop
from cdc_reader.reading.snapshot import SnapshotDelivery
from cdc_reader.streams.shard import Shard
from cdc_reader.table_reader import TableReader
from cdc_reader.table_snapshot import TableSnapshot

if TYPE_CHECKING:  # the formats are imported when they are used
    from cdc_reader.changes.change import Change
    from cdc_reader.changes.frames import ChangeFormat


_BUFFERED = 8
"""The number of deliveries that wait for the caller, when several tables are followed."""


class CdcReader:
    """Reads the CDC logs of base tables, each named as ``keyspace.table``.

        with CdcReader("scylla.example.com", "shop.orders") as reader:
            for change in reader.changes():
                print(change)

    The cluster is given as contact points or a `ConnectionConfig`. The reader connects on first
    use, so creating a reader costs nothing. Use it as a context manager, or call `close`. Not
    thread-safe, except for `stop`. Methods raise only errors of `cdc_reader.errors`.
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
        self.config = config or ReadConfig()
        self._connection = Connection(connection, self.config)
        self.clock = ClusterClock(self._connection, clock or SystemClock())
        """The cluster's clock, which determines what has settled or expired."""
        self._tables = {
            name: TableReader(
                self._connection, name, config=self.config, clock=self.clock, shard=shard
            )
            for name in names
        }
        self._stop = Stop()

    def now(self) -> Micros:
        """Return the cluster's time, in µs since 1970.

        Raises StoppedError if `stop` is called in the meantime.
        """
        return self.clock.interrupted_by(Interruption(self._stop)).now()

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
        format: ChangeFormat | str = "changes",  # noqa: A002 - Spark's name
    ) -> pa.RecordBatchReader:
        """Return the changes of the only table as Arrow; see `TableReader.change_batches`.

        Raises ConfigurationError if there are several tables, because their columns differ.
        """
        return self.table.change_batches(start, end, format)

    def changes(self, start: Moment | None = None, end: Moment | None = None) -> Iterator[Change]:
        """Yield the changes of all tables, table after table; see `TableReader.changes`."""
        return chain.from_iterable([table.changes(start, end) for table in self.tables])

    def follow(self, start: Moment | None = None, end: Moment | None = None) -> Iterator[Delivery]:
        """Follow all tables, each in its own thread; see `TableReader.follow`.

        Each delivery has an attribute `table`. Deliveries of different tables are in no particular
        order.
        """
        if len(self._tables) == 1:
            return self.table.follow(start, end)
        follows = [table.follow(start, end) for table in self.tables]
        return merged(follows, _BUFFERED, self.stop)

    def follow_changes(
        self, start: Moment | None = None, end: Moment | None = None
    ) -> Iterator[Change]:
        """Follow all tables as `follow` does, but yield changes.

        A window's changes are yielded after all its rows have been read.
        """
        stop = self._stop
        return _changes(self.follow(start, end), stop)

    def follow_change_batches(
        self,
        start: Moment | Checkpoint | None = None,
        end: Moment | None = None,
        format: ChangeFormat | str = "changes",  # noqa: A002 - Spark's name
        *,
        snapshot: SnapshotMode | str = SnapshotMode.NONE,
    ) -> Iterator[Delivery | SnapshotDelivery]:
        """Follow the only table as Arrow; see `TableReader.follow_change_batches`.

        Raises ConfigurationError if there are several tables, because their columns differ.
        """
        return self.table.follow_change_batches(start, end, format, snapshot=snapshot)

    def snapshot(self) -> TableSnapshot:
        """Return a snapshot of the only table; see `TableReader.snapshot`.

        Raises ConfigurationError if there are several tables, because their columns differ.
        """
        return self.table.snapshot()

    def __repr__(self) -> str:
        names = ", ".join(map(str, self._tables))
        return f"<{type(self).__name__} {names} at {self._connection.hosts}>"

    def _repr_html_(self) -> str:
        """Return an HTML table, for notebooks, of the tables and the schemas read so far."""
        caption = f"{type(self).__name__} at {self._connection.hosts}"
        return html_table(caption, ("table", "key", "other columns", "log"), map(_row, self.tables))

    def stop(self) -> None:
        """End all running reads immediately; see `TableReader.stop`. Thread-safe."""
        stop, self._stop = self._stop, Stop()
        stop.set()
        for table in self.tables:
            table.stop()

    def close(self) -> None:
        """Stop all reads and close the connection.

        Later use of the reader opens a new connection.
        """
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


def _changes(deliveries: Iterator[Delivery], stop: Stop) -> Iterator[Change]:
    """Yield the changes of each delivery, until `stop` is set."""
    from cdc_reader.changes.grouping import TableChanges

    changes: dict[TableName, TableChanges] = defaultdict(TableChanges)
    for delivery in deliveries:
        for part in changes[delivery.table].each(delivery):
            with stop.calling(part.end):
                yield from part
            if stop.is_set():
                return


def _row(table: TableReader) -> tuple[str, ...]:
    """Return a table's row in the HTML table, without sending a query."""
    if table.known_schema is None:
        return str(table.name), "not read yet", "", ""
    base = table.known_schema.base
    partition = ", ".join(column.name for column in base.partition_key)
    key = ", ".join([f"({partition})", *(column.name for column in base.clustering)])
    values = ", ".join(column.name for column in base.values)
    return str(table.name), key, values, str(base.cdc)

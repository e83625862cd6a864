"""`CdcReader`: the logs of one or several tables of a cluster."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from functools import partial
from itertools import chain
from types import TracebackType
from typing import Self

import pyarrow as pa

from cdc_reader.change import Change
from cdc_reader.config import ConnectionConfig, ReadConfig
from cdc_reader.delivery import Delivery
from cdc_reader.driver import Connection
from cdc_reader.errors import ConfigurationError
from cdc_reader.ids import TableName
from cdc_reader.merging import Merging
from cdc_reader.ports import Clock
from cdc_reader.shard import Shard
from cdc_reader.table_changes import TableChanges
from cdc_reader.table_reader import Moment, TableReader


class CdcReader:
    """Reads the CDC logs of base tables, each named as ``keyspace.table``.

        with CdcReader(ConnectionConfig("scylla.example.com"), "shop.orders") as reader:
            for change in reader.changes():
                print(change)

    It connects when first asked for something that needs the cluster, so building one
    costs nothing; use it as a context manager, or call `close`. Not for several threads at
    once, `stop` excepted. Every method raises errors of `cdc_reader.errors` only.
    """

    def __init__(
        self,
        connection: ConnectionConfig,
        *tables: str | TableName,
        config: ReadConfig | None = None,
        clock: Clock | None = None,
        shard: Shard | None = None,
    ) -> None:
        names = [name if isinstance(name, TableName) else TableName.parse(name) for name in tables]
        if not names:
            raise ConfigurationError("tables", (), "give at least one table, as keyspace.table")
        self.config = config or ReadConfig()
        self._connection = Connection(connection, self.config)
        self._tables = {
            name: TableReader(self._connection, name, config=self.config, clock=clock, shard=shard)
            for name in names
        }

    @property
    def tables(self) -> tuple[TableReader, ...]:
        """The readers of the single tables, in the order they were named."""
        return tuple(self._tables.values())

    @property
    def table(self) -> TableReader:
        """The reader of the only table; ConfigurationError if there are several."""
        if len(self._tables) > 1:
            names = ", ".join(map(str, self._tables))
            raise ConfigurationError("tables", names, "use `tables`, for there is not just one")
        return self.tables[0]

    def batches(
        self, start: Moment | None = None, end: Moment | None = None
    ) -> Iterator[pa.RecordBatch]:
        """The rows of all tables, table after table; see `TableReader.batches`."""
        return chain.from_iterable([table.batches(start, end) for table in self.tables])

    def changes(self, start: Moment | None = None, end: Moment | None = None) -> Iterator[Change]:
        """The changes of all tables, table after table; see `TableReader.changes`."""
        return chain.from_iterable([table.changes(start, end) for table in self.tables])

    def follow(self, start: Moment | None = None, end: Moment | None = None) -> Iterator[Delivery]:
        """Follow all tables, each in its own thread; see `TableReader.follow`.

        A delivery names its table. Between tables there is no order.
        """
        if len(self._tables) == 1:
            return self.table.follow(start, end)
        follows = [partial(table.follow, start, end) for table in self.tables]
        return iter(Merging(follows, self.config.in_flight, self.stop))

    def follow_changes(
        self, start: Moment | None = None, end: Moment | None = None
    ) -> Iterator[Change]:
        """The same as changes; those of a window come when its rows have been read."""
        changes: dict[TableName, TableChanges] = defaultdict(TableChanges)
        for delivery in self.follow(start, end):
            yield from changes[delivery.table].each(delivery)

    def stop(self) -> None:
        """End every `follow` soon, from any thread. A window cut short is not declared complete."""
        for table in self.tables:
            table.stop()

    def close(self) -> None:
        """Stop, and give up the connection; using the reader again opens a new one."""
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

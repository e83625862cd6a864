"""Interfaces through which the engine accesses the cluster, implemented by `cluster` and tests."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Protocol

import pyarrow as pa
from attrs import frozen

from cdc_reader._time import Clock, Micros
from cdc_reader.cql.schema import OPERATION, LogSchema
from cdc_reader.streams.generation import StreamGroup
from cdc_reader.streams.ring import TokenRange
from cdc_reader.streams.task import RangeTask, Task

EXPIRY = f"expiry({OPERATION})"
"""The last column of a read with a `clock`: when each row expires by it, in µs, as int64."""

TOKEN = "token(key)"  # noqa: S105 - the name of a column
"""A column of a read with `tokens`: the token of the row's partition, as int64."""


READ_AT = "read at"
"""A column of a snapshot's rows with TTLs alone: the time at which they were read, in µs."""

TTLS, TTLS_AND_TIMES = ("TTL",), ("TTL", "WRITETIME")
"""The functions of cells whose values a read of a base table can have, see `SnapshotTable.rows`."""


def ttl_of(column: str) -> str:
    """Return the name of the column that contains the TTLs of `column`."""
    return f"ttl({column})"


def written_of(column: str) -> str:
    """Return the name of the column that contains the write times of `column`."""
    return f"writetime({column})"


def is_of_cells(name: str) -> bool:
    """Return whether a column tells of the cells of other columns, and is none of the table."""
    return name == READ_AT or name.startswith((ttl_of("")[:-1], written_of("")[:-1]))


class LogSource(Protocol):
    """Reads rows of one log table, with the columns of one `LogSchema`."""

    def read(
        self, task: Task | RangeTask, *, clock: Clock | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Read the task's rows, one batch per page, each stream in order. No batch is empty.

        The call itself requests the first page, before the first `next`, so that several reads
        started together overlap. With a `clock`, each batch has one more column, `EXPIRY`: the time
        at which the row expires, or null if it does not. It is computed from the time at which the
        page was received, however long the batch waits before it is used.
        """
        ...


class StreamSource(Protocol):
    """Provides the streams of a table's generations."""

    def groups(self, start: Micros) -> Sequence[StreamGroup]:
        """Return the stream groups of the generation that starts at `start`, if it has any."""
        ...


class GenerationSource(StreamSource, Protocol):
    """Provides the generations of one table."""

    def timestamps(self, since: Micros | None = None, *, of_all: bool = True) -> Sequence[Micros]:
        """Return the starts of the generations that are visible now, in any order.

        With tablets, a node that lags does not show the newest generations, so all nodes are asked,
        or one of them in turn if `of_all` is False. An answer that was asked for at `since` (µs) or
        later may be used.
        """
        ...

    def unpublished(self, since: Micros | None = None) -> Sequence[Micros]:
        """Return the starts of generations with streams but no published timestamp.

        The starts are in any order, and the generations may already be in force. An answer that was
        asked for at `since` or later may be used.
        """
        ...


@frozen
class FixedStreams:
    """A `GenerationSource` of generations whose starts its user knows; `load` returns the groups.

    It reads no timestamps.
    """

    load: Callable[[Micros], Sequence[StreamGroup]]

    def timestamps(self, since: Micros | None = None, *, of_all: bool = True) -> Sequence[Micros]:
        """Return an empty sequence."""
        del since, of_all
        return ()

    def groups(self, start: Micros) -> Sequence[StreamGroup]:
        """See `GenerationSource.groups`."""
        return self.load(start)

    def unpublished(self, since: Micros | None = None) -> Sequence[Micros]:
        """Return an empty sequence."""
        del since
        return ()


class RowSource(Protocol):
    """Reads rows of one base table, with the columns of one `TableSchema`."""

    def read(self, tokens: TokenRange) -> Iterator[pa.RecordBatch]:
        """Read the rows of a range, one batch per page, in the server's order. No batch is empty.

        The call itself requests the first page, as in `LogSource.read`.
        """
        ...


class LogTable(Protocol):
    """One table of the cluster: its schema, generations and log."""

    @property
    def generations(self) -> GenerationSource: ...

    def moment(self, now: Micros, age: int) -> Micros:
        """Return the time as of which a pass that begins `now` sees the cluster.

        Passes of several tables that begin within `age` µs share it, and what they ask for.
        """
        ...

    def schema_version(self, since: Micros | None = None) -> str | None:
        """Return the schema version of a node, at the cost of one small query.

        It changes with every schema change that the node hears of. An answer that was asked for at
        `since` or later may be used instead.
        """
        ...

    def schema_versions(self) -> Collection[str | None]:
        """Return the schema versions that nodes have, at the cost of one small query to each."""
        ...

    def schema(self) -> LogSchema:
        """Return the current schema.

        Raises a SchemaError, such as CdcNotEnabledError, if the table cannot be followed.
        """
        ...

    def source(self, schema: LogSchema) -> LogSource:
        """Return a source of rows with the columns of `schema`."""
        ...


class SnapshotTable(LogTable, Protocol):
    """A `LogTable` whose base table can be read as well."""

    def rows(
        self,
        schema: LogSchema,
        *,
        cells: Sequence[str] = (),
        tokens: bool = False,
        tolerant: bool = False,
    ) -> RowSource:
        """Return a source of the base table's rows, with its columns in `schema`.

        With `cells`, which is `TTLS` or `TTLS_AND_TIMES`, each column of single cells gets one or
        two more columns, which `ttl_of` and `written_of` name. The first contains the remaining TTL
        in seconds, as int32, and the second the write timestamp in µs, as int64. Both may be null.
        With `tokens`, there is a column `TOKEN`. If `tolerant` is True, a cell that cannot be
        decoded is recorded, and no error is raised.
        """
        ...

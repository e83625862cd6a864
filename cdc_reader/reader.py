"""`CdcReader`: the log of one table, from a real cluster, as Arrow batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from functools import cached_property
from types import TracebackType
from typing import Self

import pyarrow as pa

from cdc_reader.clock import SystemClock
from cdc_reader.config import ConnectionConfig, ReadConfig
from cdc_reader.driver import Connection, CqlLogSource, SchemaSource, TableGenerations
from cdc_reader.errors import ConfigurationError
from cdc_reader.ids import TableName
from cdc_reader.kernel import arrow_schema
from cdc_reader.log_reader import Delivery, LogReader
from cdc_reader.ports import Clock, GenerationSource
from cdc_reader.schema import LogSchema
from cdc_reader.task import Task
from cdc_reader.timestamp import format_timestamp, to_micros
from cdc_reader.window import Window

Moment = int | datetime
"""A point in time: µs since 1970 (UTC), or a datetime (UTC if it has no zone)."""


class CdcReader:
    """Reads the CDC log of one base table.

    It connects when first asked for something that needs the cluster, so building one
    costs nothing and cannot fail; use it as a context manager, or call `close`. With
    `schema` given (it pickles) it spends no queries on learning it: this is how a worker
    process reads tasks that another process planned. Not for several threads at once,
    `stop` excepted. Every method raises errors of `cdc_reader.errors` only.
    """

    def __init__(
        self,
        connection: ConnectionConfig,
        keyspace: str,
        table: str,
        *,
        config: ReadConfig | None = None,
        schema: LogSchema | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.table = TableName(keyspace, table)
        self._config = config or ReadConfig()
        self._clock = clock or SystemClock()
        self._known_schema = schema
        self._connection = Connection(connection, self._config)

    @cached_property
    def schema(self) -> LogSchema:
        """The log's columns, in the server's order, as they are at the first use.

        Raises TableNotFoundError, CdcNotEnabledError, UnsupportedTableError.
        """
        return self._known_schema or SchemaSource(self._connection).log_schema(self.table)

    @cached_property
    def arrow_schema(self) -> pa.Schema:
        """The schema of every batch."""
        return arrow_schema(self.schema.columns)

    @cached_property
    def generations(self) -> GenerationSource:
        """The generations of the table, for planners of their own."""
        return TableGenerations(self._connection, self.table)

    def first_timestamp(self) -> int | None:
        """When, in µs since 1970, the oldest generation began; None if there is none yet.

        No row of any log is older.
        """
        return self._log.first_timestamp()

    def plan(self, window: Window) -> list[Task]:
        """The tasks that together hold exactly the rows of `window`, older generations first.

        Asks the cluster for its generations first. Tasks pickle; any process may read them.
        """
        return self._log.plan(window)

    def read(self, tasks: Iterable[Task]) -> Iterator[pa.RecordBatch]:
        """The rows of `tasks`, each stream's in the server's order; one batch a page."""
        return self._log.read(tasks)

    def batches(
        self, start: Moment | None = None, end: Moment | None = None
    ) -> Iterator[pa.RecordBatch]:
        """All rows written in [start, end) that are there now; both ends open by default.

        Rows of the last moments may be incomplete: only what is older than the confidence
        window is settled. Raises ConfigurationError if start is after end.
        """
        first, last = _micros(start), _micros(end)
        if first is not None and last is not None and first > last:
            remedy = f"give a start before the end, {format_timestamp(last)}"
            raise ConfigurationError("start", format_timestamp(first), remedy)
        return self._log.batches(first, last)

    def follow(self, start: Moment) -> Iterator[Delivery]:
        """Follow the log from `start`, window after window, for good or until `stop`.

        Windows adjoin; each ends at most at now - confidence window. A window's batches
        come in any number, then one delivery without a batch: its rows are complete, and
        its end is the position to start from after a restart.
        """
        return self._log.follow(_as_micros(start))

    def stop(self) -> None:
        """End `follow` soon, from any thread. A window cut short is not declared complete."""
        self._log.stop()

    def close(self) -> None:
        """Give up the connection; using the reader again opens a new one."""
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

    @cached_property
    def _log(self) -> LogReader:
        source = CqlLogSource(self._connection, self.schema)
        return LogReader(source, self.generations, self._clock, self._config)


def _micros(moment: Moment | None) -> int | None:
    return None if moment is None else _as_micros(moment)


def _as_micros(moment: Moment) -> int:
    return to_micros(moment) if isinstance(moment, datetime) else moment

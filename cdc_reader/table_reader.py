"""`TableReader`: the log of one table, from a real cluster, as Arrow batches and as changes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from functools import cached_property
from weakref import WeakSet

import pyarrow as pa

from cdc_reader.change import Change
from cdc_reader.clock import SystemClock
from cdc_reader.config import ReadConfig
from cdc_reader.delivery import Delivery
from cdc_reader.driver import CdcTable, Connection
from cdc_reader.errors import ConfigurationError
from cdc_reader.follower import Follower
from cdc_reader.grouping import Grouping
from cdc_reader.ids import TableName
from cdc_reader.kernel import arrow_schema
from cdc_reader.log_reader import LogReader
from cdc_reader.ports import Clock, GenerationSource
from cdc_reader.progress import Checkpoint
from cdc_reader.schema import LogSchema
from cdc_reader.shard import Shard
from cdc_reader.task import RangeTask, Task
from cdc_reader.timestamp import format_timestamp, to_micros
from cdc_reader.window import BEGINNING, FOREVER, Window

Moment = int | datetime
"""A point in time: µs since 1970 (UTC), or a datetime (UTC if it has no zone)."""


class TableReader:
    """Reads the CDC log of one base table over a connection, which it does not own.

    It asks the cluster when first used for something that needs it. With `schema` given (it
    pickles) it spends no queries on learning it: this is how a worker process reads tasks
    that another process planned. Not for several threads at once, `stop` excepted. Every
    method raises errors of `cdc_reader.errors` only.
    """

    def __init__(
        self,
        connection: Connection,
        name: TableName,
        *,
        config: ReadConfig | None = None,
        schema: LogSchema | None = None,
        clock: Clock | None = None,
        shard: Shard | None = None,
    ) -> None:
        self.name = name
        self._table = CdcTable(connection, name)
        self._config = config or ReadConfig()
        self._clock = clock or SystemClock()
        self._known_schema = schema
        self._shard = shard
        self._followers: WeakSet[Follower] = WeakSet()

    @cached_property
    def schema(self) -> LogSchema:
        """The log's columns, in the server's order, as they are at the first use.

        Raises TableNotFoundError, CdcNotEnabledError, UnsupportedTableError.
        """
        return self._known_schema or self._table.schema()

    @cached_property
    def arrow_schema(self) -> pa.Schema:
        """The schema of the batches of `read` and `batches`."""
        return arrow_schema(self.schema.columns)

    @property
    def generations(self) -> GenerationSource:
        """The generations of the table, for planners of their own."""
        return self._table.generations

    def first_timestamp(self) -> int | None:
        """When, in µs since 1970, the oldest generation began; None if there is none yet.

        No row of the log is older.
        """
        return self._log.first_timestamp()

    def plan(self, window: Window) -> list[Task]:
        """The tasks that together hold exactly the rows of `window`, older generations first.

        Asks the cluster for its generations first. Tasks pickle; any process may read them.
        """
        return self._log.plan(window)

    def read(self, tasks: Iterable[Task | RangeTask]) -> Iterator[pa.RecordBatch]:
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

    def changes(self, start: Moment | None = None, end: Moment | None = None) -> Iterator[Change]:
        """The same rows as changes, each stream's in order."""
        return self._changes(self.batches(start, end))

    def follow(
        self, start: Moment | Checkpoint | None = None, end: Moment | None = None
    ) -> Iterator[Delivery]:
        """Follow the log from `start`, window after window, to `end`, or for good until `stop`.

        Windows adjoin; each ends at most at now - confidence window. A window's batches
        come in any number, then one delivery without a batch: its rows are complete, and
        its end is the position to start from after a restart. Without a start, all that the
        log still holds is delivered.
        """
        if not isinstance(start, Checkpoint):
            start = Checkpoint(BEGINNING if start is None else as_micros(start))
        follower = Follower(self._table, self._clock, self._config, start, self._shard)
        self._followers.add(follower)
        return follower.follow(FOREVER if end is None else as_micros(end))

    def stop(self) -> None:
        """End every `follow` soon, from any thread. A window cut short is not declared complete."""
        for follower in tuple(self._followers):
            follower.stop()

    def _changes(self, batches: Iterable[pa.RecordBatch]) -> Iterator[Change]:
        grouping = Grouping(self.schema)
        for batch in batches:
            yield from grouping.each(batch)
        yield from grouping.finish()

    @cached_property
    def _log(self) -> LogReader:
        source = self._table.source(self.schema)
        return LogReader(source, self.generations, self._config, self._shard)


def as_micros(moment: Moment) -> int:
    """The moment in µs since 1970."""
    return to_micros(moment) if isinstance(moment, datetime) else moment


def _micros(moment: Moment | None) -> int | None:
    return None if moment is None else as_micros(moment)

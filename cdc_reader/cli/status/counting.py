"""Counts the rows of logs by reading them, at a limited rate."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta

from attrs import define, evolve, field

from cdc_reader._time import Clock, Micros, duration_micros
from cdc_reader.cli.status.history import Counted
from cdc_reader.cluster import Connection, SchemaSource
from cdc_reader.config import ConnectionConfig, LateRowsMode, ReadConfig
from cdc_reader.cql.names import TableName
from cdc_reader.errors import CdcError
from cdc_reader.reading.delivery import RowsRead, WindowComplete
from cdc_reader.reading.progress import Checkpoint
from cdc_reader.reading.retry import Stop, stopped_by
from cdc_reader.table_reader import TableReader

_MOST_QUERIES = 20.0
"""Requests per second, for all tables together."""
_PAUSE = timedelta(seconds=10)
"""The time between attempts to continue after an error."""


@define(eq=False)
class _Log:
    """Counts the rows of a log from the checkpoint `at` on; `open` returns a reader of the log."""

    table: TableName
    open: Callable[[TableName], TableReader]
    at: Checkpoint
    done: deque[Counted] = field(factory=deque, init=False)
    problem: str | None = field(default=None, init=False)
    reader: TableReader | None = field(default=None, init=False)
    _rows: int = field(default=0, init=False)
    _late: int = field(default=0, init=False)

    def count(self, stop: Stop, end: Micros | None = None) -> None:
        """Count the rows written before `end`; stop early if `stop` is set."""
        self._rows = 0  # an interrupted window is read again
        self.reader = self.open(self.table)
        for delivery in self.reader.follow(self.at, end):
            match delivery:
                case RowsRead(batch=batch, late=True):
                    self._late += batch.num_rows
                case RowsRead(batch=batch):
                    self._rows += batch.num_rows
                case WindowComplete():
                    self._complete(delivery)
            if stop.is_set():
                return
        if self._late and self.done:
            self.done[-1] = evolve(self.done[-1], late=self.done[-1].late + self._late)
            self._late = 0

    def keep_counting(self, stop: Stop, clock: Clock) -> None:
        """Count until `stop`; after an error, resume later where counting stopped."""
        while not stop.is_set():
            try:
                with stopped_by(stop):
                    self.count(stop)
            except CdcError as error:
                self.problem = f"rows of {self.table} are not counted: {error}"
            clock.sleep(duration_micros(_PAUSE), stop)

    def _complete(self, delivery: WindowComplete) -> None:
        self.at, self.problem = delivery.checkpoint, None
        if not delivery.late:
            window = delivery.window
            self.done.append(Counted(window.start, window.end, self._rows, self._late))
            self._rows = self._late = 0


class RowCounter:
    """Counts the rows of several logs. `starts` maps each table to the checkpoint to begin at."""

    def __init__(
        self, connection: ConnectionConfig, starts: Mapping[TableName, Checkpoint], clock: Clock
    ) -> None:
        self._config = ReadConfig(max_queries_per_second=_MOST_QUERIES, retry_deadline=timedelta(0))
        self._queries = Connection(connection, self._config)
        self._clock = clock
        self._stop = Stop()
        self._logs = {table: _Log(table, self._reader, start) for table, start in starts.items()}

    def _reader(self, table: TableName) -> TableReader:
        """Return a reader that also delivers late rows, unless the log keeps rows forever.

        Late rows are recognized by their remaining TTL.
        """
        has_ttl = SchemaSource(self._queries).log_schema(table).base.cdc.ttl
        late_rows = LateRowsMode.DELIVER if has_ttl else LateRowsMode.IGNORE
        config = evolve(self._config, late_rows=late_rows)
        return TableReader(self._queries, table, config=config, clock=self._clock)

    def follow(self) -> None:
        """Count in the background until `close`."""
        for log in self._logs.values():
            count = threading.Thread(
                target=log.keep_counting,
                args=(self._stop, self._clock),
                name=f"cdc-count-{log.table}",
                daemon=True,
            )
            count.start()

    def catch_up(self) -> None:
        """Count all rows that have settled. Raises the errors of a read."""
        settled = self._clock.now() - duration_micros(self._config.confidence_window)
        for log in self._logs.values():
            log.count(self._stop, max(settled, log.at.position))

    def take(self, table: TableName) -> Iterator[Counted]:
        """Yield the spans counted since the last call."""
        done = self._logs[table].done
        while done:
            yield done.popleft()

    def late_scan_at(self, table: TableName) -> Micros | None:
        """Return the time, in µs, of the last search for late rows, or None."""
        return self._logs[table].at.late_scan_at

    def problems(self) -> list[str]:
        """Return the problems that prevent counting."""
        return [log.problem for log in self._logs.values() if log.problem]

    def close(self) -> None:
        """Stop counting and close the connection."""
        self._stop.set()
        for log in self._logs.values():
            if log.reader is not None:
                log.reader.stop()
        self._queries.close()

"""Reads the rows of a follower's steps: the rows of a window, strays, and late rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import pyarrow as pa
from attrs import field, frozen

from cdc_reader._log import get_logger
from cdc_reader._time import Clock, duration_micros
from cdc_reader.config import DeliveryMode, LateRowsMode, ReadConfig, poll_interval
from cdc_reader.cql.schema import LogSchema
from cdc_reader.reading.advance import Step
from cdc_reader.reading.cursor import Checkpoint
from cdc_reader.reading.deduplication import Deduplicator, names_in, rows_named
from cdc_reader.reading.delivery import RowsRead
from cdc_reader.reading.late.keys import KeyReader
from cdc_reader.reading.late.rows import Delivered, Sweep, after_snapshot
from cdc_reader.reading.late.search import late_rows
from cdc_reader.reading.late.strays import Strays, Twins
from cdc_reader.reading.ports import LogTable
from cdc_reader.reading.retry import Stop
from cdc_reader.reading.undelivered import Undelivered
from cdc_reader.reading.windows.fetch import CurrentLog
from cdc_reader.reading.windows.planner import Planner
from cdc_reader.reading.windows.window_reader import Choose, WindowReader
from cdc_reader.streams.polling import PollSchedule
from cdc_reader.streams.shard import Shard
from cdc_reader.streams.window import Window

logger = get_logger(__name__)

_TAIL = 2_000_000
"""Most polls read only rows up to this age, in µs; a chunk's older rows are read once a second."""


@frozen
class Strayed:
    """The strays of a window, with the columns of a schema, and a search for their twins."""

    schema: LogSchema | None = None
    batches: Sequence[pa.RecordBatch] = ()
    twins: Twins = field(factory=lambda: Twins(()))


class StepReader:
    """Reads the undelivered rows of steps, with the log's current columns.

    A read ends early, without an error, if `stop` is set.
    """

    def __init__(
        self,
        table: LogTable,
        log: CurrentLog,
        clock: Clock,
        config: ReadConfig,
        start: Checkpoint,
        shard: Shard | None,
        stop: Stop,
    ) -> None:
        is_delivering = config.late_rows is LateRowsMode.DELIVER
        self._log = log
        self._clock = clock
        self._stop = stop
        self._horizon = duration_micros(config.late_horizon)
        self._confidence = duration_micros(config.confidence_window)
        self.planner = Planner(table.generations, shard, self._horizon if is_delivering else 0)
        self._reader = WindowReader(log, self.planner, clock, config)
        self._strays = Strays(log, self.planner, clock)
        keys_only = CurrentLog(table, start, keys_only=True)
        self._keys = KeyReader(keys_only, table.generations, clock, self.planner.reach)
        self.polls = PollSchedule(poll_interval(config))
        is_eager = config.delivery is DeliveryMode.EAGER
        self.undelivered = Undelivered(start.marks, is_eager=is_eager)

    @property
    def rows_read(self) -> int:
        """The number of rows of the last window, delivered or not."""
        return self._reader.rows

    @property
    def queries(self) -> int:
        """The number of queries of the last reads, not counting further pages."""
        return self._reader.queries + self._strays.queries

    def rows(
        self,
        window: Window,
        cursor: Checkpoint,
        delivered: Delivered | None = None,
        *,
        twins: Twins | None = None,
        seen: Deduplicator | None = None,
        choose: Choose | None = None,
    ) -> Iterator[RowsRead]:
        """Read the undelivered rows of the streams in force in `window`.

        With late rows, they are noted in `delivered`. `twins` searches all rows. If `seen` is
        given, the window is behind the position, and these rows are left out. `choose` selects
        which of the window's tasks to read; by default, all are read.
        """
        may_be_newer, behind = self.undelivered.may_be_newer, seen is not None
        with_expiry = delivered is not None
        for task, batch in self._reader.read(
            window, choose, with_expiry=with_expiry, may_be_newer=may_be_newer
        ):
            if twins is not None:
                twins.note(batch)
            rows = batch
            if seen is not None:
                rows = after_snapshot(seen.left(batch), cursor, self._clock.now())
            for new, is_behind in self._new(rows, cursor, delivered, behind=behind):
                if self._stop.is_set():
                    return
                self.polls.found_rows(task, self._clock.now())
                yield RowsRead(self._log.schema, window, new, late=behind or is_behind)

    def poll(self, window: Window, cursor: Checkpoint) -> Iterator[RowsRead]:
        """Read the undelivered rows of the chunks that are due, settled or not."""
        now = self._clock.now()
        newest = min(now, window.end) - _TAIL
        return self.rows(window, cursor, choose=partial(self.polls.due, now=now, newest=newest))

    def find_strays(self, window: Window) -> Strayed:
        """Read the window's strays, before the other rows of the window are read."""
        if not self.planner.reach or self._stop.is_set():
            return Strayed()
        found = self._all_of(lambda: [*self._strays.read(window)])
        return Strayed(self._log.schema, found, Twins(found))

    def strays(
        self, window: Window, strayed: Strayed, cursor: Checkpoint, delivered: Delivered | None
    ) -> Iterator[RowsRead]:
        """Return the undelivered strays, after the window's other rows were read."""

        def read() -> Sequence[pa.RecordBatch]:
            found = strayed.batches
            if found and self._log.schema is not strayed.schema:
                names = names_in(found)
                found = [rows_named(batch, names) for batch in self._strays.read(window)]
            return [*self._strays.without_twins(found, strayed.twins)]

        return self._strayed(window, read, cursor, delivered)

    def fresh_strays(
        self, window: Window, step: Step, cursor: Checkpoint, delivered: Delivered | None
    ) -> Iterator[RowsRead]:
        """Read the strays of a step's new generations in `window`, which is behind the position."""

        def read() -> Sequence[pa.RecordBatch]:
            found = [*self._strays.read(window, step.fresh)]
            return [*self._strays.fresh_without_twins(found, step.fresh)]

        if not self.planner.reach:
            return iter(())
        return self._strayed(window, read, cursor, delivered, behind=True)

    def delivered_before(self, window: Window, step: Step, cursor: Checkpoint) -> Deduplicator:
        """Return what was delivered of `window` before the step's new generations were known."""
        return self._keys.delivered(window, step, cursor, self._confidence)

    def sweep(self, cursor: Checkpoint) -> Sweep:
        """Begin a search for late rows, now."""
        now, confidence = self._clock.now(), self._confidence
        assert cursor.late is not None  # noqa: S101 - late rows are delivered
        return Sweep.of(cursor.late, cursor.position, self._horizon, now, confidence)

    def late_rows(self, sweep: Sweep, cursor: Checkpoint) -> Sequence[RowsRead]:
        """Read the late rows that a search finds. They are few, so all are returned at once."""
        read, strays = self._reader.read_again, self._strays
        search = partial(late_rows, sweep, strays, read, cursor.ttls, self._clock)
        found = self._all_of(lambda: [*search()])
        logger.info("late_rows_sought", rows=sum(batch.num_rows for batch in found))
        return [RowsRead(self._log.schema, sweep.window, batch, late=True) for batch in found]

    def _strayed(
        self,
        window: Window,
        read: Callable[[], Sequence[pa.RecordBatch]],
        cursor: Checkpoint,
        delivered: Delivered | None,
        *,
        behind: bool = False,
    ) -> Iterator[RowsRead]:
        for batch in self._all_of(read):
            rows = after_snapshot(batch, cursor, self._clock.now()) if behind else batch
            for new, _ in self._new(rows, cursor, delivered, behind=behind):
                if self._stop.is_set():
                    return
                yield RowsRead(self._log.schema, window, new, late=True)

    def _new(
        self,
        batch: pa.RecordBatch,
        cursor: Checkpoint,
        delivered: Delivered | None,
        *,
        behind: bool,
    ) -> Iterator[tuple[pa.RecordBatch, bool]]:
        now = self._clock.now()
        return self.undelivered.of(batch, delivered, cursor.ttls, now, behind=behind)

    def _all_of(self, read: Callable[[], Sequence[pa.RecordBatch]]) -> Sequence[pa.RecordBatch]:
        """Return all batches that `read` returns, with the columns of the newest schema."""
        while True:
            schema, found = self._log.schema, read()
            if not found or not (self._log.refresh(of_all=True) or schema is not self._log.schema):
                return found

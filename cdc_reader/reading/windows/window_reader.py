"""Reads windows: one after another for a follower, or a bounded window with one schema.

A follower's windows are read by streams or by ranges, and sorted by write time on request.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from cdc_reader._arrow import NO_TEXT
from cdc_reader._stats import overloads
from cdc_reader._time import Clock, Micros
from cdc_reader.config import ReadConfig
from cdc_reader.cql.schema import TIME
from cdc_reader.cql.timeuuid import TIME_DIGITS
from cdc_reader.reading.deduplication import rows_of, streams_in
from cdc_reader.reading.ports import GenerationSource, LogSource
from cdc_reader.reading.retry import Stop
from cdc_reader.reading.view import PublicationGate
from cdc_reader.reading.windows.fetch import CurrentLog, MayBeNewer, read_tasks
from cdc_reader.reading.windows.in_flight import InFlight
from cdc_reader.reading.windows.planner import Planner
from cdc_reader.streams.generation import Timeline
from cdc_reader.streams.shard import Shard
from cdc_reader.streams.strategy import Strategy, StrategyChoice, few
from cdc_reader.streams.task import RangeTask, Task
from cdc_reader.streams.window import Window

Choose = Callable[[Sequence[Task] | Sequence[RangeTask]], Sequence[Task] | Sequence[RangeTask]]
"""Returns the tasks of a window to read, in order."""


class WindowReader:
    """Reads windows of a `CurrentLog`.

    `queries` and `rows` are the counts for the last window. The rows of each window determine the
    sizes of the next window's chunks.
    """

    def __init__(self, log: CurrentLog, planner: Planner, clock: Clock, config: ReadConfig) -> None:
        self.queries = self.rows = 0
        self._log = log
        self._planner = planner
        self._clock = clock
        self._fetch_size = config.fetch_size
        self._choice = StrategyChoice()

    def read(
        self,
        window: Window,
        choose: Choose | None = None,
        *,
        with_expiry: bool = False,
        may_be_newer: MayBeNewer | None = None,
    ) -> Iterator[tuple[Task | RangeTask, pa.RecordBatch]]:
        """Yield the window's rows and their task: older generations first, each stream in order.

        `choose` selects which of the window's tasks to read; by default, all are read. A choice is
        among chunks of streams. For `may_be_newer`, see `CurrentLog.read`.
        """
        strategy = self._choice.next() if choose is None else Strategy.STREAMS
        took, were_overloads, began = 0, overloads(), self._clock.now()
        planned = self._plan(window, strategy)
        most = few(self._planner.count_streams())
        tasks = planned if choose is None else choose(planned)
        self.queries, self.rows = len(tasks), 0
        held = [0.0] * len(tasks)
        seen: set[bytes] = set()
        clock = self._clock if with_expiry else None
        for number, batch in self._log.read(tasks, clock=clock, may_be_newer=may_be_newer):
            took += self._clock.now() - began
            # Rounding up counts each earlier page as a full one, however few rows it had.
            held[number] = math.ceil(held[number]) + batch.num_rows / self._fetch_size
            self.rows += batch.num_rows
            if choose is None and len(seen) <= most:
                seen.update(streams_in(batch))
            if (rows := self._of_announced_streams(tasks[number], batch)).num_rows:
                yield tasks[number], rows
            began = self._clock.now()
        took += self._clock.now() - began
        if choose is not None:
            return
        self._planner.adapt(held)
        is_sparse = len(seen) <= most and overloads() == were_overloads
        self._choice.record(strategy, took, len(tasks), is_sparse=is_sparse)

    def read_again(self, window: Window) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a window that was read before, each with its `EXPIRY`."""
        tasks = self._planner.plan(window)
        self.queries = len(tasks)
        return (batch for _, batch in self._log.read(tasks, clock=self._clock))

    def _of_announced_streams(
        self, task: Task | RangeTask, batch: pa.RecordBatch
    ) -> pa.RecordBatch:
        """Return the batch without rows of streams that are in the range but not announced yet."""
        if isinstance(task, RangeTask):
            return rows_of(batch, self._planner.streams_of(task).__contains__)
        return batch

    def _plan(self, window: Window, strategy: Strategy) -> list[Task] | list[RangeTask]:
        if strategy is Strategy.RANGES:
            return self._planner.plan_ranges(window)
        return self._planner.plan(window)


class LogReader:
    """Reads windows of a log, with the columns of one schema."""

    def __init__(
        self,
        source: LogSource,
        generations: GenerationSource,
        config: ReadConfig,
        clock: Clock,
        shard: Shard | None = None,
        stop: Stop | None = None,
    ) -> None:
        self._source = source
        self._config = config
        self._clock = clock
        self._generations = generations
        self._planner = Planner(generations, shard)
        self._stop = stop or Stop()
        self._in_flight = InFlight()

    def first_timestamp(self) -> Micros | None:
        """Return the start of the oldest generation, in µs, or None if none is announced yet."""
        return min(self._generations.timestamps(), default=None)

    def plan(self, window: Window) -> list[Task]:
        """Return the tasks of `window`, for the generations that are visible now.

        First waits up to ten minutes for generations that are stored but not announced.
        """
        PublicationGate(lambda: self._generations).wait(window, self._clock, self._stop)
        self._planner.use(Timeline(tuple(self._generations.timestamps())))
        return self._planner.plan(window)

    def read(
        self, tasks: Iterable[Task | RangeTask], source: LogSource | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of `tasks`, task after task; several tasks are read concurrently.

        If `source` is given, it is read instead of the reader's own source; it must belong to the
        same log, but may have other columns.
        """
        for _, batch in self._read(tasks, source):
            yield batch

    def batches(
        self,
        window: Window,
        source: LogSource | None = None,
        on_read: Callable[[Window], None] = lambda _window: None,
    ) -> Iterator[pa.RecordBatch]:
        """Yield all rows of `window` that exist now, settled or not.

        Calls `on_read` with the window of each task once the task's last page has been taken. For
        `source`, see `read`.
        """
        tasks, done = self.plan(window), 0
        for number, batch in self._read(tasks, source):
            for task in tasks[done:number]:
                on_read(task.window)
            done = number
            yield batch
        for task in tasks[done:]:
            on_read(task.window)

    def _read(
        self, tasks: Iterable[Task | RangeTask], source: LogSource | None
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        return read_tasks(source or self._source, tasks, self._in_flight)


class ByWriteTime:
    """Collects batches of one schema, and yields their rows in order of write time.

    The sort is stable: rows of the same microsecond keep the order in which they were added. If the
    rows of each stream are added in order, they keep that order, and records stay whole.
    """

    def __init__(self) -> None:
        self.size = 0
        """The number of bytes in memory."""
        self._batches: list[pa.RecordBatch] = []

    def add(self, batch: pa.RecordBatch) -> None:
        """Add a batch."""
        self._batches.append(batch)
        self.size += batch.nbytes

    def batches(self, rows: int) -> Iterator[pa.RecordBatch]:
        """Yield all rows in order of write time, in batches of at most `rows`."""
        if not self._batches:
            return
        table = pa.Table.from_batches(self._batches)
        order = pc.sort_indices(_time(table.column(TIME)))  # stable
        for start in range(0, len(order), rows):
            part = table.take(order.slice(start, rows))
            yield from part.combine_chunks().to_batches()


def _time(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return each UUID's time as 15 hexadecimal digits, whose text sorts as the times do."""
    fields = (pc.utf8_slice_codeunits(column, start, stop) for start, stop in TIME_DIGITS)
    return pc.binary_join_element_wise(*fields, NO_TEXT)

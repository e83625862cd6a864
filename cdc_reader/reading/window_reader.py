"""Reads one window, by streams or by ranges, and adapts the next window's chunks to its rows."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pyarrow as pa

from cdc_reader._time import Clock, Waiting
from cdc_reader.config import ReadConfig
from cdc_reader.reading.current_log import CurrentLog
from cdc_reader.reading.deduplication import rows_of, streams_in
from cdc_reader.reading.planner import Planner
from cdc_reader.streams.strategy import Strategy, StrategyChoice
from cdc_reader.streams.task import RangeTask, Task
from cdc_reader.streams.window import Window


class WindowReader:
    """Reads windows of a `CurrentLog`; `queries` and `rows` are the counts of the last window."""

    def __init__(self, log: CurrentLog, planner: Planner, clock: Clock, config: ReadConfig) -> None:
        self.queries = self.rows = 0
        self._log = log
        self._planner = planner
        self._clock = clock
        self._fetch_size = config.fetch_size
        self._choice = StrategyChoice(Strategy(config.strategy))

    def read(self, window: Window, *, remaining_ttl: bool = False) -> Iterator[pa.RecordBatch]:
        """Yield the window's rows, older generations first, each stream in order."""
        strategy, waiting = self._choice.next(), Waiting(self._clock)
        tasks = self._plan(window, strategy)
        self.queries, self.rows = len(tasks), 0
        held = [0.0] * len(tasks)
        seen: set[bytes] = set()
        found = self._log.read(tasks, remaining_ttl=remaining_ttl)
        for number, batch in waiting.each(found):
            # Rounding up counts each earlier page as a full one, however few rows it had.
            held[number] = math.ceil(held[number]) + batch.num_rows / self._fetch_size
            self.rows += batch.num_rows
            if self._choice.is_open:
                seen.update(streams_in(batch))
            yield from self._planned(tasks[number], batch)
        self._planner.adapt(held)
        if self._choice.is_open:
            share = len(seen) / max(1, self._planner.count_streams())
            self._choice.record(strategy, waiting.took, len(tasks), share)

    def read_again(self, window: Window) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a window that was read before, each with its remaining TTL."""
        for _, batch in self._log.read(self._planner.plan(window), remaining_ttl=True):
            yield batch

    def _planned(self, task: Task | RangeTask, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Yield the batch without rows of streams that are in the range but not yet announced."""
        if isinstance(task, RangeTask):
            batch = rows_of(batch, self._planner.streams_of(task).__contains__)
        if batch.num_rows:
            yield batch

    def _plan(self, window: Window, strategy: Strategy) -> list[Task] | list[RangeTask]:
        if strategy is Strategy.RANGES:
            return self._planner.plan_ranges(window)
        return self._planner.plan(window)

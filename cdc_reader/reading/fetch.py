"""Reads several tasks concurrently, and yields their rows in task order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TypeVar

import pyarrow as pa

from cdc_reader._time import Micros
from cdc_reader.config import ReadConfig
from cdc_reader.reading.planner import Planner
from cdc_reader.reading.ports import GenerationSource, LogSource
from cdc_reader.streams.shard import Shard
from cdc_reader.streams.task import RangeTask, Task
from cdc_reader.streams.window import Window

T = TypeVar("T")


def read_ahead(
    read: Callable[[T], Iterator[pa.RecordBatch]], tasks: Iterable[T], in_flight: int
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield the batches of `tasks`, task after task, each with its task's index.

    `read` requests a task's first page at once, and each next one before it yields the current.
    Up to `in_flight` tasks have a page requested or ready at a time, so at most `in_flight`
    pages are in memory, whatever the size of the tasks.
    """
    started: deque[tuple[int, Iterator[pa.RecordBatch]]] = deque()
    for number, task in enumerate(tasks):
        if len(started) >= in_flight:
            yield from _drain(*started.popleft())
        started.append((number, read(task)))
    while started:
        yield from _drain(*started.popleft())


def _drain(number: int, batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[int, pa.RecordBatch]]:
    for batch in batches:
        yield number, batch


def read_tasks(
    source: LogSource,
    tasks: Iterable[Task | RangeTask],
    in_flight: int,
    *,
    remaining_ttl: bool = False,
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield the rows of `tasks` as `read_ahead` does."""
    return read_ahead(partial(source.read, remaining_ttl=remaining_ttl), tasks, in_flight)


class LogReader:
    """Reads windows of a log, with the columns of one schema."""

    def __init__(
        self,
        source: LogSource,
        generations: GenerationSource,
        config: ReadConfig,
        shard: Shard | None = None,
    ) -> None:
        self._source = source
        self._config = config
        self._planner = Planner(generations, config.chunk_size, shard)

    def first_timestamp(self) -> Micros | None:
        """Return the start of the oldest generation, in µs; None if none is announced yet."""
        return min(self._planner.refresh().starts, default=None)

    def plan(self, window: Window) -> list[Task]:
        """Return the tasks of `window`, by the generations visible now."""
        self._planner.refresh()
        return self._planner.plan(window)

    def read(
        self, tasks: Iterable[Task | RangeTask], source: LogSource | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of `tasks`, task after task, reading several concurrently.

        Another `source` of the same log may have other columns.
        """
        for _, batch in read_tasks(source or self._source, tasks, self._config.in_flight):
            yield batch

    def batches(self, window: Window, source: LogSource | None = None) -> Iterator[pa.RecordBatch]:
        """Yield all rows of `window` that exist now, settled or not; for `source` see `read`."""
        yield from self.read(self.plan(window), source)

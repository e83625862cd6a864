"""Reading a bounded part of one table's log through the ports. No I/O of its own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from cdc_reader.config import ReadConfig
from cdc_reader.pipeline import read_tasks
from cdc_reader.planner import Planner
from cdc_reader.ports import GenerationSource, LogSource
from cdc_reader.shard import Shard
from cdc_reader.task import RangeTask, Task
from cdc_reader.window import BEGINNING, FOREVER, Window


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

    def first_timestamp(self) -> int | None:
        """When, in µs, the oldest generation began; None if none is announced yet."""
        return min(self._planner.refresh().starts, default=None)

    def plan(self, window: Window) -> list[Task]:
        """The tasks of `window`, by the generations visible now."""
        self._planner.refresh()
        return self._planner.plan(window)

    def read(self, tasks: Iterable[Task | RangeTask]) -> Iterator[pa.RecordBatch]:
        """The rows of `tasks`, task after task, with several of them under way at a time."""
        for _, batch in read_tasks(self._source, tasks, self._config.in_flight):
            yield batch

    def batches(self, start: int | None, end: int | None) -> Iterator[pa.RecordBatch]:
        """All rows of [start, end) that are there now, unsettled ones too."""
        window = Window(BEGINNING if start is None else start, FOREVER if end is None else end)
        yield from self.read(self.plan(window))

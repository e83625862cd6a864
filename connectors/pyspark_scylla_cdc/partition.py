"""Spark partitions: what one task of Spark reads, packed small for its way to an executor."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa
from attrs import frozen
from pyspark.sql.datasource import InputPartition

from cdc_reader.ports import LogSource
from cdc_reader.strategy import Strategy
from cdc_reader.task import RangeTask, Task
from cdc_reader.window import Window
from pyspark_scylla_cdc.plan import Span
from pyspark_scylla_cdc.streams import Streams

INLINE = 16_384
"""Streams of a plan that travel with it, 16 bytes each. Of more, an executor reads the
generation itself, once, and keeps it: that would be 26 MB a micro-batch for a large cluster.
"""


@frozen
class LogRead:
    """One query of the log, and the streams whose rows are wanted of what it finds."""

    task: Task | RangeTask
    streams: Streams

    def rows(self, source: LogSource) -> Iterator[pa.RecordBatch]:
        """The rows; the first page is asked for now."""
        batches = source.read(self.task)
        return self.streams.rows(batches) if isinstance(self.task, RangeTask) else batches


class LogPartition(InputPartition):
    """A share of a plan: spans, each with the ids of its streams if they are few."""

    def __init__(self, spans: Sequence[Span], ids: Sequence[bytes | None]) -> None:
        self._packed = tuple(
            (span.window.start, span.window.end, span.generation, span.first, span.last, raw)
            for span, raw in zip(spans, ids, strict=True)
        )

    @property
    def streams(self) -> int:
        """How many streams it has, over all its spans."""
        return sum(last - first for _, _, _, first, last, _ in self._packed)

    def queries(self, chunk: int) -> int:
        """How many queries ask for them, of `chunk` streams each."""
        return sum(-(-(last - first) // chunk) for _, _, _, first, last, _ in self._packed)

    def reads(
        self, load: Callable[[int], Streams], strategy: Strategy, chunk: int
    ) -> Iterator[LogRead]:
        """What to ask, in order: the rows are the same either way, so partitions of one plan
        may be read in different ways. `load` reads the streams of a generation.
        """
        for start, end, generation, first, last, raw in self._packed:
            window = Window(start, end)
            streams = load(generation).part(first, last) if raw is None else Streams(raw)
            if strategy is Strategy.RANGES:
                yield LogRead(streams.range_task(window), streams)
            else:
                for task in streams.tasks(window, chunk):
                    yield LogRead(task, streams)

    def __repr__(self) -> str:
        return f"LogPartition(spans={len(self._packed)}, streams={self.streams})"


def partitions(
    shares: Sequence[Sequence[Span]], load: Callable[[int], Streams]
) -> list[LogPartition]:
    """A partition for each share of a plan."""
    few = sum(span.streams for share in shares for span in share) <= INLINE

    def ids(span: Span) -> bytes | None:
        return load(span.generation).part(span.first, span.last).raw if few else None

    return [LogPartition(share, [ids(span) for span in share]) for share in shares]

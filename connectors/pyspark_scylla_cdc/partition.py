"""Spark partitions: what one task of Spark reads, packed small for its way to an executor."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from pyspark.sql.datasource import InputPartition

from cdc_reader.task import RangeTask, Task
from cdc_reader.window import Window
from pyspark_scylla_cdc.option_table import ReadStrategy
from pyspark_scylla_cdc.plan import Span
from pyspark_scylla_cdc.streams import Streams

INLINE = 16_384
"""Streams of a plan that travel with it, 16 bytes each. Of more, an executor reads the
generation itself, once, and keeps it: that would be 26 MB a micro-batch for a large cluster.
"""


class LogPartition(InputPartition):
    """A run of spans, each with the ids of its streams if they are few."""

    def __init__(self, spans: Sequence[Span], ids: Sequence[bytes | None]) -> None:
        self._packed = tuple(
            (span.window.start, span.window.end, span.generation, span.first, span.last, raw)
            for span, raw in zip(spans, ids, strict=True)
        )

    def tasks(
        self, load: Callable[[int], Streams], strategy: ReadStrategy, chunk: int
    ) -> Iterator[Task | RangeTask]:
        """The tasks in the order to read them; `load` reads the streams of a generation."""
        for start, end, generation, first, last, raw in self._packed:
            window = Window(start, end)
            if strategy is ReadStrategy.RANGES:
                yield from load(generation).range_tasks(window, first, last)
            else:
                streams = load(generation).part(first, last) if raw is None else Streams(raw)
                yield from streams.tasks(window, chunk)

    def __repr__(self) -> str:
        streams = sum(last - first for _, _, _, first, last, _ in self._packed)
        return f"LogPartition(spans={len(self._packed)}, streams={streams})"


def partitions(
    runs: Sequence[Sequence[Span]], load: Callable[[int], Streams]
) -> list[LogPartition]:
    """A partition for each run of spans."""
    few = sum(span.streams for run in runs for span in run) <= INLINE

    def ids(span: Span) -> bytes | None:
        return load(span.generation).part(span.first, span.last).raw if few else None

    return [LogPartition(run, [ids(span) for span in run]) for run in runs]

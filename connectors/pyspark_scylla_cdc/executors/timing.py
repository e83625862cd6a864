"""Measures the cost of a read while Spark consumes its rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from cdc_reader._stats import overloads
from cdc_reader._time import Clock, Waiting
from cdc_reader.reading.deduplication import streams_in
from cdc_reader.streams.strategy import Strategy, StrategyChoice, few


def timed(
    batches: Iterable[pa.RecordBatch],
    choice: StrategyChoice,
    used: Strategy,
    clock: Clock,
    *,
    streams: int,
    queries: int,
) -> Iterator[pa.RecordBatch]:
    """Yield the batches unchanged, and report their cost to `choice` at the end.

    The read covers `streams` streams, which take `queries` queries if they are read by id. Reads
    differ in size, so the cost is the waiting time per stream, excluding the time that Spark
    takes between two batches. Reads that fail or end early are not recorded.
    """
    seen: set[bytes] = set()
    most, were_overloads = few(streams), overloads()
    waiting = Waiting(clock)
    for batch in waiting.each(batches):
        if len(seen) <= most:
            seen.update(streams_in(batch))
        yield batch
    is_sparse = len(seen) <= most and overloads() == were_overloads
    choice.record(used, waiting.took / streams, queries, is_sparse=is_sparse)

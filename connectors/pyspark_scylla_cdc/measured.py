"""What a read costs, measured while Spark takes its rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from cdc_reader.ports import Clock
from cdc_reader.row_keys import streams_in
from cdc_reader.strategy import Strategy, StrategyChoice
from cdc_reader.waiting import Waiting


def measured(
    batches: Iterable[pa.RecordBatch],
    choice: StrategyChoice,
    used: Strategy,
    clock: Clock,
    *,
    streams: int,
    queries: int,
) -> Iterator[pa.RecordBatch]:
    """The batches as they are; at their end, `choice` is told what they cost.

    `streams` were asked for, which takes so many `queries` by their ids. Reads differ in size:
    what counts is the time waited per stream. What Spark does between two batches does not, nor
    does a read that fails or is not read to its end.
    """
    seen: set[bytes] = set()
    waiting = Waiting(clock)
    for batch in waiting.each(batches):
        seen.update(streams_in(batch))
        yield batch
    choice.measured(used, waiting.took / streams, queries, len(seen) / streams)

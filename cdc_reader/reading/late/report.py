"""Counts late rows by their keys, for readers that report them but do not deliver them.

There is no record of which rows were delivered, so only rows count that certainly arrived after
their window was read. Strays count when they are found first. On a log with many streams or rows, a
sample is read, and the number is a lower bound.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Protocol

import pyarrow as pa
from attrs import frozen

from cdc_reader._time import Clock, Micros
from cdc_reader.reading import tuning
from cdc_reader.reading.deduplication import keys, leave_out_keys, rows_named
from cdc_reader.reading.expiry import TtlHistory
from cdc_reader.reading.fetch import CurrentLog
from cdc_reader.reading.late.rows import ARRIVAL_ERROR, LateRows
from cdc_reader.reading.late.strays import Strays
from cdc_reader.reading.planner import Planner
from cdc_reader.reading.ports import GenerationSource, LogTable
from cdc_reader.reading.progress import Checkpoint
from cdc_reader.streams.generation import Generation, StreamGroup, Timeline
from cdc_reader.streams.shard import MAX_TOKEN, Shard
from cdc_reader.streams.window import Window


class Keys(Protocol):
    """Reads the keys of a log's rows, with the times at which they expire."""

    def read(self, window: Window) -> Iterator[pa.RecordBatch]:
        """Yield the keys of the rows in the streams that were in force when they were written."""
        ...

    def strays(self, reach: int) -> Strays:
        """Return an object that finds strays up to `reach` µs from their generation's time."""
        ...


class LateReport:
    """Counts the late rows of up to `horizon` µs before the position, which starts at `position`.

    `confidence` is the confidence window, in µs, and `now` the time at which reading begins.
    """

    def __init__(self, position: Micros, now: Micros, horizon: int, confidence: int) -> None:
        self._rows = LateRows(position, position, now, confidence)
        self._horizon = horizon
        self._end = self._counted = position

    @property
    def counted_at(self) -> Micros:
        """The time of the last count, or of the beginning."""
        return self._rows.late_scan_at

    def window_read(self, end: Micros, by: Micros) -> None:
        """Record that the log had been read up to `end` at the time `by`."""
        if end > self._end:
            self._rows.window_read(end, by + ARRIVAL_ERROR)
            self._end = end

    def count(
        self, log: Keys, position: Micros, ttls: TtlHistory, now: Micros
    ) -> tuple[Window, int]:
        """Return the window searched, and the number of new late rows in it."""
        sweep = self._rows.sweep(position, self._horizon, now)
        since, self._counted = self._counted, position
        if not ttls.seconds:
            return sweep.window, 0

        def late(batch: pa.RecordBatch) -> pa.RecordBatch:
            return sweep.late(batch, ttls, now)

        def uncounted(batch: pa.RecordBatch) -> pa.RecordBatch:
            new = {name for name in keys(batch) if name[1].micros >= since}
            return rows_named(batch, new | set(keys(late(batch))))

        strays = log.strays(self._horizon)
        window = Window(min(sweep.window.start, since), position)
        found, passed = strays.split(window, uncounted)
        rows, seen = sum(batch.num_rows for batch in strays.single(found)), 0
        for batch in log.read(sweep.window):
            rows += leave_out_keys(late(batch), passed).num_rows
            seen += batch.num_rows
            if seen >= tuning.REPORT_ROWS:
                break
        return sweep.window, rows


class SampledKeys:
    """The `Keys` of a table that is being followed, read with few queries."""

    def __init__(
        self, table: LogTable, start: Checkpoint, shard: Shard | None, clock: Clock
    ) -> None:
        self._clock = clock
        self._log = CurrentLog(table, start, keys_only=True)
        self._planner = Planner(_Sampled(table.generations), shard)

    def at(self, timeline: Timeline) -> SampledKeys:
        """Use these generations from now on."""
        self._planner.use(timeline)
        return self

    def read(self, window: Window) -> Iterator[pa.RecordBatch]:
        """See `Keys.read`."""
        for _, batch in self._log.read(self._planner.plan(window), clock=self._clock):
            yield batch

    def strays(self, reach: int) -> Strays:
        """See `Keys.strays`."""
        self._planner.reach = reach
        return Strays(self._log, self._planner, self._clock)


@frozen
class _Sampled:
    """A source of generations, each with at most as many streams as a report reads."""

    _source: GenerationSource

    def timestamps(self, since: Micros | None = None) -> Sequence[Micros]:
        return self._source.timestamps(since)

    def all_timestamps(self) -> Sequence[Micros]:
        return self._source.all_timestamps()

    def groups(self, start: Micros) -> Sequence[StreamGroup]:
        groups = self._source.groups(start)
        in_order = Generation(Window(start, start), tuple(groups)).groups
        streams = tuple(chain.from_iterable(group.streams for group in in_order))
        most = tuning.REPORT_QUERIES * tuning.STREAMS_PER_QUERY
        sample = streams[:: -(-len(streams) // most) or 1]
        return [StreamGroup(MAX_TOKEN, sample)] if sample else []

    def unpublished(self, since: Micros | None = None) -> Sequence[Micros]:
        return self._source.unpublished(since)

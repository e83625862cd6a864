"""Reads the keys of a log's rows: in streams in force, strays, and rows delivered before."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain

import pyarrow as pa
from attrs import frozen

from cdc_reader._time import Clock, Micros
from cdc_reader.reading import tuning
from cdc_reader.reading.advance import Step
from cdc_reader.reading.cursor import Checkpoint, RowKey
from cdc_reader.reading.deduplication import Deduplicator, keys
from cdc_reader.reading.late.rows import Sweep
from cdc_reader.reading.late.strays import Strays, TaskReader
from cdc_reader.reading.ports import StreamSource
from cdc_reader.reading.windows.planner import Planner
from cdc_reader.streams.generation import Generation, StreamGroup, Timeline
from cdc_reader.streams.shard import MAX_TOKEN, Shard
from cdc_reader.streams.window import Window


class KeyReader:
    """Reads the keys of rows with `log`, and when each row expires.

    `reach` is the distance from a generation's time in force at which its streams are searched for
    strays, in µs. If `queries` is given, at most as many streams of each generation are read as
    that number of queries can name.
    """

    def __init__(
        self,
        log: TaskReader,
        generations: StreamSource,
        clock: Clock,
        reach: int,
        *,
        shard: Shard | None = None,
        queries: int | None = None,
    ) -> None:
        source = generations if queries is None else _Sampled(generations, queries)
        self._log = log
        self._clock = clock
        self._planner = Planner(source, shard, reach)
        self.strays = Strays(log, self._planner, clock)

    def at(self, timeline: Timeline) -> KeyReader:
        """Use these generations from now on."""
        self._planner.use(timeline)
        return self

    def read(self, window: Window) -> Iterator[pa.RecordBatch]:
        """Yield the keys of the rows in the streams that were in force when they were written."""
        for _, batch in self._log.read(self._planner.plan(window), clock=self._clock):
            yield batch

    def delivered(
        self, window: Window, step: Step, cursor: Checkpoint, confidence: int
    ) -> Deduplicator:
        """Return the rows of `window` that were delivered before `step`.

        They are in the streams that seemed to be in force before the step's new generations were
        known. `confidence` is the confidence window, in µs.
        """
        delivered, late, now = Deduplicator(), cursor.late, self._clock.now()
        known = (start for start in step.timeline.starts if start not in step.fresh)
        sweep = None if late is None else Sweep.of(late, cursor.position, 0, now, confidence)
        for batch in self.at(Timeline(tuple(known))).read(window):
            now = self._clock.now()
            delivered.add(batch if sweep is None else sweep.delivered(batch, cursor.ttls, now))
        self.at(step.timeline)
        return delivered

    def twins(self, step: Step, cursor: Checkpoint, confidence: int) -> frozenset[RowKey]:
        """Return the keys of those rows of missed generations that were delivered as other rows."""
        found: set[RowKey] = set()
        for window in step.missed.values():
            delivered = self.delivered(window, step, cursor, confidence)
            for batch in self.read(window):
                left = {*keys(delivered.left(batch))}
                found.update(name[1] for name in keys(batch) if name not in left)
        return frozenset(found)


@frozen
class _Sampled:
    """At most as many streams of each generation as `queries` queries can name."""

    _source: StreamSource
    _queries: int

    def groups(self, start: Micros) -> Sequence[StreamGroup]:
        groups = self._source.groups(start)
        in_order = Generation(Window(start, start), tuple(groups)).groups
        streams = tuple(chain.from_iterable(group.streams for group in in_order))
        most = self._queries * tuning.STREAMS_PER_QUERY
        sample = streams[:: -(-len(streams) // most) or 1]
        return [StreamGroup(MAX_TOKEN, sample)] if sample else []

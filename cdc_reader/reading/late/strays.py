"""Strays: rows in a stream of a generation that was not in force at their write time.

A coordinator continues to write to the streams of the previous generation until a new generation
has been announced to it. With a ring delay of 0, every announcement is late. Some versions of
ScyllaDB also log one write in streams of two generations. The two rows, called *twins*, have the
same key, and only one is delivered: preferably the one in a stream of the generation in force.
`cdc$time` has 64 random bits per record, so only twins share a key.

Strays are few, so the reader holds them in memory until it has searched for their twins. Strays
are read before the rows in force of the same window, and a stray is left out if that read has its
twin. So if the twin arrives in the meantime, one of the two rows is delivered. A twin may be in a
stream of another shard. Every shard therefore searches all streams, so that all shards choose the
same row.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from cdc_reader._arrow import indices
from cdc_reader._time import Clock
from cdc_reader.cql.schema import TIME
from cdc_reader.reading.cursor import RowKey
from cdc_reader.reading.deduplication import keys
from cdc_reader.reading.windows.planner import Planner
from cdc_reader.streams.stream import StreamId
from cdc_reader.streams.task import Task
from cdc_reader.streams.window import Window

Keep = Callable[[pa.RecordBatch], pa.RecordBatch]
"""Returns the rows of a batch to keep."""

_Rank = tuple[int, StreamId]


class TaskReader(Protocol):
    """Reads tasks, as `CurrentLog` does."""

    def read(
        self, tasks: Sequence[Task], *, clock: Clock | None = None
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield the batches of `tasks` in order, each with its task's index. No batch is empty."""
        ...


class Twins:
    """Finds the twins of strays among the rows in force, as they are read."""

    def __init__(self, strays: Sequence[pa.RecordBatch]) -> None:
        self.keys: set[RowKey] = set()
        """The keys that were found, which may include other rows of the same records."""
        self._times = pa.chunked_array([batch.column(TIME) for batch in strays], pa.string())

    def note(self, batch: pa.RecordBatch) -> None:
        """Search a batch for twins."""
        if len(self._times):
            self.keys.update(key for _, key in keys(_written_at(batch, self._times)))


class Strays:
    """Finds the strays of the generations in the planner's last timeline, within its `reach`.

    `queries` is the number of queries of the last `read`, not counting further pages.

    The argument `fresh` contains the starts of generations that have not been read before. If a
    fresh generation contains one of two twins, the other twin is chosen, because it was delivered
    while its generation seemed to be in force.
    """

    def __init__(self, log: TaskReader, planner: Planner, clock: Clock) -> None:
        self.queries = 0
        self._log = log
        self._planner = planner
        self._clock = clock

    def read(self, window: Window, fresh: frozenset[int] | None = None) -> Iterator[pa.RecordBatch]:
        """Yield the window's strays, including twins, of all generations or of those in `fresh`.

        Each batch has the column `EXPIRY`.
        """
        tasks = self._planner.strays(window, fresh)
        self.queries = len(tasks)
        for _, batch in self._log.read(tasks, clock=self._clock):
            yield batch

    def split(self, window: Window, new: Keep) -> tuple[list[pa.RecordBatch], frozenset[RowKey]]:
        """Return the window's new strays, including twins, and the keys of its other strays.

        `new` selects rows of a batch by the times at which they expire. The caller must split the
        strays before it reads the streams in force. If a new row in these streams has one of the
        returned keys, the row arrived after its twin was delivered, and the caller must leave it
        out.
        """
        found: list[pa.RecordBatch] = []
        others: set[RowKey] = set()
        for batch in self.read(window):
            rows = new(batch)
            others.update(key for _, key in set(keys(batch)) - set(keys(rows)))
            if rows.num_rows:
                found.append(rows)
        return found, frozenset(others)

    def without_twins(
        self, found: Sequence[pa.RecordBatch], twins: Twins
    ) -> Iterator[pa.RecordBatch]:
        """Yield the strays in `found`, except those whose twin is delivered instead.

        `twins` has searched the rows in force of the own shard.
        """
        ranks = [self._planner.plan_others, self._planner.whole().strays]
        return self._without(found, ranks, twins.keys)

    def fresh_without_twins(
        self, found: Sequence[pa.RecordBatch], fresh: frozenset[int] = frozenset()
    ) -> Iterator[pa.RecordBatch]:
        """Yield the strays in `found` like `without_twins`, if the rows in force were read before.

        The strays of `fresh` generations come after all other rows.
        """
        whole = self._planner.whole()
        earlier = frozenset(whole.timeline.starts) - fresh
        ranks = [
            whole.plan,
            lambda window: whole.strays(window, earlier),
            lambda window: whole.strays(window, fresh),
        ]
        return self._without(found, ranks, frozenset())

    def _without(
        self,
        found: Sequence[pa.RecordBatch],
        ranks: Sequence[Callable[[Window], Sequence[Task]]],
        delivered: Collection[RowKey],
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows in `found` that have no twin in the streams of a lower rank.

        The streams of the first rank are in force. Of the streams of one rank, the first is chosen.
        """
        if not found:
            return
        firsts = self._firsts(found, ranks)
        for batch in found:
            names = enumerate(keys(batch))
            kept = [
                at
                for at, (stream, key) in names
                if key not in delivered and _counts(stream, firsts.get(key))
            ]
            if kept:
                yield batch.take(indices(kept))

    def _firsts(
        self,
        found: Sequence[pa.RecordBatch],
        ranks: Sequence[Callable[[Window], Sequence[Task]]],
    ) -> dict[RowKey, _Rank]:
        """Return, for each key in `found`, the rank of the row to deliver."""
        times = pa.chunked_array([batch.column(TIME) for batch in found])
        written = [key.micros for batch in found for _, key in keys(batch)]
        window = Window(min(written), max(written) + 1)
        firsts: dict[RowKey, _Rank] = {}
        for rank, plan in enumerate(ranks):
            for _, batch in self._log.read(plan(window)):
                for stream, key in keys(_written_at(batch, times)):
                    firsts[key] = min(firsts.get(key, (rank, stream)), (rank, stream))
        return firsts


def _written_at(batch: pa.RecordBatch, times: pa.ChunkedArray) -> pa.RecordBatch:
    return batch.filter(pc.is_in(batch.column(TIME), value_set=times))


def _counts(stream: StreamId, first: _Rank | None) -> bool:
    """Return True if the stray of `stream` is the row to deliver.

    `first` is None if the stray has expired since it was found. No other row then competes with it.
    """
    return first is None or (first[0] > 0 and first[1] == stream)

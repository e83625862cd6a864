"""Spark partitions: the input of each task, kept small because Spark sends it to an executor."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from functools import reduce
from typing import TypeAlias, TypeVar

from attrs import frozen
from pyspark.sql.datasource import InputPartition

from cdc_reader._time import Micros
from cdc_reader.reading.cursor import RowKey, RowName
from cdc_reader.streams.strategy import Strategy
from cdc_reader.streams.task import RangeTask, Task
from cdc_reader.streams.window import Window
from pyspark_scylla_cdc.planning.late import ArrivalFilter
from pyspark_scylla_cdc.planning.plan import StreamSpan
from pyspark_scylla_cdc.planning.promise import Promise
from pyspark_scylla_cdc.planning.streams import Streams

INLINE = 16_384
"""The maximum number of streams sent with a plan, at 16 bytes each.

If there are more, each executor reads the generation's streams from the cluster once, and caches
them. On a large cluster, sending the streams would take 26 MB for each micro-batch. The plan then
contains the tokens between which the streams are: their places would not do, because the streams of
a set that the server has removed are those that have rows at the time.
"""


_Tokens: TypeAlias = tuple[int, int]
"""A range of tokens: the first one, and the one after the last."""


@frozen
class LogRead:
    """One query of the log, and the streams whose rows to keep from the query's result."""

    task: Task | RangeTask
    streams: Streams


class SourcePartition(InputPartition):
    """The input of one task; `tasks` is the number of partitions in its plan."""

    tasks = 1


P = TypeVar("P", bound=SourcePartition)


def of_one_plan(parts: Sequence[P]) -> list[P]:
    """Return the partitions with `tasks` set to their number, so that tasks share the limits."""
    for part in parts:
        part.tasks = len(parts)
    return list(parts)


class LogPartition(SourcePartition):
    """A share of a plan: spans, each with the ids of its streams, or with the tokens of many.

    With `planned`, only rows that had arrived by `planned.moment` are read. With a `promise`, the
    partition's rows must not expire before they are read. Rows with the keys `left_out` were
    delivered before, from another stream.
    """

    def __init__(
        self,
        spans: Sequence[StreamSpan],
        chosen: Sequence[bytes | _Tokens],
        planned: ArrivalFilter | None = None,
        promise: Promise | None = None,
        left_out: frozenset[RowKey] = frozenset(),
    ) -> None:
        self.left_out = left_out
        self.planned = planned
        self.promise = promise
        self._packed = tuple(
            (span.window.start, span.window.end, span.generation, span.streams, streams)
            for span, streams in zip(spans, chosen, strict=True)
        )

    @property
    def selects_by_key(self) -> bool:
        """True if the keys of rows determine which of them are read."""
        return self.planned is not None or bool(self.left_out)

    @property
    def windows(self) -> list[Window]:
        """The windows of write times of the spans."""
        return [Window(start, end) for start, end, *_ in self._packed]

    @property
    def window(self) -> Window:
        """The smallest window of write times that contains the spans."""
        return reduce(Window.hull, self.windows)

    @property
    def streams(self) -> int:
        """The number of streams in all spans."""
        return sum(count for _, _, _, count, _ in self._packed)

    def queries(self, chunk: int) -> int:
        """Return the number of queries that read these streams, with up to `chunk` streams each."""
        return sum(-(-count // chunk) for _, _, _, count, _ in self._packed)

    def reads(
        self, load: Callable[[Micros], Streams], strategy: Strategy, chunk: int
    ) -> Iterator[LogRead]:
        """Return the queries to send, in order; `load` reads the streams of a generation.

        Both strategies yield the same rows, so partitions of one plan may use different ones.
        """
        for start, end, generation, _, chosen in self._packed:
            window = Window(start, end)
            if isinstance(chosen, bytes):
                streams = Streams(chosen)
            else:
                streams = load(generation).between(*chosen)
            if strategy is Strategy.RANGES:
                if len(streams):
                    yield LogRead(streams.range_task(window), streams)
            else:
                for task in streams.tasks(window, chunk):
                    yield LogRead(task, streams)

    def __repr__(self) -> str:
        return f"LogPartition({self.window}, spans={len(self._packed)}, streams={self.streams})"


class LatePartition(SourcePartition):
    """Some of the late rows of a micro-batch, identified by their names."""

    def __init__(self, names: Collection[RowName]) -> None:
        self.names = frozenset(names)

    @property
    def window(self) -> Window:
        """The smallest window that contains the rows' write times."""
        times = [key.micros for _, key in self.names]
        return Window(min(times), max(times) + 1)

    def __repr__(self) -> str:
        return f"LatePartition(rows={len(self.names)})"


def partitions(
    shares: Sequence[Sequence[StreamSpan]],
    load: Callable[[Micros], Streams],
    planned: ArrivalFilter | None = None,
    promise: Promise | None = None,
    left_out: frozenset[RowKey] = frozenset(),
) -> list[LogPartition]:
    """Return one partition for each share of a plan."""
    few = sum(span.streams for share in shares for span in share) <= INLINE

    def chosen(span: StreamSpan) -> bytes | _Tokens:
        streams, places = load(span.generation), (span.first, span.last)
        return streams.part(*places).raw if few else streams.tokens(*places)

    return [
        LogPartition(share, [chosen(span) for span in share], planned, promise, left_out)
        for share in shares
    ]

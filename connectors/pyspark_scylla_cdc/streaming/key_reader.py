"""Reads, on the driver, the keys of a log's rows: rows in the streams in force, and strays."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from itertools import chain

import pyarrow as pa
from attrs import frozen

from cdc_reader._time import FOREVER, Clock, Micros
from cdc_reader.reading import tuning
from cdc_reader.reading.fetch import read_tasks
from cdc_reader.reading.in_flight import InFlight
from cdc_reader.reading.late.strays import Strays
from cdc_reader.reading.planner import Planner
from cdc_reader.reading.ports import LogSource
from cdc_reader.streams.generation import StreamGroup, Timeline
from cdc_reader.streams.shard import MAX_TOKEN
from cdc_reader.streams.task import Task
from cdc_reader.streams.window import Window
from pyspark_scylla_cdc.planning.plan import spans
from pyspark_scylla_cdc.planning.streams import Streams


class KeyReader:
    """Reads the keys of a log's rows, and when each row expires.

    Create one reader for each micro-batch or sweep. It reads the generations only once, so each row
    is consistently either in a stream in force or a stray.

    Of each generation, at most as many streams are read as `queries` queries can name.
    """

    def __init__(
        self,
        source: LogSource,
        streams: Callable[[Micros], Streams],
        generations: Callable[[], Timeline],
        clock: Clock,
        queries: int = FOREVER,
    ) -> None:
        self._clock = clock
        self._source = source
        self._streams = streams
        self._sampled = _Sampled(streams, queries * tuning.STREAMS_PER_QUERY)
        self._generations = generations
        self._in_flight = InFlight()

    def read(self, window: Window) -> Iterator[pa.RecordBatch]:
        """Yield the keys of the rows in the streams that were in force when they were written."""
        parts = spans(self._timeline, window, lambda start: len(self._streams(start)))
        tasks = chain.from_iterable(
            self._sampled.streams(part.generation).tasks(part.window, tuning.STREAMS_PER_QUERY)
            for part in parts
        )
        for _, batch in read_tasks(self._source, tasks, self._in_flight, clock=self._clock):
            yield batch

    def strays(self, reach: int) -> Strays:
        """Return an object that finds the keys of strays.

        A generation's streams are searched up to `reach` µs before and after its time in force.
        """
        planner = Planner(self._sampled, reach=reach)
        planner.use(self._timeline)
        return Strays(_Tasks(self._source, self._in_flight), planner, self._clock)

    @cached_property
    def _timeline(self) -> Timeline:
        return self._generations()


@frozen
class _Sampled:
    """Generations by their start, each with a sample of at most `most` of its streams."""

    _load: Callable[[Micros], Streams]
    _most: int

    def streams(self, start: Micros) -> Streams:
        streams = self._load(start)
        return streams if len(streams) <= self._most else streams.sample(self._most)

    def timestamps(self, since: Micros | None = None) -> Sequence[Micros]:
        """Return an empty sequence, because planners receive their timeline separately."""
        del since
        return ()

    def all_timestamps(self) -> Sequence[Micros]:
        """Return an empty sequence, like `timestamps`."""
        return ()

    def groups(self, start: Micros) -> Sequence[StreamGroup]:
        """Return all streams in one group, in ring order."""
        streams = self.streams(start)
        return [StreamGroup(MAX_TOKEN, tuple(streams))] if len(streams) else []

    def unpublished(self, since: Micros | None = None) -> Sequence[Micros]:
        """Return an empty sequence, because windows end before unannounced generations."""
        del since
        return ()


@frozen
class _Tasks:
    """Reads tasks from a log source."""

    _source: LogSource
    _in_flight: InFlight

    def read(
        self, tasks: Sequence[Task], *, clock: Clock | None = None
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        return read_tasks(self._source, tasks, self._in_flight, clock=clock)

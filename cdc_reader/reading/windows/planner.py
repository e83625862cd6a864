"""Turns a window into tasks: streams of each generation, cut into chunks.

A query for one stream costs nearly as much as a query for sixty-four, so chunks are as large as
allowed. The pages of a chunk are read one after another, so a chunk that spans more than one page
finishes after the window's other queries, and is split. Adjacent idle chunks are merged again. The
order of the streams never changes, only the points at which they are cut.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Generic, TypeVar

from cdc_reader._log import get_logger
from cdc_reader._time import Micros
from cdc_reader.reading import tuning
from cdc_reader.reading.ports import StreamSource
from cdc_reader.streams.generation import Generation, Timeline
from cdc_reader.streams.shard import Shard
from cdc_reader.streams.stream import StreamId
from cdc_reader.streams.task import RangeTask, Task
from cdc_reader.streams.window import Window

log = get_logger(__name__)

T = TypeVar("T")

_FULL, _QUIET = 2.0, 0.25
"""Limits in pages: chunks of `_FULL` or more are split, and two adjacent chunks are merged if they
have at most `_QUIET` in total."""


class Planner:
    """Plans windows, and caches the streams of generations, which never change once visible.

    Plan a window [P, Q) only with generations that were read at Q or later: only they include every
    generation that begins before Q. A generation's streams are searched for
    strays up to `reach` µs before and after the time in which it is in force.
    """

    def __init__(
        self,
        source: StreamSource,
        shard: Shard | None = None,
        reach: int = 0,
    ) -> None:
        self.reach = reach
        self._chunk_size = tuning.STREAMS_PER_QUERY
        self._source = source
        self._shard = shard or Shard()
        self._unsharded: Planner | None = None
        self._timeline = Timeline(())
        self._streams: dict[int, Chunking[StreamId]] = {}
        self._touched: list[int] = []
        self._ranges: dict[int, Chunking[int]] = {}
        self._members: dict[int, frozenset[bytes]] = {}
        self._planned: list[Chunking[StreamId]] | list[Chunking[int]] = []

    @property
    def timeline(self) -> Timeline:
        """The generations to plan for."""
        return self._timeline

    def use(self, timeline: Timeline) -> None:
        """Plan for these generations from now on."""
        self._timeline = timeline

    def whole(self) -> Planner:
        """Return a planner for the streams of all shards, with the last timeline."""
        if self._shard.is_whole:
            return self
        if self._unsharded is None:
            self._unsharded = Planner(self._source, reach=self.reach)
        self._unsharded.use(self._timeline)
        return self._unsharded

    def plan(self, window: Window) -> list[Task]:
        """Return the tasks of `window`: older generations first, each generation in ring order.

        Drops cached generations that are not in force within `reach` µs of the window.
        """
        parts = self._parts(window)
        self._planned = cuts = [self._streams[start] for start, _ in parts]
        return [
            Task(part, chunk) for (_, part), cut in zip(parts, cuts, strict=True) for chunk in cut
        ]

    def plan_others(self, window: Window) -> list[Task]:
        """Return the tasks of `window` like `plan`, but for the streams of all other shards."""
        if self._shard.is_whole:
            return []
        tasks = self.whole().plan(window)
        others = (tuple(s for s in task.streams if s.token not in self._shard) for task in tasks)
        return [
            Task(task.window, streams)
            for task, streams in zip(tasks, others, strict=True)
            if streams
        ]

    def plan_ranges(self, window: Window) -> list[RangeTask]:
        """Return the tasks of `window` like `plan`, but as ranges of the ring.

        At first, one range covers the whole ring. The ranges of later windows are smaller.
        """
        parts = self._parts(window)
        for start, _ in parts:
            if start not in self._ranges:
                self._ranges[start] = self._spans(start)
        self._ranges = {start: self._ranges[start] for start, _ in parts}
        self._planned = cuts = [self._ranges[start] for start, _ in parts]
        return [
            RangeTask(part, *span)
            for (_, part), cut in zip(parts, cuts, strict=True)
            for span in pairwise((self._shard.start, *(ends[-1] for ends in cut)))
        ]

    def strays(self, window: Window, starts: Container[int] | None = None) -> list[Task]:
        """Return tasks for the streams of generations that are not in force, which `plan` skips.

        Each task is within `reach` of the time in which its generation is in force. The tasks
        cover all generations, or only the generations with these `starts`. A stream's tasks are in
        chronological order.
        """
        return [
            Task(part, chunk)
            for span in self._near(window)
            if starts is None or span.start in starts
            for part in span.margins(self.reach, window)
            for chunk in self._cut(span)
        ]

    def streams_of(self, task: RangeTask) -> frozenset[bytes]:
        """Return the known streams of the generation that a task of the last plan reads.

        Other streams in the task's range belong to a generation that is not announced yet. They are
        read after the announcement.
        """
        start = max(s for s in self._streams if s <= task.window.start)
        if start not in self._members:
            members = frozenset(stream for chunk in self._streams[start] for stream in chunk)
            self._members = {start: members}
        return self._members[start]

    def adapt(self, pages: Sequence[float]) -> None:
        """Resize the chunks for the next windows, given the number of pages that each task took."""
        at = 0
        for cut in self._planned:
            held = pages[at : at + len(cut)]
            at += len(cut)
            cut.adapt(held)

    def count_streams(self) -> int:
        """Return the number of streams in the last planned window."""
        return sum(len(chunk) for start in self._touched for chunk in self._streams[start])

    def _parts(self, window: Window) -> list[tuple[int, Window]]:
        """Return each generation's start and its part of `window`, oldest first."""
        touched = self._timeline.touched(window)
        self._touched = [span.start for span in touched]
        kept = {*self._touched, *(span.start for span in self._near(window))}
        self._streams = {start: cut for start, cut in self._streams.items() if start in kept}
        for span in touched:
            self._cut(span)
        return [(span.start, span.intersect(window)) for span in touched]

    def _near(self, window: Window) -> list[Window]:
        """Return the spans of the generations that are in force within `reach` of the window."""
        return self._timeline.touched(window.widened(self.reach))

    def _cut(self, span: Window) -> Chunking[StreamId]:
        if span.start not in self._streams:
            groups = self._source.groups(span.start)
            if not groups:
                log.warning("generation_without_streams", start=span.start)
            streams = tuple(self._own(Generation(span, groups)))
            self._streams[span.start] = Chunking(streams, self._chunk_size)
        return self._streams[span.start]

    def _own(self, generation: Generation) -> Iterator[StreamId]:
        streams = generation.streams()
        return streams if self._shard.is_whole else (s for s in streams if s.token in self._shard)

    def _spans(self, start: Micros) -> Chunking[int]:
        """Return the tokens at which ranges of the ring may end, in a single chunk."""
        shard = self._shard
        tokens = {stream.token for chunk in self._streams[start] for stream in chunk}
        ends = (*sorted(token for token in tokens if token < shard.end), shard.end)
        return Chunking(ends if tokens else (), len(ends))


class Chunking(Generic[T]):
    """Ordered items (streams or tokens), cut into chunks of at most `limit`."""

    def __init__(self, items: Sequence[T], limit: int) -> None:
        if limit < 1:
            raise ValueError(f"chunk limit {limit}: expected at least 1")
        self._limit = limit
        self._chunks = [tuple(items[at : at + limit]) for at in range(0, len(items), limit)]

    def __iter__(self) -> Iterator[tuple[T, ...]]:
        return iter(self._chunks)

    def __len__(self) -> int:
        return len(self._chunks)

    def adapt(self, pages: Iterable[float]) -> None:
        """Split and merge chunks, given how many pages each took in the last window."""
        self._chunks = [
            part
            for chunk, held in self._joined(zip(self._chunks, pages, strict=True))
            for part in _split(chunk, held)
        ]

    def _joined(
        self, chunks: Iterable[tuple[tuple[T, ...], float]]
    ) -> Iterator[tuple[tuple[T, ...], float]]:
        last: tuple[T, ...] = ()
        last_held = 0.0
        for chunk, held in chunks:
            together = len(last) + len(chunk)
            if together <= self._limit and last_held + held <= _QUIET:
                last, last_held = last + chunk, last_held + held
                continue
            if last:
                yield last, last_held
            last, last_held = chunk, held
        if last:
            yield last, last_held


def _split(chunk: tuple[T, ...], held: float) -> Iterator[tuple[T, ...]]:
    """Yield the chunk, or its two halves if it is full and has more than one item."""
    if held < _FULL or len(chunk) == 1:
        yield chunk
        return
    middle = len(chunk) // 2
    yield chunk[:middle]
    yield chunk[middle:]

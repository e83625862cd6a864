"""From a window to its tasks, through the generations the cluster has announced."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from cdc_reader.chunking import Chunking
from cdc_reader.generation import Generation, Timeline
from cdc_reader.ids import StreamId
from cdc_reader.logs import get_logger
from cdc_reader.ports import GenerationSource
from cdc_reader.shard import Shard
from cdc_reader.task import RangeTask, Task
from cdc_reader.window import Window

log = get_logger(__name__)


class Planner:
    """Plans windows; keeps what it read of generations, for those never change once visible.

    A window [P, Q) may be planned with the timeline of a `refresh` made at Q or later: only
    then is every generation that begins before Q sure to be in it.
    """

    def __init__(
        self, source: GenerationSource, chunk_size: int, shard: Shard | None = None
    ) -> None:
        self._source = source
        self._chunk_size = chunk_size
        self._shard = shard or Shard()
        self._timeline = Timeline(())
        self._streams: dict[int, Chunking[StreamId]] = {}
        self._ranges: dict[int, Chunking[int]] = {}
        self._members: dict[int, frozenset[bytes]] = {}
        self._planned: list[Chunking[StreamId]] | list[Chunking[int]] = []

    @property
    def timeline(self) -> Timeline:
        """The generations seen by the last `refresh`."""
        return self._timeline

    def refresh(self) -> Timeline:
        """Ask the cluster for its generations again."""
        seen = Timeline(tuple(self._source.timestamps()))
        for start in sorted(set(seen.starts) - set(self._timeline.starts)):
            log.info("generation_found", start=start)
        self._timeline = seen
        return seen

    def plan(self, window: Window) -> list[Task]:
        """The tasks of `window` by the last timeline, older generations first, in ring order.

        Generations that the window leaves behind are forgotten.
        """
        parts = self._parts(window)
        self._planned = cuts = [self._streams[start] for start, _ in parts]
        return [
            Task(part, chunk) for (_, part), cut in zip(parts, cuts, strict=True) for chunk in cut
        ]

    def plan_ranges(self, window: Window) -> list[RangeTask]:
        """The same, by spans of the ring: the whole of it first, smaller ones where rows are."""
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

    def streams_of(self, task: RangeTask) -> frozenset[bytes]:
        """The streams that a task of the last plan is to read, of those it finds in its range.

        Others are of a generation that was not announced: it is caught up with when it is.
        """
        start = max(s for s in self._streams if s <= task.window.start)
        if start not in self._members:
            members = frozenset(stream for chunk in self._streams[start] for stream in chunk)
            self._members = {start: members}
        return self._members[start]

    def adapt(self, pages: Sequence[float]) -> None:
        """Cut the next windows by how many pages each task of the last plan held, in its order."""
        at = 0
        for cut in self._planned:
            held = pages[at : at + len(cut)]
            at += len(cut)
            cut.adapt(held)

    def count_streams(self) -> int:
        """How many streams the windows planned last were on."""
        return sum(len(chunk) for cut in self._streams.values() for chunk in cut)

    def _parts(self, window: Window) -> list[tuple[int, Window]]:
        """What of `window` each generation has, by its start; oldest first."""
        touched = self._timeline.touched(window)
        self._streams = {span.start: self._cut(span) for span in touched}
        return [(span.start, span.intersect(window)) for span in touched]

    def _cut(self, span: Window) -> Chunking[StreamId]:
        if span.start in self._streams:
            return self._streams[span.start]
        groups = self._source.groups(span.start)
        if not groups:
            log.warning("generation_without_streams", start=span.start)
        return Chunking(tuple(self._own(Generation(span, groups))), self._chunk_size)

    def _own(self, generation: Generation) -> Iterator[StreamId]:
        streams = generation.streams()
        return streams if self._shard.is_whole else (s for s in streams if s.token in self._shard)

    def _spans(self, start: int) -> Chunking[int]:
        """Ends of spans of the ring, between which its streams lie: one span to begin with."""
        shard = self._shard
        tokens = {stream.token for chunk in self._streams[start] for stream in chunk}
        ends = (*sorted(token for token in tokens if token < shard.end), shard.end)
        return Chunking(ends if tokens else (), len(ends))

"""Tasks: what one query reads, and the pure plan that cuts a window into them.

The law: over all tasks of a window, each pair (stream, µs of the window in which the
stream's generation operates) occurs exactly once. Nothing is left out, nothing is read twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

from attrs import field, frozen

from cdc_reader.generation import Generation, StreamGroup
from cdc_reader.ids import StreamId
from cdc_reader.window import Window


@frozen
class Task:
    """A chunk of neighbouring streams of one generation, over one window."""

    window: Window
    streams: tuple[StreamId, ...] = field(repr=lambda streams: f"<{len(streams)} streams>")


@frozen
class RangeTask:
    """A span of the ring over one window: the streams whose token is in (start, end].

    Reads streams of whatever generation, so its window must not cross a switch where the
    order of changes matters. The lowest token of all, which no stream has, starts the ring.
    """

    window: Window
    start: int
    end: int


def plan(generations: Iterable[Generation], window: Window, chunk_size: int) -> list[Task]:
    """The tasks that read `window`: older generations first, then in ring order.

    `chunk_size` bounds the streams of a task. The generations' operating windows must not
    overlap, and must cover what of `window` is to be read.
    """
    return [
        Task(part, chunk)
        for generation in sorted(generations, key=lambda generation: generation.operates.start)
        if not (part := window.intersect(generation.operates)).is_empty
        for chunk in chunks(generation.groups, chunk_size)
    ]


def chunks(groups: Iterable[StreamGroup], size: int) -> Iterator[tuple[StreamId, ...]]:
    """Runs of at most `size` neighbouring streams; a group is cut only if it exceeds `size`."""
    if size < 1:
        raise ValueError(f"chunk size {size}: expected at least 1")
    chunk: list[StreamId] = []
    for group in groups:
        if len(chunk) + len(group.streams) > size:
            yield from _cut(chunk, size)
            chunk = []
        chunk.extend(group.streams)
    yield from _cut(chunk, size)


def _cut(streams: Sequence[StreamId], size: int) -> Iterator[tuple[StreamId, ...]]:
    for start in range(0, len(streams), size):
        yield tuple(streams[start : start + size])


def split(tasks: Sequence[Task], count: int) -> list[list[Task]]:
    """The tasks in at most `count` runs, in order, as even as whole tasks allow; none is empty."""
    count = min(count, len(tasks))
    edges = [len(tasks) * index // count for index in range(count + 1)] if count > 0 else [0]
    return [list(tasks[start:end]) for start, end in pairwise(edges)]

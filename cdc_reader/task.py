"""Tasks: what one query reads.

The law: over all tasks of a window, each pair (stream, µs of the window in which the
stream's generation operates) occurs exactly once. Nothing is left out, nothing is read twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from attrs import field, frozen

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


def split(tasks: Sequence[Task], count: int) -> list[list[Task]]:
    """The tasks in at most `count` runs, in order, as even as whole tasks allow; none is empty."""
    count = min(count, len(tasks))
    edges = [len(tasks) * index // count for index in range(count + 1)] if count > 0 else [0]
    return [list(tasks[start:end]) for start, end in pairwise(edges)]

"""Generations: which streams exist, and from when to when they take writes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

from attrs import field, frozen

from cdc_reader.ids import StreamId
from cdc_reader.window import FOREVER, Window


@frozen
class StreamGroup:
    """A token range, by its inclusive end, with its streams in wire order (one per shard)."""

    range_end: int
    streams: tuple[StreamId, ...]


def _in_ring_order(groups: Sequence[StreamGroup]) -> tuple[StreamGroup, ...]:
    return tuple(sorted(groups, key=lambda group: group.range_end))


@frozen
class Generation:
    """The streams in force over `operates`, grouped by token range, neighbours side by side."""

    operates: Window
    groups: tuple[StreamGroup, ...] = field(
        converter=_in_ring_order, repr=lambda groups: f"<{len(groups)} groups>"
    )

    def streams(self) -> Iterator[StreamId]:
        """All streams in ring order."""
        for group in self.groups:
            yield from group.streams


def _ascending(starts: Iterable[int]) -> tuple[int, ...]:
    return tuple(sorted(set(starts)))


@frozen
class Timeline:
    """The generations known so far, by the µs each begins at.

    A write of timestamp W goes to the generation with the largest start ≤ W, however late
    it arrives. So a generation's streams hold rows of [start, next start) only, and what a
    window asks of each generation is the plain intersection of the two.
    """

    starts: tuple[int, ...] = field(converter=_ascending)

    def operating(self) -> Iterator[Window]:
        """For each generation the window it operates in, oldest first; the last is open."""
        for start, end in pairwise((*self.starts, FOREVER)):
            yield Window(start, end)

    def touched(self, window: Window) -> list[Window]:
        """The operating windows of the generations that `window` overlaps, oldest first."""
        return [span for span in self.operating() if not span.intersect(window).is_empty]

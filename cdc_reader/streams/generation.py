"""Generations: the streams in force at a time, and the stream that a write goes to.

With vnodes, a generation has a group of streams for each token range, with one stream for each
shard of the node that owns the range. With tablets, a group has one stream. The server's rule that
maps a partition key's token to a stream is the same for both.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

from attrs import field, frozen

from cdc_reader._time import FOREVER, Micros
from cdc_reader.streams.stream import StreamId
from cdc_reader.streams.window import Window

IGNORE_MSB = 12
"""The number of a token's highest bits to ignore when choosing a shard; the server's default."""

_BITS = 64
_MASK = (1 << _BITS) - 1
_HALF_RING = 1 << (_BITS - 1)


@frozen
class StreamGroup:
    """A token range, given by its inclusive end, and its streams in wire order."""

    range_end: int
    streams: tuple[StreamId, ...]


def _in_ring_order(groups: Sequence[StreamGroup]) -> tuple[StreamGroup, ...]:
    return tuple(sorted(groups, key=lambda group: group.range_end))


@frozen
class Generation:
    """The streams in force during `operates`, grouped by token range, in ring order."""

    operates: Window
    groups: tuple[StreamGroup, ...] = field(
        converter=_in_ring_order, repr=lambda groups: f"<{len(groups)} groups>"
    )

    def streams(self) -> Iterator[StreamId]:
        """Yield all streams in ring order."""
        for group in self.groups:
            yield from group.streams


def _ascending(starts: Iterable[Micros]) -> tuple[Micros, ...]:
    return tuple(sorted(set(starts)))


@frozen
class Timeline:
    """The generations known so far, by their starts in µs, ascending.

    A write with timestamp W goes to the generation with the largest start ≤ W, however late it
    arrives. A generation's streams therefore contain only rows written in [start, next start). To
    read a window, each generation is read only for the part of the window inside this span.
    """

    starts: tuple[Micros, ...] = field(converter=_ascending)

    def operating(self) -> Iterator[Window]:
        """Yield the window in which each generation is in force, oldest first.

        The last window ends at FOREVER.
        """
        for start, end in pairwise((*self.starts, FOREVER)):
            yield Window(start, end)

    def touched(self, window: Window) -> list[Window]:
        """Return the windows of `operating` that overlap `window`, oldest first."""
        return [span for span in self.operating() if not span.intersect(window).is_empty]


def group_of(generation: Generation, token: int) -> StreamGroup:
    """Return the group whose token range contains `token`.

    This is the first group that ends at or after `token`. If there is none, it is the first of all
    groups, because the ring wraps around. Raises ValueError if the generation has no streams.
    """
    if not generation.groups:
        raise ValueError("a generation without streams takes no writes")
    found = bisect_left(generation.groups, token, key=lambda group: group.range_end)
    return generation.groups[found % len(generation.groups)]


def stream_of(generation: Generation, token: int, ignore_msb: int = IGNORE_MSB) -> StreamId:
    """Return the stream for writes to partitions with this token."""
    streams = group_of(generation, token).streams
    return streams[shard_of(token, len(streams), ignore_msb)]


def shard_of(token: int, shards: int, ignore_msb: int = IGNORE_MSB) -> int:
    """Return the index of the shard that owns `token`.

    The server counts the token from the start of the ring, drops the `ignore_msb` highest bits
    and scales the result to the number of shards.
    """
    return ((token + _HALF_RING << ignore_msb & _MASK) * shards) >> _BITS

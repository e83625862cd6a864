"""Generations, which define the streams of a cluster from a given time on."""

from __future__ import annotations

import random
from bisect import bisect_left
from collections.abc import Iterator
from functools import cached_property
from uuid import UUID

from attrs import field, frozen

from cdc_reader.streams.stream import StreamId
from cdc_reader.testing.embedded.topology.ring import IGNORE_MSB, Ring
from cdc_reader.testing.embedded.topology.shards import first_token_of, shard_of


@frozen
class StreamRange:
    """The streams of the token range that ends at `range_end`, one per shard, in shard order."""

    range_end: int
    streams: tuple[bytes, ...]
    ignore_msb: int = IGNORE_MSB

    def stream_for(self, token: int) -> bytes:
        """Return the stream of a token in this range."""
        return self.streams[shard_of(token, len(self.streams), self.ignore_msb)]


@frozen(slots=False)
class Generation:
    """The streams in use from `timestamp` (ms) on; the `ranges` are in order of their ends."""

    timestamp: int
    id: UUID
    ranges: tuple[StreamRange, ...] = field(repr=lambda ranges: f"<{len(ranges)} ranges>")

    @classmethod
    def of(cls, ring: Ring, timestamp: int, source: random.Random) -> Generation:
        """Create the generation for a ring; `source` generates the random bits of the ids."""
        return cls(timestamp, _unique(source), tuple(_ranges(ring, source)))

    @classmethod
    def empty(cls, timestamp: int, source: random.Random) -> Generation:
        """Create a generation without streams."""
        return cls(timestamp, _unique(source), ())

    @property
    def start_us(self) -> int:
        """The start, in µs."""
        return self.timestamp * 1000

    @cached_property
    def range_ends(self) -> tuple[int, ...]:
        return tuple(span.range_end for span in self.ranges)

    def stream_for(self, token: int) -> bytes:
        """Return the stream of a partition key's token; the generation must not be empty."""
        index = bisect_left(self.range_ends, token)
        return self.ranges[index % len(self.ranges)].stream_for(token)

    def is_optimal_for(self, ring: Ring) -> bool:
        """Return True if the token ranges equal the ring's, so that each stream is on one node."""
        return self.range_ends == ring.tokens


def _unique(source: random.Random) -> UUID:
    return UUID(int=source.getrandbits(128), version=4)


def _ranges(ring: Ring, source: random.Random) -> Iterator[StreamRange]:
    for index, vnode in enumerate(ring.vnodes()):
        shards, ignore_msb = vnode.owner.shards, vnode.owner.ignore_msb
        tokens = (
            first_token_of(shard, vnode.start, vnode.end, shards, ignore_msb)
            for shard in range(shards)
        )
        streams = (StreamId.from_parts(t, source.getrandbits(38), index) for t in tokens)
        yield StreamRange(vnode.end, tuple(bytes(s) for s in streams), ignore_msb)

"""Which stream a write goes to: from the token of its partition key to a stream. Pure.

On vnodes a generation has a group of streams for each token range, one stream for each shard
of the node that owns the range; on tablets a group has one stream. The server's rule is the
same for both.
"""

from __future__ import annotations

from bisect import bisect_left

from cdc_reader.generation import Generation, StreamGroup
from cdc_reader.ids import StreamId

IGNORE_MSB = 12
"""How many of a token's highest bits do not count for the shard: the server's default."""
_BITS = 64
_MASK = (1 << _BITS) - 1
_HALF_RING = 1 << (_BITS - 1)


def group_of(generation: Generation, token: int) -> StreamGroup:
    """The group whose token range has `token`: the first that ends at or after it, or, as the
    ring is one, the first of all. ValueError if the generation has no streams.
    """
    if not generation.groups:
        raise ValueError("a generation without streams takes no writes")
    found = bisect_left(generation.groups, token, key=lambda group: group.range_end)
    return generation.groups[found % len(generation.groups)]


def stream_of(generation: Generation, token: int, ignore_msb: int = IGNORE_MSB) -> StreamId:
    """The stream that writes to partitions of this token go to while the generation operates."""
    streams = group_of(generation, token).streams
    return streams[shard_of(token, len(streams), ignore_msb)]


def shard_of(token: int, shards: int, ignore_msb: int = IGNORE_MSB) -> int:
    """The number of the shard that owns `token`: the token, counted from the start of the ring
    and without its highest bits, scaled to the number of shards.
    """
    return ((token + _HALF_RING << ignore_msb & _MASK) * shards) >> _BITS

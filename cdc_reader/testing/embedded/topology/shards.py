"""Computes which shard of a node owns a token, with ScyllaDB's algorithm, biased-token-round-robin.

The algorithm subtracts the smallest possible token, drops the `ignore_msb` highest bits of the
result, and scales the rest to the number of shards. The ring therefore consists of 2^ignore_msb
equal parts, and each shard owns a slice of each part.
"""

from __future__ import annotations

from cdc_reader.testing.embedded.codec.token import MAX_TOKEN, MIN_TOKEN

_BITS = 64
_MASK = (1 << _BITS) - 1


def shard_of(token: int, shards: int, ignore_msb: int) -> int:
    """Return the number of the shard that owns `token`."""
    return (((token - MIN_TOKEN) << ignore_msb & _MASK) * shards) >> _BITS


def first_token_of(shard: int, start: int, end: int, shards: int, ignore_msb: int) -> int:
    """Return the first token of `shard` in (start, end]; `end` if there is none.

    The range may wrap around.
    """
    if start < end:
        return _first_without_wrap(shard, start, end, shards, ignore_msb)
    if start != MAX_TOKEN:
        token = _first_without_wrap(shard, start, MAX_TOKEN, shards, ignore_msb)
        # MAX_TOKEN is a match if `shard` owns it; otherwise it means "none".
        if token != MAX_TOKEN or shard_of(token, shards, ignore_msb) == shard:
            return token
    return _first_without_wrap(shard, MIN_TOKEN, end, shards, ignore_msb)


def _first_without_wrap(shard: int, start: int, end: int, shards: int, ignore_msb: int) -> int:
    token = start + 1
    if shard_of(token, shards, ignore_msb) != shard:
        token = _next_token_of(shard, token, shards, ignore_msb)
    return min(token, end)


def _next_token_of(shard: int, token: int, shards: int, ignore_msb: int) -> int:
    """Return the first token after `token` at which the slice of `shard` begins."""
    slice_bits = _BITS - ignore_msb
    repetition = (token - MIN_TOKEN) >> slice_bits
    if shard <= shard_of(token, shards, ignore_msb):
        repetition += 1
    if repetition >> ignore_msb:
        return MAX_TOKEN
    slice_start = -(-(shard << slice_bits) // shards)
    return MIN_TOKEN + (repetition << slice_bits | slice_start)

"""Determines which base rows belong to a shard, by their streams in one generation.

The token of a base partition determines the partition's stream group, and its stream within the
group. A group's streams are close together in the ring, so nearly every group belongs to a single
shard. At a shard's end, a group's streams may belong to two shards. The token of a row then
determines the row's shard.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from cdc_reader.streams.generation import IGNORE_MSB, StreamGroup
from cdc_reader.streams.ring import WHOLE_RING, TokenRange, TokenRanges
from cdc_reader.streams.shard import MAX_TOKEN, MIN_TOKEN, Shard

Tokens = np.ndarray[Any, np.dtype[np.int64]]
Mask = np.ndarray[Any, np.dtype[np.bool_]]

_HALF = np.uint64(32)
_LOW = np.uint64((1 << 32) - 1)


class Ownership:
    """The tokens of a shard's base rows, according to the `groups` of one generation.

    `spans` covers all of these tokens and, where a group is shared with another shard, tokens of
    that shard. Without groups, the tokens are the shard's part of the ring.
    """

    def __init__(self, groups: Iterable[StreamGroup], shard: Shard) -> None:
        self._groups = sorted(groups, key=lambda group: group.range_end)
        self._shard = shard
        self.ends = tuple(group.range_end for group in self._groups)
        """The tokens at which owners may change, ascending."""
        self.spans = self._spans()
        self._is_own = self._streams_of_shard()

    @cached_property
    def is_exact(self) -> bool:
        """True if no other shard shares a group, so every token in `spans` belongs to the shard."""
        groups = ([stream.token in self._shard for stream in g.streams] for g in self._groups)
        return all(all(own) or not any(own) for own in groups)

    def owns(self, tokens: Tokens) -> Mask:
        """Return a mask that is True for the tokens that belong to the shard.

        All `tokens` must be in `spans`.
        """
        if self.is_exact:
            return np.ones(len(tokens), bool)
        number = np.searchsorted(np.array(self.ends, np.int64), tokens) % len(self.ends)
        counts = np.array([len(group.streams) for group in self._groups], np.uint64)
        mask: Mask = self._is_own[number, _places(tokens, counts[number])]
        return mask

    def _spans(self) -> TokenRanges:
        if self._shard.is_whole:
            return WHOLE_RING
        if not self._groups:
            return TokenRanges((TokenRange(self._shard.start, self._shard.end),))
        return TokenRanges(
            span
            for group, spans in zip(self._groups, _ranges(self.ends), strict=True)
            if any(stream.token in self._shard for stream in group.streams)
            for span in spans
        )

    def _streams_of_shard(self) -> Mask:
        """Return, for each stream of each group, whether it belongs to the shard."""
        most = max((len(group.streams) for group in self._groups), default=0)
        own = np.zeros((len(self._groups), most), bool)
        for row, group in zip(own, self._groups, strict=True):
            row[: len(group.streams)] = [stream.token in self._shard for stream in group.streams]
        return own


def _ranges(ends: Sequence[int]) -> Iterator[tuple[TokenRange, ...]]:
    """Yield the ranges of each group; the first group has ranges at both ends of the ring."""
    yield TokenRange(MIN_TOKEN, ends[0]), TokenRange(ends[-1], MAX_TOKEN)
    for start, end in pairwise(ends):
        yield (TokenRange(start, end),)


def _places(tokens: Tokens, counts: Any) -> Any:
    """Compute `shard_of` for arrays. The 128-bit product is computed in halves."""
    shifted = (tokens.view(np.uint64) ^ np.uint64(1 << 63)) << np.uint64(IGNORE_MSB)
    low = (shifted & _LOW) * counts >> _HALF
    return ((shifted >> _HALF) * counts + low >> _HALF).astype(np.int64)

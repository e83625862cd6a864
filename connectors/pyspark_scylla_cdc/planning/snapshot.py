"""A snapshot's partitions: the base table's current rows, read before the log.

Rows are read at a time after the position from which the log is followed, and count as inserts at
that position. A row may already include a change made after the position. The log then delivers the
change again, but applying it again changes nothing.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import pairwise

from cdc_reader._time import Micros, format_timestamp
from cdc_reader.streams.ring import TokenRange
from pyspark_scylla_cdc.planning.partition import INLINE, SourcePartition


class SnapshotPartition(SourcePartition):
    """The rows of a table whose tokens are in `tokens`, as of `position` (µs).

    `ends` are the tokens at which owners change, ascending. Where possible, the range of each
    query ends at one of `ends`.
    """

    def __init__(self, position: Micros, tokens: TokenRange, ends: Sequence[int]) -> None:
        self.position = position
        self.tokens = tokens
        self.ends = tuple(ends)

    def __repr__(self) -> str:
        return f"SnapshotPartition({format_timestamp(self.position)}, {self.tokens})"


class MarkPartition(SourcePartition):
    """A mark of `kind` at the beginning or the end of a snapshot as of `position` (µs)."""

    def __init__(self, position: Micros, kind: str) -> None:
        self.position = position
        self.kind = kind

    def __repr__(self) -> str:
        return f"MarkPartition({format_timestamp(self.position)}, {self.kind})"


def snapshot_partitions(
    position: Micros, tokens: TokenRange, count: int, ends: Sequence[int] = ()
) -> list[SnapshotPartition]:
    """Return at most `count` partitions that read equal parts of the token range `tokens`."""
    some = ends[:: 1 + len(ends) // INLINE]
    edges = [tokens.start + tokens.size * number // count for number in range(count + 1)]
    return [
        SnapshotPartition(position, TokenRange(start, end), _inside(some, start, end))
        for start, end in pairwise(edges)
        if start < end
    ]


def _inside(ends: Sequence[int], start: int, end: int) -> Sequence[int]:
    return ends[bisect_right(ends, start) : bisect_left(ends, end)]

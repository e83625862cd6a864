"""A snapshot's partitions: the base table's current rows, read before the log.

They are the start of a table of changes. Rows are read after the position where following begins,
and appear as inserts there. A change made in between may already be in a row and is read again from
the log; applying it again changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from cdc_reader._time import Micros, format_timestamp
from cdc_reader.streams.ring import TokenRange
from cdc_reader.streams.shard import MAX_TOKEN, MIN_TOKEN
from pyspark_scylla_cdc.planning.partition import SourcePartition

_QUERIES = 16
"""Spans per partition, so that one span is fetched while another is processed."""


class SnapshotPartition(SourcePartition):
    """The part of a table whose tokens are in (start, end], as of `position` µs."""

    def __init__(self, position: Micros, start: int, end: int) -> None:
        self.position = position
        self.start = start
        self.end = end

    def spans(self) -> Iterator[TokenRange]:
        """The spans to read, in order."""
        edges = pairwise(_edges(self.start, self.end, _QUERIES))
        return (TokenRange(start, end) for start, end in edges)

    def __repr__(self) -> str:
        return f"SnapshotPartition({format_timestamp(self.position)}, {self.start}, {self.end})"


def snapshot_partitions(position: Micros, count: int) -> list[SnapshotPartition]:
    """Split the whole ring into `count` parts."""
    edges = pairwise(_edges(MIN_TOKEN, MAX_TOKEN, count))
    return [SnapshotPartition(position, start, end) for start, end in edges]


def _edges(start: int, end: int, count: int) -> list[int]:
    return [start + (end - start) * number // count for number in range(count + 1)]

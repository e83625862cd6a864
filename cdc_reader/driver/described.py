"""What the server says of streams in its own tables, in this package's values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import pyarrow as pa

from cdc_reader.driver.queries import Queries, Query
from cdc_reader.errors import DecodeError
from cdc_reader.generation import StreamGroup
from cdc_reader.ids import StreamId


class DistributedTables:
    """Reads `system_distributed` at the level at which the server writes it.

    That is QUORUM, or ONE while a node is alone; asked each time, for one may join meanwhile.
    """

    def __init__(self, queries: Queries) -> None:
        self._queries = queries

    def batches(self, cql: str, *values: object) -> Iterator[pa.RecordBatch]:
        alone = not self._queries.rows("SELECT peer FROM system.peers")
        level = "ONE" if alone else "QUORUM"
        return self._queries.batches(Query(cql, values, consistency=level))


def starts(batches: Iterator[pa.RecordBatch]) -> list[int]:
    """The first columns, of CQL's milliseconds, in µs since 1970."""
    return [micros for batch in batches for micros in batch.column(0).cast(pa.int64()).to_pylist()]


def stream_ids(blobs: pa.Array) -> list[StreamId]:
    """The streams of these ids; DecodeError if one is none."""
    try:
        return list(map(StreamId, blobs.to_pylist()))
    except ValueError as error:
        raise DecodeError(str(error)) from None


def stream_lists(sets: pa.Array) -> list[tuple[StreamId, ...]]:
    """The streams of each set, in wire order, which is that of the shards.

    A large cluster has millions: the ids are taken from Arrow all at once, not set by set.
    """
    streams, edges = stream_ids(sets.values), sets.offsets.to_pylist()
    return [tuple(streams[start:end]) for start, end in pairwise(edges)]


def own_groups(streams: Sequence[StreamId]) -> list[StreamGroup]:
    """Each stream a group of its own, which its token ends."""
    return [StreamGroup(stream.token, (stream,)) for stream in streams]

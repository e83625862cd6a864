"""Generations of a cluster whose keyspaces lie on vnodes: all tables share them."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from cdc_reader.driver.queries import Queries, Query
from cdc_reader.errors import DecodeError, QueryRefusedError, UnsupportedTableError
from cdc_reader.generation import StreamGroup
from cdc_reader.ids import StreamId

_TIMESTAMPS = (
    "SELECT time FROM system_distributed.cdc_generation_timestamps WHERE key = 'timestamps'"
)
_STREAMS = (
    "SELECT range_end, streams FROM system_distributed.cdc_streams_descriptions_v2 WHERE time = ?"
)


class VnodeGenerations:
    """The `GenerationSource` over the tables that ScyllaDB 4.4 and later publish.

    The server writes the streams first, then the timestamp, at QUORUM, or at ONE while it
    is alone; so a timestamp read at the same level makes its streams visible.
    """

    def __init__(self, queries: Queries) -> None:
        self._queries = queries

    def timestamps(self) -> Sequence[int]:
        """The starts, in µs, of all generations visible now."""
        try:
            batches = list(
                self._queries.batches(Query(_TIMESTAMPS, consistency=self._consistency()))
            )
        except QueryRefusedError as error:
            raise UnsupportedTableError(
                f"{error}; expected the generation tables of ScyllaDB 4.4 or later"
            ) from error
        return [micros for batch in batches for micros in _micros(batch.column("time"))]

    def groups(self, start: int) -> Sequence[StreamGroup]:
        """The stream groups of the generation that starts at `start` µs."""
        query = Query(_STREAMS, (start // 1_000,), consistency=self._consistency())
        return tuple(
            StreamGroup(row["range_end"], tuple(map(_stream_id, row["streams"] or ())))
            for batch in self._queries.batches(query)
            for row in batch.to_pylist()
        )

    def _consistency(self) -> str:
        return "ONE" if self._is_single_node else "QUORUM"

    @property
    def _is_single_node(self) -> bool:
        """Asked each time: a node may join while we follow."""
        return not self._queries.rows("SELECT peer FROM system.peers")


def _micros(times: pa.Array) -> list[int]:
    return [int(micros) for micros in times.cast(pa.int64()).to_pylist()]


def _stream_id(raw: bytes) -> StreamId:
    try:
        return StreamId(raw)
    except ValueError as error:
        raise DecodeError(str(error)) from None

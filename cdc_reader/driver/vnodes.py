"""Generations of a cluster whose keyspaces lie on vnodes: all tables share them."""

from __future__ import annotations

from collections.abc import Sequence

from cdc_reader.driver.described import DistributedTables, starts, stream_lists
from cdc_reader.driver.queries import Queries
from cdc_reader.errors import QueryRefusedError, UnsupportedTableError
from cdc_reader.generation import StreamGroup

_TIMESTAMPS = (
    "SELECT time FROM system_distributed.cdc_generation_timestamps WHERE key = 'timestamps'"
)
_STREAMS = (
    "SELECT range_end, streams FROM system_distributed.cdc_streams_descriptions_v2 WHERE time = ?"
)
_DESCRIBED = "SELECT DISTINCT time FROM system_distributed.cdc_streams_descriptions_v2"


class VnodeGenerations:
    """The `GenerationSource` over the tables that ScyllaDB 4.4 and later publish.

    The server writes the streams first, then the timestamp; so a timestamp read at the level
    at which they were written makes its streams visible.
    """

    kind = "vnodes"

    def __init__(self, queries: Queries) -> None:
        self._tables = DistributedTables(queries)

    def timestamps(self) -> Sequence[int]:
        """The starts, in µs, of all generations visible now."""
        try:
            return starts(self._tables.batches(_TIMESTAMPS))
        except QueryRefusedError as error:
            raise UnsupportedTableError(
                f"{error}; expected the generation tables of ScyllaDB 4.4 or later"
            ) from error

    def groups(self, start: int) -> Sequence[StreamGroup]:
        """The stream groups of the generation that starts at `start` µs."""
        return tuple(
            StreamGroup(range_end, streams)
            for batch in self._tables.batches(_STREAMS, start // 1_000)
            for range_end, streams in zip(
                batch.column("range_end").to_pylist(),
                stream_lists(batch.column("streams")),
                strict=True,
            )
        )

    def unpublished(self) -> Sequence[int]:
        """The starts, in µs, of generations described in full or in part, but not announced.

        Costs a scan of a small table's partition keys: one row for each generation that the
        cluster ever had, as the server removes none. No stream is read. The descriptions are
        looked at first, so what is announced meanwhile is not taken for unpublished.
        """
        described = starts(self._tables.batches(_DESCRIBED))
        return sorted(set(described) - set(self.timestamps()))

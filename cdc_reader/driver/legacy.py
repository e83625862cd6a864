"""Generations as ScyllaDB 4.3 describes them, and the change to what later versions do."""

from __future__ import annotations

from collections.abc import Sequence

from cdc_reader.driver.described import DistributedTables, own_groups, starts, stream_lists
from cdc_reader.driver.queries import Queries
from cdc_reader.driver.vnodes import VnodeGenerations
from cdc_reader.errors import QueryRefusedError
from cdc_reader.generation import StreamGroup
from cdc_reader.logs import get_logger

log = get_logger(__name__)

TABLE = "cdc_streams_descriptions"
_TIMESTAMPS = f"SELECT DISTINCT time FROM system_distributed.{TABLE}"  # noqa: S608 - a constant
_STREAMS = f"SELECT streams FROM system_distributed.{TABLE} WHERE time = ?"  # noqa: S608 - a constant
_REWRITTEN = "SELECT key FROM system.cdc_local WHERE key = 'rewritten'"


class LegacyGenerations:
    """The `GenerationSource` over the table of ScyllaDB 4.3: one row a generation.

    It does not say where token ranges end; so each stream is a group of its own.
    """

    kind = "4.3"

    def __init__(self, queries: Queries) -> None:
        self._tables = DistributedTables(queries)

    def timestamps(self) -> Sequence[int]:
        """The starts, in µs, of all generations visible now."""
        return starts(self._tables.batches(_TIMESTAMPS))

    def groups(self, start: int) -> Sequence[StreamGroup]:
        """The streams of the generation that starts at `start` µs."""
        return [
            group
            for batch in self._tables.batches(_STREAMS, start // 1_000)
            for streams in stream_lists(batch.column("streams"))
            for group in own_groups(streams)
        ]

    def unpublished(self) -> Sequence[int]:
        """None: a row has the timestamp and the streams."""
        return ()


class UpgradedGenerations:
    """The `GenerationSource` of a cluster that has, or had, the table of 4.3.

    Once the cluster is upgraded it copies its generations to the newer tables, each with the
    start it had, and says in `system.cdc_local` when it is done: from then on those are read.
    """

    def __init__(self, queries: Queries) -> None:
        self._queries = queries
        self._source: LegacyGenerations | VnodeGenerations = LegacyGenerations(queries)
        self._is_rewritten = False

    @property
    def kind(self) -> str:
        """That of the tables read now."""
        self._follow_upgrade()
        return self._source.kind

    def timestamps(self) -> Sequence[int]:
        self._follow_upgrade()
        return self._source.timestamps()

    def groups(self, start: int) -> Sequence[StreamGroup]:
        return self._source.groups(start)

    def unpublished(self) -> Sequence[int]:
        self._follow_upgrade()
        return self._source.unpublished()

    def _follow_upgrade(self) -> None:
        if not self._is_rewritten and self._finds_rewritten():
            log.info("generations_rewritten")
            self._source, self._is_rewritten = VnodeGenerations(self._queries), True

    def _finds_rewritten(self) -> bool:
        try:
            return bool(self._queries.rows(_REWRITTEN))
        except QueryRefusedError:
            return True  # a server so new that it no longer keeps this table

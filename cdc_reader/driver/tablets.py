"""Generations of one table on tablets: a set of streams for each resize of it."""

from __future__ import annotations

from collections.abc import Sequence

from cdc_reader.driver.described import own_groups, starts, stream_ids
from cdc_reader.driver.queries import Queries, Query
from cdc_reader.driver.schema_source import dropped
from cdc_reader.errors import TransientError
from cdc_reader.generation import StreamGroup
from cdc_reader.ids import TableName

_TABLE = "WHERE keyspace_name = ? AND table_name = ?"
_TIMESTAMPS = f"SELECT timestamp FROM system.cdc_timestamps {_TABLE}"  # noqa: S608 - constants
_STREAMS = (
    f"SELECT stream_id FROM system.cdc_streams {_TABLE} "  # noqa: S608 - constants
    "AND timestamp = ? AND stream_state = 0"
)
_EXISTS = f"SELECT table_name FROM system_schema.tables {_TABLE}"  # noqa: S608 - constants


class TabletGenerations:
    """The `GenerationSource` over the tables in which ScyllaDB 2025.4 and later keep the streams
    of a table on tablets.

    Each node answers for itself, at ONE; one that lags may not know the newest set yet. The
    server forgets sets whose rows have all expired.
    """

    kind = "tablets"

    def __init__(self, queries: Queries, name: TableName) -> None:
        self._queries = queries
        self._name = name
        self._key = name.keyspace, name.name

    def timestamps(self) -> Sequence[int]:
        """The starts, in µs, of all sets that the node asked knows of."""
        return starts(self._queries.batches(Query(_TIMESTAMPS, self._key, consistency="ONE")))

    def groups(self, start: int) -> Sequence[StreamGroup]:
        """The streams in force from `start` µs on; none if the server has forgotten that set.

        A node that has not heard of it yet is asked again, as there are others to answer.
        Raises TableNotFoundError if the table is no more.
        """
        return self._queries.retry(lambda: self._groups(start))

    def unpublished(self) -> Sequence[int]:
        """None: a set and its streams become visible together."""
        return ()

    def _groups(self, start: int) -> Sequence[StreamGroup]:
        query = Query(_STREAMS, (*self._key, start // 1_000), consistency="ONE")
        groups = [
            group
            for batch in self._queries.batches(query)
            for group in own_groups(stream_ids(batch.column("stream_id")))
        ]
        if not groups:
            self._check_forgotten(start)
        return groups

    def _check_forgotten(self, start: int) -> None:
        """TransientError where no streams means that they are not known yet."""
        known = self.timestamps()
        if known and start < min(known):
            return
        if not known and not self._queries.rows(_EXISTS, self._name.keyspace, self._name.name):
            raise dropped(self._name)
        raise TransientError(
            f"a node does not know the streams of {self._name} from {start // 1_000} ms on yet, "
            "which another one told of; check that all nodes agree on the schema"
        )

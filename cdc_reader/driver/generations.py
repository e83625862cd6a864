"""Which kind of generations a table has: found out, not configured."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Protocol

from cdc_reader.driver.legacy import TABLE, UpgradedGenerations
from cdc_reader.driver.queries import Queries
from cdc_reader.driver.tablets import TabletGenerations
from cdc_reader.driver.vnodes import VnodeGenerations
from cdc_reader.errors import QueryRefusedError
from cdc_reader.generation import StreamGroup
from cdc_reader.ids import TableName
from cdc_reader.ports import GenerationSource

_KEYSPACE = "SELECT * FROM system_schema.scylla_keyspaces WHERE keyspace_name = ?"
_TABLE = "SELECT table_name FROM system_schema.tables WHERE keyspace_name = ? AND table_name = ?"


class KnownSource(GenerationSource, Protocol):
    """A `GenerationSource` that says what it reads."""

    @property
    def kind(self) -> str:
        """``vnodes``, ``tablets``, or ``4.3``, whose table does not tell the token ranges."""
        ...


class TableGenerations:
    """The `GenerationSource` of any table; what kind it is, is asked at the first use."""

    def __init__(self, queries: Queries, name: TableName) -> None:
        self._queries = queries
        self._name = name

    def timestamps(self) -> Sequence[int]:
        return self.source.timestamps()

    def groups(self, start: int) -> Sequence[StreamGroup]:
        return self.source.groups(start)

    def unpublished(self) -> Sequence[int]:
        return self.source.unpublished()

    @cached_property
    def source(self) -> KnownSource:
        """The source of the kind that this table's keyspace and server want."""
        if uses_tablets(self._queries, self._name.keyspace):
            return TabletGenerations(self._queries, self._name)
        return cluster_generations(self._queries)


def cluster_generations(queries: Queries) -> KnownSource:
    """The generations that all tables on vnodes share."""
    if queries.rows(_TABLE, "system_distributed", TABLE):
        return UpgradedGenerations(queries)
    return VnodeGenerations(queries)


def uses_tablets(queries: Queries, keyspace: str) -> bool:
    """Whether the keyspace's tables lie on tablets."""
    try:
        rows = queries.rows(_KEYSPACE, keyspace)
    except QueryRefusedError:
        return False  # a server from before this table has no tablets either
    return any(row.get("initial_tablets") is not None for row in rows)

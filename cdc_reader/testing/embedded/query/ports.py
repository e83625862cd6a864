"""Interfaces of this package: tables to read, sinks to write to, actions to execute."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol, TypeVar

from attrs import frozen

from cdc_reader.testing.embedded.query.model import Execution
from cdc_reader.testing.embedded.query.result import ColumnSpec, EncodedPage, Result
from cdc_reader.testing.embedded.schema.catalog import Catalog
from cdc_reader.testing.embedded.schema.table import Table
from cdc_reader.testing.embedded.storage.partition import Partition

T = TypeVar("T")


class TableSource(Protocol):
    """The partitions of tables: `storage.Database`, or virtual tables created on request."""

    def partition(self, table: Table, key: tuple[bytes, ...]) -> Partition | None:
        """Return the partition with this key; None if there is none."""
        ...

    def partitions(
        self, table: Table, first_token: int | None = None, last_token: int | None = None
    ) -> Iterator[tuple[int, Partition]]:
        """Yield (token, partition) in order of (token, key), for [first_token, last_token]."""
        ...


class Replays(Protocol):
    """Pages to replay; `page_replay.PageReplays` implements this."""

    def page(self, keyspace: str, table: str, paging_state: bytes | None) -> EncodedPage | None:
        """Return the page to send for a SELECT from this table; None to read the table."""
        ...


class MutationSink(Protocol):
    """Applies the mutations of statements; the CDC write path implements this."""

    def write(self, mutations: list[Partition], now_us: int) -> None:
        """Apply mutations, one per partition; raise CqlError if a timestamp is rejected."""
        ...


class Alter(Protocol):
    """Changes the schema of the cluster."""

    def __call__(self, change: Callable[[Catalog], T]) -> T:
        """Apply the change to the cluster's catalog; raise CqlError if the node cannot do so."""
        ...


@frozen
class SchemaAction:
    """A plan without result rows, for DDL, USE and TRUNCATE."""

    action: Callable[[Execution], Result]
    bind_columns: tuple[ColumnSpec, ...] = ()
    partition_key_indexes: tuple[int, ...] = ()
    result_columns: tuple[ColumnSpec, ...] = ()
    warnings: tuple[str, ...] = ()
    is_lwt: bool = False

    def execute(self, execution: Execution) -> Result:
        """Execute the action."""
        return self.action(execution)

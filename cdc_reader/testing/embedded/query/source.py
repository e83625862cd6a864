"""Where statements read from and write to: the ports of this room."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from cdc_reader.testing.embedded.query.result import Page
from cdc_reader.testing.embedded.schema.table import Table
from cdc_reader.testing.embedded.storage.partition import Partition


class TableSource(Protocol):
    """The data of a table, partition by partition; `storage.Database` is one.

    A virtual table's source makes its partitions when asked.
    """

    def partition(self, table: Table, key: tuple[bytes, ...]) -> Partition | None:
        """The partition with this key, if there is one."""
        ...

    def partitions(
        self, table: Table, first_token: int | None = None, last_token: int | None = None
    ) -> Iterator[tuple[int, Partition]]:
        """(token, partition) in order of (token, key), tokens in [first_token, last_token]."""
        ...


class Replays(Protocol):
    """Ready pages; `page_replay.PageReplays` are such."""

    def page(self, keyspace: str, table: str, paging_state: bytes | None) -> Page | None:
        """The page to answer a SELECT from this table with; None to read the table."""
        ...


class MutationSink(Protocol):
    """Takes what statements write; the CDC write path is one."""

    def write(self, mutations: list[Partition], now_us: int) -> None:
        """Apply the mutations, one per (table, partition key); CqlError for a refused timestamp."""
        ...

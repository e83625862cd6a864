"""All partitions of all tables, in token order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from uuid import UUID

from attrs import define, field
from sortedcontainers import SortedDict

from cdc_reader.testing.embedded.codec.token import token_of
from cdc_reader.testing.embedded.schema.table import Table
from cdc_reader.testing.embedded.storage.partition import Partition

PartitionKey = tuple[bytes, ...]
RingPosition = tuple[int, PartitionKey]


@define
class Database:
    """The server's data: for each table id, the partitions in order of (token, key)."""

    tables: dict[UUID, SortedDict[RingPosition, Partition]] = field(factory=dict)

    def apply(self, mutation: Partition) -> None:
        """Merge a mutation into its partition."""
        partitions = self.tables.setdefault(mutation.table.id, SortedDict())
        place = (token_of(mutation.table.partitioner, mutation.key), mutation.key)
        partition = partitions.get(place)
        if partition is None:
            partition = partitions[place] = Partition(mutation.table, mutation.key)
        partition.merge(mutation)

    def partition(self, table: Table, key: PartitionKey) -> Partition | None:
        """Return the partition with this key; None if nothing was ever written to it."""
        place = (token_of(table.partitioner, key), key)
        partition: Partition | None = self.tables.get(table.id, _NOTHING).get(place)
        return partition

    def partitions(
        self, table: Table, first_token: int | None = None, last_token: int | None = None
    ) -> Iterator[tuple[int, Partition]]:
        """Yield (token, partition) in token order, for tokens in [first_token, last_token]."""
        lower = None if first_token is None else (first_token,)
        upper = None if last_token is None else (last_token + 1,)
        partitions = self.tables.get(table.id, _NOTHING)
        for place in partitions.irange(lower, upper, inclusive=(True, False)):
            yield place[0], partitions[place]

    def copy(self, tables: Iterable[Table]) -> Database:
        """Return a copy of these tables' data."""
        made = Database()
        for table in tables:
            for _, partition in self.partitions(table):
                made.apply(partition)
        return made

    def drop(self, table_id: UUID) -> None:
        """Delete a table's data, for DROP and TRUNCATE."""
        self.tables.pop(table_id, None)


_NOTHING: SortedDict[RingPosition, Partition] = SortedDict()

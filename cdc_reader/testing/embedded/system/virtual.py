"""Virtual tables, whose rows are created when they are read."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from attrs import frozen

from cdc_reader.cql.types import MapType, SetType
from cdc_reader.testing.embedded.codec.token import token_of
from cdc_reader.testing.embedded.schema.table import Column, Kind, Table
from cdc_reader.testing.embedded.storage.cell import Cell, MultiCell
from cdc_reader.testing.embedded.storage.partition import Partition
from cdc_reader.testing.embedded.storage.row import Row
from cdc_reader.testing.embedded.system.encode import encode, encode_map

PartitionKey = tuple[bytes, ...]
Values = Mapping[str, Any]

WRITTEN = ""
"""The key, in `Values`, of a row's optional write time (µs); no column has this name."""


class VirtualSource(ABC):
    """A `TableSource` whose partitions are created when they are read."""

    def partition(self, table: Table, key: PartitionKey) -> Partition | None:
        """Return the partition with this key; None if there is none."""
        return self.made(table, key).get(key)

    def partitions(
        self, table: Table, first_token: int | None = None, last_token: int | None = None
    ) -> Iterator[tuple[int, Partition]]:
        """Yield (token, partition) in order of (token, key), for [first_token, last_token]."""
        made = self.made(table, None)
        for token, key in sorted((token_of(table.partitioner, key), key) for key in made):
            if (first_token is None or first_token <= token) and (
                last_token is None or token <= last_token
            ):
                yield token, made[key]

    @abstractmethod
    def made(self, table: Table, wanted: PartitionKey | None) -> dict[PartitionKey, Partition]:
        """Return the partitions by key; if `wanted` is set, all other partitions may be omitted."""


@frozen
class VirtualTable(VirtualSource):
    """A virtual table; `rows` returns values by column name, for all partitions or a given key."""

    rows: Callable[[PartitionKey | None], Iterable[Values]]

    def made(self, table: Table, wanted: PartitionKey | None) -> dict[PartitionKey, Partition]:
        return partitions_of(table, self.rows(wanted))


def partitions_of(table: Table, rows: Iterable[Values]) -> dict[PartitionKey, Partition]:
    """Return the partitions that contain these rows of a table, by key."""
    made: dict[PartitionKey, Partition] = {}
    for values in rows:
        key = _key(table.partition_key, values)
        if (partition := made.get(key)) is None:
            partition = made[key] = Partition(table, key)
        row = partition.row(_key(table.clustering, values))
        at = values.get(WRITTEN, 0)
        row.set_marker(Cell(at, b""))
        for column in table.regulars + table.statics:
            if (value := values.get(column.name)) is not None:
                _set(partition.static if column.kind is Kind.STATIC else row, column, value, at)
    return made


def _key(columns: tuple[Column, ...], values: Values) -> PartitionKey:
    return tuple(encode(column.type, values[column.name]) for column in columns)


def _set(row: Row, column: Column, value: Any, at: int) -> None:
    if not column.is_multi_cell:
        row.set_cell(column.name, Cell(at, encode(column.type, value)))
    elif isinstance(column.type, MapType):
        cells = encode_map(column.type, value)
        row.cells[column.name] = MultiCell(None, {k: Cell(at, v) for k, v in cells.items()})
    elif isinstance(column.type, SetType):
        keys = sorted(encode(column.type.element, item) for item in value)
        row.cells[column.name] = MultiCell(None, {key: Cell(at, b"") for key in keys})

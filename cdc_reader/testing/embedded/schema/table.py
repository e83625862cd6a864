"""A table's definition, as a frozen value; ALTER creates a new one."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from functools import cached_property
from typing import Any
from uuid import UUID, uuid4

from attrs import evolve, field, frozen

from cdc_reader.cql import timeuuid
from cdc_reader.cql.types import CqlType, UserType, is_multi_cell
from cdc_reader.testing.embedded.codec.order import SortKey, sort_key
from cdc_reader.testing.embedded.codec.token import CDC_PARTITIONER
from cdc_reader.testing.embedded.schema.cdc_options import CdcOptions

MURMUR3 = "org.apache.cassandra.dht.Murmur3Partitioner"
COMPRESSION = "org.apache.cassandra.io.compress."
"""The package of the compressors of SSTables."""

_NO_CDC = CdcOptions()
_LOGGED = ("vector_index", "fulltext_index")


def new_id(created_us: int) -> UUID:
    """Return a new table id: a timeuuid of the creation time `created_us` (µs)."""
    return timeuuid.make(created_us, uuid4().bytes[8:])


class Kind(enum.Enum):
    """Kinds of columns, with their values in `system_schema.columns.kind`."""

    PARTITION_KEY = "partition_key"
    CLUSTERING = "clustering"
    STATIC = "static"
    REGULAR = "regular"


@frozen
class Column:
    """A column. `position` is its index in its part of the key, or -1 if it is not in the key."""

    name: str
    type: CqlType
    kind: Kind = Kind.REGULAR
    position: int = -1
    descending: bool = False

    @property
    def is_key(self) -> bool:
        return self.kind in (Kind.PARTITION_KEY, Kind.CLUSTERING)

    @property
    def is_multi_cell(self) -> bool:
        """True if the column has a cell per element (a non-frozen collection or UDT)."""
        return not self.is_key and is_multi_cell(self.type)

    @property
    def is_user_type(self) -> bool:
        return isinstance(self.type, UserType)


@frozen(slots=False)
class Table:
    """A table: its columns in any order, its id, and its properties.

    `options` contains the properties of CREATE TABLE ... WITH by name, as Python values (numbers,
    text, maps of text), without defaults. `dropped` maps the name of each dropped column to (type,
    time of the drop in µs). `altered_us` is the time of the last statement that changed the table.
    `cdc_options` is the property `cdc`, or None if it was never set; like ScyllaDB, the server
    distinguishes options set to their defaults from options never set. `indexes` maps the name of
    each index to its options.
    """

    keyspace: str
    name: str
    id: UUID
    columns: tuple[Column, ...]
    cdc_options: CdcOptions | None = None
    options: Mapping[str, Any] = field(factory=dict, eq=False)
    dropped: Mapping[str, tuple[CqlType, int]] = field(factory=dict, eq=False)
    indexes: Mapping[str, Mapping[str, str]] = field(factory=dict, eq=False)
    partitioner: str = MURMUR3
    altered_us: int = field(default=0, eq=False)

    @cached_property
    def cdc(self) -> CdcOptions:
        """The effective CDC options; an index that is built from the log keeps CDC enabled."""
        options = self.cdc_options or _NO_CDC
        is_needed = any(index["class_name"] in _LOGGED for index in self.indexes.values())
        return evolve(options, enabled=True) if is_needed else options

    @cached_property
    def by_name(self) -> dict[str, Column]:
        return {column.name: column for column in self.columns}

    @cached_property
    def partition_key(self) -> tuple[Column, ...]:
        return self._key(Kind.PARTITION_KEY)

    @cached_property
    def clustering(self) -> tuple[Column, ...]:
        return self._key(Kind.CLUSTERING)

    @cached_property
    def statics(self) -> tuple[Column, ...]:
        return self._values(Kind.STATIC)

    @cached_property
    def regulars(self) -> tuple[Column, ...]:
        return self._values(Kind.REGULAR)

    @cached_property
    def select_order(self) -> tuple[Column, ...]:
        """The columns in the order of ``SELECT *``: keys, then static and regular ones by name."""
        return self.partition_key + self.clustering + self.statics + self.regulars

    @cached_property
    def clustering_sort_keys(self) -> tuple[SortKey, ...]:
        """A function for each clustering column, from a value's bytes to a sortable key."""
        return tuple(sort_key(column.type, column.descending) for column in self.clustering)

    @property
    def is_cdc_log(self) -> bool:
        """True for a log table, which has a special partitioner; its name does not matter."""
        return self.partitioner == CDC_PARTITIONER

    @property
    def default_ttl(self) -> int:
        return int(self.options.get("default_time_to_live", 0))

    @property
    def is_counter(self) -> bool:
        return any(str(column.type) == "counter" for column in self.columns)

    def _key(self, kind: Kind) -> tuple[Column, ...]:
        return tuple(sorted((c for c in self.columns if c.kind is kind), key=lambda c: c.position))

    def _values(self, kind: Kind) -> tuple[Column, ...]:
        return tuple(
            sorted((c for c in self.columns if c.kind is kind), key=lambda c: c.name.encode())
        )

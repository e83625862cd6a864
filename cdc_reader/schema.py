"""Tables as values: the base table as its owner wrote it, and the log beside it."""

from __future__ import annotations

from enum import Enum

from attrs import field, frozen

from cdc_reader.cql_type import CqlType
from cdc_reader.ids import TableName


class ColumnKind(Enum):
    """A column's part in its table, spelled as `system_schema.columns` spells it."""

    PARTITION_KEY = "partition_key"
    CLUSTERING = "clustering"
    STATIC = "static"
    REGULAR = "regular"


_KIND_ORDER = list(ColumnKind)


@frozen(cache_hash=True)  # a page's columns are looked up by their hash
class Column:
    """A column: its name, its type, its kind and its place in the key (-1 outside of it).

    A clustering column may be `descending`: the greatest value comes first.
    """

    name: str
    type: CqlType
    kind: ColumnKind = ColumnKind.REGULAR
    position: int = -1
    descending: bool = False

    @property
    def server_order(self) -> tuple[int, int, bytes]:
        """Sorts columns as `SELECT *` lists them: keys by place, then by bytes of the name."""
        return _KIND_ORDER.index(self.kind), self.position, self.name.encode()


def _in_server_order(columns: tuple[Column, ...]) -> tuple[Column, ...]:
    return tuple(sorted(columns, key=lambda column: column.server_order))


class ImageMode(Enum):
    """The ``preimage`` option: no image, the touched columns, or the full row."""

    OFF = "false"
    TOUCHED = "true"
    FULL = "full"


@frozen
class CdcOptions:
    """The ``cdc`` option map of a base table; `ttl` in seconds, 0 for never."""

    enabled: bool = False
    preimage: ImageMode = ImageMode.OFF
    postimage: bool = False
    delta_keys_only: bool = False
    ttl: int = 86_400


@frozen
class TableSchema:
    """A base table: columns in server order, and its CDC options."""

    name: TableName
    columns: tuple[Column, ...] = field(converter=_in_server_order)
    cdc: CdcOptions = CdcOptions()


@frozen
class LogSchema:
    """A log table: its columns in server order, and the base table they speak of.

    Only the base schema tells the log's column classes apart: names with the ``cdc$``
    prefix are not injective.
    """

    base: TableSchema
    columns: tuple[Column, ...] = field(converter=_in_server_order)

    @property
    def name(self) -> TableName:
        return self.base.name.log

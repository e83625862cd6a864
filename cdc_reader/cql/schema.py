"""Schemas: the base table, its CDC options, its log, and the log's metadata columns."""

from __future__ import annotations

from enum import Enum, IntEnum
from uuid import UUID

from attrs import field, frozen

from cdc_reader._html import html_table
from cdc_reader.cql.names import TableName
from cdc_reader.cql.types import CqlType, is_multi_cell

STREAM_ID = "cdc$stream_id"
TIME = "cdc$time"
BATCH_SEQ_NO = "cdc$batch_seq_no"
OPERATION = "cdc$operation"
TTL = "cdc$ttl"
END_OF_BATCH = "cdc$end_of_batch"
OWN_PREFIX = "cdc$"
FAULTS = "cdc$faults"
"""The column of cells that could not be decoded; see `cdc_reader.decoding.faults`."""
DELETED_PREFIX = "cdc$deleted_"
REMOVED_PREFIX = "cdc$deleted_elements_"


class ColumnKind(Enum):
    """The kind of a column, spelled as in `system_schema.columns`."""

    PARTITION_KEY = "partition_key"
    CLUSTERING = "clustering"
    STATIC = "static"
    REGULAR = "regular"


_KIND_ORDER = list(ColumnKind)


@frozen(cache_hash=True)  # a page's columns are looked up by their hash
class Column:
    """A column; `position` is its index in the partition or clustering key, or -1 outside the key.

    A `descending` clustering column sorts the greatest value first.
    """

    name: str
    type: CqlType
    kind: ColumnKind = ColumnKind.REGULAR
    position: int = -1
    descending: bool = False

    @property
    def is_key(self) -> bool:
        """True if the column is part of the primary key."""
        return self.kind in (ColumnKind.PARTITION_KEY, ColumnKind.CLUSTERING)

    @property
    def log_names(self) -> tuple[str, ...]:
        """The names of the log's columns for this column of a base table."""
        if self.is_key:
            return (self.name,)
        names = self.name, DELETED_PREFIX + self.name
        return (*names, REMOVED_PREFIX + self.name) if is_multi_cell(self.type) else names

    @property
    def server_order(self) -> tuple[int, int, bytes]:
        """The sort key for the order of `SELECT *`: kind, place in the key, bytes of the name."""
        return _KIND_ORDER.index(self.kind), self.position, self.name.encode()


_HEADINGS = ("column", "type", "kind", "order")


def _described(column: Column) -> tuple[str, str, str, str | None]:
    order = "descending" if column.descending else "ascending"
    is_ordered = column.kind is ColumnKind.CLUSTERING
    kind = column.kind.value.replace("_", " ")
    return column.name, str(column.type), kind, order if is_ordered else None


def _in_server_order(columns: tuple[Column, ...]) -> tuple[Column, ...]:
    return tuple(sorted(columns, key=lambda column: column.server_order))


class ImageMode(Enum):
    """The ``preimage`` option: no image, the touched columns, or the full row."""

    OFF = "false"
    TOUCHED = "true"
    FULL = "full"


@frozen
class CdcOptions:
    """The ``cdc`` options of a base table; `ttl` is in seconds (0: rows never expire)."""

    enabled: bool = False
    preimage: ImageMode = ImageMode.OFF
    postimage: bool = False
    delta_keys_only: bool = False
    ttl: int = 86_400

    def __str__(self) -> str:
        words = ["CDC on" if self.enabled else "CDC off"]
        words.append(f"preimage {self.preimage.value}")
        words.append(f"postimage {str(self.postimage).lower()}")
        words += ["delta keys"] if self.delta_keys_only else []
        words.append(f"TTL {self.ttl} s" if self.ttl else "no TTL")
        return ", ".join(words)


@frozen
class TableState:
    """The parts of a table that can change under the same name: its id, CDC options and log.

    A table that is dropped and recreated gets a new `id`, and its log gets a new `log_id`. `log_id`
    is None if there is no log. `altered` is the time of the last ALTER, in µs, or None if the
    server does not report it. `default_ttl` is the table's default TTL, in seconds (0: none).
    """

    id: UUID
    cdc: CdcOptions
    altered: int | None = None
    log_id: UUID | None = None
    default_ttl: int = field(default=0, eq=False)


@frozen
class TableSchema:
    """A base table: its columns in server order, its CDC options, its id and its log's id.

    `altered` is the time of the last ALTER, in µs since 1970, or None if the server does not report
    it. `log_id` changes when the log is dropped and recreated; it is None if there is no log.
    `default_ttl` is the TTL, in seconds, of writes that give none (0: no TTL). Comparisons ignore
    `altered` and `default_ttl`.
    """

    name: TableName
    columns: tuple[Column, ...] = field(converter=_in_server_order)
    cdc: CdcOptions = CdcOptions()
    id: UUID | None = None
    altered: int | None = field(default=None, eq=False)
    log_id: UUID | None = None
    default_ttl: int = field(default=0, eq=False)

    @property
    def partition_key(self) -> tuple[Column, ...]:
        """The columns of the partition key, in key order."""
        return self.of_kind(ColumnKind.PARTITION_KEY)

    @property
    def clustering(self) -> tuple[Column, ...]:
        """The clustering columns, in key order."""
        return self.of_kind(ColumnKind.CLUSTERING)

    @property
    def values(self) -> tuple[Column, ...]:
        """The columns outside the primary key, in server order."""
        return tuple(column for column in self.columns if not column.is_key)

    def of_kind(self, kind: ColumnKind) -> tuple[Column, ...]:
        """Return the columns of a kind, in server order."""
        return tuple(column for column in self.columns if column.kind is kind)

    def _repr_html_(self) -> str:
        """Return the columns as a table, for notebooks."""
        return html_table(f"{self.name}: {self.cdc}", _HEADINGS, map(_described, self.columns))


@frozen
class LogSchema:
    """A log table: its columns in server order, and its base table.

    A log column's meaning depends on the base schema: ``cdc$deleted_elements_v`` may belong to
    a base column ``v`` or to one called ``elements_v``. `version` is the schema version of the node
    that described the table, or None if it is unknown; comparisons ignore it.
    """

    base: TableSchema
    columns: tuple[Column, ...] = field(converter=_in_server_order)
    version: str | None = field(default=None, eq=False, repr=False)

    @property
    def name(self) -> TableName:
        return self.base.name.log

    def _repr_html_(self) -> str:
        """Return the columns as a table, for notebooks."""
        caption = f"{self.name}, the log of {self.base.name}: {self.base.cdc}"
        return html_table(caption, _HEADINGS, map(_described, self.columns))


class Operation(IntEnum):
    """The operation of a log row.

    A code that is unknown to this version becomes a new member named ``UNKNOWN_<code>``, so rows
    from newer servers are passed on, never dropped. A snapshot's rows have the operation
    `SNAPSHOT`. Its code does not fit in the one byte of `cdc$operation`, so no row of a log has it.
    """

    SNAPSHOT = 256
    SERVER_PARTITION_DELETE = -4
    SERVER_ROW_DELETE = -3
    PREIMAGE = 0
    UPDATE = 1
    INSERT = 2
    ROW_DELETE = 3
    PARTITION_DELETE = 4
    RANGE_START_INCLUSIVE = 5
    RANGE_START_EXCLUSIVE = 6
    RANGE_END_INCLUSIVE = 7
    RANGE_END_EXCLUSIVE = 8
    POSTIMAGE = 9

    @property
    def is_known(self) -> bool:
        """True if the operation's code is known to this version."""
        return not self.name.startswith("UNKNOWN_")

    @classmethod
    def _missing_(cls, value: object) -> Operation | None:
        if not isinstance(value, int):
            return None
        member = int.__new__(cls, value)
        member._name_ = f"UNKNOWN_{value}"
        member._value_ = value
        return cls._value2member_map_.setdefault(value, member)  # type: ignore[return-value]

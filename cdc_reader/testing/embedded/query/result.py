"""The results of statements, before they are encoded."""

from __future__ import annotations

from attrs import field, frozen

from cdc_reader.cql.types import CqlType
from cdc_reader.testing.embedded.schema.catalog import SchemaChange


@frozen
class ColumnSpec:
    """The name and type of a result column or bind variable, and its table.

    With `has_nulls`, the value is a list that may contain nulls.
    """

    keyspace: str
    table: str
    name: str
    type: CqlType
    has_nulls: bool = False


@frozen
class Void:
    """An empty result."""

    warnings: tuple[str, ...] = ()


@frozen
class SetKeyspace:
    """The result of USE: the new keyspace of the connection."""

    keyspace: str


@frozen
class Rows:
    """A page of rows, whose cells are serialized or None. The last page has no paging state."""

    columns: tuple[ColumnSpec, ...]
    rows: list[tuple[bytes | None, ...]]
    paging_state: bytes | None = None
    warnings: tuple[str, ...] = ()


@frozen
class EncodedPage:
    """A page of rows that is already encoded.

    `columns` is the number of columns that `metadata` describes, and `flags` are the flags of
    the metadata.
    """

    flags: int
    columns: int
    metadata: bytes = field(repr=False)
    rows: bytes = field(repr=False)
    paging_state: bytes | None = None


@frozen
class Prepared:
    """A prepared statement: its id, bind variables and result columns.

    `partition_key_indexes` lists the indexes of the partition key's bind variables, in key order.
    It is empty if part of the key is not bound. `result_columns` is empty for statements that
    return no rows.
    """

    id: bytes
    bind_columns: tuple[ColumnSpec, ...]
    partition_key_indexes: tuple[int, ...] = ()
    result_columns: tuple[ColumnSpec, ...] = ()
    warnings: tuple[str, ...] = ()
    is_lwt: bool = field(default=False)


Result = Void | SetKeyspace | Rows | EncodedPage | Prepared | SchemaChange

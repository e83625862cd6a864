"""What a statement returns, before it is put on the wire."""

from __future__ import annotations

from attrs import field, frozen

from cdc_reader.cql.types import CqlType
from cdc_reader.testing.embedded.schema.catalog import SchemaChange


@frozen
class ColumnSpec:
    """Name and type of a result column or a bind variable, with the table it belongs to."""

    keyspace: str
    table: str
    name: str
    type: CqlType


@frozen
class Void:
    """Nothing to return."""

    warnings: tuple[str, ...] = ()


@frozen
class SetKeyspace:
    """The connection's keyspace is now this one."""

    keyspace: str


@frozen
class Rows:
    """A page of rows: serialised cells, None for null. No paging state: the last page."""

    columns: tuple[ColumnSpec, ...]
    rows: list[tuple[bytes | None, ...]]
    paging_state: bytes | None = None
    warnings: tuple[str, ...] = ()


@frozen
class EncodedPage:
    """A page of rows made ready: the parts of its RESULT's body, as they are on the wire.

    `flags` are those of the `metadata`, which describes so many `columns`.
    """

    flags: int
    columns: int
    metadata: bytes = field(repr=False)
    rows: bytes = field(repr=False)
    paging_state: bytes | None = None


@frozen
class Prepared:
    """A prepared statement: its id, its bind variables, its result columns.

    `partition_key_indexes` are the positions, in order of the partition key, of the bind
    variables that give it; empty if some part is not bound. `result_columns` is empty for
    statements that return no rows.
    """

    id: bytes
    bind_columns: tuple[ColumnSpec, ...]
    partition_key_indexes: tuple[int, ...] = ()
    result_columns: tuple[ColumnSpec, ...] = ()
    warnings: tuple[str, ...] = ()
    is_lwt: bool = field(default=False)


Result = Void | SetKeyspace | Rows | EncodedPage | Prepared | SchemaChange

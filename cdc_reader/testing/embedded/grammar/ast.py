"""Statements as syntax trees of frozen values.

Unquoted names are in lower case; quoted names are as written. CQL types remain text, because only
the catalog can resolve user-defined types.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from typing import Any

from attrs import field, frozen
from attrs.converters import default_if_none

from cdc_reader.testing.embedded.grammar.selectors import Selector
from cdc_reader.testing.embedded.grammar.terms import Term

PropertyValue = str | int | float | bool | Mapping[str, str]


@frozen
class TableName:
    """The name of a table, type or index; a `keyspace` of None means the connection's keyspace."""

    keyspace: str | None
    name: str


def _flag() -> Any:
    return field(default=False, converter=bool)


def _default(factory: Callable[[], Any]) -> Any:
    """Return a field whose default is the result of `factory`, even if None is passed."""
    return field(factory=factory, converter=default_if_none(factory=factory))


# SELECT, WHERE and IF


@frozen
class Selected:
    """One item of a SELECT list."""

    selector: Selector
    alias: str | None = None


@frozen
class Relation:
    """A relation, ``column operator term`` or, with a `key`, ``column[key] operator term``.

    `operator` is one of = != < <= > >= IN CONTAINS, "CONTAINS KEY", LIKE and "IS NOT". The right
    side of IN is a `TupleTerm` of the listed terms, or a single `Marker`.
    """

    column: str
    operator: str
    value: Term
    key: Term | None = None


@frozen
class TupleRelation:
    """A relation on columns, ``(a, b) operator (1, 2)``, or IN with a `TupleTerm` of tuples."""

    columns: tuple[str, ...]
    operator: str
    value: Term


@frozen
class TokenRelation:
    """A relation on a token, ``token(a, b) operator term``."""

    columns: tuple[str, ...]
    operator: str
    value: Term


AnyRelation = Relation | TupleRelation | TokenRelation


# Data statements


@frozen
class Select:
    """A SELECT; an empty `selected` means ``*``, and `order` lists pairs (column, descending)."""

    table: TableName
    selected: tuple[Selected, ...] = ()
    where: tuple[AnyRelation, ...] = ()
    distinct: bool = _flag()
    json: bool = _flag()
    order: tuple[tuple[str, bool], ...] = ()
    per_partition_limit: Term | None = None
    limit: Term | None = None
    allow_filtering: bool = _flag()
    timeout: Term | None = None


@frozen
class Using:
    """A USING clause, ``USING TTL ... AND TIMESTAMP ... AND TIMEOUT ...``."""

    ttl: Term | None = None
    timestamp: Term | None = None
    timeout: Term | None = None


@frozen
class Insert:
    """An INSERT INTO ... VALUES statement."""

    table: TableName
    columns: tuple[str, ...]
    values: tuple[Term, ...]
    if_not_exists: bool = _flag()
    using: Using = _default(Using)


@frozen
class InsertJson:
    """An INSERT ... JSON statement; with `default_unset`, omitted columns stay unchanged."""

    table: TableName
    text: Term
    default_unset: bool = _flag()
    if_not_exists: bool = _flag()
    using: Using = _default(Using)


class Change(enum.Enum):
    """Kinds of changes that an assignment makes to its column."""

    SET = "="
    ADD = "+"
    PREPEND = "prepend"
    REMOVE = "-"


@frozen
class Assignment:
    """An assignment to a column, an element or a field, such as ``column = column + value``.

    `key` is the term in brackets, or a field's name as a str. `by_id` is True if `key` is the
    timeuuid of a list element, not its index.
    """

    column: str
    change: Change
    value: Term
    key: Term | str | None = None
    by_id: bool = False


@frozen
class Update:
    """An UPDATE statement."""

    table: TableName
    assignments: tuple[Assignment, ...]
    where: tuple[AnyRelation, ...]
    using: Using = _default(Using)
    conditions: tuple[Relation, ...] = ()
    if_exists: bool = _flag()


@frozen
class Deletion:
    """What to delete: a column, ``column[key]`` or, if `key` is a str, ``column.field``."""

    column: str
    key: Term | str | None = None


@frozen
class Delete:
    """A DELETE statement; if `deletions` is empty, it deletes rows or partitions."""

    table: TableName
    deletions: tuple[Deletion, ...]
    where: tuple[AnyRelation, ...]
    using: Using = _default(Using)
    conditions: tuple[Relation, ...] = ()
    if_exists: bool = _flag()


Modification = Insert | InsertJson | Update | Delete


class BatchKind(enum.Enum):
    """Kinds of batches, with the values used in a BATCH frame."""

    LOGGED = 0
    UNLOGGED = 1
    COUNTER = 2


@frozen
class Batch:
    """A BEGIN BATCH ... APPLY BATCH statement."""

    kind: BatchKind
    statements: tuple[Modification, ...]
    using: Using = _default(Using)


# Schema statements


@frozen
class Properties:
    """A WITH clause: values by name, and the properties that have a special syntax.

    `clustering_order` lists pairs (column, descending). The constants in a map value are text.
    """

    values: Mapping[str, PropertyValue] = field(factory=dict)
    clustering_order: tuple[tuple[str, bool], ...] = ()
    compact_storage: bool = False


@frozen
class ColumnDefinition:
    """A column of CREATE TABLE or ALTER TABLE ADD; if `is_key`, it is the whole primary key."""

    name: str
    type: str
    static: bool = _flag()
    is_key: bool = False


@frozen
class PrimaryKey:
    """A primary key, ``PRIMARY KEY ((partition), clustering)``."""

    partition: tuple[str, ...]
    clustering: tuple[str, ...] = ()


@frozen
class CreateKeyspace:
    """A CREATE KEYSPACE statement."""

    if_not_exists: bool = field(converter=bool)
    name: str
    properties: Properties = _default(Properties)


@frozen
class AlterKeyspace:
    """An ALTER KEYSPACE statement."""

    name: str
    properties: Properties


@frozen
class DropKeyspace:
    """A DROP KEYSPACE statement."""

    if_exists: bool = field(converter=bool)
    name: str


@frozen
class CreateTable:
    """A CREATE TABLE statement; the server rejects it unless it has exactly one primary key."""

    table: TableName
    columns: tuple[ColumnDefinition, ...]
    primary_keys: tuple[PrimaryKey, ...]
    properties: Properties = _default(Properties)
    if_not_exists: bool = _flag()


@frozen
class AddColumns:
    """An ALTER TABLE ... ADD statement."""

    table: TableName
    columns: tuple[ColumnDefinition, ...]


@frozen
class DropColumns:
    """An ALTER TABLE ... DROP statement; `timestamp` (µs) is the time that it specifies, if any."""

    table: TableName
    columns: tuple[str, ...]
    timestamp: int | None = None


@frozen
class RenameColumns:
    """An ALTER TABLE ... RENAME statement; `renames` lists pairs (old, new)."""

    table: TableName
    renames: tuple[tuple[str, str], ...]


@frozen
class AlterColumnType:
    """An ALTER TABLE ... ALTER ... TYPE statement."""

    table: TableName
    column: str
    type: str


@frozen
class AlterProperties:
    """An ALTER TABLE ... WITH statement."""

    table: TableName
    properties: Properties


@frozen
class DropTable:
    """A DROP TABLE statement."""

    if_exists: bool = field(converter=bool)
    table: TableName


@frozen
class CreateType:
    """A CREATE TYPE statement; `fields` lists pairs (field, type)."""

    type: TableName
    fields: tuple[tuple[str, str], ...]
    if_not_exists: bool = _flag()


@frozen
class AddField:
    """An ALTER TYPE ... ADD statement."""

    type: TableName
    name: str
    field_type: str


@frozen
class RenameFields:
    """An ALTER TYPE ... RENAME statement; `renames` lists pairs (old, new)."""

    type: TableName
    renames: tuple[tuple[str, str], ...]


@frozen
class DropType:
    """A DROP TYPE statement."""

    if_exists: bool = field(converter=bool)
    type: TableName


@frozen
class Use:
    """A USE statement."""

    keyspace: str


@frozen
class Truncate:
    """A TRUNCATE statement."""

    table: TableName
    timeout: Term | None = None


@frozen
class Describe:
    """A DESCRIBE statement.

    `what` is the kind of the element to describe, such as TABLE; a word for several elements, such
    as TABLES; or ANY. KEYSPACE without a `name` means the connection's keyspace. With `only`, the
    keyspace's contents are omitted. With `internals`, ids and dropped columns are included.
    """

    what: str
    name: TableName | None = None
    only: bool = _flag()
    internals: bool = _flag()


@frozen
class Unsupported:
    """A CQL statement that this server does not support; `what` is its kind.

    For a materialized view, `base` is its base table, and `with_cdc` is True if the statement
    enables CDC.
    """

    what: str
    base: TableName | None = None
    with_cdc: bool = False


SchemaStatement = (
    CreateKeyspace
    | AlterKeyspace
    | DropKeyspace
    | CreateTable
    | AddColumns
    | DropColumns
    | RenameColumns
    | AlterColumnType
    | AlterProperties
    | DropTable
    | CreateType
    | AddField
    | RenameFields
    | DropType
)
Statement = (
    Select | Modification | Batch | SchemaStatement | Use | Truncate | Describe | Unsupported
)

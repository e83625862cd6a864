"""Statements as syntax trees: frozen values, names folded as CQL folds them.

Unquoted names are lower case, quoted ones as written. CQL types stay text: only the catalog
knows user-defined types.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping

from attrs import field, frozen

from cdc_reader.testing.embedded.grammar.selectors import Selector
from cdc_reader.testing.embedded.grammar.terms import Term

PropertyValue = str | int | float | bool | Mapping[str, str]


@frozen
class TableName:
    """A table, type or index by name; `keyspace` None means the connection's own."""

    keyspace: str | None
    name: str


# SELECT, WHERE and IF


@frozen
class Selected:
    """One item of a SELECT list."""

    selector: Selector
    alias: str | None = None


@frozen
class Relation:
    """``column operator term``; with a `key`, ``column[key]`` or, if it is a str, ``column.field``.

    `operator` is one of = != < <= > >= IN CONTAINS, "CONTAINS KEY", LIKE and "IS NOT". The right
    side of IN is a `TupleTerm` of its elements or one `Marker`.
    """

    column: str
    operator: str
    value: Term
    key: Term | str | None = None


@frozen
class TupleRelation:
    """``(a, b) operator (1, 2)``, or IN with a `TupleTerm` of tuples."""

    columns: tuple[str, ...]
    operator: str
    value: Term


@frozen
class TokenRelation:
    """``token(a, b) operator term``."""

    columns: tuple[str, ...]
    operator: str
    value: Term


AnyRelation = Relation | TupleRelation | TokenRelation


# Statements over data


@frozen
class Select:
    """SELECT. An empty `selected` is ``*``; `order` holds (column, descending)."""

    table: TableName
    selected: tuple[Selected, ...] = ()
    where: tuple[AnyRelation, ...] = ()
    distinct: bool = False
    json: bool = False
    order: tuple[tuple[str, bool], ...] = ()
    per_partition_limit: Term | None = None
    limit: Term | None = None
    allow_filtering: bool = False
    timeout: Term | None = None


@frozen
class Using:
    """``USING TTL ... AND TIMESTAMP ... AND TIMEOUT ...``."""

    ttl: Term | None = None
    timestamp: Term | None = None
    timeout: Term | None = None


@frozen
class Insert:
    """INSERT INTO ... VALUES."""

    table: TableName
    columns: tuple[str, ...]
    values: tuple[Term, ...]
    if_not_exists: bool = False
    using: Using = Using()


@frozen
class InsertJson:
    """INSERT INTO ... JSON; with `default_unset`, columns missing from the text stay unchanged."""

    table: TableName
    text: Term
    default_unset: bool = False
    if_not_exists: bool = False
    using: Using = Using()


class Change(enum.Enum):
    """The kind of change that an assignment makes to its column."""

    SET = "="
    ADD = "+"
    PREPEND = "prepend"
    REMOVE = "-"


@frozen
class Assignment:
    """``column = value``, ``column = column + value``, or of one element or field.

    `key` is the term in brackets, or a field's name as a str; `by_id` if the term is the timeuuid
    of a list's element, not its index.
    """

    column: str
    change: Change
    value: Term
    key: Term | str | None = None
    by_id: bool = False


@frozen
class Update:
    """UPDATE."""

    table: TableName
    assignments: tuple[Assignment, ...]
    where: tuple[AnyRelation, ...]
    using: Using = Using()
    conditions: tuple[Relation, ...] = ()
    if_exists: bool = False


@frozen
class Deletion:
    """A column, ``column[key]`` or, with a str as `key`, ``column.field`` to delete."""

    column: str
    key: Term | str | None = None


@frozen
class Delete:
    """DELETE: the row or partition if `deletions` is empty."""

    table: TableName
    deletions: tuple[Deletion, ...]
    where: tuple[AnyRelation, ...]
    using: Using = Using()
    conditions: tuple[Relation, ...] = ()
    if_exists: bool = False


Modification = Insert | InsertJson | Update | Delete


class BatchKind(enum.Enum):
    """The kinds of batches; the values are those of a BATCH frame."""

    LOGGED = 0
    UNLOGGED = 1
    COUNTER = 2


@frozen
class Batch:
    """BEGIN BATCH ... APPLY BATCH."""

    kind: BatchKind
    statements: tuple[Modification, ...]
    using: Using = Using()


# Statements over the schema


@frozen
class Properties:
    """``WITH ...``: values by name, and the properties with their own syntax.

    `clustering_order` holds (column, descending). Values of map type hold their constants' text.
    """

    values: Mapping[str, PropertyValue] = field(factory=dict)
    clustering_order: tuple[tuple[str, bool], ...] = ()
    compact_storage: bool = False


@frozen
class ColumnDefinition:
    """A column of CREATE TABLE or ALTER TABLE ADD; `is_key` if it is the whole primary key."""

    name: str
    type: str
    static: bool = False
    is_key: bool = False


@frozen
class PrimaryKey:
    """``PRIMARY KEY ((partition), clustering)``."""

    partition: tuple[str, ...]
    clustering: tuple[str, ...] = ()


@frozen
class CreateKeyspace:
    """CREATE KEYSPACE."""

    name: str
    properties: Properties
    if_not_exists: bool = False


@frozen
class AlterKeyspace:
    """ALTER KEYSPACE."""

    name: str
    properties: Properties


@frozen
class DropKeyspace:
    """DROP KEYSPACE."""

    name: str
    if_exists: bool = False


@frozen
class CreateTable:
    """CREATE TABLE; the text may have no primary key or several, which the server refuses."""

    table: TableName
    columns: tuple[ColumnDefinition, ...]
    primary_keys: tuple[PrimaryKey, ...]
    properties: Properties = Properties()
    if_not_exists: bool = False


@frozen
class AddColumns:
    """ALTER TABLE ... ADD."""

    table: TableName
    columns: tuple[ColumnDefinition, ...]


@frozen
class DropColumns:
    """ALTER TABLE ... DROP."""

    table: TableName
    columns: tuple[str, ...]


@frozen
class RenameColumns:
    """ALTER TABLE ... RENAME, as (old, new)."""

    table: TableName
    renames: tuple[tuple[str, str], ...]


@frozen
class AlterColumnType:
    """ALTER TABLE ... ALTER ... TYPE."""

    table: TableName
    column: str
    type: str


@frozen
class AlterProperties:
    """ALTER TABLE ... WITH."""

    table: TableName
    properties: Properties


@frozen
class DropTable:
    """DROP TABLE."""

    table: TableName
    if_exists: bool = False


@frozen
class CreateType:
    """CREATE TYPE, with (field, type)."""

    type: TableName
    fields: tuple[tuple[str, str], ...]
    if_not_exists: bool = False


@frozen
class AddField:
    """ALTER TYPE ... ADD."""

    type: TableName
    name: str
    field_type: str


@frozen
class RenameFields:
    """ALTER TYPE ... RENAME, as (old, new)."""

    type: TableName
    renames: tuple[tuple[str, str], ...]


@frozen
class DropType:
    """DROP TYPE."""

    type: TableName
    if_exists: bool = False


@frozen
class Use:
    """USE."""

    keyspace: str


@frozen
class Truncate:
    """TRUNCATE."""

    table: TableName


@frozen
class Describe:
    """DESCRIBE of `what`: a list such as TABLES, a kind of element, or ANY element by its name.

    A KEYSPACE without a name is the connection's own; `only` leaves out its contents.
    """

    what: str
    name: TableName | None = None
    only: bool = False


@frozen
class Unsupported:
    """A statement of CQL that this server does not support; `what` names it.

    For a view also the table it reads, and whether it has CDC.
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

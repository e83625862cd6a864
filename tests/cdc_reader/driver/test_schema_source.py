"""Schemas of real tables, and the error that each unreadable one has."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from cdc_reader.config import ConnectionConfig, ReadConfig
from cdc_reader.cql_type import UserType, parse
from cdc_reader.driver import Connection, SchemaSource
from cdc_reader.errors import CdcNotEnabledError, TableNotFoundError, UnsupportedTableError
from cdc_reader.ids import TableName
from cdc_reader.schema import ColumnKind, ImageMode, LogSchema

if TYPE_CHECKING:
    from cdc_reader.testing import Scylla


@pytest.fixture
def connection(way: ConnectionConfig) -> Iterator[Connection]:
    """A connection of the test's own."""
    connection = Connection(way, ReadConfig())
    yield connection
    connection.close()


def test_a_log_schema_has_every_column_with_its_type(
    scylla: Scylla, keyspace: str, connection: Connection
) -> None:
    """Of base and log, in the server's order, user-defined types resolved."""
    scylla.session.execute(f"CREATE TYPE {keyspace}.inner (x int)")
    scylla.session.execute(
        f'CREATE TYPE {keyspace}."Outer" (i frozen<inner>, "T" frozen<set<text>>)'
    )
    scylla.session.execute(
        f'CREATE TABLE {keyspace}."MyT" (p int, c text, "V" list<int>, s map<int, text> static, '
        'u "Outer", PRIMARY KEY (p, c)) WITH CLUSTERING ORDER BY (c DESC) '
        "AND cdc = {'enabled': true, 'preimage': 'full', 'ttl': 60}"
    )
    schema = SchemaSource(connection).log_schema(TableName(keyspace, "MyT"))
    assert schema.base.cdc.enabled
    assert (schema.base.cdc.preimage, schema.base.cdc.ttl) == (ImageMode.FULL, 60)
    assert [(column.name, column.kind) for column in schema.base.columns] == [
        ("p", ColumnKind.PARTITION_KEY),
        ("c", ColumnKind.CLUSTERING),
        ("s", ColumnKind.STATIC),
        ("V", ColumnKind.REGULAR),
        ("u", ColumnKind.REGULAR),
    ]
    assert [column.name for column in schema.base.columns if column.descending] == ["c"]
    inner = UserType(keyspace, "inner", (("x", parse("int")),), frozen=True)
    outer = UserType(keyspace, "Outer", (("i", inner), ("T", parse("frozen<set<text>>"))))
    assert {column.name: column.type for column in schema.base.columns}["u"] == outer
    assert _types(schema) == {
        "cdc$stream_id": "blob",
        "cdc$time": "timeuuid",
        "cdc$batch_seq_no": "int",
        "V": "frozen<map<timeuuid, int>>",
        "c": "text",
        "cdc$deleted_V": "boolean",
        "cdc$deleted_elements_V": "frozen<set<timeuuid>>",
        "cdc$deleted_elements_s": "frozen<set<int>>",
        "cdc$deleted_elements_u": "frozen<set<smallint>>",
        "cdc$deleted_s": "boolean",
        "cdc$deleted_u": "boolean",
        "cdc$end_of_batch": "boolean",
        "cdc$operation": "tinyint",
        "cdc$ttl": "bigint",
        "p": "int",
        "s": "frozen<map<int, text>>",
        "u": 'frozen<"Outer">',
    }
    cursor = scylla.session.execute(f'SELECT * FROM {keyspace}."MyT_scylla_cdc_log"')
    names = [column.name for column in schema.columns]
    assert names == [name.replace("cdc_", "cdc$", 1) for name in cursor.column_names] or (
        names == cursor.column_names
    )


def _types(schema: LogSchema) -> dict[str, str]:
    return {column.name: str(column.type) for column in schema.columns}


def test_a_missing_table_is_told_with_the_nearest_name(
    scylla: Scylla, keyspace: str, connection: Connection
) -> None:
    """And a missing keyspace as such."""
    scylla.session.execute(f"CREATE TABLE {keyspace}.orders (p int PRIMARY KEY)")
    schemas = SchemaSource(connection)
    with pytest.raises(TableNotFoundError, match="order was not found; did you mean orders"):
        schemas.log_schema(TableName(keyspace, "order"))
    with pytest.raises(TableNotFoundError, match=r"keyspace nonesuch of table nonesuch\.t"):
        schemas.log_schema(TableName("nonesuch", "t"))


def test_a_table_without_cdc_is_told_how_to_turn_it_on(
    scylla: Scylla, keyspace: str, connection: Connection
) -> None:
    """With the statement to run."""
    scylla.session.execute(f"CREATE TABLE {keyspace}.t (p int PRIMARY KEY)")
    remedy = f'ALTER TABLE "{keyspace}"."t" WITH cdc'
    with pytest.raises(CdcNotEnabledError, match=remedy):
        SchemaSource(connection).log_schema(TableName(keyspace, "t"))


def test_a_log_table_is_told_its_base_table(
    scylla: Scylla, keyspace: str, connection: Connection
) -> None:
    """Reading a log of a log makes no sense."""
    scylla.session.execute(
        f"CREATE TABLE {keyspace}.t (p int PRIMARY KEY) WITH cdc = {{'enabled': true}}"
    )
    with pytest.raises(UnsupportedTableError, match=rf"give its base table, {keyspace}\.t$"):
        SchemaSource(connection).log_schema(TableName(keyspace, "t_scylla_cdc_log"))


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        (
            "x map<int, int>, elements_x int",
            r"column x .* and column elements_x both need the log column cdc\$deleted_elements_x: ",
        ),
        (
            'v int, "cdc$deleted_v" int',
            r"column v .* and column cdc\$deleted_v both need the log column cdc\$deleted_v: ",
        ),
        (
            '"cdc$time" int',
            r"column cdc\$time .* and the log itself both need .*: rename cdc\$time",
        ),
    ],
)
def test_columns_that_share_a_name_in_the_log_are_told(
    scylla: Scylla, keyspace: str, connection: Connection, columns: str, expected: str
) -> None:
    """With both columns, for the log's column under that name would be either's."""
    scylla.session.execute(
        f"CREATE TABLE {keyspace}.t (p int PRIMARY KEY, {columns}) WITH cdc = {{'enabled': true}}"
    )
    with pytest.raises(UnsupportedTableError, match=expected) as told:
        SchemaSource(connection).log_schema(TableName(keyspace, "t"))
    assert "\n" not in str(told.value)


def test_columns_that_only_look_alike_are_read(
    scylla: Scylla, keyspace: str, connection: Connection
) -> None:
    """A key has no marks of deletion, a frozen map no deleted elements."""
    scylla.session.execute(
        f'CREATE TABLE {keyspace}.t (p int PRIMARY KEY, "cdc$deleted_p" int, '
        "x frozen<map<int, int>>, elements_x int) WITH cdc = {'enabled': true}"
    )
    schema = SchemaSource(connection).log_schema(TableName(keyspace, "t"))
    assert "cdc$deleted_elements_x" in _types(schema)

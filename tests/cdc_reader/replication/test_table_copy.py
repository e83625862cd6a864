"""The CQL that creates a copy of a table, executed on a server."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cdc_reader.cluster import Connection, SchemaSource
from cdc_reader.config import ConnectionConfig, ReadConfig
from cdc_reader.cql.names import TableName
from cdc_reader.replication.table_copy import check_copy, creation

if TYPE_CHECKING:
    from cdc_reader.testing import Scylla

TYPES = (
    """CREATE TYPE {ks}."In ner" (x int, "Y" frozen<list<text>>)""",
    """CREATE TYPE {ks}.outer_ (
        i frozen<"In ner">, m frozen<map<text, frozen<tuple<int, frozen<"In ner">>>>>
    )""",
    'CREATE TYPE {ks}."order" (n int)',
)
TABLE = (
    'CREATE TABLE {ks}.t (a int, b text, c timeuuid, d int, o outer_, w frozen<"order">, '
    'f frozen<set<frozen<"In ner">>>, "select" decimal static, '
    "PRIMARY KEY ((b, a), d, c)) WITH CLUSTERING ORDER BY (d DESC, c ASC)"
)


def test_a_copy_has_the_columns_and_key_of_its_source(
    scylla: Scylla, keyspace: str, connection: ConnectionConfig
) -> None:
    """A copy has its source's columns and key. Its types are created in dependency order."""
    for statement in (*TYPES, TABLE):
        scylla.session.execute(statement.format(ks=keyspace))
    opened = Connection(connection, ReadConfig())
    schemas = SchemaSource(opened)
    other = f"{keyspace}_copy"
    scylla.session.execute(
        f"CREATE KEYSPACE {other} WITH replication = "
        "{'class': 'NetworkTopologyStrategy', 'replication_factor': 1}"
    )
    try:
        schema, name = schemas.table_schema(TableName(keyspace, "t")), TableName(other, "Copy")
        for statement in creation(schema, name, {}).split("; "):
            scylla.session.execute(statement)
        made = schemas.table_schema(name)
        check_copy(schema, made, {})
        facts = [(c.name, str(c.type), c.kind, c.position, c.descending) for c in schema.columns]
        assert facts == [
            (c.name, str(c.type), c.kind, c.position, c.descending) for c in made.columns
        ]
    finally:
        opened.close()
        scylla.session.execute(f"DROP KEYSPACE {other}")

"""The tables that patterns find on a real server."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cdc_reader.cluster import Connection, SchemaSource
from cdc_reader.config import ReadConfig
from cdc_reader.cql.discovery import Discovery
from cdc_reader.cql.names import TableName
from cdc_reader.errors import CdcNotEnabledError, TableNotFoundError

if TYPE_CHECKING:
    from cdc_reader.config import ConnectionConfig
    from cdc_reader.testing import Scylla

WITH_LOG = "WITH cdc = {'enabled': true}"


def test_only_tables_with_a_log_are_found(
    scylla: Scylla, keyspace: str, connection: ConnectionConfig
) -> None:
    """Logs, tables without a log and named tables are not found; views are no tables."""
    for statement in (
        f"CREATE TABLE {{k}}.a (p int PRIMARY KEY) {WITH_LOG}",
        f'CREATE TABLE {{k}}."B" (p int PRIMARY KEY) {WITH_LOG}',
        f"CREATE TABLE {{k}}.named (p int PRIMARY KEY) {WITH_LOG}",
        "CREATE TABLE {k}.plain (p int PRIMARY KEY)",
        "CREATE TABLE {k}.visits (p int PRIMARY KEY, n counter)",
        "CREATE TABLE {k}.x_scylla_cdc_log (p int PRIMARY KEY)",
    ):
        scylla.session.execute(statement.replace("{k}", keyspace))
    names = [TableName(keyspace, name) for name in ("*", "a*", "named")]
    opened = Connection(connection, ReadConfig())
    found = Discovery([*names, TableName("nowhere", "*")]).look(SchemaSource(opened).logged)
    opened.close()
    assert found == [TableName(keyspace, "B"), TableName(keyspace, "a")]


def test_a_table_is_found_until_it_is_taken_or_left_out(
    scylla: Scylla,
    keyspace: str,
    connection: ConnectionConfig,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A table that was left out is found again if it was gone meanwhile."""
    execute, name = scylla.session.execute, TableName(keyspace, "t")
    create = f"CREATE TABLE {name} (p int PRIMARY KEY) {WITH_LOG}"
    execute(create)
    found, opened = Discovery([TableName(keyspace, "*")]), Connection(connection, ReadConfig())
    logged = SchemaSource(opened).logged
    assert found.look(logged) == found.look(logged) == [name]
    found.take(name)
    assert found.look(logged) == []
    found.leave_out(name, CdcNotEnabledError("it has no log"))
    assert found.look(logged) == []
    execute(f"DROP TABLE {name}")
    assert found.look(logged) == []
    execute(create)
    assert found.look(logged) == [name]
    found.take(name)
    found.leave_out(name, TableNotFoundError("it was dropped"))
    opened.close()
    told = f"event='table_left_out' table='{name}' reason='it has no log'"
    assert [text for text in caplog.messages if "left_out" in text] == [told]

"""Readers of a table that is altered or dropped."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from cdc_reader._time import BEGINNING, FOREVER
from cdc_reader.cluster import CdcTable, Connection
from cdc_reader.config import ConnectionConfig, ReadConfig
from cdc_reader.cql.names import TableName
from cdc_reader.decoding import arrow_schema
from cdc_reader.errors import (
    CdcNotEnabledError,
    QueryRefusedError,
    TableNotFoundError,
)
from cdc_reader.reading.ports import LogSource, LogTable
from cdc_reader.streams.task import RangeTask
from cdc_reader.streams.window import Window

if TYPE_CHECKING:
    from cdc_reader.testing import Scylla

RING = RangeTask(Window(BEGINNING, FOREVER), -(1 << 63), (1 << 63) - 1)
PATIENT = ReadConfig(retry_deadline=timedelta(minutes=2))
"""A long deadline: if an error were retried until the deadline, the test would time out."""


@pytest.fixture
def run(scylla: Scylla, keyspace: str) -> Callable[[str], None]:
    """A function that executes a statement, in which ``{ks}`` stands for the keyspace."""
    return lambda cql: scylla.session.execute(cql.replace("{ks}", keyspace))


@pytest.fixture
def table(
    run: Callable[[str], None], connection: ConnectionConfig, keyspace: str
) -> Iterator[LogTable]:
    """A table with one row in its log."""
    run("CREATE TABLE {ks}.t (p int PRIMARY KEY, v int, w int) WITH cdc = {'enabled': true}")
    run("INSERT INTO {ks}.t (p, v) VALUES (1, 2)")
    opened = Connection(connection, PATIENT)
    yield CdcTable(opened, TableName(keyspace, "t"))
    opened.close()


def count(source: LogSource) -> int:
    """Return the number of rows in the log."""
    return sum(batch.num_rows for batch in source.read(RING))


def test_a_table_has_its_schema_its_generations_and_its_rows(table: LogTable) -> None:
    """A `LogTable` provides what a follower needs: a schema, generations, and a source of rows."""
    schema = table.schema()
    [batch] = table.source(schema).read(RING)
    assert batch.schema == arrow_schema(schema.columns)
    assert table.generations.groups(max(table.generations.timestamps()))


def test_the_schema_version_changes_with_any_schema(
    run: Callable[[str], None], table: LogTable
) -> None:
    """The schema version changes with each schema change, and only then."""
    first = table.schema_version()
    # On a shared server, another client may change the schema between the two calls: try again.
    assert any(table.schema_version() == table.schema_version() for _ in range(50))
    run("ALTER TABLE {ks}.t ADD x int")
    assert table.schema_version() != first


@pytest.mark.parametrize("is_warm", [False, True])
def test_a_query_with_a_dropped_column_is_refused(
    run: Callable[[str], None], table: LogTable, is_warm: bool
) -> None:
    """A query with a dropped column is rejected, whether prepared before or after the drop."""
    source = table.source(table.schema())
    assert not is_warm or count(source) == 1
    run("ALTER TABLE {ks}.t DROP w")
    with pytest.raises(QueryRefusedError, match=r"reading .*\.t_scylla_cdc_log: .*w"):
        count(source)
    schema = table.schema()
    assert "w" not in [column.name for column in schema.columns]
    assert count(table.source(schema)) == 1


@pytest.mark.parametrize("is_warm", [False, True])
def test_a_dropped_table_is_raised_at_once(
    run: Callable[[str], None], table: LogTable, is_warm: bool
) -> None:
    """After the server rejects the query, the reader reports that the table was dropped."""
    source = table.source(table.schema())
    assert not is_warm or count(source) == 1
    run("DROP TABLE {ks}.t")
    with pytest.raises(QueryRefusedError, match="reading "):
        count(source)
    with pytest.raises(TableNotFoundError, match="was not found"):
        table.schema()


def test_a_dropped_log_counts_as_cdc_not_enabled(
    run: Callable[[str], None], table: LogTable
) -> None:
    """If only the log was dropped, the error says that CDC is not enabled."""
    run("ALTER TABLE {ks}.t WITH cdc = {'enabled': false}")
    run("DROP TABLE {ks}.t_scylla_cdc_log")
    with pytest.raises(CdcNotEnabledError):
        table.schema()

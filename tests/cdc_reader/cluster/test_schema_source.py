"""Schemas of real tables, and errors for tables that cannot be read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING
from uuid import UUID

import pytest
from attrs import evolve

from cdc_reader import CdcReader
from cdc_reader.cluster import Connection, SchemaSource
from cdc_reader.config import ConnectionConfig, ReadConfig
from cdc_reader.cql.names import TableName
from cdc_reader.cql.schema import ColumnKind, ImageMode, LogSchema, TableState
from cdc_reader.cql.types import UserType, parse
from cdc_reader.errors import CdcNotEnabledError, TableNotFoundError, UnsupportedTableError
from cdc_reader.testing import EmbeddedScylla

if TYPE_CHECKING:
    from cdc_reader.testing import Scylla


@pytest.fixture
def opened(connection: ConnectionConfig) -> Iterator[Connection]:
    """A separate connection for each test."""
    opened = Connection(connection, ReadConfig())
    yield opened
    opened.close()


def test_a_table_has_its_id_and_time_of_alteration(
    scylla: Scylla, keyspace: str, opened: Connection
) -> None:
    """ALTER keeps a table's id and updates its time of alteration.

    A recreated table has a new id.
    """
    name, source = TableName(keyspace, "t"), SchemaSource(opened)
    create = f"CREATE TABLE {name} (p int PRIMARY KEY) WITH cdc = {{'enabled': true}}"
    scylla.session.execute(create)
    made = source.state(name)
    scylla.session.execute(f"ALTER TABLE {name} WITH cdc = {{'enabled': true, 'ttl': 60}}")
    altered = source.state(name)
    schema = source.log_schema(name).base
    assert (made.cdc.ttl, altered.cdc.ttl, made.id) == (86_400, 60, altered.id)
    assert made.altered is not None
    assert altered.altered is not None
    assert made.altered < altered.altered
    known = TableState(schema.id or UUID(int=0), schema.cdc, schema.altered, schema.log_id)
    assert known == altered
    assert made.log_id == altered.log_id != made.id
    scylla.session.execute(f"DROP TABLE {name}")
    scylla.session.execute(create)
    again = source.state(name)
    assert again.id != altered.id
    assert None not in {again.log_id, altered.log_id}
    assert again.log_id != altered.log_id


def test_a_log_schema_has_every_column_with_its_type(
    scylla: Scylla, keyspace: str, opened: Connection
) -> None:
    """The schema contains all columns of base table and log, in the server's order.

    User-defined types are resolved.
    """
    scylla.session.execute(f"CREATE TYPE {keyspace}.inner (x int)")
    scylla.session.execute(
        f'CREATE TYPE {keyspace}."Outer" (i frozen<inner>, "T" frozen<set<text>>)'
    )
    scylla.session.execute(
        f'CREATE TABLE {keyspace}."MyT" (p int, c text, "V" list<int>, s map<int, text> static, '
        'u "Outer", PRIMARY KEY (p, c)) WITH CLUSTERING ORDER BY (c DESC) '
        "AND cdc = {'enabled': true, 'preimage': 'full', 'ttl': 60}"
    )
    schema = SchemaSource(opened).log_schema(TableName(keyspace, "MyT"))
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


def test_an_error_about_a_missing_table_suggests_the_nearest_name(
    scylla: Scylla, keyspace: str, opened: Connection
) -> None:
    """The error for a missing table suggests the most similar name.

    The error for a missing keyspace names the keyspace.
    """
    scylla.session.execute(f"CREATE TABLE {keyspace}.orders (p int PRIMARY KEY)")
    schemas = SchemaSource(opened)
    with pytest.raises(TableNotFoundError, match=r"order was not found at .*; did you mean orders"):
        schemas.log_schema(TableName(keyspace, "order"))
    with pytest.raises(TableNotFoundError, match=r"keyspace nonesuch of table nonesuch\.t"):
        schemas.log_schema(TableName("nonesuch", "t"))


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("visits_scylla_cdc_log", r"give its base table, \w+\.visits, which has no CDC log$"),
        ("vists_scylla_cdc_log", r"did you mean visits\?$"),
        ("visit_scylla_cdc_log", r"did you mean visits\?$"),
        ("visitors_scylla_cdc_lg", r"check its spelling"),
        ("visit*", r"name one table: only consumers, mirror and scylla-cdc tail take a pattern$"),
    ],
)
def test_no_log_is_suggested(
    scylla: Scylla, keyspace: str, opened: Connection, name: str, hint: str
) -> None:
    """The hint names base tables only, and a counter table for the log that it cannot have."""
    execute = scylla.session.execute
    execute(f"CREATE TABLE {keyspace}.visits (p int PRIMARY KEY, n counter)")
    execute(f"CREATE TABLE {keyspace}.visitors (p int PRIMARY KEY) WITH cdc = {{'enabled': true}}")
    with pytest.raises(TableNotFoundError, match=f"was not found at .*; {hint}"):
        SchemaSource(opened).log_schema(TableName(keyspace, name))


def test_an_error_about_a_table_without_cdc_says_how_to_enable_it(
    scylla: Scylla, keyspace: str, opened: Connection
) -> None:
    """An error about a table without CDC contains the ALTER statement that enables it."""
    scylla.session.execute(f"CREATE TABLE {keyspace}.t (p int PRIMARY KEY)")
    remedy = f'ALTER TABLE "{keyspace}"."t" WITH cdc'
    with pytest.raises(CdcNotEnabledError, match=remedy):
        SchemaSource(opened).log_schema(TableName(keyspace, "t"))


def test_a_counter_table_is_told_that_it_can_have_no_log(
    scylla: Scylla, keyspace: str, opened: Connection
) -> None:
    """No server accepts the ALTER statement that would enable CDC on counters."""
    scylla.session.execute(f"CREATE TABLE {keyspace}.t (p int PRIMARY KEY, n counter)")
    with pytest.raises(UnsupportedTableError, match=r"t is a counter table, which cannot have"):
        SchemaSource(opened).log_schema(TableName(keyspace, "t"))


def test_an_error_about_a_log_table_names_its_base_table(
    scylla: Scylla, keyspace: str, opened: Connection
) -> None:
    """An error about a log table names its base table, because a log has no log of its own."""
    scylla.session.execute(
        f"CREATE TABLE {keyspace}.t (p int PRIMARY KEY) WITH cdc = {{'enabled': true}}"
    )
    with pytest.raises(UnsupportedTableError, match=rf"give its base table, {keyspace}\.t$"):
        SchemaSource(opened).log_schema(TableName(keyspace, "t_scylla_cdc_log"))


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
def test_columns_that_share_a_name_in_the_log_are_refused(
    scylla: Scylla, keyspace: str, opened: Connection, columns: str, expected: str
) -> None:
    """Two columns that would share a name in the log are rejected, and the error names both.

    The test never enables CDC, because some servers crash on these tables and others reject them.
    Instead, the test creates a table that looks like a log.
    """
    scylla.session.execute(f"CREATE TABLE {keyspace}.t (p int PRIMARY KEY, {columns})")
    scylla.session.execute(
        f'CREATE TABLE {keyspace}.t_scylla_cdc_log ("cdc$stream_id" blob PRIMARY KEY, p int)'
    )
    with pytest.raises(UnsupportedTableError, match=expected) as told:
        SchemaSource(opened).log_schema(TableName(keyspace, "t"))
    assert "\n" not in str(told.value)


def test_columns_that_only_look_alike_are_read(
    scylla: Scylla, keyspace: str, opened: Connection
) -> None:
    """Column names that only resemble those of log columns are accepted.

    A log has no `cdc$deleted_` column for a key column, and no `cdc$deleted_elements_` column for a
    frozen map.
    """
    scylla.session.execute(
        f'CREATE TABLE {keyspace}.t (p int PRIMARY KEY, "cdc$deleted_p" int, '
        "x frozen<map<int, int>>, elements_x int) WITH cdc = {'enabled': true}"
    )
    schema = SchemaSource(opened).log_schema(TableName(keyspace, "t"))
    assert "cdc$deleted_elements_x" in _types(schema)


@pytest.fixture
def server() -> Iterator[EmbeddedScylla]:
    """A server of the newest version, with a table that has CDC enabled."""
    with EmbeddedScylla() as server:
        server.execute(
            "CREATE KEYSPACE ks WITH replication = "
            "{'class': 'NetworkTopologyStrategy', 'replication_factor': 1}"
        )
        server.execute("CREATE TABLE ks.t (p int PRIMARY KEY, v int) WITH cdc = {'enabled': true}")
        yield server


def keys_in(server: EmbeddedScylla, table: str) -> list[int]:
    """Return the keys of all rows in a table's log."""
    with CdcReader(server.contact_point, table) as reader:
        return [row["p"] for batch in reader.batches() for row in batch.to_pylist()]


def test_a_log_that_is_no_longer_written_is_read_with_a_warning(
    server: EmbeddedScylla, caplog: pytest.LogCaptureFixture
) -> None:
    """If CDC is off, a warning says what the log still contains and how to log more changes."""
    server.execute("INSERT INTO ks.t (p) VALUES (1)")
    server.execute("ALTER TABLE ks.t WITH cdc = {'enabled': false}")
    server.execute("INSERT INTO ks.t (p) VALUES (2)")
    assert keys_in(server, "ks.t") == [1]
    [warning] = [line for line in caplog.messages if "cdc_is_off" in line]
    assert "its log keeps the rows it has, and gets no new ones" in warning
    assert "to log new changes, enable cdc on the table" in warning


def list_index(server: EmbeddedScylla, table: str, class_name: str) -> None:
    """Add an index of this class to the server's schema.

    The index contains nothing, but it may keep CDC on.
    """
    keyspace = server.catalog.keyspace("ks")
    indexes = {"by_v": {"class_name": class_name}}
    keyspace.tables[table] = evolve(keyspace.tables[table], indexes=indexes)


@pytest.mark.parametrize("options", ["{'enabled': false, 'ttl': 90000}", None])
@pytest.mark.parametrize("index", ["vector_index", "fulltext_index"])
def test_an_index_that_is_built_from_the_log_keeps_it_on(
    server: EmbeddedScylla, caplog: pytest.LogCaptureFixture, options: str | None, index: str
) -> None:
    """An index built from the log keeps CDC on, with the table's options or the defaults."""
    name = "t" if options else "u"
    if options:
        server.execute(f"ALTER TABLE ks.t WITH cdc = {options}")
    else:
        server.execute("CREATE TABLE ks.u (p int PRIMARY KEY, v int)")
    list_index(server, name, index)
    server.execute(f"ALTER TABLE ks.{name} ADD w int")
    server.execute(f"INSERT INTO ks.{name} (p) VALUES (1)")
    assert keys_in(server, f"ks.{name}") == [1]
    with CdcReader(server.contact_point, f"ks.{name}") as reader:
        cdc = reader.table.schema.base.cdc
    assert (cdc.enabled, cdc.ttl) == (True, 90_000 if options else 86_400)
    assert "cdc_is_off" not in caplog.text


def test_other_indexes_do_not_keep_a_log_on(
    server: EmbeddedScylla, caplog: pytest.LogCaptureFixture
) -> None:
    """Other indexes are not built from the log, so they do not keep CDC on."""
    server.execute("ALTER TABLE ks.t WITH cdc = {'enabled': false}")
    list_index(server, "t", "org.apache.cassandra.index.sasi.SASIIndex")
    assert keys_in(server, "ks.t") == []
    assert "cdc_is_off" in caplog.text


def create_on_tablets(server: EmbeddedScylla, consistency: str) -> None:
    """Create table `tk.t` with a row, in a keyspace with this consistency option."""
    server.execute(
        "CREATE KEYSPACE tk WITH replication = "
        "{'class': 'NetworkTopologyStrategy', 'replication_factor': 1} "
        f"AND tablets = {{'initial': 1}} AND consistency = '{consistency}'"
    )
    server.execute("CREATE TABLE tk.t (p int PRIMARY KEY) WITH cdc = {'enabled': true}")
    server.execute("INSERT INTO tk.t (p) VALUES (1)")


@pytest.mark.parametrize("consistency", ["local", "global"])
def test_a_keyspace_that_logs_no_writes_is_refused(
    server: EmbeddedScylla, consistency: str
) -> None:
    """A keyspace whose consistency option prevents logging is rejected."""
    create_on_tablets(server, consistency)
    assert server.execute("SELECT * FROM tk.t_scylla_cdc_log") == []
    expected = f"keyspace tk .* has consistency '{consistency}', and ScyllaDB logs no writes"
    with (
        CdcReader(server.contact_point, "tk.t") as reader,
        pytest.raises(UnsupportedTableError, match=expected),
    ):
        next(reader.follow())


def test_a_keyspace_of_eventual_consistency_is_read(server: EmbeddedScylla) -> None:
    """A keyspace with eventual consistency is read, whether the option is explicit or default."""
    create_on_tablets(server, "eventual")
    assert keys_in(server, "tk.t") == [1]

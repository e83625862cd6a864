"""Tests the effects, notifications and errors of schema statements."""

from typing import Any

import pytest

from cdc_reader.cql import timeuuid
from cdc_reader.cql.types import UserType
from cdc_reader.testing.embedded.profile import profile
from cdc_reader.testing.embedded.schema.catalog import Catalog, SchemaChange

SYNTAX, UNAUTHORIZED, INVALID, CONFIGURATION, EXISTS = 0x2000, 0x2100, 0x2200, 0x2300, 0x2400
CDC = "WITH cdc = {'enabled': true}"
LOG = "t_scylla_cdc_log"


@pytest.fixture
def cdc(shell: Any) -> Any:
    """An engine with a table `t` that has CDC."""
    shell.run(f"CREATE TABLE t (pk int, ck int, a int, PRIMARY KEY (pk, ck)) {CDC}")
    shell.changes.clear()
    return shell


def columns(shell: Any, table: str) -> set[str]:
    """Return the names of a table's columns."""
    return set(shell.catalog.table("ks", table).by_name)


def test_a_table_with_cdc_brings_its_log(shell: Any) -> None:
    """CREATE TABLE creates the table and then its log, and notifies listeners in this order."""
    shell.changes.clear()
    result = shell.run(f"CREATE TABLE t (pk int PRIMARY KEY) {CDC}")
    assert result == SchemaChange("CREATED", "TABLE", "ks", "t")
    assert shell.changes == [result, SchemaChange("CREATED", "TABLE", "ks", LOG)]
    assert shell.catalog.table("ks", LOG).is_cdc_log


def test_a_tables_id_holds_its_time_of_creation(shell: Any) -> None:
    """A table's id contains its creation time, according to the cluster's clock.

    A log is created when CDC is enabled, so it may be newer than its base table.
    """
    shell.run("CREATE TABLE t (pk int PRIMARY KEY)")
    base = shell.now_us
    shell.now_us += 3_600_000_000
    shell.run(f"ALTER TABLE t {CDC}")
    ids = [shell.catalog.table("ks", name).id for name in ("t", LOG)]
    assert [timeuuid.micros(id_.bytes) for id_ in ids] == [base, shell.now_us]
    assert [id_.version for id_ in ids] == [1, 1]


def test_the_log_follows_its_base(cdc: Any) -> None:
    """ADD, DROP and RENAME of base columns change the log's columns."""
    cdc.run("ALTER TABLE t ADD (b int, m map<int, text>)")
    assert columns(cdc, LOG) >= {"b", "cdc$deleted_b", "m", "cdc$deleted_elements_m"}
    cdc.run("ALTER TABLE t DROP b")
    cdc.run("ALTER TABLE t RENAME ck TO k")
    assert columns(cdc, LOG) & {"b", "cdc$deleted_b", "ck", "k"} == {"k"}
    assert [(c.change, c.name) for c in cdc.changes[:2]] == [("UPDATED", "t"), ("UPDATED", LOG)]


def test_a_column_dropped_and_added_again_is_empty(cdc: Any) -> None:
    """A new column does not show the values of a dropped column with the same name."""
    cdc.run("INSERT INTO t (pk, ck, a) VALUES (1, 1, 7)")
    cdc.run("ALTER TABLE t DROP a")
    cdc.now_us += 5_000_000
    cdc.run("ALTER TABLE t ADD a int")
    assert cdc.ints("SELECT a FROM t") == [(None,)]
    assert cdc.ints(f"SELECT a FROM {LOG}") == [(None,)]


def test_disabling_keeps_the_log(cdc: Any) -> None:
    """After CDC is disabled, the log can be dropped. Enabling CDC again reuses an existing log."""
    log = cdc.catalog.table("ks", LOG)
    cdc.run("ALTER TABLE t WITH cdc = {'enabled': false}")
    cdc.run("INSERT INTO t (pk, ck) VALUES (1, 1)")
    assert cdc.rows(f"SELECT * FROM {LOG}") == []
    cdc.run(f"ALTER TABLE t {CDC}")
    assert cdc.catalog.table("ks", LOG).id == log.id
    cdc.run("ALTER TABLE t WITH cdc = {'enabled': 'false'}")
    cdc.run(f"DROP TABLE {LOG}")
    assert LOG not in cdc.catalog.keyspaces["ks"].tables


def test_dropping_a_table_drops_its_log(cdc: Any) -> None:
    """A table and its log are removed with their data, and listeners are notified of both."""
    cdc.run("INSERT INTO t (pk, ck) VALUES (1, 1)")
    cdc.run("DROP TABLE t")
    assert cdc.catalog.keyspaces["ks"].tables == {}
    assert cdc.database.tables == {}
    assert [(c.change, c.name) for c in cdc.changes] == [("DROPPED", "t"), ("DROPPED", LOG)]


def test_a_changed_type_changes_in_every_table(shell: Any) -> None:
    """ALTER TYPE affects columns, nested types and logs. An added field is null in old values."""
    shell.run("CREATE TYPE u (x int)")
    shell.run("CREATE TYPE outer_u (inner_u frozen<u>)")
    shell.run(f"CREATE TABLE t (pk int PRIMARY KEY, v u, w frozen<list<outer_u>>) {CDC}")
    shell.run("INSERT INTO t (pk, v) VALUES (1, {x: 1})")
    shell.run("ALTER TYPE u ADD y text")
    u = shell.catalog.table("ks", LOG).by_name["v"].type
    assert isinstance(u, UserType)
    assert u.frozen
    assert [name for name, _ in u.fields] == ["x", "y"]
    assert "y" in repr(shell.catalog.table("ks", "t").by_name["w"].type)
    assert shell.rows("SELECT JSON v FROM t") == [(b'{"v": {"x": 1, "y": null}}',)]
    shell.run("ALTER TYPE u RENAME x TO z")
    assert shell.rows("SELECT JSON v FROM t") == [(b'{"v": {"z": 1, "y": null}}',)]


def test_dropping_a_keyspace_drops_all(cdc: Any) -> None:
    """DROP KEYSPACE drops the keyspace with its tables, logs and data."""
    assert cdc.run("DROP KEYSPACE ks") == SchemaChange("DROPPED", "KEYSPACE", "ks")
    assert cdc.refusal("SELECT * FROM t") == (INVALID, "Keyspace ks does not exist")


def test_keyspace_properties(shell: Any) -> None:
    """CREATE KEYSPACE stores the requested properties, with the replication class's full name."""
    shell.run(
        "CREATE KEYSPACE k2 WITH replication = "
        "{'class': 'NetworkTopologyStrategy', 'replication_factor': 3} "
        "AND tablets = {'enabled': true, 'initial': 8} AND durable_writes = false"
    )
    keyspace = shell.catalog.keyspaces["k2"]
    assert keyspace.replication == {
        "class": "org.apache.cassandra.locator.NetworkTopologyStrategy",
        "datacenter1": "3",
    }
    assert (keyspace.tablets, keyspace.durable_writes) == (8, False)
    shell.run("ALTER KEYSPACE k2 WITH durable_writes = true")
    assert keyspace.durable_writes


@pytest.mark.parametrize(
    ("cql", "code", "message"),
    [
        (
            (
                "CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', "
                "'replication_factor': 1}"
            ),
            EXISTS,
            'Cannot add existing keyspace "ks"',
        ),
        (
            "CREATE KEYSPACE k2 WITH replication = {'class': 'NetworkTopologyStrategy', 'dc2': 1}",
            CONFIGURATION,
            "Unrecognized strategy option {dc2} passed to NetworkTopologyStrategy",
        ),
        (
            "CREATE TABLE t (pk int PRIMARY KEY)",
            EXISTS,
            'Cannot add already existing table "t" to keyspace "ks"',
        ),
        ("CREATE TABLE x (pk int)", INVALID, "No PRIMARY KEY specifed (exactly one required)"),
        (
            "CREATE TABLE x (pk int PRIMARY KEY, PRIMARY KEY (pk))",
            INVALID,
            "Multiple PRIMARY KEYs specifed (exactly one required)",
        ),
        (
            "CREATE TABLE x (pk int, PRIMARY KEY (nope))",
            INVALID,
            "Unknown definition nope referenced in PRIMARY KEY",
        ),
        (
            "CREATE TABLE x (pk int PRIMARY KEY, pk int)",
            INVALID,
            "Multiple definition of identifier pk",
        ),
        (
            "CREATE TABLE x (pk set<int> PRIMARY KEY)",
            INVALID,
            "Invalid non-frozen collection type for PRIMARY KEY component pk",
        ),
        (
            "CREATE TABLE x (pk duration PRIMARY KEY)",
            INVALID,
            "duration type is not supported for PRIMARY KEY part pk",
        ),
        (
            "CREATE TABLE x (pk int PRIMARY KEY, s int static)",
            INVALID,
            (
                "Static columns are only useful (and thus allowed) if the table has at least one "
                "clustering column"
            ),
        ),
        (
            "CREATE TABLE x (pk int PRIMARY KEY, c counter, v int)",
            CONFIGURATION,
            "Cannot add a non counter column (v) in a counter column family",
        ),
        ("CREATE TABLE x (pk int PRIMARY KEY, v nope)", INVALID, "Unknown type ks.nope"),
        (
            "CREATE TABLE x (pk int PRIMARY KEY, v list<set<int>>)",
            INVALID,
            (
                "Non-frozen user types or collections are not allowed inside collections: "
                "list<set<int>>"
            ),
        ),
        ("CREATE TABLE x (pk int PRIMARY KEY) WITH bogus = 1", SYNTAX, "Unknown property 'bogus'"),
        (
            "CREATE TABLE x (a int, b int, PRIMARY KEY (a, b)) WITH CLUSTERING ORDER BY (a ASC)",
            INVALID,
            "Only clustering key columns can be defined in CLUSTERING ORDER directive",
        ),
        (
            f"CREATE TABLE x (pk int PRIMARY KEY, c counter) {CDC}",
            INVALID,
            "Cannot create CDC log for table ks.x. Counter support not implemented",
        ),
        (
            "CREATE TABLE x (pk int PRIMARY KEY) WITH cdc = {'enabled': 'maybe'}",
            CONFIGURATION,
            'Invalid value for CDC option "enabled": maybe',
        ),
        (
            "ALTER TABLE t WITH cdc = {'preimage': true}",
            INVALID,
            'Altering CDC options requires specyfing "enabled" flag',
        ),
        (
            f"ALTER TABLE {LOG} {CDC}",
            INVALID,
            (
                f"Cannot create a CDC log for a table ks.{LOG}, "
                "because creating nested CDC logs is not allowed"
            ),
        ),
        (
            f"ALTER TABLE {LOG} ADD b int",
            INVALID,
            (
                "You cannot modify the set of columns of a CDC "
                "log table directly. Modify the base table instead."
            ),
        ),
        (
            f'ALTER TABLE {LOG} RENAME "cdc$time" TO x',
            INVALID,
            "Cannot rename a column of a CDC log table.",
        ),
        (
            "ALTER TABLE t ADD a text",
            INVALID,
            "Invalid column name a because it conflicts with an existing column",
        ),
        ("ALTER TABLE t DROP nope", INVALID, "Column nope was not found in table t"),
        ("ALTER TABLE t DROP pk", INVALID, "Cannot drop PRIMARY KEY part pk"),
        ("ALTER TABLE t RENAME a TO b", INVALID, "Cannot rename non PRIMARY KEY part a"),
        (f"DROP TABLE {LOG}", UNAUTHORIZED, f"Cannot DROP cdc log table {LOG}"),
        ("DROP TABLE nope", INVALID, "Cannot drop non existing table 'nope' in keyspace 'ks'."),
        ("DROP TYPE nope", INVALID, "No user type named ks.nope exists."),
        ("DROP KEYSPACE nope", CONFIGURATION, "Cannot drop non existing keyspace 'nope'."),
        ("USE nope", INVALID, "Keyspace 'nope' does not exist"),
        ("CREATE INDEX ON t (a)", INVALID, "CREATE INDEX is not supported by this server"),
    ],
)
def test_refusals(cdc: Any, cql: str, code: int, message: str) -> None:
    """Errors have ScyllaDB's code and message, and no listener is notified."""
    assert cdc.refusal(cql) == (code, message)
    assert cdc.changes == []


def test_a_taken_log_name_is_refused(shell: Any) -> None:
    """CDC cannot be enabled if a user's table has the log's name."""
    shell.run(f"CREATE TABLE {LOG} (pk int PRIMARY KEY)")
    message = (
        "Cannot create CDC log table for table ks.t because a table of name "
        f"ks.{LOG} already exists"
    )
    assert shell.refusal(f"CREATE TABLE t (pk int PRIMARY KEY) {CDC}") == (INVALID, message)
    shell.run("CREATE TABLE t (pk int PRIMARY KEY)")
    assert shell.refusal(f"ALTER TABLE t {CDC}") == (INVALID, message)


@pytest.mark.parametrize(
    "cql",
    [
        (
            "CREATE KEYSPACE IF NOT EXISTS ks WITH replication = {'class': 'SimpleStrategy', "
            "'replication_factor': 1}"
        ),
        "CREATE TABLE IF NOT EXISTS t (pk int PRIMARY KEY)",
        "DROP TABLE IF EXISTS nope",
        "DROP TABLE IF EXISTS nope.t",
        "DROP TYPE IF EXISTS nope",
        "DROP KEYSPACE IF EXISTS nope",
    ],
)
def test_if_exists_changes_nothing(cdc: Any, cql: str) -> None:
    """If IF [NOT] EXISTS makes a statement a no-op, no listener is notified."""
    cdc.run(cql)
    assert cdc.changes == []


@pytest.mark.parametrize(("version", "limit"), [("5.2", 48), ("2025.1", 48), ("2025.2", 192)])
def test_names_have_a_length(make_shell: Any, version: str, limit: int) -> None:
    """Names of keyspaces and tables have a maximum length, which was raised in 2025.2."""
    shell = make_shell(catalog=Catalog(profile=profile(version)))
    options = "WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}"
    shell.run(f"CREATE KEYSPACE {'k' * limit} {options}")
    shell.run(f"CREATE TABLE {'t' * limit} (pk int PRIMARY KEY)")
    name = "k" * (limit + 1)
    message = f'names shouldn\'t be more than {limit} characters long (got "{name}")'
    assert shell.refusal(f"CREATE KEYSPACE {name} {options}") == (INVALID, f"Keyspace {message}")
    assert shell.refusal(f"CREATE TABLE {name} (pk int PRIMARY KEY)") == (
        INVALID,
        f"Table {message}",
    )


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ('"a-b"', '"a-b" is not a valid keyspace name'),
        ('"ké"', '"ké" is not a valid keyspace name'),
        ("system", "system keyspace is not user-modifiable"),
        ('"System_Schema"', "system keyspace is not user-modifiable"),
    ],
)
def test_names_of_keyspaces_are_checked(shell: Any, name: str, message: str) -> None:
    """A keyspace name is checked before the properties, even with IF NOT EXISTS."""
    assert shell.refusal(f"CREATE KEYSPACE IF NOT EXISTS {name} WITH x = 1") == (INVALID, message)


def test_a_keyspace_in_use_must_exist(shell: Any) -> None:
    """USE rejects a missing keyspace. Unlike other messages, the error quotes the name."""
    assert shell.refusal("USE nowhere") == (INVALID, "Keyspace 'nowhere' does not exist")

"""Tests the effects, notifications and errors of schema statements."""

from typing import Any

import pytest

from cdc_reader.testing.embedded.profile import profile
from cdc_reader.testing.embedded.schema.catalog import Catalog

SYNTAX, UNAUTHORIZED, INVALID, CONFIGURATION, EXISTS = 0x2000, 0x2100, 0x2200, 0x2300, 0x2400
CDC = "WITH cdc = {'enabled': true}"
LOG = "t_scylla_cdc_log"


@pytest.fixture
def cdc(shell: Any) -> Any:
    """An engine with a table `t` that has CDC."""
    shell.run(f"CREATE TABLE t (pk int, ck int, a int, PRIMARY KEY (pk, ck)) {CDC}")
    shell.changes.clear()
    return shell


def test_a_column_dropped_and_added_again_is_empty(cdc: Any) -> None:
    """A new column does not show the values of a dropped column with the same name."""
    cdc.run("INSERT INTO t (pk, ck, a) VALUES (1, 1, 7)")
    cdc.run("ALTER TABLE t DROP a")
    cdc.now_us += 5_000_000
    cdc.run("ALTER TABLE t ADD a int")
    assert cdc.ints("SELECT a FROM t") == [(None,)]
    assert cdc.ints(f"SELECT a FROM {LOG}") == [(None,)]


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


@pytest.mark.parametrize("name", ["Odd", "odd", "a.b"])
def test_a_type_may_be_named_with_its_keyspace(shell: Any, name: str) -> None:
    """Names of types may be qualified, and may be in quotes."""
    shell.run(f'CREATE TYPE ks."{name}" (x int)')
    kind = f'frozen<ks."{name}">'
    shell.run(f'CREATE TABLE t (k {kind} PRIMARY KEY, v frozen<list<{kind}>>, u "{name}")')
    shell.run("INSERT INTO t (k, v) VALUES ({x: 1}, [{x: 2}])")
    assert len(shell.rows("SELECT * FROM t")) == 1
    code, message = shell.refusal(f'CREATE TABLE t2 (k frozen<no."{name}"> PRIMARY KEY)')
    assert code == INVALID
    assert "cannot refer to a user type in keyspace no;" in message

"""Tests each version's rules for CDC logs when schemas change."""

from typing import Any

import pytest

from cdc_reader.testing.embedded.profile import profile
from cdc_reader.testing.embedded.schema.catalog import Catalog

UNAUTHORIZED, INVALID, CONFIGURATION, SYNTAX = 0x2100, 0x2200, 0x2300, 0x2000
CDC = "WITH cdc = {'enabled': true}"
LOG = "t_scylla_cdc_log"
TABLETS = "WITH replication = {'class': 'NetworkTopologyStrategy', 'datacenter1': 1} AND tablets = "
SERIAL, LOCAL_SERIAL = 8, 9


@pytest.fixture
def version(request: pytest.FixtureRequest) -> str:
    """The version to emulate, which tests may parametrize."""
    return str(getattr(request, "param", "2026.2"))


@pytest.fixture
def shell(version: str, make_shell: Any) -> Any:
    """An engine that behaves like `version`, with a table `t` that has CDC."""
    shell = make_shell(catalog=Catalog(profile=profile(version)))
    shell.run(f"CREATE TABLE t (pk int, ck int, a int, PRIMARY KEY (pk, ck)) {CDC}")
    return shell


def tables(shell: Any) -> set[str]:
    """Return the names of the keyspace's tables."""
    return set(shell.catalog.keyspaces["ks"].tables)


def log(shell: Any) -> Any:
    """Return the definition of the log of `t`."""
    return shell.catalog.table("ks", LOG)


def view(base: str, options: str = "") -> str:
    """Return a statement that creates a materialized view."""
    where = "WHERE pk IS NOT NULL AND ck IS NOT NULL PRIMARY KEY (ck, pk)"
    return f"CREATE MATERIALIZED VIEW mv AS SELECT * FROM {base} {where} {options}"


def test_cdc_on_a_materialized_view(shell: Any) -> None:
    """A view with CDC is rejected with ScyllaDB's message. Other views are not supported."""
    refusal = INVALID, "Cannot enable CDC for a materialized view"
    assert shell.refusal(view("t", CDC)) == refusal
    _, message = shell.refusal(view("t", "WITH comment = 'cdc'"))
    assert message == "CREATE MATERIALIZED VIEW is not supported by this server"


@pytest.mark.parametrize("base", [LOG, f"ks.{LOG}", f'"ks" . "{LOG}"'])
def test_a_materialized_view_of_a_log(shell: Any, base: str) -> None:
    """A view of a log is rejected, however the statement spells the log's name."""
    message = "Materialized views cannot be created on CDC Log tables"
    assert shell.refusal(view(base)) == (INVALID, message)


@pytest.mark.parametrize("version", ["6.0", "2025.1", "2025.3"], indirect=True)
def test_cdc_on_tablets_before(shell: Any) -> None:
    """Before 2025.4, CDC is rejected in keyspaces that use tablets."""
    shell.run(f"CREATE KEYSPACE tk {TABLETS} {{'enabled': true, 'initial': 4}}")
    message = (
        "Cannot create CDC log for a table tk.t, because keyspace uses tablets. See issue #16317."
    )
    assert shell.refusal(f"CREATE TABLE tk.t (pk int PRIMARY KEY) {CDC}") == (INVALID, message)
    shell.run("CREATE TABLE tk.t (pk int PRIMARY KEY)")
    assert shell.refusal(f"ALTER TABLE tk.t {CDC}") == (INVALID, message)


def test_a_keyspace_of_tablets(shell: Any) -> None:
    """A keyspace that uses tablets rejects SimpleStrategy.

    A keyspace that uses vnodes cannot be altered to use tablets.
    """
    simple = "WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}"
    message = "SimpleStrategy doesn't support tablet replication"
    cql = f"CREATE KEYSPACE tk {simple} AND tablets = {{'enabled': true}}"
    assert shell.refusal(cql) == (CONFIGURATION, message)
    cql = "ALTER KEYSPACE ks WITH tablets = {'enabled': true}"
    message = "Cannot alter replication strategy vnode/tablets flavor"
    assert shell.refusal(cql) == (INVALID, message)
    shell.run(f"CREATE KEYSPACE tk {TABLETS} {{'initial': 4}}")
    shell.run("ALTER KEYSPACE tk WITH tablets = {'initial': 8}")
    assert shell.catalog.keyspaces["tk"].tablets == 8


@pytest.mark.parametrize("version", ["5.2", "5.4"], indirect=True)
def test_a_version_without_tablets(shell: Any) -> None:
    """A version without tablets rejects the property `tablets`."""
    cql = f"CREATE KEYSPACE tk {TABLETS} {{'enabled': false}}"
    assert shell.refusal(cql) == (SYNTAX, "Unknown property 'tablets'")


@pytest.mark.parametrize("consistency", [SERIAL, LOCAL_SERIAL])
def test_a_serial_read_of_a_log(shell: Any, consistency: int) -> None:
    """Serial reads are rejected only for logs in keyspaces that use tablets."""
    shell.run(f"CREATE KEYSPACE tk {TABLETS} {{'enabled': true, 'initial': 1}}")
    shell.run(f"CREATE TABLE tk.t (pk int PRIMARY KEY) {CDC}")
    shell.consistency(consistency)
    message = f"LWT is not supported on CDC log tables: tk.{LOG}"
    assert shell.refusal(f"SELECT * FROM tk.{LOG}") == (INVALID, message)
    assert shell.rows("SELECT * FROM tk.t") == []
    assert shell.rows(f"SELECT * FROM ks.{LOG}") == []


@pytest.mark.parametrize(
    ("version", "accepted"), [("4.6", True), ("5.0", False)], indirect=["version"]
)
def test_altering_cdc_without_enabled(shell: Any, accepted: bool) -> None:
    """Since 5.0, ALTER must set `enabled`. In earlier versions, its default is false."""
    cql = "ALTER TABLE t WITH cdc = {'preimage': true}"
    if accepted:
        shell.run(cql)
        assert not shell.catalog.table("ks", "t").cdc.enabled
    else:
        message = 'Altering CDC options requires specyfing "enabled" flag'
        assert shell.refusal(cql) == (INVALID, message)

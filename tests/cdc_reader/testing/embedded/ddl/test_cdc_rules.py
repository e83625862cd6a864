"""Tests each version's rules for CDC logs when schemas change."""

from typing import Any

import pytest

from cdc_reader.testing.embedded.profile import profile
from cdc_reader.testing.embedded.schema.catalog import Catalog

UNAUTHORIZED, INVALID, CONFIGURATION, SYNTAX = 0x2100, 0x2200, 0x2300, 0x2000
CDC = "WITH cdc = {'enabled': true}"
NO_CDC = "WITH cdc = {'enabled': false}"
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


def test_a_taken_log_name(shell: Any) -> None:
    """Neither CREATE nor ALTER can enable CDC if a user's table has the log's name."""
    shell.run("CREATE TABLE u_scylla_cdc_log (pk int PRIMARY KEY)")
    refusal = (
        INVALID,
        (
            "Cannot create CDC log table for table ks.u because a table of name "
            "ks.u_scylla_cdc_log already exists"
        ),
    )
    assert shell.refusal(f"CREATE TABLE u (pk int PRIMARY KEY) {CDC}") == refusal
    shell.run("CREATE TABLE u (pk int PRIMARY KEY)")
    assert shell.refusal(f"ALTER TABLE u {CDC}") == refusal


def test_a_counter_table(shell: Any) -> None:
    """Neither CREATE nor ALTER can enable CDC on a counter table."""
    refusal = INVALID, "Cannot create CDC log for table ks.c. Counter support not implemented"
    assert shell.refusal(f"CREATE TABLE c (pk int PRIMARY KEY, n counter) {CDC}") == refusal
    shell.run("CREATE TABLE c (pk int PRIMARY KEY, n counter)")
    assert shell.refusal(f"ALTER TABLE c {CDC}") == refusal


def test_a_log_of_a_log(shell: Any) -> None:
    """CDC cannot be enabled on a log."""
    assert shell.refusal(f"ALTER TABLE {LOG} {CDC}") == (
        INVALID,
        (
            f"Cannot create a CDC log for a table ks.{LOG}, because creating nested CDC logs is "
            "not allowed"
        ),
    )


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


def test_dropping_a_log(shell: Any) -> None:
    """A log can be dropped only after CDC has been disabled on its base table."""
    message = f"Cannot DROP cdc log table {LOG}"
    assert shell.refusal(f"DROP TABLE {LOG}") == (UNAUTHORIZED, message)
    shell.run(f"ALTER TABLE t {NO_CDC}")
    shell.run(f"DROP TABLE {LOG}")
    assert tables(shell) == {"t"}


def test_writing_to_a_log(shell: Any) -> None:
    """Users may write and delete the rows of a log, and alter its properties."""
    key = '"cdc$stream_id", "cdc$time", "cdc$batch_seq_no"'
    first, second = (f"0x{number:032x}" for number in (1, 2))
    shell.run(f"INSERT INTO {LOG} ({key}, a) VALUES ({first}, now(), 0, 7)")
    shell.run(
        f'UPDATE {LOG} SET a = 8 WHERE "cdc$stream_id" = {second} AND "cdc$batch_seq_no" = 0 '
        'AND "cdc$time" = c72c7c3e-2fda-11eb-8080-808080808080'
    )
    assert sorted(shell.ints(f"SELECT a FROM {LOG}")) == [(7,), (8,)]
    shell.run(f'DELETE FROM {LOG} WHERE "cdc$stream_id" = {first}')
    assert shell.ints(f"SELECT a FROM {LOG}") == [(8,)]
    shell.run(f"ALTER TABLE {LOG} WITH comment = 'mine'")
    assert log(shell).options["comment"] == "mine"


COLUMN_STATEMENTS = [
    f"ALTER TABLE {LOG} ADD b int",
    f"ALTER TABLE {LOG} DROP a",
    f'ALTER TABLE {LOG} DROP "cdc$stream_id"',
    f"ALTER TABLE {LOG} ALTER a TYPE float",
]
RENAME = f'ALTER TABLE {LOG} RENAME "cdc$stream_id" TO s'


@pytest.mark.parametrize("version", ["2025.1.10", "2025.3", "2026.2"], indirect=True)
def test_altering_a_logs_columns(shell: Any) -> None:
    """A log's columns cannot be altered. The error depends on whether CDC is still enabled."""
    for cql in COLUMN_STATEMENTS:
        assert shell.refusal(cql) == (
            INVALID,
            (
                "You cannot modify the set of columns of a CDC log table directly. Modify the base "
                "table instead."
            ),
        )
    assert shell.refusal(RENAME) == (INVALID, "Cannot rename a column of a CDC log table.")
    shell.run(f"ALTER TABLE t {NO_CDC}")
    for cql in COLUMN_STATEMENTS:
        code, message = shell.refusal(cql)
        assert code == INVALID
        assert message.startswith(
            "You cannot modify the set of columns of a CDC log table directly. Although the base "
            "table has deactivated CDC, this table will continue being a CDC log table"
        )
    code, message = shell.refusal(RENAME)
    assert message.startswith("You cannot rename a column of a CDC log table. Although")


@pytest.mark.parametrize("version", ["5.2", "2025.1.9", "2025.2"], indirect=True)
def test_altering_a_logs_columns_before(shell: Any) -> None:
    """Before 2025.1.10, and in 2025.2, users can alter the columns of a log."""
    shell.run(COLUMN_STATEMENTS[0])
    assert "b" in log(shell).by_name


def test_a_table_that_only_looks_like_a_log(shell: Any) -> None:
    """A user's table with the name of a log can be altered and dropped."""
    shell.run("CREATE TABLE u_scylla_cdc_log (p int PRIMARY KEY, v int)")
    shell.run("ALTER TABLE u_scylla_cdc_log DROP v")
    shell.run("ALTER TABLE u_scylla_cdc_log RENAME p TO q")
    shell.run("DROP TABLE u_scylla_cdc_log")


def test_adding_a_base_column(shell: Any) -> None:
    """The log gains the column, a deletion column and, for a set, a column of deleted elements."""
    before = set(log(shell).by_name)
    shell.run("ALTER TABLE t ADD (b int, m set<int>)")
    assert set(log(shell).by_name) - before == {
        "b",
        "cdc$deleted_b",
        "m",
        "cdc$deleted_m",
        "cdc$deleted_elements_m",
    }


@pytest.mark.parametrize(
    ("version", "remembered"),
    [("5.0", set()), ("5.1", {"a", "cdc$deleted_a"}), ("2026.2", {"a", "cdc$deleted_a"})],
    indirect=["version"],
)
def test_dropping_a_base_column(shell: Any, remembered: set[str]) -> None:
    """Dropping a base column drops its log columns. Since 5.1, the log records them as dropped."""
    shell.run("ALTER TABLE t DROP a")
    assert not {"a", "cdc$deleted_a"} & set(log(shell).by_name)
    assert set(log(shell).dropped) == remembered


@pytest.mark.parametrize("version", ["2025.1.10", "2025.3.1", "2025.4", "2026.2"], indirect=True)
def test_adding_a_dropped_column_too_soon(shell: Any) -> None:
    """A dropped column can be added again only after five seconds."""
    shell.run("ALTER TABLE t DROP a")
    message = (
        "Cannot add column a because a column with the same name was dropped too recently. Please "
        "retry after {} seconds"
    )
    assert shell.refusal("ALTER TABLE t ADD a int") == (INVALID, message.format(5))
    shell.now_us += 4_000_000
    assert shell.refusal("ALTER TABLE t ADD a int") == (INVALID, message.format(1))
    shell.now_us += 1_000_000
    shell.run("ALTER TABLE t ADD a int")
    assert {"a", "cdc$deleted_a"} <= set(log(shell).by_name)


@pytest.mark.parametrize("version", ["5.2", "2025.1.9", "2025.2", "2025.3"], indirect=True)
def test_adding_a_dropped_column_before(shell: Any) -> None:
    """Before 2025.1.10, in 2025.2 and in 2025.3.0, a dropped column can be added again at once."""
    shell.run("ALTER TABLE t DROP a")
    shell.run("ALTER TABLE t ADD a int")
    assert "a" in log(shell).by_name


def test_adding_a_dropped_column_without_cdc(shell: Any) -> None:
    """In a table without CDC, a dropped column can be added again at once."""
    shell.run(f"ALTER TABLE t {NO_CDC}")
    shell.run("ALTER TABLE t DROP a")
    shell.run("ALTER TABLE t ADD a int")


def test_renaming_a_key_column(shell: Any) -> None:
    """The log drops the old column and adds the new one, which is null in existing rows."""
    shell.run("INSERT INTO t (pk, ck) VALUES (1, 2)")
    shell.run("ALTER TABLE t RENAME ck TO k")
    assert shell.ints(f"SELECT pk, k FROM {LOG}") == [(1, None)]
    assert "ck" in log(shell).dropped


@pytest.mark.parametrize(
    ("version", "kept"), [("5.0", False), ("5.1", True), ("2026.2", True)], indirect=["version"]
)
def test_disabling_cdc(shell: Any, kept: bool) -> None:
    """After CDC is disabled, the log gets no new rows. Versions before 5.1 drop the log."""
    shell.run("INSERT INTO t (pk, ck) VALUES (1, 1)")
    old, shell.changes[:] = log(shell).id, []
    shell.run(f"ALTER TABLE t {NO_CDC}")
    shell.run("INSERT INTO t (pk, ck) VALUES (2, 2)")
    assert (LOG in tables(shell)) is kept
    assert (old in shell.database.tables) is kept
    dropped = [change.name for change in shell.changes if change.change == "DROPPED"]
    assert dropped == ([] if kept else [LOG])
    if kept:
        assert shell.ints(f"SELECT pk FROM {LOG}") == [(1,)]


@pytest.mark.parametrize(
    ("version", "comment"),
    [("5.2", "CDC log for ks.t"), ("2025.4", "CDC log for ks.t"), ("2026.1", "mine")],
    indirect=["version"],
)
def test_enabling_cdc_again(shell: Any, comment: str) -> None:
    """Enabling CDC again updates the existing log. Since 2026.1, the log keeps its properties."""
    old = log(shell).id
    shell.run(f"ALTER TABLE {LOG} WITH comment = 'mine'")
    shell.run(f"ALTER TABLE t {NO_CDC}")
    shell.run("ALTER TABLE t DROP a")
    shell.run("ALTER TABLE t ADD b int")
    assert "a" in log(shell).by_name
    assert "b" not in log(shell).by_name
    shell.run(f"ALTER TABLE t {CDC}")
    assert log(shell).id == old
    assert "a" in log(shell).dropped
    assert "b" in log(shell).by_name
    assert log(shell).options["comment"] == comment


def test_dropping_the_base(shell: Any) -> None:
    """Dropping a base table also drops its log, even if CDC is disabled."""
    shell.run(f"ALTER TABLE t {NO_CDC}")
    shell.run("DROP TABLE t")
    assert tables(shell) == set()


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


def test_cdc_on_tablets(shell: Any) -> None:
    """A table in a keyspace that uses tablets may have CDC. A keyspace can disable tablets."""
    shell.run(f"CREATE KEYSPACE tk {TABLETS} {{'enabled': true, 'initial': 4}}")
    shell.run(f"CREATE TABLE tk.t (pk int PRIMARY KEY) {CDC}")
    shell.run(f"CREATE KEYSPACE vk {TABLETS} {{'enabled': false}}")
    assert shell.catalog.keyspaces["vk"].tablets is None


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


def test_truncating(shell: Any) -> None:
    """The base table and its log are truncated separately, and truncations are not logged."""
    shell.run("INSERT INTO t (pk, ck) VALUES (1, 1)")
    shell.run("TRUNCATE t")
    assert shell.ints(f"SELECT pk FROM {LOG}") == [(1,)]
    shell.run("INSERT INTO t (pk, ck) VALUES (2, 2)")
    shell.run(f"TRUNCATE {LOG}")
    assert shell.ints("SELECT pk FROM t") == [(2,)]
    assert shell.rows(f"SELECT * FROM {LOG}") == []


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


@pytest.mark.parametrize("spelling", ["on", "OFF"])
@pytest.mark.parametrize(
    ("version", "accepted"), [("4.6", True), ("5.0", False)], indirect=["version"]
)
def test_preimages_given_as_on_and_off(shell: Any, spelling: str, accepted: bool) -> None:
    """The preimage values "on" and "off" are rejected since 5.0."""
    cql = f"ALTER TABLE t WITH cdc = {{'enabled': true, 'preimage': '{spelling}'}}"
    if accepted:
        shell.run(cql)
        preimage = shell.catalog.table("ks", "t").cdc.preimage
        assert preimage == {"on": "true", "OFF": "false"}[spelling]
    else:
        message = f'Invalid value for CDC option "preimage": {spelling}'
        assert shell.refusal(cql) == (CONFIGURATION, message)


@pytest.mark.parametrize(("version", "mark"), [("4.5", None), ("4.6", 1)], indirect=["version"])
def test_a_null_in_a_preimage(shell: Any, mark: int | None) -> None:
    """Since 4.6, a preimage marks null values as deleted."""
    shell.run("ALTER TABLE t WITH cdc = {'enabled': true, 'preimage': 'full'}")
    shell.run("INSERT INTO t (pk, ck) VALUES (1, 1)")
    shell.run("UPDATE t SET a = 2 WHERE pk = 1 AND ck = 1")
    preimages = [
        row
        for row in shell.ints(f'SELECT "cdc$operation", a, "cdc$deleted_a" FROM {LOG}')
        if row[0] == 0
    ]
    assert preimages == [(0, None, mark)]


@pytest.mark.parametrize(
    ("version", "present"), [("4.2", False), ("4.3", True)], indirect=["version"]
)
def test_the_end_of_a_batch(shell: Any, present: bool) -> None:
    """Since 4.3, the log contains the column `cdc$end_of_batch`."""
    shell.run("INSERT INTO t (pk, ck) VALUES (1, 1)")
    assert ("cdc$end_of_batch" in log(shell).by_name) is present
    assert shell.ints(f"SELECT pk FROM {LOG}") == [(1,)]

"""Tests the effects of INSERT, UPDATE, DELETE, BATCH and IF on a table."""

from typing import Any

import pytest

from cdc_reader.testing.embedded.errors import CqlError
from cdc_reader.testing.embedded.profile import profile
from cdc_reader.testing.embedded.query.model import UNSET
from cdc_reader.testing.embedded.schema.catalog import Catalog

INVALID = 0x2200
WHERE = "WHERE pk = 1 AND ck = 1"


@pytest.fixture
def table(shell: Any) -> Any:
    """An empty table with a column of each kind."""
    shell.run("CREATE TYPE u (x int, y text)")
    shell.run(
        "CREATE TABLE t (pk int, ck int, a int, l list<int>, q set<int>, m map<int, text>, un u, "
        "f frozen<list<int>>, s int static, PRIMARY KEY (pk, ck))"
    )
    return shell


def json_of(shell: Any, columns: str) -> list[str]:
    """Return the rows of `t` as JSON texts."""
    return [cell.decode() for (cell,) in shell.rows(f"SELECT JSON {columns} FROM t")]


def test_a_list_cell_is_set_by_its_id(table: Any) -> None:
    """A list element is set by its id, in any order of statements. Setting null removes it."""
    ids = [f"0000000{at}-0000-1000-8080-808080808080" for at in range(4)]
    for at in (2, 0, 3, 1):
        table.run(f"UPDATE t SET l[SCYLLA_TIMEUUID_LIST_INDEX({ids[at]})] = {at} {WHERE}")
    table.run(f"UPDATE t SET l[SCYLLA_TIMEUUID_LIST_INDEX({ids[1]})] = null {WHERE}")
    assert json_of(table, "l") == ['{"l": [0, 2, 3]}']
    with pytest.raises(CqlError, match="null value for list index"):
        table.run(f"UPDATE t SET l[SCYLLA_TIMEUUID_LIST_INDEX(null)] = 1 {WHERE}")
    with pytest.raises(CqlError, match="frozen collection column f"):
        table.run(f"UPDATE t SET f[SCYLLA_TIMEUUID_LIST_INDEX({ids[0]})] = 1 {WHERE}")


def test_unset_values_leave_columns_alone(table: Any) -> None:
    """An unset value leaves a column unchanged, and a null deletes its value."""
    cql = "INSERT INTO t (pk, ck, a, q) VALUES (?, ?, ?, ?)"
    one = (1).to_bytes(4, "big")
    table.engine.query(cql, (one, one, one, b"\0\0\0\1\0\0\0\4" + one), table.options)
    table.engine.query(cql, (one, one, UNSET, UNSET), table.options)
    assert json_of(table, "a, q") == ['{"a": 1, "q": [1]}']
    table.engine.query(cql, (one, one, None, UNSET), table.options)
    assert json_of(table, "a, q") == ['{"a": null, "q": [1]}']
    with pytest.raises(CqlError, match="Invalid unset value for column ck"):
        table.engine.query(cql, (one, UNSET, one, UNSET), table.options)


def test_values_are_bound_by_name(table: Any) -> None:
    """The values of named markers can be bound with a mapping."""
    values = {"k": (1).to_bytes(4, "big"), "v": (7).to_bytes(4, "big")}
    table.engine.query("UPDATE t SET a = :v WHERE pk = :k AND ck = :k", values, table.options)
    assert table.ints("SELECT pk, ck, a FROM t") == [(1, 1, 7)]
    with pytest.raises(CqlError, match="Missing value for bind variable v"):
        table.engine.query("UPDATE t SET a = :v WHERE pk = 1 AND ck = 1", {}, table.options)


@pytest.mark.parametrize(
    ("cql", "message"),
    [
        ("INSERT INTO t (pk) VALUES (1)", "Missing mandatory PRIMARY KEY part ck"),
        ("INSERT INTO t (pk, ck) VALUES (1)", "Unmatched column names/values"),
        ("INSERT INTO t (pk, ck, nope) VALUES (1, 1, 1)", "Unknown identifier nope"),
        (
            "INSERT INTO t (pk, ck) VALUES (null, 1)",
            "Invalid null value in condition for column pk",
        ),
        (
            "INSERT INTO t (pk, ck) VALUES (1, 2147483648)",
            (
                "marshaling error: Value out of range for "
                "type org.apache.cassandra.db.marshal.Int32Type: '2147483648'"
            ),
        ),
        (f"UPDATE t SET a = 'x' {WHERE}", 'Invalid STRING constant (x) for "a" of type int'),
        (f"UPDATE t SET l = {{1}} {WHERE}", "Invalid set literal for l of type list<int>"),
        (f"UPDATE t SET l = [null] {WHERE}", "null is not supported inside collections"),
        (
            f"UPDATE t SET un = {{z: 1}} {WHERE}",
            "Unknown field 'z' in value of user defined type u",
        ),
        (f"UPDATE t SET l[0] = 1 {WHERE}", "Attempted to set an element on a list which is null"),
        (f"UPDATE t SET pk = 1 {WHERE}", "PRIMARY KEY part pk found in SET part"),
        ("UPDATE t SET a = 1 WHERE pk = 1", "Missing mandatory PRIMARY KEY part ck"),
        (
            f"UPDATE t SET s = 1 {WHERE}",
            (
                "Invalid restrictions on clustering columns since the UPDATE "
                "statement modifies only static columns"
            ),
        ),
        ("DELETE FROM t WHERE ck = 1", "Missing mandatory PRIMARY KEY part pk"),
        (
            "DELETE FROM t WHERE pk = 1 AND a = 1",
            "Non PRIMARY KEY columns found in where clause: a ",
        ),
        (f"UPDATE t USING TTL -1 SET a = 1 {WHERE}", "A TTL must be greater or equal to 0"),
        (
            f"UPDATE t USING TTL 999999999 SET a = 1 {WHERE}",
            "ttl is too large. requested (999999999) maximum (630720000)",
        ),
        (
            f"UPDATE t USING TIMESTAMP 1 SET a = 1 {WHERE} IF a = 1",
            "Cannot provide custom timestamp for conditional updates",
        ),
        (
            (
                "BEGIN BATCH USING TIMESTAMP 1 INSERT INTO t (pk, ck) VALUES (1, 1) "
                "USING TIMESTAMP 2; "
                "APPLY BATCH"
            ),
            "Timestamp must be set either on BATCH or individual statements",
        ),
    ],
)
def test_writes_that_are_refused(table: Any, cql: str, message: str) -> None:
    """A rejected write gets ScyllaDB's message, and nothing is written."""
    assert table.refusal(cql) == (INVALID, message)
    assert table.rows("SELECT * FROM t") == []


def test_an_unset_list_index_deletes_nothing(table: Any) -> None:
    """Deleting the list element at an unset index has no effect, even without a list."""
    delete = f"DELETE l[?] FROM t {WHERE}"
    table.engine.query(delete, (UNSET,), table.options)
    assert table.rows("SELECT * FROM t") == []
    table.run(f"UPDATE t SET l = [7, 8] {WHERE}")
    table.engine.query(delete, (UNSET,), table.options)
    assert json_of(table, "l") == ['{"l": [7, 8]}']
    table.engine.query(delete, (b"\0\0\0\0",), table.options)
    assert json_of(table, "l") == ['{"l": [8]}']


def test_unix_times_are_timestamps(shell: Any) -> None:
    """A function's bigint may be written to a timestamp or varint, and a timestamp to a bigint."""
    shell.run("CREATE TABLE t (pk int PRIMARY KEY, ts timestamp, b bigint, v varint)")
    shell.run(
        "INSERT INTO t (pk, ts, b, v) VALUES "
        "(1, toUnixTimestamp(now()), currentTimestamp(), toUnixTimestamp(now()))"
    )
    assert shell.ints("SELECT ts, b, v FROM t") == [(shell.now_us // 1000,) * 3]
    message = "Type error: cannot assign result of function system.now (type timeuuid) to ts"
    assert shell.refusal("UPDATE t SET ts = now() WHERE pk = 1")[1].startswith(message)


NULL, EMPTY = b"\xff\xff\xff\xff", b"\0\0\0\0"


@pytest.mark.parametrize(
    ("version", "element", "applies"),
    [("2026.1", NULL, True), ("5.2", NULL, True), ("2026.1", EMPTY, False), ("5.2", EMPTY, True)],
)
def test_a_null_may_be_among_the_values_of_a_condition(
    make_shell: Any, version: str, element: bytes, applies: bool
) -> None:
    """A null in a bound list equals a null column; 5.2 also takes an empty element for null."""
    shell = make_shell(catalog=Catalog(profile=profile(version)))
    shell.run("CREATE TABLE t (pk int PRIMARY KEY, v int)")
    listed = b"\0\0\0\2" + b"\0\0\0\4\0\0\0\1" + element
    update = "UPDATE t SET v = 1 WHERE pk = 1 IF v IN "
    assert shell.rows(f"{update}?", listed) == [(bytes([applies]), None)]
    shell.run("TRUNCATE t")
    assert shell.rows(f"{update}(1, null)") == [(b"\1", None)]


@pytest.mark.parametrize(
    ("statement", "shown"),
    [
        (f"DELETE FROM t {WHERE} IF EXISTS", [(0, None, None, None, None)]),
        ("DELETE FROM t WHERE pk = 1 AND ck = 2 IF a = 1", [(0, None)]),
        ("DELETE FROM t WHERE pk = 1 AND ck = 2 IF a = 1 AND s = 5", [(0, 5, None)]),
        (f"UPDATE t SET a = 1 {WHERE} IF s = 6", [(0, 5)]),
        ("UPDATE t SET s = 6 WHERE pk = 1 IF EXISTS", [(1, 1, None, 5, None)]),
        ("UPDATE t SET s = 6 WHERE pk = 2 IF EXISTS", [(0, None, None, None, None)]),
        ("INSERT INTO t (pk, s) VALUES (3, 1) IF NOT EXISTS", [(1, 3, None, None, None)]),
        (
            (
                f"BEGIN BATCH UPDATE t SET a = 2 {WHERE} IF a = 2; "
                "UPDATE t SET a = 2 WHERE pk = 1 AND ck = 9; APPLY BATCH"
            ),
            [(0, 1, None, None), (0, 1, None, None)],
        ),
        (
            (
                "BEGIN BATCH INSERT INTO t (pk, ck) VALUES (1, 1) IF NOT EXISTS; "
                "UPDATE t SET a = 2 WHERE pk = 1 AND ck = 8 IF a = 9; APPLY BATCH"
            ),
            [(0, None, None, None, None), (0, 1, 8, 5, 8)],
        ),
    ],
)
def test_the_old_row_of_a_condition(shell: Any, statement: str, shown: list[Any]) -> None:
    """Without a row, the result shows the static row, or nulls alone for IF [NOT] EXISTS."""
    shell.run("CREATE TABLE t (pk int, ck int, a int, s int static, PRIMARY KEY (pk, ck))")
    shell.run("INSERT INTO t (pk, s) VALUES (1, 5)")
    for pk, ck in ((1, 8), (1, 9), (3, 7)):
        shell.run(f"INSERT INTO t (pk, ck, a) VALUES ({pk}, {ck}, {ck})")
    assert shell.ints(statement) == shown

"""Tests the effects of INSERT, UPDATE, DELETE, BATCH and IF on a table."""

from typing import Any

import pytest
from attrs import evolve

from cdc_reader.testing.embedded.errors import CqlError, Unprepared
from cdc_reader.testing.embedded.grammar.ast import BatchKind
from cdc_reader.testing.embedded.query.model import UNSET
from cdc_reader.testing.embedded.query.result import Rows, Void

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


@pytest.mark.parametrize(
    ("column", "changes", "value"),
    [
        ("a", ["a = 1", "a = null"], "null"),
        ("l", ["l = [1, 2, 3]", "l = l + [4]", "l = [0, -1] + l"], "[0, -1, 1, 2, 3, 4]"),
        ("l", ["l = [1, 2, 1]", "l = l - [1]"], "[2]"),
        ("l", ["l = [1, 2, 3]", "l[1] = 7", "l[0] = null"], "[7, 3]"),
        ("l", ["l = [1]", "l = l + [2], l = l + [3]"], "[1, 2, 3]"),
        ("l", [f"l = {list(range(300))}"], str(list(range(300)))),
        ("q", ["q = {3, 1, 2, 1}", "q = q + {5}", "q -= {1, 9}"], "[2, 3, 5]"),
        ("m", ["m = {1: 'a', 2: 'b'}", "m[3] = 'c', m[1] = null", "m = m - {2}"], '{"3": "c"}'),
        ("m", ["m = {1: 'a'}", "m += {0: 'z'}"], '{"0": "z", "1": "a"}'),
        ("m", ["m = {1: 'a'}", "m = {}"], "null"),
        ("un", ["un = {x: 1, y: 'a'}", "un.y = 'b'"], '{"x": 1, "y": "b"}'),
        ("un", ["un = {x: 1, y: 'a'}", "un = {y: 'c'}"], '{"x": null, "y": "c"}'),
        ("f", ["f = [2, 1]", "f = []"], "[]"),
    ],
)
def test_assignments_in_turn(table: Any, column: str, changes: list[str], value: str) -> None:
    """Assigning a whole value replaces the old one. Other assignments change parts of it."""
    table.run("INSERT INTO t (pk, ck) VALUES (1, 1)")
    for change in changes:
        table.run(f"UPDATE t SET {change} {WHERE}")
    assert json_of(table, column) == [f'{{"{column}": {value}}}']


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


@pytest.mark.parametrize(
    ("deleted", "column", "value"),
    [
        ("a", "a", "null"),
        ("l", "l", "null"),
        ("l[1]", "l", "[1, 3]"),
        ("q[2]", "q", "[1]"),
        ("m[1]", "m", '{"2": "b"}'),
        ("un.x", "un", '{"x": null, "y": "a"}'),
    ],
)
def test_deleting_parts_of_a_row(table: Any, deleted: str, column: str, value: str) -> None:
    """DELETE can delete a column, an element by index or key, or a field."""
    table.run(
        "INSERT INTO t (pk, ck, a, l, q, m, un) "
        "VALUES (1, 1, 5, [1, 2, 3], {1, 2}, {1: 'a', 2: 'b'}, {x: 1, y: 'a'})"
    )
    table.run(f"DELETE {deleted} FROM t {WHERE}")
    assert json_of(table, column) == [f'{{"{column}": {value}}}']


@pytest.mark.parametrize(
    ("where", "left"),
    [
        ("pk = 1", []),
        ("pk = 1 AND ck = 3", [1, 2, 4, 5]),
        ("pk = 1 AND ck IN (1, 5)", [2, 3, 4]),
        ("pk = 1 AND ck > 1 AND ck <= 3", [1, 4, 5]),
        ("pk = 1 AND ck < 4", [4, 5]),
        ("pk IN (1, 2) AND ck >= 2", [1]),
        ("pk = 1 AND (ck) > (4)", [1, 2, 3, 4]),
    ],
)
def test_deleting_rows(table: Any, where: str, left: list[int]) -> None:
    """DELETE removes rows by key, range or partition, and does not affect later writes."""
    for ck in range(1, 6):
        table.run(f"INSERT INTO t (pk, ck) VALUES (1, {ck})")
    table.run(f"DELETE FROM t WHERE {where}")
    assert table.ints("SELECT ck FROM t") == [(ck,) for ck in left]
    table.run("INSERT INTO t (pk, ck) VALUES (1, 3)")
    assert (3,) in table.ints("SELECT ck FROM t")


def test_the_later_timestamp_wins(table: Any) -> None:
    """The later write wins. USING takes precedence over the client's timestamp."""
    table.run(f"UPDATE t USING TIMESTAMP 20 SET a = 2 {WHERE}")
    table.run(f"UPDATE t USING TIMESTAMP 10 SET a = 1 {WHERE}")
    assert table.ints("SELECT a, writetime(a) FROM t") == [(2, 20)]
    table.engine.query(f"UPDATE t SET a = 3 {WHERE}", (), evolve(table.options, timestamp=30))
    assert table.ints("SELECT a, writetime(a) FROM t") == [(3, 30)]
    late = evolve(table.options, timestamp=40)
    table.engine.query(f"UPDATE t USING TIMESTAMP 25 SET a = 5 {WHERE}", (), late)
    assert table.ints("SELECT a, writetime(a) FROM t") == [(3, 30)]
    table.run(f"UPDATE t SET a = 4 {WHERE}")
    assert table.ints("SELECT a, writetime(a) FROM t") == [(4, table.now_us - 1)]


def test_the_server_s_timestamps_rise_though_its_clock_stands(table: Any) -> None:
    """Writes in the same microsecond keep their order, because server timestamps increase."""
    options = table.options
    for value in (1, 2, 3):
        table.engine.query(f"UPDATE t SET a = {value} {WHERE}", (), options)
    assert table.ints("SELECT a FROM t") == [(3,)]


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


def test_ttl_of_table_and_statement(shell: Any) -> None:
    """The table's default TTL applies unless USING TTL is given. A value of 0 means no TTL."""
    shell.run("CREATE TABLE t (pk int PRIMARY KEY, v int) WITH default_time_to_live = 50")
    for pk, using in ((1, ""), (2, "USING TTL 9"), (3, "USING TTL 0")):
        shell.run(f"INSERT INTO t (pk, v) VALUES ({pk}, 0) {using}")
    assert sorted(shell.ints("SELECT pk, ttl(v) FROM t"), key=str) == [(1, 50), (2, 9), (3, None)]


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


def test_counters_add_up(shell: Any) -> None:
    """A counter can be incremented and decremented, but not set."""
    shell.run("CREATE TABLE c (pk int PRIMARY KEY, n counter)")
    shell.run("UPDATE c SET n = n + 5 WHERE pk = 1")
    shell.run("UPDATE c SET n -= 7 WHERE pk = 1")
    assert shell.ints("SELECT n FROM c") == [(-2,)]
    assert shell.refusal("UPDATE c SET n = 1 WHERE pk = 1")[1] == (
        "Cannot set the value of counter column n (counters can only be incremented/decremented, "
        "not set)"
    )


def test_a_batch_is_one_mutation_per_partition(table: Any) -> None:
    """A batch's statements share one timestamp, so the larger of two values of a cell wins."""
    table.run(
        "BEGIN BATCH INSERT INTO t (pk, ck, a) VALUES (1, 1, 1); "
        "UPDATE t SET a = 2 WHERE pk = 1 AND ck = 1; UPDATE t SET s = 3 WHERE pk = 1; APPLY BATCH"
    )
    assert table.ints("SELECT a, s, writetime(a), writetime(s) FROM t") == [
        (2, 3, table.now_us - 1, table.now_us - 1)
    ]


def test_a_batch_frame_takes_texts_and_prepared_statements(table: Any) -> None:
    """A BATCH frame may contain texts and prepared statements with values, but no SELECT."""
    one, two = (1).to_bytes(4, "big"), (2).to_bytes(4, "big")
    prepared = table.engine.prepare("INSERT INTO t (pk, ck) VALUES (?, ?)", table.options)
    statements = [
        (prepared.id, (one, one)),
        (prepared.id, (one, two)),
        ("UPDATE t SET a = ? WHERE pk = 1 AND ck = 1", (two,)),
    ]
    assert table.engine.batch(BatchKind.UNLOGGED, statements, table.options) == Void()
    assert table.ints("SELECT ck, a FROM t") == [(1, 2), (2, None)]
    with pytest.raises(CqlError, match="Invalid statement in batch"):
        table.engine.batch(BatchKind.LOGGED, [("SELECT * FROM t", ())], table.options)


def test_prepared_statements_follow_the_schema(table: Any) -> None:
    """After ALTER, preparing the same text returns the same id with the new columns."""
    prepared = table.engine.prepare("SELECT * FROM t", table.options)
    table.run("ALTER TABLE t ADD z int")
    again = table.engine.prepare("SELECT * FROM t", table.options)
    assert again.id == prepared.id
    assert len(again.result_columns) == len(prepared.result_columns) + 1
    assert table.engine.prepared(prepared.id) == again
    with pytest.raises(Unprepared, match="No prepared statement with ID 00ff found"):
        table.engine.execute(b"\x00\xff", (), table.options)


@pytest.mark.parametrize(
    ("cql", "indexes"),
    [
        ("SELECT * FROM k WHERE b = ? AND a = ?", (1, 0)),
        ("SELECT * FROM k WHERE a = ? AND b = 1", ()),
        ("SELECT * FROM k WHERE a = ? AND b IN ?", ()),
        ("INSERT INTO k (v, b, a) VALUES (?, ?, ?)", (2, 1)),
        ("UPDATE k SET v = ? WHERE a = ? AND b = ?", (1, 2)),
    ],
)
def test_drivers_learn_where_the_partition_key_is(
    shell: Any, cql: str, indexes: tuple[int, ...]
) -> None:
    """The metadata of a prepared statement lists the bind variables of the partition key.

    It lists them only if every column of the key is bound.
    """
    shell.run("CREATE TABLE k (a int, b int, v int, PRIMARY KEY ((a, b)))")
    assert shell.engine.prepare(cql, shell.options).partition_key_indexes == indexes


def applied(result: Any) -> list[bool]:
    """Return the [applied] column of a transaction's result."""
    assert isinstance(result, Rows)
    assert result.columns[0].name == "[applied]"
    return [row[0] == b"\x01" for row in result.rows]


def test_transactions_apply_when_their_conditions_hold(table: Any) -> None:
    """A transaction applies only if its condition holds, such as IF EXISTS or a comparison."""
    insert = "INSERT INTO t (pk, ck, a, m) VALUES (1, 1, 1, {1: 'x'}) IF NOT EXISTS"
    assert applied(table.run(insert)) == [True]
    assert applied(table.run(insert)) == [False]
    for condition, holds in (
        ("a = 1", True), ("a > 1", False), ("a IN (1, 5)", True), ("s = null", True),
        ("a != null", True), ("m[1] = 'x'", True), ("m[2] = null", True), ("EXISTS", True),
    ):  # fmt: skip
        update = table.run(f"UPDATE t SET f = [1] {WHERE} IF {condition}")
        assert applied(update) == [holds], condition
    assert applied(table.run("UPDATE t SET a = 1 WHERE pk = 1 AND ck = 9 IF EXISTS")) == [False]
    assert applied(table.run(f"DELETE FROM t {WHERE} IF a = 1")) == [True]
    assert table.rows("SELECT * FROM t") == []


def test_a_transaction_of_several_statements_is_all_or_nothing(table: Any) -> None:
    """A conditional batch applies as a whole or not at all, and allows only one partition."""
    batch = "BEGIN BATCH {} APPLY BATCH"
    first = "INSERT INTO t (pk, ck) VALUES (1, {}) IF NOT EXISTS;"
    both = batch.format(first.format(1) + first.format(2))
    assert applied(table.run(both)) == [True, True]
    assert applied(table.run(batch.format(first.format(2) + first.format(3)))) == [False, False]
    assert table.ints("SELECT ck FROM t") == [(1,), (2,)]
    elsewhere = "INSERT INTO t (pk, ck) VALUES (2, 1);"
    assert table.refusal(batch.format(first.format(3) + elsewhere)) == (
        INVALID,
        "BATCH with conditions cannot span multiple partitions",
    )


def test_truncate_forgets_rows_and_leaves_the_log(shell: Any) -> None:
    """TRUNCATE empties the table, but not its log, and is not logged."""
    shell.run("CREATE TABLE t (pk int PRIMARY KEY) WITH cdc = {'enabled': true}")
    shell.run("INSERT INTO t (pk) VALUES (1)")
    shell.run("TRUNCATE t")
    assert shell.rows("SELECT * FROM t") == []
    assert shell.ints("SELECT count(*) FROM t_scylla_cdc_log") == [(1,)]


@pytest.mark.parametrize(
    "change",
    [
        ["ALTER TABLE t ADD z int"],
        ["ALTER TABLE t DROP a"],
        ["DROP TABLE t"],
        ["DROP TABLE t", "CREATE TABLE t (pk text, ck text, PRIMARY KEY (pk, ck))"],
    ],
)
def test_a_prepared_statement_is_forgotten_with_its_columns(table: Any, change: list[str]) -> None:
    """A prepared statement is forgotten if its columns change.

    Drivers then prepare it again, and never decode rows with outdated metadata.
    """
    prepared = table.engine.prepare("SELECT * FROM t WHERE pk = ?", table.options)
    for statement in change:
        table.run(statement)
    with pytest.raises(Unprepared):
        table.engine.execute(prepared.id, (b"\0\0\0\1",), table.options)


def test_a_prepared_statement_outlives_changes_elsewhere(table: Any) -> None:
    """A prepared statement survives changes to other tables and to its table's properties."""
    prepared = table.engine.prepare("SELECT * FROM t WHERE pk = ?", table.options)
    table.run("CREATE TABLE other (pk int PRIMARY KEY)")
    table.run("ALTER TABLE t WITH comment = 'new'")
    assert table.engine.execute(prepared.id, (b"\0\0\0\1",), table.options)


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("frozen<list<int>>", ["[]", "[1]", "[1, 2]", "[2]"]),
        ("frozen<set<text>>", ["{'a'}", "{'a', 'b'}", "{'b'}"]),
        ("frozen<map<int, text>>", ["{1: 'b'}", "{2: 'a'}"]),
        ("frozen<tuple<int, text>>", ["(1, 'b')", "(2, 'a')"]),
        ("frozen<u>", ["{x: 1, y: 'b'}", "{x: 2, y: 'a'}"]),
    ],
)
@pytest.mark.parametrize("order", ["ASC", "DESC"])
def test_clustering_keys_of_parts(shell: Any, kind: str, values: list[str], order: str) -> None:
    """Clustering keys may be collections, tuples or UDTs, which are ordered by their elements."""
    shell.run("CREATE TYPE u (x int, y text)")
    shell.run(
        f"CREATE TABLE t (pk int, ck {kind}, v int, PRIMARY KEY (pk, ck)) "
        f"WITH CLUSTERING ORDER BY (ck {order}) AND cdc = {{'enabled': true}}"
    )
    for number in range(2):
        for value in reversed(values):
            shell.run(f"INSERT INTO t (pk, ck, v) VALUES (1, {value}, {number})")
    shell.run(f"UPDATE t SET v = 9 WHERE pk = 1 AND ck = {values[0]}")
    found = [int.from_bytes(cell, "big") for (cell,) in shell.rows("SELECT v FROM t WHERE pk = 1")]
    expected = [9] + [1] * (len(values) - 1)
    assert found == (expected if order == "ASC" else expected[::-1])
    shell.run(f"DELETE FROM t WHERE pk = 1 AND ck = {values[-1]}")
    assert len(shell.rows("SELECT v FROM t WHERE pk = 1")) == len(values) - 1

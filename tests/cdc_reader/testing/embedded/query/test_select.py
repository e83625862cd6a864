"""Tests the rows of SELECT, their order and their pages."""

import itertools
from typing import Any

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from cdc_reader.testing.embedded.errors import CqlError, ProtocolError, ServerError
from cdc_reader.testing.embedded.query.result import Rows

INVALID = 0x2200
NEEDS_FILTERING = (
    "Cannot execute this query as it might involve data filtering and thus may have unpredictable "
    "performance. If you want to execute this query despite the performance unpredictability, use "
    "ALLOW FILTERING"
)
SHOULD_ALLOW_FILTERING = (
    "This query should use ALLOW FILTERING and will be rejected in future versions."
)


@pytest.fixture(scope="module")
def filled(make_shell: Any) -> Any:
    """A table `t` with 5 rows in each of the partitions 0 to 4.

    Partitions 0, 1, 2 and 9 have a static value.
    """
    shell = make_shell()
    shell.run(
        "CREATE TABLE t (pk int, c1 int, c2 int, v int, s int static, PRIMARY KEY (pk, c1, c2)) "
        "WITH CLUSTERING ORDER BY (c1 ASC, c2 DESC)"
    )
    for pk in range(5):
        for c1, c2 in ((1, 1), (1, 2), (2, 1), (2, 2), (3, 1)):
            shell.run(f"INSERT INTO t (pk, c1, c2, v) VALUES ({pk}, {c1}, {c2}, {pk * 100 + c1})")
    for pk in (0, 1, 2, 9):
        shell.run(f"UPDATE t SET s = {pk} WHERE pk = {pk}")
    return shell


@pytest.mark.parametrize(
    ("where", "rows"),
    [
        ("c1 = 1", [(1, 2), (1, 1)]),
        ("c1 = 1 AND c2 > 1", [(1, 2)]),
        ("c1 IN (3, 1, 1)", [(1, 2), (1, 1), (3, 1)]),
        ("c1 IN (1, 2) AND c2 = 1", [(1, 1), (2, 1)]),
        ("c1 IN (1, 2) AND c2 < 2", [(1, 1), (2, 1)]),
        ("c1 > 1", [(2, 2), (2, 1), (3, 1)]),
        ("c1 >= 2 AND c1 < 3", [(2, 2), (2, 1)]),
        ("c1 > 2 AND c1 < 2", []),
        ("(c1, c2) > (1, 1)", [(1, 2), (2, 2), (2, 1), (3, 1)]),
        ("(c1, c2) >= (2, 2)", [(2, 2), (3, 1)]),
        ("(c1, c2) < (2, 2)", [(1, 2), (1, 1), (2, 1)]),
        ("(c1, c2) > (1, 1) AND (c1) <= (2)", [(1, 2), (2, 2), (2, 1)]),
        ("(c1, c2) = (2, 1)", [(2, 1)]),
        ("(c1, c2) IN ((3, 1), (1, 1), (7, 7))", [(1, 1), (3, 1)]),
        ("(c1) IN ((2))", [(2, 2), (2, 1)]),
        ("c1 = 1 ORDER BY c1 DESC", [(1, 1), (1, 2)]),
        ("c1 > 0 ORDER BY c1 DESC LIMIT 2", [(3, 1), (2, 1)]),
        ("c2 = 2 ALLOW FILTERING", [(1, 2), (2, 2)]),
        ("v = 2 ALLOW FILTERING", [(2, 2), (2, 1)]),
        ("v > 1 AND v > 0 AND v < 3 ALLOW FILTERING", [(2, 2), (2, 1)]),
        ("c1 = 2 AND c1 > 0 AND c1 IN (2, 3)", [(2, 2), (2, 1)]),
        ("c1 = 2 AND c1 > 2", []),
        ("c1 > 1 AND c1 >= 3", [(3, 1)]),
    ],
)
def test_rows_of_a_partition(filled: Any, where: str, rows: list[tuple[int, int]]) -> None:
    """Restrictions select rows of a partition, which are returned in clustering order."""
    assert filled.ints(f"SELECT c1, c2 FROM t WHERE pk = 0 AND {where}") == rows


def test_partitions_come_in_token_order(filled: Any) -> None:
    """A full scan returns partitions in token order, and a query with IN sorts them by key."""
    tokens = filled.ints("SELECT DISTINCT token(pk) FROM t")
    assert tokens == sorted(tokens)
    assert len(tokens) == 6
    keys = filled.ints("SELECT pk FROM t WHERE pk IN (4, 2, 4, 77) PER PARTITION LIMIT 1")
    assert keys == [(2,), (4,)]


def test_a_lone_static_row_is_shown(filled: Any) -> None:
    """A partition without rows shows its static values, unless rows are selected by key."""
    assert filled.ints("SELECT * FROM t WHERE pk = 9") == [(9, None, None, 9, None)]
    assert filled.ints("SELECT * FROM t WHERE pk = 9 AND c1 = 1") == []
    assert filled.ints("SELECT pk, s FROM t WHERE pk = 2 LIMIT 1") == [(2, 2)]


def test_token_ranges_cut_the_ring(filled: Any) -> None:
    """Adjacent ranges return each partition once. The smallest token is both ends of the ring."""
    tokens = [token for (token,) in filled.ints("SELECT DISTINCT token(pk) FROM t")]
    edges = [-(2**63), *tokens[1:4], -(2**63)]
    found = [
        filled.ints(
            f"SELECT DISTINCT token(pk) FROM t WHERE token(pk) > {low} AND token(pk) <= {high}"
        )
        for low, high in itertools.pairwise(edges)
    ]
    assert [token for part in found for (token,) in part] == tokens
    assert filled.ints("SELECT DISTINCT pk FROM t WHERE token(pk) = token(3)") == [(3,)]


def test_aggregates_are_one_row(filled: Any) -> None:
    """Aggregates always return one row, in which plain columns have the values of the first row."""
    assert filled.ints(
        "SELECT count(*), count(s), max(v), min(c1), sum(c2) FROM t WHERE pk = 3"
    ) == [(5, 0, 303, 1, 7)]
    assert filled.ints("SELECT v, count(*) FROM t WHERE pk = 3") == [(301, 5)]
    assert filled.ints("SELECT count(*), max(v) FROM t WHERE pk = 77") == [(0, None)]


def test_keys_in_order_across_partitions(filled: Any) -> None:
    """ORDER BY sorts the rows of several partitions together, and does not allow paging."""
    cql = "SELECT pk, c1, c2 FROM t WHERE pk IN (0, 1) ORDER BY c1 DESC LIMIT 3"
    assert {row[1:] for row in filled.ints(cql)} == {(3, 1), (2, 1)}
    with pytest.raises(CqlError, match="Cannot page queries with both ORDER BY and a IN"):
        filled.pages(cql, 10)


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("v = 1", NEEDS_FILTERING),
        (
            "pk > 1",
            (
                "Only EQ and IN relation are supported on the partition key (unless you use the "
                "token() function or ALLOW FILTERING)"
            ),
        ),
        (
            "pk = 1 AND c2 = 1",
            (
                'PRIMARY KEY column "c2" cannot be restricted as preceding column '
                '"c1" is not restricted'
            ),
        ),
        ("pk = 1 AND nope = 1", "Unrecognized name nope"),
        ("pk = 'a'", 'Invalid STRING constant (a) for "pk" of type int'),
        ("pk = 1 LIMIT 0", "LIMIT must be strictly positive"),
        ("pk = 1 AND v != 3 ALLOW FILTERING", 'Unsupported "!=" relation: v != 3'),
        (
            "pk = 1 AND c1 = 1 AND (c1, c2) > (1, 1)",
            (
                "Mixing single column relations and multi "
                "column relations on clustering columns is not allowed"
            ),
        ),
        ("token(c1) > 1", "The token function arguments must be in the partition key order: pk"),
    ],
)
def test_restrictions_that_are_refused(filled: Any, where: str, message: str) -> None:
    """An invalid restriction is rejected with ScyllaDB's message."""
    assert filled.refusal(f"SELECT * FROM t WHERE {where}") == (INVALID, message)


@pytest.mark.parametrize("where", ["pk IN ({})", "pk = 1 AND c1 IN ({})"])
def test_lists_that_are_too_long_are_refused(filled: Any, where: str) -> None:
    """IN lists have a maximum length.

    As in ScyllaDB, the error says "clustering-key" even if the list contains partition keys.
    """
    keys = ", ".join(map(str, range(101)))
    assert filled.refusal(f"SELECT * FROM t WHERE {where.format(keys)}") == (
        ServerError.code,
        "clustering-key cartesian product size 101 is greater than maximum 100",
    )


def test_ranges_without_a_key_earn_a_warning(filled: Any) -> None:
    """A clustering restriction without a partition key is accepted, with ScyllaDB's warning."""
    result = filled.run("SELECT pk FROM t WHERE c1 = 3")
    assert result.warnings == (SHOULD_ALLOW_FILTERING,)
    assert len(result.rows) == 5
    assert filled.run("SELECT pk FROM t WHERE c1 = 3 ALLOW FILTERING").warnings == ()


@given(
    st.sampled_from(
        [
            "SELECT * FROM t",
            "SELECT s, v FROM t WHERE pk IN (0, 2, 3, 9)",
            "SELECT * FROM t WHERE pk = 1 ORDER BY c1 DESC",
            "SELECT * FROM t WHERE c1 IN (1, 3) ALLOW FILTERING",
            "SELECT * FROM t WHERE v > 1 ALLOW FILTERING",
            "SELECT * FROM t PER PARTITION LIMIT 2",
            "SELECT * FROM t PER PARTITION LIMIT 3 LIMIT 8",
            "SELECT * FROM t LIMIT 7",
            "SELECT DISTINCT pk, s FROM t",
            "SELECT c2, writetime(v) FROM t WHERE token(pk) > -5000000000000000000",
        ]
    ),
    st.integers(1, 30),
)
def test_any_page_size_gives_the_same_rows(filled: Any, cql: str, page_size: int) -> None:
    """The pages together equal the unpaged result, and all pages but the last are full."""
    pages = filled.pages(cql, page_size)
    assert [row for page in pages for row in page] == filled.rows(cql)
    assert all(len(page) <= page_size for page in pages)
    assert all(len(page) == page_size for page in pages[:-1])


def test_a_page_ends_at_a_mebibyte(shell: Any) -> None:
    """A page ends when its cells reach 1 MiB, whatever the page size."""
    shell.run("CREATE TABLE t (pk int, ck int, v blob, PRIMARY KEY (pk, ck))")
    for ck in range(10):
        shell.run(f"INSERT INTO t (pk, ck, v) VALUES (0, {ck}, ?)", bytes(300_000))
    pages = shell.pages("SELECT * FROM t", 5000)
    assert [len(page) for page in pages] == [4, 4, 2]
    assert len(shell.rows("SELECT * FROM t")) == 10


@given(st.integers(0, 60), st.integers(1, 255))
def test_a_paging_state_cannot_be_tampered_with(filled: Any, place: int, change: int) -> None:
    """A paging state with a changed byte is rejected."""
    options = evolve(filled.options, page_size=7)
    result = filled.engine.query("SELECT * FROM t", (), options)
    assert isinstance(result, Rows)
    state = bytearray(result.paging_state or b"")
    state[place % len(state)] ^= change
    for bad in (bytes(state), b"", bytes(state[:-1]))[:: 1 if place else 2]:
        if bad:
            with pytest.raises(ProtocolError, match="Invalid value for the paging state"):
                filled.engine.query("SELECT * FROM t", (), evolve(options, paging_state=bad))


def test_log_partitions_need_whole_stream_ids(shell: Any) -> None:
    """A log accepts any partition key, but reads by key find only keys of 16 bytes."""
    shell.run("CREATE TABLE t (pk int PRIMARY KEY) WITH cdc = {'enabled': true}")
    for key in ("0x00", "0x000102030405060708090a0b0c0d0e0f"):
        cql = (
            'INSERT INTO t_scylla_cdc_log ("cdc$stream_id", "cdc$time", "cdc$batch_seq_no") '
            f"VALUES ({key}, c72c7c3e-2fda-11eb-8080-808080808080, 0)"
        )
        shell.run(cql)
    select = 'SELECT token("cdc$stream_id") FROM t_scylla_cdc_log WHERE "cdc$stream_id" = '
    assert shell.ints(select + "0x00") == []
    assert shell.ints(select + "0x000102030405060708090a0b0c0d0e0f") == [(0x0001020304050607,)]


def test_rows_expire_with_the_clock(shell: Any) -> None:
    """A cell expires when its TTL has passed on the server's clock, and TTL() counts down."""
    shell.run("CREATE TABLE t (pk int PRIMARY KEY, v int)")
    shell.run("INSERT INTO t (pk, v) VALUES (1, 2) USING TTL 100")
    shell.now_us += 40_000_000
    assert shell.ints("SELECT v, ttl(v) FROM t") == [(2, 60)]
    shell.now_us += 60_000_000
    assert shell.ints("SELECT v, ttl(v) FROM t") == []


def test_functions_and_casts(shell: Any) -> None:
    """Computed columns have the values and names that ScyllaDB returns."""
    shell.run("CREATE TABLE t (pk int PRIMARY KEY, u timeuuid, n varint, x text, m map<int, text>)")
    shell.run(
        "INSERT INTO t (pk, u, n, x, m) "
        "VALUES (1, c72c7c3e-2fda-11eb-8080-808080808080, 300, 'a', {1: 'one'})"
    )
    result = shell.run(
        "SELECT toTimestamp(u), CAST(n AS tinyint), CAST(pk AS text) AS p, textAsBlob(x), m[1], "
        "blobAsText(textAsBlob(x)) FROM t"
    )
    assert [column.name for column in result.columns] == [
        "system.totimestamp(u)",
        "cast(n as tinyint)",
        "p",
        "system.textasblob(x)",
        "m[1]",
        "system.blobastext(system.textasblob(x))",
    ]
    assert result.rows == [((1606390225588).to_bytes(8, "big"), b"\x2c", b"1", b"a", b"one", b"a")]


def test_json_of_every_kind(shell: Any) -> None:
    """SELECT JSON returns one text per row."""
    shell.run("CREATE TYPE u (x int, y text)")
    shell.run(
        'CREATE TABLE t (pk int PRIMARY KEY, "B" blob, d double, l list<text>, '
        "m map<int, boolean>, u u, tp tuple<int, text>, n int, ts timestamp)"
    )
    shell.run(
        'INSERT INTO t (pk, "B", d, l, m, u, tp, ts) VALUES (1, 0x0a, 1.5, [\'a"\'], {2: true}, '
        "{x: 1}, (7, 'z'), '2024-02-29T12:34:56.789Z')"
    )
    (text,) = shell.rows("SELECT JSON * FROM t")[0]
    assert text is not None
    assert text.decode() == (
        '{"pk": 1, "\\"B\\"": "0x0a", "d": 1.5, "l": ["a\\""], "m": {"2": true}, "n": null, '
        '"tp": [7, "z"], "ts": "2024-02-29T12:34:56.789Z", "u": {"x": 1, "y": null}}'
    )

"""Tests the rows of SELECT, their order and their pages."""

import itertools
from typing import Any

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from cdc_reader.testing.embedded.errors import CqlError, ProtocolError, ServerError
from cdc_reader.testing.embedded.query.result import Rows


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


def test_keys_in_order_across_partitions(filled: Any) -> None:
    """ORDER BY sorts the rows of several partitions together, and does not allow paging."""
    cql = "SELECT pk, c1, c2 FROM t WHERE pk IN (0, 1) ORDER BY c1 DESC LIMIT 3"
    assert {row[1:] for row in filled.ints(cql)} == {(3, 1), (2, 1)}
    with pytest.raises(CqlError, match="Cannot page queries with both ORDER BY and a IN"):
        filled.pages(cql, 10)


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
            "SELECT DISTINCT pk, s FROM t PER PARTITION LIMIT 1 LIMIT 4",
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


def test_nulls_in_a_bound_list_select_nothing(filled: Any) -> None:
    """The nulls in the list of IN ? are ignored, as in a list that is written out."""
    one, null = b"\0\0\0\4\0\0\0\1", b"\xff\xff\xff\xff"
    listed = b"\0\0\0\2" + one + null
    assert filled.rows("SELECT DISTINCT pk FROM t WHERE pk IN ?", listed) == [(one[4:],)]
    with pytest.raises(CqlError, match="Unexpected end of a collection"):
        filled.rows("SELECT DISTINCT pk FROM t WHERE pk IN ?", listed + null)


def test_distinct_rows_may_have_a_limit_per_partition(filled: Any) -> None:
    """PER PARTITION LIMIT has no effect on SELECT DISTINCT; Cassandra rejects it."""
    cql = "SELECT DISTINCT pk, s FROM t"
    assert filled.rows(f"{cql} PER PARTITION LIMIT 1") == filled.rows(cql)
    assert filled.rows(f"{cql} PER PARTITION LIMIT 3 LIMIT 2") == filled.rows(cql)[:2]

"""`scylla-cdc compare`, with tables on the server under test and on an embedded server."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from cassandra.cluster import Session
from click.testing import CliRunner

from cdc_reader.cli.command import main
from cdc_reader.testing import EmbeddedScylla

if TYPE_CHECKING:
    from click.testing import Result

    from cdc_reader.testing import Scylla

pytestmark = pytest.mark.needs("topology")

COLUMNS = (
    "(p int, c int, v double, l list<text>, m map<text, int>, u pair, st int static, "
    "PRIMARY KEY (p, c)) WITH CLUSTERING ORDER BY (c DESC)"
)
ROWS = 300


@pytest.fixture
def table(scylla: Scylla, keyspace: str, there: Session) -> Iterator[str]:
    """A table that exists on both clusters, with the same rows."""
    there.execute(
        f"CREATE KEYSPACE {keyspace} WITH replication = "
        "{'class': 'NetworkTopologyStrategy', 'replication_factor': 1}"
    )
    for session in (scylla.session, there):
        session.execute(f"CREATE TYPE {keyspace}.pair (a int, b text)")
        session.execute(f"CREATE TABLE {keyspace}.t {COLUMNS}")
        for number in range(ROWS):
            session.execute(
                f"INSERT INTO {keyspace}.t (p, c, v, l, m, u) VALUES ({number % 7}, {number}, NaN, "
                f"['x', 'y'], {{'k': {number}}}, {{a: 1}})"
            )
        session.execute(f"UPDATE {keyspace}.t SET st = 7 WHERE p = 1000")
    yield f"{keyspace}.t"
    there.execute(f"DROP KEYSPACE {keyspace}")


def compare(scylla: Scylla, table: str, target: EmbeddedScylla, *more: str) -> Result:
    """Run the command."""
    words = ["compare", scylla.contact_point, table, target.contact_point, *more]
    return CliRunner().invoke(main, words)


def test_equal_tables_have_status_0(
    scylla: Scylla, table: str, there: Session, target: EmbeddedScylla
) -> None:
    """Equal tables yield exit status 0. NaN equals itself, and write times and TTLs are ignored."""
    there.execute(f"UPDATE {table} USING TTL 6000 SET m['k'] = 3 WHERE p = 3 AND c = 3")
    found = compare(scylla, table, target)
    assert (found.exit_code, found.stderr) == (0, "")
    assert found.stdout.splitlines() == [
        f"{table} at {scylla.contact_point}: {ROWS + 1} rows",
        f"{table} at {target.contact_point}: {ROWS + 1} rows",
        "no row differs",
    ]


def test_each_kind_of_difference_is_told(
    scylla: Scylla, table: str, there: Session, target: EmbeddedScylla
) -> None:
    """The output lists the keys of missing, extra and changed rows, and the exit status is 1."""
    for session, statement in (
        (there, "DELETE FROM {t} WHERE p = 3 AND c = 3"),
        (scylla.session, "DELETE FROM {t} WHERE p = 4 AND c = 4"),
        (there, "UPDATE {t} SET l = l + ['z'], u.b = 'b' WHERE p = 5 AND c = 5"),
        (there, "DELETE FROM {t} WHERE p = 1000"),
        (there, "INSERT INTO {t} (p, c) VALUES (2000, 1)"),
    ):
        session.execute(statement.format(t=table))
    found = compare(scylla, table, target)
    assert found.exit_code == 1
    _, _, summary, *lines = found.stdout.splitlines()
    assert summary == (
        "5 rows differ: 2 only in the source, 2 only in the target, 1 with other values"
    )
    assert sorted(lines) == [
        "  only in the source  p=1000",
        "  only in the source  p=3, c=3",
        "  only in the target  p=2000, c=1",
        "  only in the target  p=4, c=4",
        "  with other values  p=5, c=5: l, u",
    ]
    some = compare(scylla, table, target, "--columns", "m,v", "--limit", "1")
    assert some.exit_code == 1
    _, _, summary, _, more = some.stdout.splitlines()
    assert summary.startswith("4 rows differ: ")
    assert more == "... and 3 more (--limit)"


@pytest.mark.slow
def test_static_columns_are_compared(
    scylla: Scylla, table: str, there: Session, target: EmbeddedScylla
) -> None:
    """A changed static column makes all rows of its partition differ."""
    there.execute(f"UPDATE {table} SET st = 1 WHERE p = 1")
    found = compare(scylla, table, target, "--limit", "1")
    assert found.exit_code == 1
    rows = sum(number % 7 == 1 for number in range(ROWS))
    assert f"{rows} rows differ: 0 only in the source, 0 only in the target, {rows} with" in (
        found.stdout
    )
    assert found.stdout.splitlines()[3].endswith(": st")


@pytest.mark.slow
def test_tables_that_cannot_be_compared_have_status_2(
    scylla: Scylla, table: str, there: Session, target: EmbeddedScylla
) -> None:
    """Incomparable tables and invalid options cause exit status 2 and a one-line error.

    The error says what to do.
    """
    there.execute(f"CREATE TABLE {table}2 (p int PRIMARY KEY, v double)")
    ascending = COLUMNS.replace("DESC", "ASC")
    there.execute(f"CREATE TABLE {table}3 {ascending}")
    for words, message in (
        ((f"{table}2",), f"table {table}2 cannot be compared with {table}: "),
        (
            (f"{table}3",),
            f'table {table}3 is in clustering order ("c" ASC), so it cannot be compared',
        ),
        (("ks.none",), "keyspace ks of table ks.none was not found"),
        (("--columns", "w"), f"columns is 'w': {table} has no such column"),
        (("--target-consistency", "NO"), "Invalid value for '--target-consistency'"),
    ):
        found = compare(scylla, table, target, *words)
        assert found.exit_code == 2, found.output
        assert message in found.stderr
        assert found.stdout == ""

"""Rows are matched by whole keys; keys that are incomplete or not comparable are refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from cdc_reader.errors import SchemaError
from pyspark_scylla_cdc import fold
from pyspark_scylla_cdc.tables.layout import layout_of
from tests.connectors.pyspark_scylla_cdc.tables.test_fold import CHANGES, folded, rows_of, table_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from cdc_reader.testing import Scylla

pytestmark = pytest.mark.spark

Execute = Callable[..., None]
Load = Callable[..., "DataFrame"]
POSTIMAGES = " WITH cdc = {'enabled': true, 'postimage': true}"
TABLE = (
    "CREATE TABLE {t} (pk int, a int, b int, s map<text, int> static, v int, "
    "PRIMARY KEY (pk, a, b))" + POSTIMAGES
)
INCOMPLETE = "found a change with a null in its primary key.*renamed.*: start after"


@pytest.mark.slow
def test_static_maps_in_a_table(
    scylla: Scylla, keyspace: str, execute: Execute, load: Load
) -> None:
    """A static column with a map is kept in the table onto which changes are folded."""
    execute(
        TABLE,
        "UPDATE {t} SET s = {'a': 1} WHERE pk = 1",
        "UPDATE {t} SET s = {'b': 2} WHERE pk = 2",
        "INSERT INTO {t} (pk, a, b, v) VALUES (1, 1, 1, 1)",
        "INSERT INTO {t} (pk, a, b, v) VALUES (1, 2, 1, 2)",
    )
    first = fold(load(**CHANGES)).localCheckpoint()
    assert rows_of(first) == table_of(scylla, f"{keyspace}.t")
    execute(
        "UPDATE {t} SET s['c'] = 3 WHERE pk = 2",
        "DELETE FROM {t} WHERE pk = 1 AND a = 2 AND b = 1",
    )
    changes = load(**CHANGES)
    found = folded(changes.where("pk = 2 OR _change_type = 'delete'"), onto=first)
    assert found == table_of(scylla, f"{keyspace}.t")
    assert {str(row["s"]) for row in found} == {"{'a': 1}", "{'b': 2, 'c': 3}"}


@pytest.mark.parametrize(
    ("key", "kind"),
    [("pk, m", "frozen<map<int, int>>"), ("m, pk", "frozen<list<frozen<map<int, int>>>>")],
)
def test_keys_with_maps_are_refused(execute: Execute, load: Load, key: str, kind: str) -> None:
    """Spark cannot compare maps, so a key that contains one is refused before any row is read."""
    execute(f"CREATE TABLE {{t}} (pk int, m {kind}, PRIMARY KEY ({key})) {POSTIMAGES}")
    frame = load(**CHANGES)
    for refused in (fold, layout_of):
        with pytest.raises(SchemaError, match="key column m is or contains a map, which Spark can"):
            refused(frame)


@pytest.mark.parametrize(
    "kind", ["decimal", pytest.param("frozen<tuple<int, decimal>>", marks=pytest.mark.slow)]
)
def test_clustering_keys_with_decimals_as_text_are_refused(
    execute: Execute, load: Load, kind: str
) -> None:
    """1.0 and 1.00 are one row of the table, but two texts; as numbers, they are equal."""
    execute(f"CREATE TABLE {{t}} (pk decimal, d {kind}, PRIMARY KEY (pk, d)) {POSTIMAGES}")
    for use in (fold, layout_of):
        with pytest.raises(
            SchemaError, match=r"^clustering column d contains decimals, .* give dec"
        ):
            use(load(**CHANGES))
        use(load(**CHANGES, decimalType="decimal(20, 3)"))


@pytest.mark.slow
def test_static_columns_that_are_not_read(execute: Execute, load: Load) -> None:
    """A partition that has only static values has no row in a copy without these columns."""
    execute(
        TABLE.replace("'postimage'", "'preimage': true, 'postimage'"),
        "INSERT INTO {t} (pk, s) VALUES (1, {'a': 1})",
        "UPDATE {t} SET s = {'b': 2} WHERE pk = 2",
        "INSERT INTO {t} (pk, a, b, v) VALUES (3, 1, 1, 1)",
        "UPDATE {t} SET s = {'b': 2} WHERE pk = 3",
    )
    changes = load(**CHANGES, columns="v")
    assert folded(changes) == [{"pk": 3, "a": 1, "b": 1, "v": 1}]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("renamed", "statement"),
    [
        ("pk", "INSERT INTO {t} (pk, a, b, v) VALUES (1, 1, 1, 1)"),
        ("b", "INSERT INTO {t} (pk, a, b, v) VALUES (1, 1, 1, 1)"),
        ("a", "DELETE FROM {t} WHERE pk = 1 AND a = 1 AND b = 1"),
    ],
)
def test_rows_from_before_a_rename(
    execute: Execute, load: Load, renamed: str, statement: str
) -> None:
    """The log does not show the whole key of a row if a key column has been renamed since."""
    execute(TABLE, statement, f"ALTER TABLE {{t}} RENAME {renamed} TO new")
    with pytest.raises(Exception, match=INCOMPLETE):
        folded(load(**CHANGES))


@pytest.mark.slow
@pytest.mark.parametrize("where", ["ck < 1", "ck > 1 AND ck <= 2"])
def test_ranges_from_before_a_rename(execute: Execute, load: Load, where: str) -> None:
    """A range without its bounds would delete the whole partition."""
    execute(
        "CREATE TABLE {t} (pk int, ck int, s int static, v int, PRIMARY KEY (pk, ck))" + POSTIMAGES,
        f"DELETE FROM {{t}} WHERE pk = 1 AND {where}",
        "ALTER TABLE {t} RENAME ck TO new",
        "INSERT INTO {t} (pk, new, v) VALUES (1, 1, 1)",
    )
    with pytest.raises(Exception, match=INCOMPLETE):
        folded(load(**CHANGES))


def test_ranges_that_touch(scylla: Scylla, keyspace: str, execute: Execute, load: Load) -> None:
    """Two ranges of one batch that touch cover all rows of the partition, but no static column."""
    execute(
        "CREATE TABLE {t} (pk int, ck int, s int static, v int, PRIMARY KEY (pk, ck))" + POSTIMAGES,
        *(f"INSERT INTO {{t}} (pk, ck, s, v) VALUES ({pk}, {pk}, 1, 1)" for pk in (1, 2)),
        "BEGIN BATCH DELETE FROM {t} WHERE pk = 1 AND ck < 1; "
        "DELETE FROM {t} WHERE pk = 1 AND ck >= 1; APPLY BATCH",
    )
    found = folded(load(**CHANGES))
    assert found == table_of(scylla, f"{keyspace}.t")
    assert {row["ck"] for row in found} == {2, None}


def test_whole_keys(scylla: Scylla, keyspace: str, execute: Execute, load: Load) -> None:
    """Changes of static columns, partitions and open ranges have no clustering key."""
    execute(
        TABLE,
        *(f"INSERT INTO {{t}} (pk, a, b, v) VALUES ({pk}, 1, 1, 1)" for pk in range(4)),
        *(f"INSERT INTO {{t}} (pk, a, b, v) VALUES ({pk}, 2, 2, 1)" for pk in range(4)),
        "UPDATE {t} SET s = {'a': 1} WHERE pk = 1",
        "INSERT INTO {t} (pk, s) VALUES (2, {'b': 2})",
        "DELETE s FROM {t} WHERE pk = 1",
        "DELETE FROM {t} WHERE pk = 0",
        "DELETE FROM {t} WHERE pk = 1 AND a > 1",
        "DELETE FROM {t} WHERE pk = 2 AND a <= 1",
        "DELETE FROM {t} WHERE pk = 3 AND a = 1 AND b > 0",
    )
    found = folded(load(**CHANGES))
    assert found == table_of(scylla, f"{keyspace}.t")
    assert len(found) == 3

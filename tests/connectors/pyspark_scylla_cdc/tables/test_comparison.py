"""`Mirror.compare` finds each row in which a copy differs from its table, and no other."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import deltalake
import pytest
from pyspark.sql import functions as sf
from pyspark.sql.types import DoubleType, MapType, StringType

from cdc_reader.errors import CheckpointError
from pyspark_scylla_cdc import Mirror
from pyspark_scylla_cdc.mirroring.comparison import comparable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

Execute = Callable[..., None]
Start = Callable[..., Mirror]
TYPES = {
    "d": ("double", "NaN"),
    "f": ("float", "-0.0"),
    "n": ("decimal", "1E-7"),
    "i": ("varint", "1" * 40),
    "b": ("blob", "0x00ff"),
    "u": ("timeuuid", "2a51ca50-cbf5-11f0-8de9-0242ac120002"),
    "du": ("duration", "1mo2d3ns"),
    "at": ("timestamp", "-7"),
    "da": ("date", "'2026-11-28'"),
    "ti": ("time", "'12:00:00.000000001'"),
    "ip": ("inet", "'::1'"),
    "l": ("list<int>", "[1, 2]"),
    "s": ("set<text>", "{'b', 'a'}"),
    "m": ("map<text, frozen<map<int, double>>>", "{'z': {2: NaN, 1: 0.5}, 'a': {}}"),
    "t": ("frozen<tuple<int, frozen<map<text, int>>>>", "(1, {'y': 1, 'x': 2})"),
}
TABLE = (
    "CREATE TABLE {t} (pk int, a text, v int, st int static, "
    + ", ".join(f"{name} {kind}" for name, (kind, _) in TYPES.items())
    + ", PRIMARY KEY (pk, a)) WITH cdc = {'enabled': true, 'postimage': true}"
)
VALUES = ", ".join(value for _, value in TYPES.values())


def rows(keys: Iterable[tuple[int, str]]) -> list[str]:
    """Return statements that write a row with a value of each type for each key."""
    names = ", ".join(TYPES)
    return [
        f"INSERT INTO {{t}} (pk, a, v, {names}) VALUES ({pk}, '{a}', 1, {VALUES})" for pk, a in keys
    ]


@pytest.mark.parametrize("history", [False, pytest.param(True, marks=pytest.mark.nightly)])
def test_rows_that_differ(
    spark: SparkSession, execute: Execute, start: Start, place: dict[str, str], history: bool
) -> None:
    """A copy equals its table; then each kind of difference is found, with keys and columns."""
    execute(
        TABLE,
        *rows([(1, "x"), (1, "y"), (2, "x"), (3, "")]),
        "INSERT INTO {t} (pk, st) VALUES (9, 9)",
        "UPDATE {t} SET st = 1 WHERE pk = 1",
    )
    start(**place, history=history).awaitTermination()
    execute("UPDATE {t} SET v = 2 WHERE pk = 1 AND a = 'x'")
    copy = start(**place, history=history)
    copy.awaitTermination()
    found = copy.compare()
    assert found.is_equal, str(found)
    assert (found.table_rows, found.copy_rows, found.newer) == (5, 5, 0)
    assert "table: 5 rows" in str(found)
    assert str(found).endswith("no row differs")
    change(spark, place, "DELETE FROM {t} WHERE pk = 2")
    change(spark, place, "UPDATE {t} SET v = 7, d = -1 WHERE pk = 3")
    change(spark, place, "UPDATE {t} SET st = 8 WHERE pk = 9")
    found = copy.compare()
    assert not found.is_equal
    assert dict(found.differing) == {"missing": 1, "extra": 0, "changed": 2}
    assert [*found.first] == [
        {"kind": "changed", "key": {"pk": 3, "a": ""}, "columns": ["d", "v"]},
        {"kind": "changed", "key": {"pk": 9}, "columns": ["st"]},
        {"kind": "missing", "key": {"pk": 2, "a": "x"}, "columns": []},
    ]
    assert str(found).splitlines()[2:] == [
        "3 rows differ: 1 only in the table, 0 only in the copy, 2 with other values",
        "  with other values  pk=3, a='': d, v",
        "  with other values  pk=9: st",
        "  only in the table  pk=2, a='x'",
    ]
    assert len(copy.compare(limit=1).first) == 1


def change(spark: SparkSession, place: dict[str, str], statement: str) -> None:
    """Change the copy behind the back of `mirror`."""
    if place["format"] == "iceberg":
        spark.sql(statement.format(t=place["target"]))
        return
    if "io.delta" in (spark.conf.get("spark.sql.extensions", None) or ""):
        spark.sql(statement.format(t=f"delta.`{place['target']}`"))
        return
    table = deltalake.DeltaTable(place["target"])
    what, _, condition = statement.partition(" WHERE ")
    if what.startswith("DELETE"):
        table.delete(condition)
        return
    cells = what.partition(" SET ")[2].split(", ")
    table.update(dict(cell.split(" = ") for cell in cells), predicate=condition)


@pytest.mark.slow
@pytest.mark.parametrize("place", ["deltalake"], indirect=True)
def test_changes_after_the_position(
    spark: SparkSession, execute: Execute, start: Start, place: dict[str, str]
) -> None:
    """Rows that were changed since the copy's position are no differences, and all others are."""
    execute(
        TABLE,
        *rows((pk, a) for pk in range(6) for a in "xy"),
        "INSERT INTO {t} (pk, a) VALUES (8, 'x')",
        *(f"UPDATE {{t}} SET st = 1 WHERE pk = {pk}" for pk in (8, 9, 10)),
    )
    copy = start(**place)
    copy.awaitTermination()
    execute(
        "UPDATE {t} SET v = 2 WHERE pk = 0 AND a = 'x'",
        "DELETE FROM {t} WHERE pk = 1",
        "DELETE FROM {t} WHERE pk = 2 AND a > 'x'",
        "UPDATE {t} SET st = 5 WHERE pk = 3",
        "DELETE FROM {t} WHERE pk = 4 AND a = 'x'",
        "INSERT INTO {t} (pk, a) VALUES (7, 'x')",
        "DELETE FROM {t} WHERE pk = 8 AND a = 'x'",
        "INSERT INTO {t} (pk, a) VALUES (9, 'x')",
    )
    found = copy.compare()
    assert found.is_equal, str(found)
    assert (found.table_rows, found.copy_rows) == (12 - 2 - 1 - 1 + 1 + 3, 12 + 3)
    assert found.newer == 1 + 2 + 1 + 2 + 1 + 1 + 2 + 2
    assert "12 rows were changed since the copy's position, " in str(found)
    change(spark, place, "UPDATE {t} SET v = 7 WHERE pk = 0")
    change(spark, place, "UPDATE {t} SET st = 7 WHERE pk = 10")
    found = copy.compare()
    assert [each["key"] for each in found.first] == [{"pk": 0, "a": "y"}, {"pk": 10}]
    assert (dict(found.differing), found.newer) == ({"missing": 0, "extra": 0, "changed": 2}, 12)


@pytest.mark.slow
@pytest.mark.parametrize("place", ["deltalake"], indirect=True)
def test_a_row_that_the_copy_has_twice(
    execute: Execute, start: Start, place: dict[str, str]
) -> None:
    """The second one is a row that only the copy has."""
    execute(
        "CREATE TABLE {t} (pk int PRIMARY KEY) WITH cdc = {'enabled': true}",
        *(f"INSERT INTO {{t}} (pk) VALUES ({pk})" for pk in range(3)),
    )
    copy = start(**place)
    copy.awaitTermination()
    table = deltalake.DeltaTable(place["target"])
    rows = table.to_pyarrow_table(filters=[("pk", "=", 1)])
    deltalake.write_deltalake(table, rows, mode="append")
    found = copy.compare()
    assert (found.table_rows, found.copy_rows) == (3, 4)
    assert dict(found.differing) == {"missing": 0, "extra": 1, "changed": 0}
    assert [row["key"] for row in found.first] == [{"pk": 1}]


@pytest.mark.parametrize("place", ["deltalake"], indirect=True)
def test_a_copy_without_its_snapshot(execute: Execute, start: Start, place: dict[str, str]) -> None:
    """A copy that has not begun, or whose snapshot is under way, cannot be compared."""
    execute("CREATE TABLE {t} (pk int PRIMARY KEY) WITH cdc = {'enabled': true}")
    copy = start(**{**place, "trigger": {"processingTime": "1 hour"}})
    copy.stop()
    Path(place["checkpoint"], "commits", "0").unlink(missing_ok=True)
    with pytest.raises(CheckpointError, match="does not have all rows of the table yet: compare"):
        copy.compare()


def test_values_that_spark_holds_equal(spark: SparkSession) -> None:
    """Maps are equal in any order; 0.0 and -0.0 differ; NaN equals itself."""
    frame = spark.sql(
        "SELECT map('a', 0.0D, 'b', double('NaN')) x, map('b', double('NaN'), 'a', 0.0D) y, "
        "map('b', double('NaN'), 'a', -0.0D) z, CAST(NULL AS map<string, double>) n"
    )
    kind = MapType(StringType(), DoubleType())

    def equal(one: str, other: str) -> Any:
        same = comparable(sf.col(one), kind).eqNullSafe(comparable(sf.col(other), kind))
        return frame.select(same).collect()[0][0]

    assert [equal("x", "y"), equal("x", "z"), equal("x", "n"), equal("n", "n")] == [
        True,
        False,
        False,
        True,
    ]

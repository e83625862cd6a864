"""Folded changes equal the table that they changed."""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from cassandra.util import OrderedMapSerializedKey, SortedSet, uuid_from_time

from cdc_reader._time import SystemClock
from cdc_reader.errors import ConfigurationError, SchemaError
from pyspark_scylla_cdc import fold

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from cdc_reader.testing import Scylla

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("in_two_tasks")]

Execute = Callable[..., None]
Load = Callable[..., "DataFrame"]
CHANGES = {
    "format": "changes",
    "includeDelta": "true",
    "rangeDeletes": "emit",
    "maxPartitions": "2",
}
TABLE = (
    "CREATE TABLE {t} (pk int, a text, b timeuuid, s int static, v int, w set<int>, "
    "m map<text, int>, l frozen<list<int>>, PRIMARY KEY (pk, a, b)) "
    "WITH CLUSTERING ORDER BY (a DESC, b ASC) AND cdc = "
)
IMAGES = {
    "postimages": "{'enabled': true, 'postimage': true}",
    "full images": "{'enabled': true, 'preimage': 'full', 'postimage': true}",
}
TIMES = [uuid_from_time(number, clock_seq=9, node=5) for number in range(4)]


def table_of(scylla: Scylla, name: str) -> list[dict[str, Any]]:
    """Return the rows of a table on the server, sorted."""
    result = scylla.session.execute(f"SELECT * FROM {name}")
    return in_order(dict(zip(result.column_names, row, strict=True)) for row in result)


def in_order(rows: Any) -> list[dict[str, Any]]:
    """Return the rows in a common form, sorted."""
    plain = [{name: value_of(cell) for name, cell in row.items()} for row in rows]
    return sorted(plain, key=repr)


def value_of(cell: Any) -> Any:
    """Convert the driver's types to plain Python types."""
    if isinstance(cell, SortedSet):
        return sorted(cell)
    if isinstance(cell, OrderedMapSerializedKey):
        return dict(cell)
    return str(cell) if isinstance(cell, uuid.UUID) else cell


def folded(frame: DataFrame, **more: Any) -> list[dict[str, Any]]:
    """Fold the changes, and return the rows, sorted."""
    return rows_of(fold(frame, **more))


def rows_of(frame: DataFrame) -> list[dict[str, Any]]:
    """Return the rows of a DataFrame, sorted."""
    return in_order(row.asDict(recursive=True) for row in frame.collect())


def random_statements(seed: int, count: int, before: int = 0) -> list[str]:
    """Return writes and deletes of all kinds, some with older timestamps."""
    draw = random.Random(seed)
    return [statement(draw, before) for _ in range(count)]


def statement(draw: random.Random, before: int) -> str:
    """Draw a statement. An explicit timestamp is at most a millisecond after `before`."""
    pk, a, b = draw.randrange(3), draw.choice("xyz"), draw.choice(TIMES)
    row = f"pk = {pk} AND a = '{a}' AND b = {b}"
    at = f"USING TIMESTAMP {before + draw.randrange(1_000)} " if draw.random() < 0.3 else ""
    v, w = draw.choice(["null", "1", "2", "3"]), draw.choice(["null", "{1}", "{2, 3}"])
    m, elements = (
        draw.choice(["null", "{'x': 1}", "{'y': 2, 'z': 3}"]),
        draw.choice(["null", "[2, 1]"]),
    )
    other = draw.choice(TIMES)
    if draw.random() < 0.75:
        return draw.choice(
            [
                f"INSERT INTO {{t}} (pk, a, b) VALUES ({pk}, '{a}', {b}) {at}",
                f"INSERT INTO {{t}} (pk, a, b, v, w) VALUES ({pk}, '{a}', {b}, {v}, {w}) {at}",
                f"UPDATE {{t}} {at}SET v = {v} WHERE {row}",
                f"UPDATE {{t}} SET w = w + {{{draw.randrange(4)}}} WHERE {row}",
                f"UPDATE {{t}} {at}SET s = {v} WHERE pk = {pk}",
                f"INSERT INTO {{t}} (pk, a, b, m, l) VALUES ({pk}, '{a}', {b}, {m}, {elements})",
                f"UPDATE {{t}} SET m = m + {{'{a}': {pk}}}, v = {v} WHERE {row}",
                f"UPDATE {{t}} SET m = m - {{'{a}'}} WHERE {row}",
                f"UPDATE {{t}} {at}SET l = {elements} WHERE {row}",
            ]
        )
    return draw.choice(
        [
            f"DELETE FROM {{t}} {at}WHERE {row}",
            f"DELETE FROM {{t}} {at}WHERE pk = {pk}",
            f"DELETE FROM {{t}} WHERE pk = {pk} AND a = '{a}'",
            f"DELETE FROM {{t}} WHERE pk = {pk} AND a > '{a}'",
            f"DELETE FROM {{t}} WHERE pk = {pk} AND a <= '{a}'",
            f"DELETE FROM {{t}} WHERE pk = {pk} AND a = '{a}' AND b >= {b} AND b < {other}",
            f"DELETE FROM {{t}} WHERE pk = {pk} AND a = '{a}' AND b > {b}",
        ]
    )


def check_folded(batches: Sequence[tuple[DataFrame, Sequence[dict[str, Any]]]]) -> None:
    """Fold changes onto the result of those before. Each comes with the rows that must result."""
    onto = None
    for changes, rows in batches:
        onto = fold(changes, onto=onto).localCheckpoint()
        assert rows_of(onto) == rows


@pytest.mark.slow
def test_random_statements(scylla: Scylla, keyspace: str, execute: Execute, load: Load) -> None:
    """All kinds of changes fold into the table, even onto the result of an earlier fold."""
    before = SystemClock().now()  # the server has started, so its streams accept these writes
    execute(TABLE + IMAGES["full images"])
    execute(*random_statements(7, 150, before))
    half = table_of(scylla, f"{keyspace}.t")
    assert len(half) >= 5
    first = load(**CHANGES).localCheckpoint()
    middle = SystemClock().now()
    execute(*[text for text in random_statements(8, 80) if "TIMESTAMP" not in text])
    rest = load(**CHANGES, startingTimestamp=str(middle // 1_000))
    check_folded([(first, half), (rest, table_of(scylla, f"{keyspace}.t"))])


@pytest.mark.slow
def test_a_row_with_values_in_unread_columns_only(execute: Execute, load: Load) -> None:
    """A row created by an UPDATE is dropped if none of the columns read has a value."""
    execute(
        TABLE + IMAGES["postimages"],
        f"UPDATE {{t}} SET w = {{1}} WHERE pk = 1 AND a = 'x' AND b = {TIMES[0]}",
        f"INSERT INTO {{t}} (pk, a, b, w) VALUES (2, 'x', {TIMES[0]}, {{1}})",
    )
    rest = load(**CHANGES, columns="v")
    assert [row["pk"] for row in folded(rest)] == [2]


@pytest.mark.slow
def test_a_row_without_values_remains_only_if_inserted(
    scylla: Scylla, keyspace: str, execute: Execute, load: Load
) -> None:
    """Rows without values remain only if they were inserted."""
    row = f"pk = 7 AND a = 'x' AND b = {TIMES[0]}"
    execute(
        TABLE + IMAGES["postimages"],
        *[text for text in random_statements(11, 200) if "TIMESTAMP" not in text],
        f"UPDATE {{t}} SET v = 1 WHERE {row}",
        f"UPDATE {{t}} SET v = null WHERE {row}",
        f"INSERT INTO {{t}} (pk, a, b, v) VALUES (8, 'x', {TIMES[0]}, 1)",
        f"UPDATE {{t}} SET v = null WHERE pk = 8 AND a = 'x' AND b = {TIMES[0]}",
    )
    found = folded(load(**CHANGES))
    assert found == table_of(scylla, f"{keyspace}.t")
    assert [row["pk"] for row in found if row["pk"] >= 7] == [8]


def test_without_images(scylla: Scylla, keyspace: str, execute: Execute, load: Load) -> None:
    """Deltas alone fold into the table, with the last value of each column."""
    execute(
        "CREATE TABLE {t} (pk int PRIMARY KEY, v int, w int) WITH cdc = {'enabled': true}",
        "INSERT INTO {t} (pk, v, w) VALUES (1, 2, 3)",
        "UPDATE {t} SET v = 4 WHERE pk = 1",
        "UPDATE {t} SET w = null WHERE pk = 1",
        "UPDATE {t} SET v = 5 WHERE pk = 2",
        "UPDATE {t} SET v = null WHERE pk = 2",
        "INSERT INTO {t} (pk) VALUES (3)",
        "DELETE FROM {t} WHERE pk = 4",
    )
    found = folded(load(**CHANGES))
    assert found == table_of(scylla, f"{keyspace}.t")
    assert len(found) == 2


@pytest.mark.slow
def test_in_every_micro_batch(
    spark: SparkSession, scylla: Scylla, keyspace: str, execute: Execute, load: Load, tmp_path: Path
) -> None:
    """A Parquet table that each micro-batch updates equals its source at the end."""
    execute(TABLE + IMAGES["postimages"])
    began = SystemClock().now()
    execute(*[text for text in random_statements(9, 120) if "TIMESTAMP" not in text])
    until = SystemClock().now()
    states = iter(range(10**6))
    current: list[str] = []

    def update(changes: DataFrame, _: int) -> None:
        onto = spark.read.parquet(current[-1]) if current else None
        path = str(tmp_path / f"state-{next(states)}")
        changes.persist()
        fold(changes, onto=onto).write.parquet(path)
        changes.unpersist()
        current.append(path)

    stream = load(
        stream=True,
        endingTimestamp=format_ms(until + 1_000),
        startingTimestamp=format_ms(began),
        confidenceWindow="0s",
        maxWindowPerTrigger=f"{(until - began) // 4_000 + 1}ms",
        **CHANGES,
    )
    query = (
        stream.writeStream.foreachBatch(update)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )
    try:
        query.processAllAvailable()
    finally:
        query.stop()
    assert len(current) >= 4
    assert rows_of(spark.read.parquet(current[-1])) == table_of(scylla, f"{keyspace}.t")


def format_ms(micros: int) -> str:
    """Format a time for the options, in ms, rounded down."""
    return str(micros // 1_000)


@pytest.mark.parametrize(
    ("drop", "expected"),
    [
        ("_sequence", "has no column _sequence: changes have format 'changes'"),
        ("_inserted", "has no column _inserted: .* read with includeDelta 'true'"),
    ],
)
def test_refused(execute: Execute, load: Load, drop: str, expected: str) -> None:
    """The error states why the input is not a DataFrame of changes."""
    execute("CREATE TABLE {t} (pk int PRIMARY KEY) WITH cdc = {'enabled': true, 'postimage': true}")
    with pytest.raises(SchemaError, match=expected):
        fold(load(**CHANGES).drop(drop))


def test_a_copy_without_its_key_is_refused(
    spark: SparkSession, execute: Execute, load: Load
) -> None:
    """Rows onto which changes are folded have the whole key."""
    execute("CREATE TABLE {t} (pk int PRIMARY KEY, v int) WITH cdc = {'enabled': true}")
    with pytest.raises(SchemaError, match="has no column pk: onto are the rows of a copy"):
        fold(load(**CHANGES), onto=spark.range(1).selectExpr("1 AS v"))


def test_a_stream_is_refused(execute: Execute, load: Load) -> None:
    """Each micro-batch would be folded on its own, as if there were no rows before it."""
    execute("CREATE TABLE {t} (pk int PRIMARY KEY, v int) WITH cdc = {'enabled': true}")
    with pytest.raises(ConfigurationError, match="call it in foreachBatch"):
        fold(load(stream=True, **CHANGES))


def test_unknown_keys_are_refused(execute: Execute, load: Load) -> None:
    """Without metadata, it is not known which columns are the key."""
    execute(
        "CREATE TABLE {t} (pk int, ck uuid, PRIMARY KEY (pk, ck)) "
        "WITH cdc = {'enabled': true, 'postimage': true}",
        "INSERT INTO {t} (pk, ck) VALUES (1, uuid())",
    )
    bare = (
        load(**CHANGES)
        .drop("_range")
        .selectExpr("pk + 0 AS key", "ck || '' AS ck", "* EXCEPT (pk, ck)")
    )
    with pytest.raises(SchemaError, match="does not say what key is in the table: fold what"):
        fold(bare)


def test_values_in_one_microsecond(
    scylla: Scylla, keyspace: str, execute: Execute, load: Load
) -> None:
    """Of two writes of a value in one microsecond, a null counts as the last, as on the server."""
    at = SystemClock().now()
    execute(
        "CREATE TABLE {t} (pk int PRIMARY KEY, v int, w int) WITH cdc = {'enabled': true}",
        "INSERT INTO {t} (pk, w) VALUES (1, 1)",
        f"UPDATE {{t}} USING TIMESTAMP {at} SET v = null WHERE pk = 1",
        f"UPDATE {{t}} USING TIMESTAMP {at} SET v = 5 WHERE pk = 1",
    )
    found = folded(load(**CHANGES))
    assert found == table_of(scylla, f"{keyspace}.t") == [{"pk": 1, "v": None, "w": 1}]

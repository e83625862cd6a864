"""Range deletes cover the rows that the server deletes, whatever the types of Spark."""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from tests.connectors.pyspark_scylla_cdc.tables.test_fold import CHANGES, folded, table_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from cdc_reader.testing import Scylla

pytestmark = pytest.mark.spark

Execute = Callable[..., None]
Load = Callable[..., "DataFrame"]
POSTIMAGES = "WITH cdc = {'enabled': true, 'postimage': true}"
TABLE = "CREATE TABLE {t} (pk int, ck %s, PRIMARY KEY (pk, ck)) "


def uuids(seed: int) -> list[uuid.UUID]:
    """Draw UUIDs of several versions, and UUIDs of version 1 that differ in one bit only."""
    draw = random.Random(seed)
    found = [
        uuid.UUID(int=draw.getrandbits(128), version=draw.choice([1, 3, 4, 5])) for _ in "x" * 30
    ]
    base = uuid.UUID(int=draw.getrandbits(128), version=1).bytes
    for at in (0, 3, 4, 5, 7, 8, 9, 15):
        changed = (base[at] ^ bit for bit in (0x01, 0x80 if at > 7 else 0x02))
        found += [uuid.UUID(bytes=base[:at] + bytes([it]) + base[at + 1 :]) for it in changed]
    return found


@pytest.mark.slow
@pytest.mark.parametrize("order", ["ASC", "DESC"])
def test_ranges_of_uuids(
    scylla: Scylla, keyspace: str, execute: Execute, load: Load, order: str
) -> None:
    """UUIDs are ordered as the server orders them: by version, then by time or by bytes."""
    keys = uuids(5)
    execute(TABLE % "uuid" + f"WITH CLUSTERING ORDER BY (ck {order}) AND {POSTIMAGES[5:]}")
    for pk, bound in enumerate(keys):
        operator = (">", ">=", "<", "<=")[pk % 4]
        rows = [f"INSERT INTO {{t}} (pk, ck) VALUES ({pk}, {key})" for key in keys]
        execute(*rows, f"DELETE FROM {{t}} WHERE pk = {pk} AND ck {operator} {bound}")
    left = table_of(scylla, f"{keyspace}.t")
    assert len(keys) < len(left) < len(keys) ** 2 - len(keys)
    assert folded(load(**CHANGES)) == left


@pytest.mark.parametrize(
    ("kind", "low", "high"),
    [
        ("inet", "'10.0.0.1'", "'10.0.0.2'"),
        pytest.param("varint", "9", "10", marks=pytest.mark.slow),
        pytest.param("frozen<tuple<int, text>>", "(1, 'a')", "(2, 'b')", marks=pytest.mark.slow),
    ],
)
def test_ranges_in_another_order(
    scylla: Scylla, keyspace: str, execute: Execute, load: Load, kind: str, low: str, high: str
) -> None:
    """Ranges are in the server's order, also of types that Spark orders differently."""
    execute(
        TABLE % kind + POSTIMAGES,
        f"INSERT INTO {{t}} (pk, ck) VALUES (1, {low})",
        f"INSERT INTO {{t}} (pk, ck) VALUES (1, {high})",
        f"INSERT INTO {{t}} (pk, ck) VALUES (2, {low})",
        f"INSERT INTO {{t}} (pk, ck) VALUES (2, {high})",
        f"DELETE FROM {{t}} WHERE pk = 1 AND ck > {low}",
        f"DELETE FROM {{t}} WHERE pk = 2 AND ck < {high}",
    )
    (first, lower), (second, higher) = ((row["pk"], row["ck"]) for row in folded(load(**CHANGES)))
    assert (first, second) == (1, 2)
    assert len(table_of(scylla, f"{keyspace}.t")) == 2
    assert lower != higher


@pytest.mark.parametrize("kind", ["frozen<pair>", "frozen<list<frozen<pair>>>"])
def test_ranges_beside_user_types(keyspace: str, execute: Execute, load: Load, kind: str) -> None:
    """Whole keys and partitions with user-defined types are deleted, and ranges are refused."""
    value = "{x: 1}" if kind == "frozen<pair>" else "[{x: 1}]"
    execute(
        f"CREATE TYPE {keyspace}.pair (x int)",
        f"CREATE TABLE {{t}} (pk int, a int, b {kind}, PRIMARY KEY (pk, a, b)) {POSTIMAGES}",
        *(f"INSERT INTO {{t}} (pk, a, b) VALUES ({pk}, {pk}, {value})" for pk in (1, 2, 3)),
        f"DELETE FROM {{t}} WHERE pk = 1 AND a = 1 AND b = {value}",
        "DELETE FROM {t} WHERE pk = 2",
    )
    assert [row["a"] for row in folded(load(**CHANGES))] == [3]
    execute("DELETE FROM {t} WHERE pk = 3 AND a = 3")
    with pytest.raises(Exception, match="clustering column b cannot be compared: found a user-d"):
        folded(load(**CHANGES))


@pytest.mark.slow
def test_decimals_as_numbers(scylla: Scylla, keyspace: str, execute: Execute, load: Load) -> None:
    """With `decimalType`, ranges of varint and decimal are applied."""
    execute(
        TABLE % "varint" + POSTIMAGES,
        *(f"INSERT INTO {{t}} (pk, ck) VALUES (1, {number})" for number in (-10, 9, 10, 100)),
        "DELETE FROM {t} WHERE pk = 1 AND ck > 9 AND ck < 100",
    )
    found = folded(load(**CHANGES, decimalType="decimal(38, 0)"))
    assert [int(row["ck"]) for row in found] == [-10, 100, 9]
    assert len(table_of(scylla, f"{keyspace}.t")) == 3

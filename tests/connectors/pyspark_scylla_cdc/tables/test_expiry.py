"""Rows and values that expire go from copies, in each format."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import pytest

from tests.connectors.pyspark_scylla_cdc.support.copied_rows import Row, wait_until
from tests.connectors.pyspark_scylla_cdc.tables.conftest import Start

if TYPE_CHECKING:
    from cdc_reader.testing import Scylla
    from pyspark_scylla_cdc import Mirror

Execute = Callable[..., None]
CDC = "WITH cdc = {'enabled': true, 'postimage': true}"
FOLLOWING = {"trigger": {"processingTime": "0 seconds"}}
STATEMENTS = 120
BEAT = "UPDATE {t} SET v = 5 WHERE pk = 9 AND ck = 9"
RANDOM_BEAT = "UPDATE {t} SET a = 5 WHERE pk = 'p9' AND ck = 9"


def await_equal(copy: Mirror, scylla: Scylla, table: str, beat: str) -> None:
    """Wait until the copy equals the table; raise the error of a failed query.

    The statement `beat` makes a change each time, without which there are few micro-batches.
    """

    def is_equal() -> bool:
        scylla.session.execute(beat.replace("{t}", table))
        copy.awaitTermination(timeout=0.1)
        found = copy.read()
        if "is_current" in found.columns:
            found = found.where("is_current").drop("valid_from", "valid_to", "is_current")
        return in_order(row.asDict() for row in found.collect()) == rows_of(scylla, table)

    wait_until(is_equal)


def rows_of(scylla: Scylla, table: str) -> list[Row]:
    """Return the rows of the table."""
    return in_order(row._asdict() for row in scylla.session.execute(f"SELECT * FROM {table}"))


def in_order(rows: Iterable[Row]) -> list[Row]:
    """Return rows in an order of their own; empty maps are null."""
    plain = [{**row, "m": dict(row["m"]) if row["m"] else None} for row in rows]
    return sorted([dict(sorted(row.items())) for row in plain], key=repr)


@pytest.mark.parametrize("history", [False, True], ids=["rows", "versions"])
@pytest.mark.parametrize("statics", ["", "s int static, "], ids=["plain", "statics"])
def test_what_expires_goes_from_the_copy(
    scylla: Scylla,
    keyspace: str,
    execute: Execute,
    start: Start,
    place: dict[str, str],
    statics: str,
    history: bool,
) -> None:
    """Whole rows, single values, elements of collections, and static values expire."""
    columns = f"pk int, ck int, v int, {statics}m map<int, int>, PRIMARY KEY (pk, ck)"
    execute(
        f"CREATE TABLE {{t}} ({columns}) {CDC}",
        "INSERT INTO {t} (pk, ck, v) VALUES (1, 1, 1)",
        "INSERT INTO {t} (pk, ck, v) VALUES (1, 2, 1) USING TTL 4",
        "UPDATE {t} USING TTL 4 SET v = 1 WHERE pk = 2 AND ck = 1",
    )
    copy = start(**place, **FOLLOWING, history=history)
    await_equal(copy, scylla, f"{keyspace}.t", BEAT)
    execute(
        "INSERT INTO {t} (pk, ck, v, m) VALUES (3, 1, 1, {1: 1}) USING TTL 2",
        "INSERT INTO {t} (pk, ck, v, m) VALUES (3, 2, 1, {1: 1})",
        "UPDATE {t} USING TTL 2 SET v = 2, m[2] = 2 WHERE pk = 3 AND ck = 2",
        "UPDATE {t} USING TTL 1 SET v = 2 WHERE pk = 1 AND ck = 1",
    )
    if statics:
        execute("UPDATE {t} USING TTL 2 SET s = 1 WHERE pk = 3")
        execute("UPDATE {t} USING TTL 2 SET s = 1 WHERE pk = 4")
    wait_until(lambda: keys(scylla, f"{keyspace}.t") == [(1, 1), (3, 2), (9, 9)])
    await_equal(copy, scylla, f"{keyspace}.t", BEAT)
    copy.stop()
    if history and not statics:
        ends = copy.read().where("pk = 3 AND ck = 1").select("valid_to").collect()
        assert all(end.microsecond == 0 for (end,) in ends)  # the server counts in seconds


def keys(scylla: Scylla, table: str) -> list[tuple[int, int]]:
    """Return the keys of the rows of the table."""
    return sorted((row["pk"], row["ck"]) for row in rows_of(scylla, table))


@pytest.mark.slow
@pytest.mark.parametrize("history", [False, True], ids=["rows", "versions"])
@pytest.mark.parametrize("default_ttl", [0, 5])
def test_random_statements_with_ttls(
    scylla: Scylla,
    keyspace: str,
    execute: Execute,
    start: Start,
    place: dict[str, str],
    default_ttl: int,
    history: bool,
) -> None:
    """The copy equals the table once all that expires has expired."""
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    draw = random.Random(seed)
    execute(
        "CREATE TABLE {t} (pk text, ck int, a int, m map<int, int>, s int static, "
        f"PRIMARY KEY (pk, ck)) {CDC} AND default_time_to_live = {default_ttl}"
    )
    copy = start(**place, **FOLLOWING, history=history)
    await_equal(copy, scylla, f"{keyspace}.t", RANDOM_BEAT)
    for _ in range(STATEMENTS):
        key = f"'p{draw.randrange(4)}', {draw.randrange(3)}"
        pk, ck = key.split(", ")
        where, ttl = f"pk = {pk} AND ck = {ck}", draw.choice(["", "", " USING TTL 1"])
        execute(
            draw.choice(
                [
                    f"INSERT INTO {{t}} (pk, ck, a) VALUES ({key}, 1){ttl}",
                    f"INSERT INTO {{t}} (pk, ck, m) VALUES ({key}, {{1: 2}}){ttl}",
                    f"UPDATE {{t}}{ttl} SET a = {draw.randrange(5)} WHERE {where}",
                    f"UPDATE {{t}}{ttl} SET m[{draw.randrange(3)}] = 1 WHERE {where}",
                    f"UPDATE {{t}}{ttl} SET s = {draw.randrange(5)} WHERE pk = {pk}",
                    f"DELETE FROM {{t}} WHERE {where}",
                ]
            )
        )
        copy.awaitTermination(timeout=0.02)
    await_equal(copy, scylla, f"{keyspace}.t", RANDOM_BEAT)
    copy.stop()

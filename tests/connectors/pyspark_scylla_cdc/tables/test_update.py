"""How micro-batches are written: the first rows are appended, and merges seldom read the copy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import deltalake
import pytest
from pyspark.sql import DataFrame

from pyspark_scylla_cdc import Mirror
from pyspark_scylla_cdc.tables import update as updating
from tests.connectors.pyspark_scylla_cdc.tables.test_fold import rows_of

pytestmark = pytest.mark.spark

Execute = Callable[..., None]
Start = Callable[..., Mirror]
DELTALAKE = pytest.mark.parametrize("place", ["deltalake"], indirect=True)


@pytest.mark.slow
@DELTALAKE
@pytest.mark.parametrize("history", [False, True], ids=["rows", "versions"])
def test_the_first_rows_are_appended(
    execute: Execute, start: Start, place: dict[str, str], history: bool
) -> None:
    """Micro-batches of the snapshot are appended, each once; later ones are merged."""
    create = "CREATE TABLE {t} (pk int, ck int, s int static, v int, PRIMARY KEY (pk, ck))"
    execute(
        create + " WITH cdc = {'enabled': true}",
        *(f"INSERT INTO {{t}} (pk, ck, v) VALUES ({pk}, {pk}, 1)" for pk in range(30)),
        *(f"UPDATE {{t}} SET s = {pk} WHERE pk = {pk}" for pk in range(20, 40)),
    )
    copy = start({"maxRowsPerTrigger": "10"}, **place, history=history)
    assert copy.awaitTermination()
    table = deltalake.DeltaTable(place["target"])
    done = [commit["operation"] for commit in table.history()[::-1]]
    assert set(done[1:]) == {"WRITE"}
    assert len(done) > 3
    found = {(row["pk"], row["ck"]): (row["s"], row["v"]) for row in rows_of(copy.read())}
    assert found == {
        (pk, pk if pk < 30 else None): (pk if pk >= 20 else None, 1 if pk < 30 else None)
        for pk in range(40)
    }
    execute("UPDATE {t} SET v = 2 WHERE pk = 1 AND ck = 1")
    copy = start(**place, history=history)
    assert copy.awaitTermination()
    assert copy.compare().is_equal
    assert "MERGE" in {commit["operation"] for commit in table.history()}


@DELTALAKE
def test_micro_batches_that_do_not_read_the_copy(
    execute: Execute, start: Start, place: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only deletes of ranges and partitions need the copy's rows."""
    execute(
        "CREATE TABLE {t} (pk int, ck int, v int, PRIMARY KEY (pk, ck)) "
        "WITH cdc = {'enabled': true}",
        *(f"INSERT INTO {{t}} (pk, ck, v) VALUES (1, {ck}, 1)" for ck in range(5)),
    )
    assert start(**place).awaitTermination()
    reads, there = [], updating._rows_in

    def read(*given: Any) -> DataFrame:
        reads.append(given)
        return there(*given)

    monkeypatch.setattr(updating, "_rows_in", read)
    execute(
        "UPDATE {t} SET v = 2 WHERE pk = 1 AND ck = 1",
        "DELETE FROM {t} WHERE pk = 1 AND ck = 2",
        "UPDATE {t} SET v = null WHERE pk = 1 AND ck = 3",
        "INSERT INTO {t} (pk, ck) VALUES (2, 2)",
    )
    copy = start(**place)
    assert copy.awaitTermination()
    assert not reads
    assert copy.compare().is_equal
    execute("DELETE FROM {t} WHERE pk = 1 AND ck > 3")
    copy = start(**place)
    assert copy.awaitTermination()
    assert reads
    assert copy.compare().is_equal


def test_a_merge_without_an_effect(execute: Execute, start: Start, place: dict[str, str]) -> None:
    """It is recorded too: the micro-batch after it follows."""
    execute(
        "CREATE TABLE {t} (pk int PRIMARY KEY, v int) WITH cdc = {'enabled': true}",
        "INSERT INTO {t} (pk, v) VALUES (1, 1)",
    )
    assert start(**place).awaitTermination()
    execute("DELETE FROM {t} WHERE pk = 7")
    assert start(**place).awaitTermination()
    execute("UPDATE {t} SET v = 2 WHERE pk = 1")
    copy = start(**place)
    assert copy.awaitTermination()
    assert rows_of(copy.read()) == [{"pk": 1, "v": 2}]

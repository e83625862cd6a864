"""Folds and copies of fixed statements detect defects. Each test breaks the code in one way."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from attrs import frozen
from pyspark.sql import functions as sf

from cdc_reader._time import SystemClock
from cdc_reader.changes.frames import columns as names
from cdc_reader.copies.merging import Merge
from cdc_reader.testing import EmbeddedScylla, Scylla
from pyspark_scylla_cdc.tables import fold as folding
from pyspark_scylla_cdc.tables import ranges, update
from pyspark_scylla_cdc.tables.fold import Fold
from pyspark_scylla_cdc.tables.ranges import column
from tests.connectors.pyspark_scylla_cdc.tables import test_keys
from tests.connectors.pyspark_scylla_cdc.tables.test_fold import (
    CHANGES,
    IMAGES,
    TABLE,
    TIMES,
    check_folded,
    random_statements,
    table_of,
)
from tests.connectors.pyspark_scylla_cdc.tables.test_sink import check_merged
from tests.mutations import Mutation, with_fixtures

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.usefixtures("one_job_a_fold"),
]

Check = Callable[..., None]
Execute = Callable[..., None]
Load = Callable[..., "DataFrame"]
Rows = list[dict[str, Any]]
SEED = 6


@frozen
class Life:
    """The changes of a table, and a time after each statement with the rows at that time."""

    changes: DataFrame
    seen: list[tuple[int, Rows]]

    @property
    def halves(self) -> list[tuple[DataFrame, Rows]]:
        """The changes in two batches, each with the rows after it."""
        middle, rows = self.seen[len(self.seen) // 2]
        is_first = sf.unix_micros(names.COMMIT_TIMESTAMP) <= middle
        parts = self.changes.where(is_first), self.changes.where(~is_first)
        return list(zip(parts, (rows, self.seen[-1][1]), strict=True))


@pytest.fixture(scope="module")
def life(spark: SparkSession) -> Iterator[Life]:
    """Random statements, and deletes in the microsecond of a later write."""
    with (
        EmbeddedScylla(seed=SEED) as server,
        Scylla("embedded", server.host, server.port) as scylla,
    ):
        execute, seen = scylla.session.execute, []
        execute(
            "CREATE KEYSPACE ks WITH replication = "
            "{'class': 'NetworkTopologyStrategy', 'replication_factor': 1}"
        )
        execute((TABLE + IMAGES["full images"]).replace("{t}", "ks.t"))
        statements = random_statements(SEED, 110)
        for text in (f"INSERT INTO {{t}} (pk, a, b) VALUES (9, 'x', {TIMES[0]})", *statements):
            if "TIMESTAMP" not in text:
                execute(text.replace("{t}", "ks.t"))
                seen.append((SystemClock().now(), table_of(scylla, "ks.t")))
        for number in range(10):
            at, row = SystemClock().now(), f"pk = 1 AND a = 'c{number}' AND b = {TIMES[0]}"
            execute(f"DELETE FROM ks.t USING TIMESTAMP {at} WHERE {row}")
            execute(f"UPDATE ks.t USING TIMESTAMP {at} SET v = 1 WHERE {row}")
        execute("DELETE FROM ks.t WHERE pk = 9")
        seen.append((SystemClock().now(), table_of(scylla, "ks.t")))
        options = {"hosts": scylla.contact_point, "path": "ks.t", "consistencyLevel": "ONE"}
        frame = spark.read.format("scylla_cdc").options(**options, **CHANGES)
        yield Life(frame.load().localCheckpoint(), seen)


def _fold(life: Life) -> None:
    check_folded(life.halves)


def _copy(life: Life, tmp_path: Path) -> None:
    check_merged(tmp_path / "copy", life.halves)


def _renamed_key(execute: Execute, load: Load) -> None:
    test_keys.test_ranges_from_before_a_rename(execute, load, "ck > 1")


def _in_order_of_arrival() -> Column:
    return sf.struct(*map(column, (names.COMMIT_TIMESTAMP, names.COMMIT_VERSION, names.SEQUENCE)))


def _inclusive(fields: Any, bound: Column, _inclusive: Column, *, is_start: bool) -> Column:
    return _BEYOND(fields, bound, sf.lit(True), is_start=is_start)


def _last_not_null(_self: Fold, values: list[str], order: Column) -> dict[str, Column]:
    return {
        name: sf.max_by(column(name), sf.when(column(name).isNotNull(), order)) for name in values
    }


def _rows_alone(self: Fold, table: DataFrame) -> DataFrame:
    is_row = column(self._clustering[0]).isNotNull()
    return self._inserts(table.where(is_row).drop(*self._statics), self._regulars)


_BEYOND = ranges._beyond

MUTATIONS: dict[str, tuple[Check, Mutation]] = {
    "order: a delete does not come after the writes of its microsecond": (
        (_fold, Mutation(folding, "order_of_changes", _in_order_of_arrival))
    ),
    "ranges: an exclusive bound includes its row": (
        (_fold, Mutation(ranges, "_beyond", _inclusive))
    ),
    "keys: a change without its whole key is taken for one of the partition": (
        (_renamed_key, Mutation(folding, "check_whole", lambda *_, **__: sf.lit(True)))
    ),
    "values: a column that becomes null keeps its last value": (
        (_fold, Mutation(Fold, "_last_set", _last_not_null))
    ),
    "onto: static columns are forgotten": (_fold, Mutation(Fold, "_as_changes", _rows_alone)),
    "sink: an older checkpoint goes on": (_copy, Mutation(update, "has", lambda *_: False)),
    "sink: deleted rows stay": (_copy, Mutation(Merge, "is_gone", "false")),
}
"""The check that detects the defect, and the defect."""


@pytest.mark.parametrize("check", dict.fromkeys(check for check, _ in MUTATIONS.values()))
def test_the_checks_pass(check: Check, request: pytest.FixtureRequest) -> None:
    """Without a defect, each of the checks passes."""
    with_fixtures(check, request)()


@pytest.mark.parametrize("mutation", MUTATIONS)
def test_the_statements_find_what_is_broken(
    mutation: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The check fails with the defect."""
    check, broken = MUTATIONS[mutation]
    broken.check_found(with_fixtures(check, request), monkeypatch)

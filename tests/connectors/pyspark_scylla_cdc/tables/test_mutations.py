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
from pyspark_scylla_cdc.tables import update
from pyspark_scylla_cdc.tables.layout import Layout
from pyspark_scylla_cdc.tables.row_updates import split
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
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.usefixtures("in_two_tasks")]

Check = Callable[..., None]
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


MUTATIONS: dict[str, tuple[Check, Mutation]] = {
    "fold: the changes of a partition are folded apart": (
        (_fold, Mutation(Layout, "place", lambda *_: ["uuid()"]))
    ),
    "onto: the copy's rows are forgotten": (
        (_fold, Mutation(folding, "split", lambda given: (split(given)[0], None)))
    ),
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

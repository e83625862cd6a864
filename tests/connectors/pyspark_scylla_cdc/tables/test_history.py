"""The versions that are valid at a time equal the table at that time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as sf

from cdc_reader._time import SystemClock
from pyspark_scylla_cdc import fold
from pyspark_scylla_cdc.tables.history import versions
from pyspark_scylla_cdc.tables.layout import IS_CURRENT, VALID_FROM, VALID_TO, VERSION, layout_of
from tests.connectors.pyspark_scylla_cdc.support.copied_rows import check_copy, made_by_updates
from tests.connectors.pyspark_scylla_cdc.tables.test_fold import (
    CHANGES,
    IMAGES,
    TABLE,
    TIMES,
    in_order,
    random_statements,
    rows_of,
    table_of,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from cdc_reader.testing import Scylla

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("one_job_a_fold")]

Rows = list[dict[str, Any]]
Execute = Callable[..., None]
Load = Callable[..., "DataFrame"]
Watch = Callable[[Sequence[str]], list[tuple[int, Rows]]]


@pytest.fixture
def watch(scylla: Scylla, keyspace: str, execute: Execute) -> Watch:
    """Execute statements. Return a time after each of them, and the table's rows at that time."""

    def watch(statements: Sequence[str]) -> list[tuple[int, Rows]]:
        seen = []
        for statement in statements:
            execute(statement)
            seen.append((SystemClock().now(), table_of(scylla, f"{keyspace}.t")))
        return seen

    return watch


def onto_nothing(changes: DataFrame) -> DataFrame:
    """Return the versions that result from applying changes to an empty table."""
    schema = layout_of(changes, history=True).schema
    return versions(changes, changes.sparkSession.createDataFrame([], schema))


def told(frame: DataFrame) -> Rows:
    """Return the rows of a DataFrame of versions, with their validity in microseconds."""
    times = {name: sf.unix_micros(name) for name in (VALID_FROM, VALID_TO)}
    return rows_of(frame.withColumns(times))


def valid_at(time: int, found: Rows) -> Rows:
    """Return the rows that were valid at a time."""
    return in_order(
        {name: cell for name, cell in row.items() if name not in VERSION}
        for row in found
        if row[VALID_FROM] <= time and (row[VALID_TO] is None or time < row[VALID_TO])
    )


def check_versions(changes: DataFrame, seen: list[tuple[int, Rows]]) -> None:
    """Assert that the versions valid at each time are the rows that the table had then."""
    found = told(onto_nothing(changes))
    assert len(found) > len(seen) / 2
    for time, rows in seen:
        assert valid_at(time, found) == rows
    assert {row[IS_CURRENT] for row in found} == {True, False}
    assert all(row[IS_CURRENT] == (row[VALID_TO] is None) for row in found)


@pytest.mark.slow
def test_the_valid_versions_are_the_table_at_each_time(
    execute: Execute, load: Load, watch: Watch
) -> None:
    """The versions valid at each time equal the table, after writes and deletes of all kinds."""
    execute(TABLE + IMAGES["full images"])
    seen = watch([text for text in random_statements(3, 60) if "TIMESTAMP" not in text])
    check_versions(load(**CHANGES).persist(), seen)


@pytest.mark.nightly
@pytest.mark.parametrize("seed", [1, 2])
def test_in_every_micro_batch(execute: Execute, load: Load, watch: Watch, seed: int) -> None:
    """The versions valid at each time equal the table, even if several micro-batches add them."""
    execute(TABLE + IMAGES["full images"])
    statements = [text for text in random_statements(seed, 120) if "TIMESTAMP" not in text]
    execute(*statements[:10])
    starts = [SystemClock().now() // 1_000 + 1]
    ended: Rows = []
    seen: list[tuple[int, Rows]] = []
    found = onto_nothing(load(**CHANGES)).localCheckpoint()
    for first in range(10, len(statements), 30):
        seen += watch(statements[first : first + 30])
        starts.append(SystemClock().now() // 1_000 + 1)
        changes = load(
            **CHANGES,
            startingTimestamp=str(starts[-2]),
            endingTimestamp=str(starts[-1]),
        )
        found = versions(changes, found.where(IS_CURRENT)).localCheckpoint()
        ended += told(found.where(f"NOT {IS_CURRENT}"))
    kept = ended + told(found.where(IS_CURRENT))
    assert len(kept) > len(seen) / 2
    for number, (time, rows) in enumerate(seen, 11):
        by_updates = made_by_updates(statements[:number])
        check_copy(valid_at(time, kept), rows, by_updates)


@pytest.mark.slow
def test_current_versions_are_the_folded_rows(execute: Execute, load: Load) -> None:
    """Current versions equal folded rows, even if timestamps differ from the times of execution."""
    before = SystemClock().now()
    execute(TABLE + IMAGES["full images"], *random_statements(5, 150, before))
    changes = load(**CHANGES).persist()
    found = onto_nothing(changes).where(IS_CURRENT).drop(*VERSION)
    assert rows_of(found) == rows_of(fold(changes))


def test_each_version_ends_when_the_next_begins(execute: Execute, load: Load) -> None:
    """Writes with the same timestamp create one version, or none if they include a delete."""
    now = SystemClock().now()
    execute(
        "CREATE TABLE {t} (pk int PRIMARY KEY, v int, m frozen<map<int, int>>) "
        "WITH cdc = {'enabled': true}",
        f"UPDATE {{t}} USING TIMESTAMP {now} SET v = 1 WHERE pk = 1",
        f"UPDATE {{t}} USING TIMESTAMP {now} SET m = {{7: 8}} WHERE pk = 1",
        f"UPDATE {{t}} USING TIMESTAMP {now + 1} SET v = 2 WHERE pk = 1",
        f"DELETE FROM {{t}} USING TIMESTAMP {now + 2} WHERE pk = 1",
        f"INSERT INTO {{t}} (pk, v) VALUES (1, 3) USING TIMESTAMP {now + 3}",
        f"UPDATE {{t}} USING TIMESTAMP {now} SET v = 4 WHERE pk = 2",
        f"DELETE FROM {{t}} USING TIMESTAMP {now} WHERE pk = 2",
    )
    changes = load(**CHANGES).persist()
    found = [tuple(row.values()) for row in told(onto_nothing(changes))]
    assert sorted(found, key=lambda row: row[3]) == [
        (1, {7: 8}, 1, now, now + 1, False),
        (1, {7: 8}, 2, now + 1, now + 2, False),
        (1, None, 3, now + 3, None, True),
    ]


@pytest.mark.slow
def test_static_columns_alone(execute: Execute, load: Load, watch: Watch) -> None:
    """Static columns form a separate row while their partition contains no other row."""
    execute(TABLE + IMAGES["full images"])
    row = f"pk = 1 AND a = 'x' AND b = {TIMES[0]}"
    seen = watch(
        [
            "UPDATE {t} SET s = 1 WHERE pk = 1",
            f"INSERT INTO {{t}} (pk, a, b) VALUES (1, 'x', {TIMES[0]})",
            f"INSERT INTO {{t}} (pk, a, b) VALUES (1, 'y', {TIMES[0]})",
            "UPDATE {t} SET s = 2 WHERE pk = 1",
            "DELETE FROM {t} WHERE pk = 1 AND a = 'y'",
            f"DELETE FROM {{t}} WHERE {row}",
            "UPDATE {t} SET s = 3 WHERE pk = 1",
            f"UPDATE {{t}} SET v = 1 WHERE {row}",
            f"UPDATE {{t}} SET v = null WHERE {row}",
            "DELETE FROM {t} WHERE pk = 1",
        ]
    )
    found = told(onto_nothing(load(**CHANGES).persist()))
    alone = [(row["s"], row[IS_CURRENT]) for row in found if row["a"] is None]
    assert sorted(alone) == [(1, False), (2, False), (3, False), (3, False)]
    for time, rows in seen:
        assert valid_at(time, found) == rows

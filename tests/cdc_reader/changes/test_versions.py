"""The versions that are valid at a time equal the table at that time."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from attrs import field, frozen

from cdc_reader import CdcReader, ConnectionConfig, TableSchema, fold
from cdc_reader._time import SystemClock
from cdc_reader.changes.folding.history import VALID_TO, versions
from tests.cdc_reader.changes.test_fold import WANTED, compared, cut
from tests.connectors.pyspark_scylla_cdc.tables.test_fold import (
    IMAGES,
    TABLE,
    TIMES,
    random_statements,
    table_of,
)

if TYPE_CHECKING:
    from cdc_reader.testing import Scylla

Row = dict[str, Any]
Execute = Callable[..., None]
Watch = Callable[[Sequence[str]], list[tuple[int, list[Row]]]]
VALID_FROM = "valid_from"


@frozen
class Copy:
    """A copy in memory with all versions, which does to them what it is told, and nothing else."""

    table: TableSchema
    rows: dict[str, Row] = field(factory=dict)

    def apply(self, changes: pa.Table) -> None:
        """Determine the versions after some changes, and apply the result."""
        types = [changes.schema.field(it.name) for it in self.table.columns]
        types += [changes.schema.field(name) for name in ("_inserted", "_expires")]
        types.append(pa.field(VALID_FROM, pa.timestamp("us", "UTC")))
        there = [
            {each.name: row[each.name] for each in types}
            for row in self.rows.values()
            if row[VALID_TO] is None
        ]
        current = pa.Table.from_pylist(there, pa.schema(types))
        for row in versions(self.table, changes, current).to_pylist():
            names = [it.name for it in self.table.columns if it.is_key]
            key = repr([row[name] for name in (*names, VALID_FROM)])
            old = self.rows.pop(key, None)
            if row.pop("_change_type") == "delete":
                assert old is not None
            else:
                self.rows[key] = row

    def valid_at(self, time: int) -> list[Row]:
        """Return the rows that were valid at a time."""
        return compared(
            {name: cell for name, cell in row.items() if name not in (VALID_FROM, VALID_TO)}
            for row in self.rows.values()
            if micros(row[VALID_FROM]) <= time < micros(row[VALID_TO])
        )


def micros(time: Any) -> float:
    """Return a time in µs; without one, a time after all others."""
    return float("inf") if time is None else round(time.timestamp() * 1_000_000)


@pytest.fixture
def watch(scylla: Scylla, keyspace: str, execute: Execute) -> Watch:
    """Execute statements. Return a time after each of them, and the table's rows at that time."""

    def watch(statements: Sequence[str]) -> list[tuple[int, list[Row]]]:
        seen = []
        for statement in statements:
            execute(statement)
            seen.append((SystemClock().now(), table_of(scylla, f"{keyspace}.t")))
        return seen

    return watch


def read(connection: ConnectionConfig, table: str) -> tuple[TableSchema, pa.Table]:
    """Return the table's schema, and all of its changes."""
    with CdcReader(connection, table) as reader:
        changes = pa.Table.from_batches(reader.change_batches(format=WANTED))
        return reader.table.schema.base, changes


@pytest.mark.parametrize("parts", [1, 3, 40])
def test_the_valid_versions_are_the_table_at_each_time(
    execute: Execute, connection: ConnectionConfig, keyspace: str, watch: Watch, parts: int
) -> None:
    """This is so after writes and deletes of all kinds, however the changes are divided."""
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    execute(TABLE + IMAGES["full images"])
    seen = watch([text for text in random_statements(seed, 150) if "TIMESTAMP" not in text])
    base, changes = read(connection, f"{keyspace}.t")
    copy = Copy(base)
    for part in cut(changes, random.Random(seed), parts):
        copy.apply(part)
    assert len(copy.rows) > len(seen) / 2
    for time, rows in seen:
        assert copy.valid_at(time) == rows


def test_current_versions_are_the_folded_rows(
    execute: Execute, connection: ConnectionConfig, keyspace: str
) -> None:
    """Current versions equal folded rows, even if timestamps differ from the times of execution."""
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    execute(TABLE + IMAGES["full images"], *random_statements(seed, 250, SystemClock().now()))
    base, changes = read(connection, f"{keyspace}.t")
    found = versions(base, changes, None)
    current = found.filter(found.column(VALID_TO).is_null())
    rows = current.drop_columns([VALID_FROM, VALID_TO, "_change_type"]).to_pylist()
    assert compared(rows) == compared(fold(base, changes).to_pylist())


def test_each_version_ends_when_the_next_begins(
    execute: Execute, connection: ConnectionConfig, keyspace: str
) -> None:
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
    copy = Copy(*read(connection, f"{keyspace}.t")[:1])
    copy.apply(read(connection, f"{keyspace}.t")[1])
    found = [
        (row["m"] and dict(row["m"]), row["v"], *(micros(row[name]) for name in SPAN))
        for row in copy.rows.values()
    ]
    assert sorted(found, key=lambda row: row[2]) == [
        ({7: 8}, 1, now, now + 1),
        ({7: 8}, 2, now + 1, now + 2),
        (None, 3, now + 3, float("inf")),
    ]


SPAN = (VALID_FROM, VALID_TO)


def test_static_columns_alone(
    execute: Execute, connection: ConnectionConfig, keyspace: str, watch: Watch
) -> None:
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
    base, changes = read(connection, f"{keyspace}.t")
    copy = Copy(base)
    copy.apply(changes)
    alone = [row["s"] for row in copy.rows.values() if row["a"] is None]
    assert sorted(alone) == [1, 2, 3, 3]
    for time, rows in seen:
        assert copy.valid_at(time) == rows

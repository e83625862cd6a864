"""The examples that keep copies of a table in DuckDB and in Parquet files."""

from __future__ import annotations

import random
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from attrs import frozen
from cassandra.util import uuid_from_time

from cdc_reader._time import SystemClock
from tests.examples import killed

if TYPE_CHECKING:
    from cdc_reader.testing import Scylla

HERE = Path(__file__).parent
EXAMPLES = HERE.parents[1] / "examples"
TABLE = (
    "CREATE TABLE {t} (customer int, year int, number int, status text, items map<text, int>, "
    "country text static, PRIMARY KEY (customer, year, number)) "
    "WITH CLUSTERING ORDER BY (year DESC, number ASC) "
    "AND cdc = {{'enabled': true, 'postimage': true}}"
)
ROW = "customer = {c} AND year = {y} AND number = {n}"
CHANGES = {
    "INSERT INTO {t} (customer, year, number, status, items) "
    "VALUES ({c}, {y}, {n}, 'placed', {{'mug': {n}}})": 20,
    f"UPDATE {{t}} SET items = items + {{{{'kettle': 1}}}} WHERE {ROW}": 10,
    f"UPDATE {{t}} SET status = 'shipped {{n}}' WHERE {ROW}": 10,
    f"UPDATE {{t}} SET status = null, items = null WHERE {ROW}": 4,
    "UPDATE {t} SET country = 'country {n}' WHERE customer = {c}": 3,
    "UPDATE {t} SET country = null WHERE customer = {c}": 1,
    f"DELETE FROM {{t}} WHERE {ROW}": 4,
    "DELETE FROM {t} WHERE customer = {c} AND year = {y} AND number >= {n}": 2,
    "DELETE FROM {t} WHERE customer = {c} AND year = {y}": 1,
    "DELETE FROM {t} WHERE customer = {c} AND year < {y}": 1,
    "DELETE FROM {t} WHERE customer = {c}": 1,
}
"""Statements, each with its weight. Ranges are deleted both above and below a bound."""
ROUND = 25
"""The number of statements before each run."""

Rows = list[dict[str, Any]]


@frozen
class Example:
    """An example, its copy, and how to read it. Runs may be killed at the function `function`."""

    module: str
    function: str
    target: Path
    read: Callable[[Path], Rows]

    def run(self, scylla: Scylla, table: str, moment: str = "before", number: int = 0) -> int:
        """Run the example up to the present, or until the kill. Return its status."""
        script = [sys.executable, str(HERE / "killed.py"), self.module, str(self.target)]
        place = [scylla.contact_point, table, self.function, moment, str(number)]
        return subprocess.run([*script, *place], check=False, timeout=120).returncode

    def rows(self) -> Rows:
        """Return the rows of the copy, by key, with the table's columns."""
        rows = self.read(self.target)
        for row in rows:
            assert row.pop("_inserted") in (True, False)
            row.pop("_expires", None)
        return by_key(rows)


def by_key(rows: Rows) -> Rows:
    """Return the rows, sorted. Empty collections are null."""
    plain = ({**row, "items": dict(row["items"]) if row["items"] else None} for row in rows)
    return sorted(plain, key=lambda row: (row["customer"], row["year"] or -1, row["number"] or -1))


def in_duckdb(path: Path) -> Rows:
    """Return the rows of the table in a DuckDB file."""
    with duckdb.connect(str(path), read_only=True) as database:
        found = database.execute("FROM orders")
        names = [name for name, *_ in found.description]
        return [dict(zip(names, row, strict=True)) for row in found.fetchall()]


def in_parquet(path: Path) -> Rows:
    """Return the rows of a folder of Parquet files."""
    files = [pq.read_table(file) for file in sorted(path.glob("*.parquet"))]
    found: Rows = pa.concat_tables(files, promote_options="default").to_pylist()
    return found


@pytest.fixture(params=["duckdb", "parquet"])
def example(request: pytest.FixtureRequest, tmp_path: Path) -> Example:
    """Each of the two examples."""
    if request.param == "duckdb":
        return Example("keep_duckdb_current", "commit", tmp_path / "shop.duckdb", in_duckdb)
    return Example("keep_parquet_current", "replace", tmp_path / "copy", in_parquet)


class Orders:
    """A table that random statements change."""

    def __init__(self, scylla: Scylla, name: str, seed: int) -> None:
        self.name, self._session, self._draw = name, scylla.session, random.Random(seed)
        self._session.execute(TABLE.format(t=name))

    def change(self, times: int) -> None:
        """Execute this many random statements."""
        for _ in range(times):
            [statement] = self._draw.choices([*CHANGES], weights=[*CHANGES.values()])
            customer, year, number = (self._draw.randrange(n) for n in (12, 3, 5))
            self._session.execute(statement.format(t=self.name, c=customer, y=year, n=number))

    def rows(self) -> Rows:
        """Return the rows, by key."""
        return by_key(
            [row._asdict() for row in self._session.execute(f"SELECT * FROM {self.name}")]
        )


@pytest.fixture
def orders(scylla: Scylla, keyspace: str) -> Orders:
    """A table with rows that are not in its log."""
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    orders = Orders(scylla, f"{keyspace}.orders", seed)
    scylla.session.execute(f"ALTER TABLE {orders.name} WITH cdc = {{'enabled': false}}")
    orders.change(100)
    for row in orders.rows():  # the rows of a snapshot count as inserted
        if row["number"] is None:
            continue  # a partition with a static column alone
        key = f"{row['customer']}, {row['year']}, {row['number']}"
        scylla.session.execute(f"INSERT INTO {orders.name} (customer, year, number) VALUES ({key})")
    on = "{'enabled': true, 'postimage': true}"
    scylla.session.execute(f"ALTER TABLE {orders.name} WITH cdc = {on}")
    return orders


def survive(example: Example, scylla: Scylla, orders: Orders, kills: int) -> None:
    """Kill runs of the example, run it to the end, and check that the copy equals the table."""
    draw = random.Random(kills)
    for _ in range(kills):
        orders.change(ROUND)
        moment, number = draw.choice(["before", "after"]), draw.randrange(1, 4)
        status = example.run(scylla, orders.name, moment, number)
        assert status == -signal.SIGKILL, (moment, number)
    orders.change(ROUND)
    assert example.run(scylla, orders.name) == 0
    assert example.rows() == orders.rows()


@pytest.mark.slow
def test_the_copy_equals_the_table(example: Example, scylla: Scylla, orders: Orders) -> None:
    """The copy equals the table after the first run, and after runs with and without a kill."""
    assert example.run(scylla, orders.name) == 0
    assert example.rows() == orders.rows()
    survive(example, scylla, orders, 1)
    assert len(orders.rows()) > 10


@pytest.mark.nightly
def test_the_copy_survives_kills(example: Example, scylla: Scylla, orders: Orders) -> None:
    """The copy survives kills during and after the snapshot, before and after checkpoints."""
    survive(example, scylla, orders, 6)


@pytest.mark.slow
def test_the_program_copies_the_existing_rows(
    example: Example, scylla: Scylla, orders: Orders
) -> None:
    """If the end is in the past, the program copies only the existing rows."""
    program = [sys.executable, str(EXAMPLES / f"{example.module}.py"), scylla.contact_point]
    subprocess.run([*program, orders.name, str(example.target), "-1h"], check=True, timeout=120)
    assert example.rows() == orders.rows()


@pytest.mark.slow
def test_a_column_that_is_added(example: Example, scylla: Scylla, orders: Orders) -> None:
    """After the next change, the copy contains a column that was added to the table."""
    assert example.run(scylla, orders.name) == 0
    scylla.session.execute(f"ALTER TABLE {orders.name} ADD note text")
    scylla.session.execute(
        f"UPDATE {orders.name} SET note = 'gift' WHERE customer = 1 AND year = 1 AND number = 1"
    )
    assert example.run(scylla, orders.name) == 0
    assert example.rows() == orders.rows()
    assert {row["note"] for row in example.rows()} == {"gift", None}


READINGS = (
    "CREATE TABLE {t} (sensor int, at timeuuid, number varint, host inet, v int, "
    "PRIMARY KEY (sensor, at, number, host)) WITH CLUSTERING ORDER BY (at DESC, number ASC, "
    "host ASC) AND cdc = {{'enabled': true, 'postimage': true}}"
)
AT = [uuid_from_time(1_700_000_000 + 300 * number, 1, 1) for number in range(4)]
NUMBERS, HOSTS = (-5, 9, 10, 100), ("9.0.0.1", "10.0.0.1", "::1")
"""Values whose texts are in another order than the values."""
RANGES = (
    f"sensor = 1 AND at < {AT[2]}",
    f"sensor = 2 AND at = {AT[0]} AND number > 9",
    f"sensor = 3 AND at = {AT[1]} AND number = 10 AND host <= '10.0.0.1'",
    f"sensor = 4 AND (at, number) >= ({AT[1]}, 10)",
)


@pytest.mark.slow
def test_ranges_of_types_that_do_not_sort_as_text(
    example: Example, scylla: Scylla, keyspace: str
) -> None:
    """Deletes of ranges of time UUIDs, large integers and addresses keep the right rows."""
    name = f"{keyspace}.orders"
    scylla.session.execute(READINGS.format(t=name))
    insert = scylla.session.prepare(
        f"INSERT INTO {name} (sensor, at, number, host, v) VALUES (?, ?, ?, ?, 1)"
    )
    for key in product((1, 2, 3, 4), AT, NUMBERS, HOSTS):
        scylla.session.execute(insert, key)
    assert example.run(scylla, name) == 0
    for where in RANGES:
        scylla.session.execute(f"DELETE FROM {name} WHERE {where}")
    assert example.run(scylla, name) == 0
    names = "sensor", "at", "number", "host"
    copied = {tuple(str(row[name]) for name in names) for row in example.read(example.target)}
    rows = scylla.session.execute(f"SELECT {', '.join(names)} FROM {name}")
    assert copied == {tuple(map(str, row)) for row in rows}


def test_writers_whose_clocks_differ(example: Example, scylla: Scylla, keyspace: str) -> None:
    """Each value is the one with the newest write time, in whatever order writes arrive."""
    execute, name, draw = scylla.session.execute, f"{keyspace}.orders", random.Random(3)
    execute(TABLE.format(t=name).replace("map<text, int>", "frozen<map<text, int>>"))
    before = SystemClock().now()
    for number, micros in enumerate(draw.sample(range(1_000), 60)):
        row = ROW.format(c=1, y=1, n=draw.randrange(3))
        at = f"USING TIMESTAMP {before + micros}"
        cell = draw.choice([f"status = '{number}'", f"items = {{'n': {number}}}", "status = null"])
        update, delete = f"UPDATE {name} {at} SET {cell}", f"DELETE FROM {name} {at}"
        execute(f"{draw.choice([update] * 9 + [delete])} WHERE {row}")
    assert example.run(scylla, name) == 0
    orders = by_key([row._asdict() for row in execute(f"SELECT * FROM {name}")])
    assert example.rows() == orders
    assert len(orders) > 1


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["changes", "checkpoints"])
def test_a_table_with_a_common_name(
    scylla: Scylla, keyspace: str, tmp_path: Path, name: str
) -> None:
    """The example for DuckDB has no tables or views of its own with such names."""
    scylla.session.execute(
        f"CREATE TABLE {keyspace}.{name} (pk int PRIMARY KEY) "
        "WITH cdc = {'enabled': true, 'postimage': true}"
    )
    scylla.session.execute(f"INSERT INTO {keyspace}.{name} (pk) VALUES (1)")
    example = Example("keep_duckdb_current", "commit", tmp_path / "file", in_duckdb)
    assert example.run(scylla, f"{keyspace}.{name}") == 0
    with duckdb.connect(str(example.target), read_only=True) as database:
        assert database.execute(f"FROM main.{name}").fetchall() == [(1, True)]


@pytest.mark.parametrize("file", ["cdc", "copy", "main"])
def test_names_that_the_example_for_duckdb_uses(
    scylla: Scylla, keyspace: str, tmp_path: Path, file: str
) -> None:
    """Tables may be called like those of the example, and the file like a schema or a catalog."""
    module = killed.example("keep_duckdb_current")
    own = {*re.findall(r"_cdc_\w+", Path(module.__file__).read_text())}
    assert {"_cdc_updates", "_cdc_rows"} <= own
    for name in sorted({*own, "checkpoints"}):
        scylla.session.execute(
            f'CREATE TABLE {keyspace}."{name}" (pk int, ck int, v int, PRIMARY KEY (pk, ck)) '
            "WITH cdc = {'enabled': true, 'postimage': true}"
        )
        for statement in (
            f'INSERT INTO {keyspace}."{name}" (pk, ck, v) VALUES (1, 1, 1)',
            f'INSERT INTO {keyspace}."{name}" (pk, ck, v) VALUES (1, 2, 1)',
            f'DELETE FROM {keyspace}."{name}" WHERE pk = 1 AND ck > 1',
        ):
            scylla.session.execute(statement)
            killed.keep_current(
                module, tmp_path / f"{file}.duckdb", scylla.contact_point, f"{keyspace}.{name}"
            )
        with duckdb.connect() as database:
            database.execute(f"ATTACH '{tmp_path}/{file}.duckdb' AS found (READ_ONLY)")
            rows = database.execute(f'FROM found.main."{name}"').fetchall()
        assert rows == [(1, 1, 1, True)], name


@pytest.mark.slow
def test_a_type_that_gains_a_field(
    example: Example, scylla: Scylla, keyspace: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """The copy in Parquet gets the field. DuckDB's is left unchanged, and an error tells why."""
    name = f"{keyspace}.orders"
    scylla.session.execute(f"CREATE TYPE {keyspace}.point (x int)")
    scylla.session.execute(
        f"CREATE TABLE {name} (pk int PRIMARY KEY, p frozen<point>) "
        "WITH cdc = {'enabled': true, 'postimage': true}"
    )
    scylla.session.execute(f"INSERT INTO {name} (pk, p) VALUES (1, {{x: 1}})")
    assert example.run(scylla, name) == 0
    scylla.session.execute(f"ALTER TYPE {keyspace}.point ADD y int")
    scylla.session.execute(f"INSERT INTO {name} (pk, p) VALUES (2, {{x: 1, y: 2}})")
    status = example.run(scylla, name)
    found = {row["pk"]: row["p"] for row in example.read(example.target)}
    if example.module == "keep_parquet_current":
        assert found == {1: {"x": 1, "y": None}, 2: {"x": 1, "y": 2}}
    else:
        assert status == 1
        assert "column p is STRUCT(x INTEGER), and the table's is" in capfd.readouterr().err
        assert found == {1: {"x": 1}}


@pytest.mark.nightly
@pytest.mark.parametrize("kind", ["timestamp", "date", "frozen<list<int>>"])
def test_keys_in_parquet_files(
    scylla: Scylla, keyspace: str, tmp_path: Path, kind: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """Keys may be times after the year 9999, and collections."""
    name, far = f"{keyspace}.orders", {"timestamp": 2**50, "date": 2**31 + 2**30}
    scylla.session.execute(
        f"CREATE TABLE {name} (pk {kind} PRIMARY KEY) "
        "WITH cdc = {'enabled': true, 'postimage': true}"
    )
    for _ in range(2):
        scylla.session.execute(f"INSERT INTO {name} (pk) VALUES ({far.get(kind, [1])})")
    example = Example("keep_parquet_current", "replace", tmp_path / "copy", in_parquet)
    assert example.run(scylla, name) == 0, capfd.readouterr().err
    files = [pq.read_table(file) for file in example.target.glob("*.parquet")]
    assert [each.num_rows for each in files] == [1]
